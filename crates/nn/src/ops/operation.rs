//! What a fused operation is, and how one runs.

use std::{array, fmt::Debug, ops::Index};

use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use super::autodiff;
use super::host::{Floats, Host, cast, on_hosts};
use super::kernels::{Kernels, kernels};
use super::{float, primitive};
use crate::kernels::pool::{self, Buffer};

/// An operation of the kernels on `N` inputs, some of which may be absent, that knows its gradient.
///
/// It holds its settings alone: who runs it keeps its inputs and what it saves until the gradient is due.
pub(super) trait Operation<const N: usize>: Clone + Debug + Send + Sync + 'static {
    /// What the gradient needs beside the inputs.
    type Saved: Debug + Send + Sync + 'static;

    /// How many of the inputs the gradient reads, from the first one on.
    const READS: usize;

    /// Whether computing the result again costs less than the memory of keeping it for the gradients of the
    /// operations that read it.
    const IS_CHEAP: bool = false;

    /// The result, and what the gradient will need; where none is wanted, the latter may be incomplete.
    fn forward(&self, inputs: &OperationInputs<N>) -> (Floats, Self::Saved);

    /// The gradients of the inputs for that of the result.
    fn backward(&self, inputs: &OperationInputs<N>, saved: Self::Saved, gradient: &Floats) -> Gradients<N>;
}

/// The gradients of an operation's inputs; one that is not wanted may be missing.
pub(super) type Gradients<const N: usize> = [Option<Floats>; N];

/// The inputs of an operation, as the kernels read them. Indexing is for those that are never absent.
#[derive(Debug)]
pub(super) struct OperationInputs<const N: usize> {
    /// The inputs that are there, for a gradient those that it reads.
    pub values: [Option<Floats>; N],
    /// Which of them have a gradient.
    pub wanted: [bool; N],
}

impl<const N: usize> Index<usize> for OperationInputs<N> {
    type Output = Floats;

    fn index(&self, at: usize) -> &Floats {
        self.values[at].as_ref().expect("this input is never absent")
    }
}

impl<const N: usize> OperationInputs<N> {
    /// The inputs as kernels read them; none where these cannot read one.
    pub fn read<H: Host>(tensors: &[Option<FloatTensor<H>>; N]) -> Option<Self> {
        let mut values = [const { None }; N];
        for (value, tensor) in values.iter_mut().zip(tensors) {
            if let Some(tensor) = tensor {
                *value = Some(Floats::new::<H>(tensor)?);
            }
        }
        Some(Self { values, wanted: [false; N] })
    }

    /// The numbers of an input that may be absent.
    pub fn slice(&self, at: usize) -> Option<&[f32]> {
        self.values[at].as_ref().map(Floats::slice)
    }

    /// The gradients of the inputs that are there, each as `write` fills it in.
    pub fn gradients(&self, write: impl FnOnce([Option<&mut [f32]>; N])) -> Gradients<N> {
        let mut buffers = array::from_fn(|at| self.slice(at).map(|values| pool::take(values.len())));
        write(buffers.each_mut().map(|buffer: &mut Option<Buffer>| buffer.as_deref_mut()));
        let mut buffers = buffers.into_iter();
        array::from_fn(|at| {
            let values = buffers.next()??;
            Some(self[at].place(values, self[at].shape()))
        })
    }
}

/// Runs the operation that `of` makes of its inputs; none where the kernels do not serve them.
pub(super) fn fused<B: Backend, O: Operation<N>, const N: usize, const D: usize>(
    tensors: [Option<FloatTensor<B>>; N],
    of: impl FnOnce(&OperationInputs<N>) -> Option<O>,
) -> Option<Tensor<B, D>> {
    (kernels() == Kernels::Fused).then(|| run::<B, O, N>(tensors, of))?.map(float)
}

/// Runs an operation of one input whether or not the kernels are wanted; where they cannot read it, it stays as it is.
pub(super) fn unfused<B: Backend, O: Operation<1>, const D: usize>(
    tensor: &Tensor<B, D>,
    operation: O,
) -> Tensor<B, D> {
    let inputs = [Some(primitive(tensor.clone()))];
    let output = Kernels::Fused.run(|| run::<B, O, 1>(inputs, |_| Some(operation)));
    output.map_or_else(|| tensor.clone(), float)
}

fn run<B: Backend, O: Operation<N>, const N: usize>(
    tensors: [Option<FloatTensor<B>>; N],
    of: impl FnOnce(&OperationInputs<N>) -> Option<O>,
) -> Option<FloatTensor<B>> {
    on_hosts!(B, H => plain::<H, O, N>(cast(tensors), of).map(cast), autodiff::run::<H, O, N>(cast(tensors), of).map(cast));
    None
}

/// Without a gradient.
fn plain<H: Host, O: Operation<N>, const N: usize>(
    tensors: [Option<FloatTensor<H>>; N],
    of: impl FnOnce(&OperationInputs<N>) -> Option<O>,
) -> Option<FloatTensor<H>> {
    let inputs = OperationInputs::read::<H>(&tensors)?;
    let operation = of(&inputs)?;
    Some(H::unwrap(operation.forward(&inputs).0))
}

/// A tensor of any rank as an input of [`fused`].
pub(super) fn input<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> Option<FloatTensor<B>> {
    Some(primitive(tensor.clone()))
}
