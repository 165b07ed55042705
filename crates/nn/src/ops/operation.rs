//! What a fused operation is, and how a backend runs one.

use std::{array, fmt::Debug, ops::Index};

use burn::tensor::{Tensor, backend, ops::FloatTensor};

use super::host::{Floats, HostAccess};
use super::{float, primitive};
use crate::kernels::pool::{self, Buffer};

/// An operation of the kernels on `N` inputs, some of which may be absent, that knows its gradient.
///
/// It holds its settings alone: who runs it keeps its inputs and what it saves until the gradient is due.
pub trait Operation<B: HostAccess, const N: usize>: Clone + Debug + Send + Sync + 'static {
    /// What the gradient needs beside the inputs.
    type Saved: Debug + Send + Sync + 'static;

    /// How many of the inputs the gradient reads, from the first one on.
    const READS: usize;

    /// Whether computing the result again costs less than the memory of keeping it for the gradients of the
    /// operations that read it.
    const IS_CHEAP: bool = false;

    /// The result, and what the gradient will need; where none is wanted, the latter may be incomplete.
    fn forward(&self, inputs: &Inputs<B, N>) -> (FloatTensor<B>, Self::Saved);

    /// The gradients of the inputs for that of the result.
    fn backward(&self, inputs: &Inputs<B, N>, saved: Self::Saved, gradient: &Floats<B>) -> Gradients<B, N>;
}

/// The gradients of an operation's inputs; one that is not wanted may be missing.
pub type Gradients<B, const N: usize> = [Option<FloatTensor<B>>; N];

/// The inputs of an operation, as the kernels read them. Indexing is for those that are never absent.
#[derive(Debug)]
pub struct Inputs<B: HostAccess, const N: usize> {
    /// The inputs that are there, for a gradient those that it reads.
    pub(super) values: [Option<Floats<B>>; N],
    /// Which of them have a gradient.
    pub(super) wanted: [bool; N],
}

impl<B: HostAccess, const N: usize> Index<usize> for Inputs<B, N> {
    type Output = Floats<B>;

    fn index(&self, at: usize) -> &Floats<B> {
        self.values[at].as_ref().expect("this input is never absent")
    }
}

impl<B: HostAccess, const N: usize> Inputs<B, N> {
    /// The numbers of an input that may be absent.
    pub fn slice(&self, at: usize) -> Option<&[f32]> {
        self.values[at].as_ref().map(Floats::slice)
    }

    /// The gradients of the inputs that are there, each as `write` fills it in.
    pub fn gradients(&self, write: impl FnOnce([Option<&mut [f32]>; N])) -> Gradients<B, N> {
        let mut buffers = array::from_fn(|at| self.slice(at).map(|values| pool::take(values.len())));
        write(buffers.each_mut().map(|buffer: &mut Option<Buffer>| buffer.as_deref_mut()));
        let mut buffers = buffers.into_iter();
        array::from_fn(|at| {
            let values = buffers.next()??;
            Some(self[at].place(values, self[at].shape()))
        })
    }
}

/// An operation of Burn's own operations on `N` inputs, some of which may be absent, that computes in the gradient
/// again what would take too much memory to keep: so its gradient is written out.
pub trait Recomputed<B: backend::Backend, const N: usize>: Clone + Debug + Send + Sync + 'static {
    /// The result.
    fn forward(&self, inputs: [Option<FloatTensor<B>>; N]) -> FloatTensor<B>;

    /// The gradients of the inputs for that of the result; of an absent one there is none.
    fn backward(
        &self,
        inputs: [Option<FloatTensor<B>>; N],
        result: FloatTensor<B>,
        gradient: FloatTensor<B>,
    ) -> Gradients<B, N>;
}

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

    /// Runs an operation, and puts its gradient into the graph if there is one. The inputs are given as they
    /// stand in the graph and as the kernels read them.
    fn run<O: Operation<Self::Host, N>, const N: usize>(
        operation: O,
        tensors: [Option<FloatTensor<Self>>; N],
        inputs: Inputs<Self::Host, N>,
    ) -> FloatTensor<Self>;

    /// As [`Self::run`], of an operation that needs no kernels.
    fn run_recomputed<O: Recomputed<Self::Host, N>, const N: usize>(
        operation: O,
        inputs: [Option<FloatTensor<Self>>; N],
    ) -> FloatTensor<Self>;
}

/// A backend that does not differentiate is its own host.
impl<B: HostAccess> Backend for B {
    type Host = B;

    fn host(tensor: &FloatTensor<B>) -> &FloatTensor<B> {
        tensor
    }

    fn run<O: Operation<B, N>, const N: usize>(
        operation: O,
        _tensors: [Option<FloatTensor<B>>; N],
        inputs: Inputs<B, N>,
    ) -> FloatTensor<B> {
        operation.forward(&inputs).0
    }

    fn run_recomputed<O: Recomputed<B, N>, const N: usize>(
        operation: O,
        inputs: [Option<FloatTensor<B>>; N],
    ) -> FloatTensor<B> {
        operation.forward(inputs)
    }
}

/// A differentiating [`Backend`] around a plain one: what training asks for.
pub trait AutodiffBackend: Backend + backend::AutodiffBackend<InnerBackend: HostAccess> {}

impl<B> AutodiffBackend for B where B: Backend + backend::AutodiffBackend<InnerBackend: HostAccess> {}

/// Runs the operation that `of` makes of its inputs; none where the kernels do not serve them.
pub(super) fn fused<B: Backend, O: Operation<B::Host, N>, const N: usize, const D: usize>(
    tensors: [Option<FloatTensor<B>>; N],
    of: impl FnOnce(&Inputs<B::Host, N>) -> Option<O>,
) -> Option<Tensor<B, D>> {
    let mut values = [const { None }; N];
    for (value, tensor) in values.iter_mut().zip(&tensors) {
        if let Some(tensor) = tensor {
            *value = Some(Floats::new(B::host(tensor))?);
        }
    }
    let inputs = Inputs { values, wanted: [false; N] };
    let operation = of(&inputs)?;
    Some(float(B::run(operation, tensors, inputs)))
}

/// Runs an operation of one input whether or not the kernels are wanted; where they cannot read it, it stays as it is.
pub(super) fn unfused<B: Backend, O: Operation<B::Host, 1>, const D: usize>(
    tensor: &Tensor<B, D>,
    operation: O,
) -> Tensor<B, D> {
    let primitive = primitive(tensor.clone());
    let Some(value) = Floats::read(B::host(&primitive).clone()) else { return tensor.clone() };
    let inputs = Inputs { values: [Some(value)], wanted: [false] };
    float(B::run(operation, [Some(primitive)], inputs))
}

/// A tensor of any rank as an input of [`fused`].
pub(super) fn input<B: backend::Backend, const D: usize>(tensor: &Tensor<B, D>) -> Option<FloatTensor<B>> {
    Some(primitive(tensor.clone()))
}
