//! The expensive operations of a model, one file each, in a reference form and a fused form.
//!
//! The reference form is a few lines of Burn's operations, differentiable wherever Burn is. The fused form calls the
//! project's [kernels](crate::kernels), forward and backward. The functions that models call ([`linear()`],
//! [`attention()`], ...) use the fused form if the kernels can read the tensors, otherwise the reference form;
//! [`Kernels`] makes the choice for the calling thread. They take Burn's `Linear` and `Embedding` unchanged, so that
//! records and weights do not depend on the form.
//!
//! All of Burn's backends support the reference form. The kernels read the tensors of burn-flex and, with the feature
//! `ndarray`, of burn-ndarray. With `wgpu` and `cuda`, differentiated attention is computed in blocks on GPUs.
//!
//! Modules check shapes before they call these functions; here a mismatch is a programming error and panics.

mod activation;
#[cfg(test)]
mod agreement;
mod attention;
mod autodiff;
mod cross_entropy;
mod differential;
mod dropout;
mod embedding;
mod feed_forward;
mod fused;
mod gate;
mod gradients;
mod head_norm;
mod host;
mod kernels;
mod linear;
mod mask;
mod norm;
mod operation;
mod optimizer;
mod precision;

pub use activation::Activation;
pub use attention::{
    AttentionOptions, AttentionSteps, Projections, ScorePosition, attention, merge_heads, repeat_heads,
    rotate, split_heads,
};
pub use cross_entropy::{TokenScores, cross_entropy, token_scores};
pub use differential::{divide_queries, subtract_pairs};
pub(crate) use dropout::next_seed;
pub use dropout::{dropout, seed, seed_this_thread};
pub use embedding::embedding;
pub use feed_forward::feed_forward;
pub use gate::{gate, sigmoid};
pub use gradients::{append, from_numbers, sum, sum_in_order};
pub use head_norm::normalise_heads;
pub(crate) use host::id_outside;
pub use host::is_on_host;
pub use kernels::{Kernels, kernels};
pub use linear::{linear, linear_residual, tied_linear};
pub use mask::{KeyRange, Mask, masked_softmax};
pub use norm::{Norm, NormKind};
pub use optimizer::*;
pub use precision::{Precision, precision};

use burn::tensor::{Tensor, TensorPrimitive, backend::Backend, ops::FloatTensor};

/// Bounds numbers smoothly: `cap tanh(x / cap)` (Gemma Team, 2024, arXiv 2408.00118).
pub fn softcap<B: Backend, const D: usize>(x: Tensor<B, D>, cap: f64) -> Tensor<B, D> {
    // Burn's gradient of a division by a number rounds the factor to single precision; that of a product does not.
    (x * cap.recip()).tanh() * cap
}

/// Wraps a float primitive as a tensor of a known rank.
fn float<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// Unwraps a tensor to its float primitive.
fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
