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

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn_ndarray::NdArray;

    #[test]
    fn an_embedding_is_the_row_of_the_token_plus_that_of_the_place() {
        let device = Default::default();
        let table = Tensor::<NdArray, 2>::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device);
        let table = Embedding { weight: Param::from_tensor(table) };
        let tokens = Tensor::from_ints([[2, 0], [1, 1]], &device);
        let positions = Tensor::from_floats([[10.0, 20.0], [30.0, 40.0]], &device);
        let embedded = embedding(&table, tokens, Some(positions));
        let expected = [15.0, 26.0, 31.0, 42.0, 13.0, 24.0, 33.0, 44.0];
        assert_eq!(embedded.into_data().to_vec::<f32>().unwrap(), expected);
    }
}
