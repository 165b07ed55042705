//! The operations by the project's own kernels, each with its hand-written gradient.
//!
//! An operation is built from its inputs, which fails where the kernels do not serve them, and then
//! run forward. What it holds afterwards is what its gradient needs.

mod attention;
mod cross_entropy;
mod dropout;
mod embedding;
mod feed_forward;
mod linear;
mod norm;

use std::fmt::Debug;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Distribution, Int, Tensor};

pub(super) use attention::{attention, packed_attention};
pub(super) use cross_entropy::{cross_entropy, token_scores};
pub(super) use dropout::dropout;
pub(super) use embedding::embedding;
pub(super) use feed_forward::feed_forward;
pub(super) use linear::linear;
pub(super) use norm::{Norm, norm};

use super::Backend;
use crate::kernels;

/// An operation that knows its gradient.
pub(super) trait Operation<B: Backend>: Clone + Debug + Send + 'static {
    /// The result. With `keep`, also remembers what [`Self::backward`] needs of it.
    fn forward(&mut self, keep: bool) -> FloatTensor<B>;

    /// Leaves the first input to the graph until the gradient is due, if it is needed then: the graph has
    /// it from elsewhere, or computes it again.
    fn leave_input(&mut self) -> bool {
        false
    }

    /// Takes back the input that was left.
    fn take_input(&mut self, _input: FloatTensor<B>) {}

    /// The gradients of the inputs, in their order, for that of the result. One that is not wanted
    /// may be missing.
    fn backward(self, gradient: FloatTensor<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>>;
}

/// A dropout with a seed that the backend's generator draws, so that whoever seeds the backend decides
/// on the mask; none where nothing is dropped.
pub(super) fn draw_dropout<B: Backend>(
    probability: f64,
    device: &B::Device,
) -> Option<kernels::dropout::Dropout> {
    (probability > 0.0).then(|| {
        let parts = Tensor::<B, 1, Int>::random([4], Distribution::Uniform(0.0, 65_536.0), device);
        let seed = parts.into_data().iter::<i64>().fold(0, |seed, part| seed << 16 | part as u64);
        kernels::dropout::Dropout { probability: probability as f32, seed }
    })
}
