//! Using a trained model: writing on from a prompt, and scoring a text.
//!
//! | file | holds |
//! |---|---|
//! | [`sampling`] | from logits to a token: filters as pure functions |
//! | `writer` | the loop: prefill, then a token a step |
//! | `transcript` | the text as it grows: streaming, stop strings |
//! | `score` | the log-probability of each token of a given text |

pub mod sampling;
mod score;
mod transcript;
mod writer;

pub use sampling::Sampling;
pub use score::score;
pub use writer::{Alternative, Continuation, Options, Prompt, StopReason, window, write};

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use crate::model::Source;

/// Equal rows of ids on a device, `[rows, time]`.
fn rows<'a, B: Backend>(rows: impl Iterator<Item = &'a [u32]>, device: &B::Device) -> Tensor<B, 2, Int> {
    let rows: Vec<_> = rows.collect();
    let ids: Vec<_> = rows.concat().into_iter().map(i64::from).collect();
    let shape = [rows.len(), ids.len() / rows.len().max(1)];
    Tensor::from_data(TensorData::new(ids, shape), device)
}

/// The same source for so many rows, none of it padding.
fn source<B: Backend>(tokens: &[u32], count: usize, device: &B::Device) -> Source<B> {
    Source { lengths: vec![tokens.len(); count], tokens: rows(std::iter::repeat_n(tokens, count), device) }
}
