//! Tokens to vectors: a row of a table for each token, and for each position one more.

use burn::nn::Embedding;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Int, Tensor, TensorMetadata};

use super::{Backend, IntoFloat, float};

/// The row of each token, plus the row of `positions` for each place in time if there is one.
///
/// # Shapes
/// `tokens` `[batch, time]` with ids below the table's rows, `positions` `[time, d_model]`;
/// the result is `[batch, time, d_model]`.
pub fn embedding<B: Backend>(
    table: &Embedding<B>,
    tokens: Tensor<B, 2, Int>,
    positions: Option<Tensor<B, 2>>,
) -> Tensor<B, 3> {
    float(B::token_embedding(
        tokens.into_primitive(),
        table.weight.val().into_float(),
        positions.map(|positions| positions.into_float()),
    ))
}

pub(super) fn composed<B: Backend>(
    tokens: IntTensor<B>,
    table: FloatTensor<B>,
    positions: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let embedded = B::embedding(table, tokens);
    let Some(positions) = positions else { return embedded };
    let [time, d_model] = positions.shape().dims();
    B::float_add(embedded, B::float_reshape(positions, [1, time, d_model].into()))
}
