//! What a fused operation is, and how a backend runs one.

use std::fmt::Debug;

use burn::tensor::backend;
use burn::tensor::ops::FloatTensor;

use super::host::{Floats, HostAccess};

/// An operation of the kernels that knows its gradient.
///
/// It is built from its inputs, which fails where the kernels do not serve them, and then run forward once.
/// What it holds afterwards is what its gradient needs.
pub trait Operation<B: HostAccess>: Clone + Debug + Send + 'static {
    /// The result. With `keep`, also remembers what [`Self::backward`] needs of it.
    fn forward(&mut self, keep: bool) -> FloatTensor<B>;

    /// The gradients of the inputs, in their order, for that of the result. One that is not wanted
    /// may be missing.
    fn backward(self, gradient: &Floats<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>>;

    /// Where the operation holds its first input, if the graph can keep that in its place until the gradient
    /// is due: the graph has it from elsewhere, or computes it again.
    fn first_input(&mut self) -> Option<&mut Option<Floats<B>>> {
        None
    }

    /// Computes the result again, if that is cheap beside the memory of keeping it for the gradients of the
    /// operations that read it.
    fn again(&self) -> Option<Again<B>> {
        None
    }
}

/// Computes the result of an operation from its inputs.
pub type Again<B> = Box<dyn Fn(&[FloatTensor<B>]) -> FloatTensor<B> + Send>;

/// A backend that models compute on, plain or differentiating.
pub trait Backend: backend::Backend {
    /// The backend that holds the numbers: of a differentiating backend the one inside it, else the backend
    /// itself.
    type Host: HostAccess<
            Device = Self::Device,
            IntTensorPrimitive = Self::IntTensorPrimitive,
            BoolTensorPrimitive = Self::BoolTensorPrimitive,
        >;

    /// The numbers of a tensor.
    fn host(tensor: &FloatTensor<Self>) -> &FloatTensor<Self::Host>;

    /// A tensor of these numbers, which has no gradient.
    fn from_host(tensor: FloatTensor<Self::Host>) -> FloatTensor<Self>;

    /// Whether a gradient of this tensor is asked for, or of what it was made from.
    fn is_tracked(tensor: &FloatTensor<Self>) -> bool;

    /// Runs an operation, and puts its gradient into the graph if there is one; `inputs` are those of the
    /// gradient, in its order, with `None` for an absent one.
    fn run<O: Operation<Self::Host>>(operation: O, inputs: &[Option<FloatTensor<Self>>])
    -> FloatTensor<Self>;
}

/// A backend that does not differentiate is its own host.
impl<B: HostAccess> Backend for B {
    type Host = B;

    fn host(tensor: &FloatTensor<B>) -> &FloatTensor<B> {
        tensor
    }

    fn from_host(tensor: FloatTensor<B>) -> FloatTensor<B> {
        tensor
    }

    fn is_tracked(_tensor: &FloatTensor<B>) -> bool {
        false
    }

    fn run<O: Operation<B>>(mut operation: O, _inputs: &[Option<FloatTensor<B>>]) -> FloatTensor<B> {
        operation.forward(false)
    }
}

/// A differentiating [`Backend`] around a plain one: what training asks for.
pub trait AutodiffBackend: Backend + backend::AutodiffBackend<InnerBackend: HostAccess> {}

impl<B> AutodiffBackend for B where B: Backend + backend::AutodiffBackend<InnerBackend: HostAccess> {}
