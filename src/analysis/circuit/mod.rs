//! Circuits: which parts of a decoder make its prediction, and how they are wired (Elhage et al., 2021, "A Mathematical
//! Framework for Transformer Circuits").
//!
//! | file | holds |
//! |---|---|
//! | `pass` | a forward pass that records every activation and may replace it: all interventions go through it |
//! | `lens` | the prediction after each block, and what each part adds to a logit |
//! | `weights` | what heads read and write by their weights alone, and how they compose |
//! | `explanation` | the smallest set of parts that keeps the prediction, their kinds and who feeds whom |

mod explanation;
mod lens;
mod pass;
mod weights;

pub use explanation::{Component, Edge, Explanation, Kind, affordable, explain, unigram};
pub use lens::{Attribution, Lens, attribute, contributions};
pub use pass::{Activations, Interventions, LayerActivations, Site, explained, run};
pub use weights::{HeadMatrices, HeadWeights, Input, to_embedding};
