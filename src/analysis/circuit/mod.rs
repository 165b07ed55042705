//! Circuits: which parts of a decoder make its prediction, and how they are wired (Elhage et al., 2021, "A Mathematical
//! Framework for Transformer Circuits").
//!
//! | file | holds |
//! |---|---|
//! | `pass` | a forward pass that records every activation and may replace it: all interventions go through it |
//! | `lens` | the prediction after each block, and what each part adds to a logit |
//! | `tuned` | the prediction after each block through an affine map, trained for it |
//! | `weights` | what heads read and write by their weights alone, and how they compose |
//! | `eigenvalues` | the eigenvalues of a matrix |
//! | `patching` | how much of an answer runs through each activation, between a clean and a corrupted sequence |
//! | `bench` | a decoder on some sequences with any of its components mean-ablated |
//! | `gain` | the gain over trivial predictors, and the test that it is more than chance |
//! | `kind` | the kinds of heads that are known |
//! | `explain` | finds the smallest set of components that keeps the prediction, their kinds and connections |
//! | `explanation` | what was found, as plain data |
//! | `stored` | the same as read from a file, checked |
//! | `memory` | the memory of an explanation, estimated before it is used |
//! | `sentences` | the same in words |

mod bench;
mod eigenvalues;
mod explain;
mod explanation;
mod gain;
mod kind;
mod lens;
mod memory;
mod pass;
mod patching;
mod sentences;
mod stored;
mod tuned;
mod weights;

pub use explain::{Origin, explain};
pub use explanation::{Component, Edge, Explanation};
pub use gain::{Baseline, unigram};
pub use kind::Kind;
pub use lens::{Attribution, Lens, attribute, contributions};
pub use memory::{affordable, check_memory, without_tuned_lens};
pub use pass::{Activations, Interventions, Site, explained, run};
pub use patching::{Pair, Patching};
pub use weights::{HeadMatrices, HeadWeights, Input, to_embedding};

#[cfg(test)]
pub(crate) mod tests;
