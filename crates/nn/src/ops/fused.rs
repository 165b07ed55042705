//! Running fused operations, with and without a gradient.

use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use super::autodiff;
use super::host::{Host, cast, on_hosts};
use super::kernels::{Kernels, kernels};
use super::operation::{Input, Operation};
use super::{float, primitive};

/// Runs the operation that `create` returns for its inputs. Returns `None` if the kernels do not support the inputs or
/// are disabled.
pub(super) fn fused<B: Backend, O: Operation<N>, const N: usize, const D: usize>(
    tensors: O::Inputs<Option<FloatTensor<B>>>,
    create: impl FnOnce(&O::Inputs<Input>) -> Option<O>,
) -> Option<Tensor<B, D>> {
    (kernels() == Kernels::Fused).then(|| run::<B, O, N>(tensors.into(), create))?.map(float)
}

/// Runs an operation of one input even if the kernels are disabled. Returns `tensor` unchanged if the kernels cannot
/// read it.
pub(super) fn run_with_kernels<B: Backend, O: Operation<1>, const D: usize>(
    tensor: &Tensor<B, D>,
    operation: O,
) -> Tensor<B, D> {
    let inputs = [Some(primitive(tensor.clone()))];
    let output = Kernels::Fused.run(|| run::<B, O, 1>(inputs, |_| Some(operation)));
    output.map_or_else(|| tensor.clone(), float)
}

fn run<B: Backend, O: Operation<N>, const N: usize>(
    tensors: [Option<FloatTensor<B>>; N],
    create: impl FnOnce(&O::Inputs<Input>) -> Option<O>,
) -> Option<FloatTensor<B>> {
    on_hosts!(
        B,
        H => plain::<H, O, N>(cast(tensors), create).map(cast),
        autodiff::run::<H, O, N>(cast(tensors), create).map(cast)
    );
    None
}

/// Runs an operation without a gradient.
fn plain<H: Host, O: Operation<N>, const N: usize>(
    tensors: [Option<FloatTensor<H>>; N],
    create: impl FnOnce(&O::Inputs<Input>) -> Option<O>,
) -> Option<FloatTensor<H>> {
    let inputs = Input::read::<H, N>(&tensors)?.into();
    let operation = create(&inputs)?;
    Some(H::unwrap(operation.forward(&inputs).0))
}

/// Converts a tensor of any rank to an input of [`fused`].
pub(super) fn input<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> Option<FloatTensor<B>> {
    Some(primitive(tensor.clone()))
}
