//! Circuits: which parts of a decoder make its prediction, and how they are wired (Elhage et al., 2021, "A Mathematical
//! Framework for Transformer Circuits").
//!
//! | file | holds |
//! |---|---|
//! | `pass` | a forward pass that records every activation and may replace it: all interventions go through it |
//! | `lens` | the prediction after each block, and what each part adds to a logit |
//! | `tuned` | the prediction after each block through an affine map, trained for it |
//! | `weights` | what heads read and write by their weights alone, and how they compose |
//! | `patching` | how much of an answer runs through each activation, between a clean and a corrupted sequence |
//! | `bench` | a decoder on some sequences with any of its parts at their means |
//! | `kind` | the kinds of heads that are known |
//! | `explain` | finds the smallest set of parts that keeps the prediction, their kinds and who feeds whom |
//! | `explanation` | what was found, as plain data |
//! | `sentences` | the same in words |

mod bench;
mod explain;
mod explanation;
mod kind;
mod lens;
mod pass;
mod patching;
mod sentences;
mod tuned;
mod weights;

pub use explain::{Origin, affordable, explain, unigram};
pub use explanation::{Component, Edge, Explanation};
pub use kind::Kind;
pub use lens::{Attribution, Lens, attribute, contributions};
pub use pass::{Activations, Interventions, Site, explained, run};
pub use patching::{Pair, Patching};
pub use weights::{HeadMatrices, HeadWeights, Input, to_embedding};
