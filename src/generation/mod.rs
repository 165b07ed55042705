//! Inference with a trained model: generation from a prompt, and scores of a text.
//!
//! | module | contents |
//! |---|---|
//! | [`sampling`] | the choice of a token from logits, with filters as pure functions |
//! | `writer` | the generation loop: prefill of the prompt, then one token per step |
//! | `transcript` | the growing text: streaming, stop strings |
//! | `score` | the log-probability of each token of a given text |

pub mod sampling;
mod score;
mod transcript;
mod writer;

pub use sampling::Sampling;
pub use score::score;
pub use writer::{Alternative, Continuation, Options, Prompt, StopReason, TextEnds, generate, window};

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use crate::model::Source;

/// Creates a tensor of ids `[rows, time]` from rows of equal length.
fn rows<'a, B: Backend>(rows: impl Iterator<Item = &'a [u32]>, device: &B::Device) -> Tensor<B, 2, Int> {
    let rows: Vec<_> = rows.collect();
    let ids: Vec<_> = rows.concat().into_iter().map(i64::from).collect();
    let shape = [rows.len(), ids.len() / rows.len().max(1)];
    Tensor::from_data(TensorData::new(ids, shape), device)
}

/// Repeats a source for `count` rows, without padding.
fn source<B: Backend>(tokens: &[u32], count: usize, device: &B::Device) -> Source<B> {
    Source { lengths: vec![tokens.len(); count], tokens: rows(std::iter::repeat_n(tokens, count), device) }
}
