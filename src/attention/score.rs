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
