//! Scaled dot-product attention (Vaswani et al., 2017, arXiv 1706.03762), as pure functions:
//!
//! ```text
//! scores  = Q K^T                      how well each query and key match
//! weights = softmax(scores / sqrt(d))  each row sums to one
//! context = weights V                  a weighted mean of the values
//! ```
//!
//! The root of the width `d` keeps the scores' variance near one: a dot product of `d` numbers
//! of variance one has variance `d`, and a softmax of large scores is nearly one-hot, with hardly
//! any gradient.

use burn::tensor::activation::softmax;
use burn::tensor::{Tensor, backend::Backend};

/// What attention makes on its way, all of it returned.
#[derive(Debug, Clone)]
pub struct Attended<B: Backend, const D: usize> {
    /// The dot product of each query with each key, `[.., query_time, key_time]`, unscaled.
    pub scores: Tensor<B, D>,
    /// How much of each value a query takes, `[.., query_time, key_time]`; rows sum to one.
    pub weights: Tensor<B, D>,
    /// The weighted mean of the values, `[.., query_time, d_value]`.
    pub context: Tensor<B, D>,
}

/// The dot product of each query with each key.
///
/// # Shapes
/// `query` `[.., query_time, d]`, `key` `[.., key_time, d]`; the result is
/// `[.., query_time, key_time]`.
pub fn scores<B: Backend, const D: usize>(query: Tensor<B, D>, key: Tensor<B, D>) -> Tensor<B, D> {
    query.matmul(key.transpose())
}

/// Softmax over the keys of the scores, divided by the root of the width `d` of the keys.
///
/// # Shapes
/// `[.., query_time, key_time]`, in and out.
pub fn weights<B: Backend, const D: usize>(scores: Tensor<B, D>, d: usize) -> Tensor<B, D> {
    softmax(scores / (d as f64).sqrt(), D - 1)
}

/// The mean of the values, weighed by the weights of each query.
///
/// # Shapes
/// `weights` `[.., query_time, key_time]`, `value` `[.., key_time, d_value]`; the result is
/// `[.., query_time, d_value]`.
pub fn context<B: Backend, const D: usize>(weights: Tensor<B, D>, value: Tensor<B, D>) -> Tensor<B, D> {
    weights.matmul(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;
    use burn_ndarray::NdArray;

    #[test]
    fn a_query_takes_most_of_the_value_whose_key_it_matches() {
        let device = Default::default();
        let query = Tensor::<NdArray, 2>::from_floats([[0.0, 2.0]], &device);
        let key = Tensor::from_floats([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], &device);
        let value = Tensor::from_floats([[1.0], [10.0], [100.0]], &device);
        let scores = scores(query, key);
        scores.clone().into_data().assert_eq(&[[0.0, 2.0, 2.0]].into(), false);
        // e^0 : e^(2 / sqrt 2) : e^(2 / sqrt 2) = 1 : 4.1133 : 4.1133.
        let weights = weights(scores, 2);
        let expected = [[0.108386, 0.445807, 0.445807]].into();
        weights.clone().into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        let expected = [[0.108386 + 4.45807 + 44.5807]].into();
        context(weights, value).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-3));
    }
}
