//! Dropout (Srivastava et al., 2014): while training each element is set to zero with
//! probability `p`, and the others grow by `1 / (1 - p)`, so that the expectation stays.

use burn::nn::Dropout;
use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;

use super::{Backend, IntoFloat, float};

/// Dropout, which acts on differentiable backends only: inference is on the inner one.
///
/// # Shapes
/// Any shape, in and out.
pub fn dropout<B: Backend, const D: usize>(layer: &Dropout, input: Tensor<B, D>) -> Tensor<B, D> {
    float(B::dropout(input.into_float(), layer.prob))
}

pub(super) fn composed<B: Backend>(input: FloatTensor<B>, probability: f64) -> FloatTensor<B> {
    // Elementwise, so that any rank stands for all.
    Dropout { prob: probability }.forward(float::<B, 1>(input)).into_float()
}
