//! Fused operations under automatic differentiation: the gradient of each is one step of Burn's graph.

use std::{fmt, marker::PhantomData, sync::Arc};

use burn::tensor::{
    backend::{AutodiffBackend, Backend},
    ops::FloatTensor,
};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};

use super::host::{Floats, Host};
use super::operation::{Input, Operation};

/// A tensor of the graph.
type Tracked<B> = FloatTensor<Autodiff<B>>;

/// Runs the operation that `create` returns for its inputs, and registers its gradient in the graph. Returns `None` if
/// the kernels do not support the inputs.
pub(super) fn run<H: Host, O: Operation<N>, const N: usize>(
    tensors: [Option<Tracked<H>>; N],
    create: impl FnOnce(&O::Inputs<Input>) -> Option<O>,
) -> Option<Tracked<H>> {
    let primitives = tensors.each_ref().map(|tensor| tensor.as_ref().map(|it| it.primitive.clone()));
    let mut inputs = Input::read::<H, N>(&primitives)?;
    for (input, tensor) in inputs.iter_mut().zip(&tensors) {
        input.needs_gradient = tensor.as_ref().is_some_and(|tensor| tensor.is_tracked());
    }
    let inputs: O::Inputs<Input> = inputs.into();
    let operation = create(&inputs)?;
    let first = tensors[0].as_ref().expect("the first input is never absent");
    let nodes = present::<H, N>(&tensors).map(|tensor| tensor.node);
    // Only `O::IS_CHEAP` decides on recomputation, whatever the checkpointing strategy of the backend.
    let step = Step::<O>(PhantomData).prepare::<BalancedCheckpointing>(nodes);
    let step = match O::IS_CHEAP {
        true => {
            let inputs = tensors.each_ref().map(|tensor| tensor.as_ref().map(|it| it.node.id));
            let recompute =
                Recompute { inputs, operation: operation.clone(), backend: PhantomData::<fn() -> H> };
            step.memory_bound().retro_forward(recompute).parents(tensors.iter().flatten())
        }
        false => step.compute_bound(),
    };
    Some(match step.stateful() {
        OpsKind::Tracked(mut step) => {
            let (output, saved) = operation.forward(&inputs);
            if O::IS_CHEAP {
                // The graph does not keep the output. Recycle the memory of the output for the next training step; Burn
                // would free it.
                output.clone().recycle_once_free();
            }
            let (mut inputs, reads): ([Input; N], [bool; N]) = (inputs.into(), O::BACKWARD_INPUTS.into());
            for (input, _) in inputs.iter_mut().zip(reads).filter(|(_, is_read)| !is_read) {
                input.take();
            }
            // The first input is left to the graph, which holds it anyway or recomputes it.
            let first = inputs[0].take().map(|_| step.checkpoint(first));
            step.finish(Arc::new(StepState { operation, inputs, first, saved }), H::unwrap(output))
        }
        OpsKind::UnTracked(step) => step.finish(H::unwrap(operation.forward(&inputs).0)),
    })
}

/// An operation made of Burn's operations on `N` inputs, some of which may be absent. The backward pass recomputes
/// intermediate results that would take too much memory to keep, so the gradient is hand-written.
pub(super) trait Recomputed<B: Backend, const N: usize>:
    Clone + fmt::Debug + Send + Sync + 'static
{
    /// Returns the result.
    fn forward(&self, inputs: [Option<FloatTensor<B>>; N]) -> FloatTensor<B>;

    /// Returns the gradients of the inputs given the gradient of the result; `None` for absent inputs.
    fn backward(
        &self,
        inputs: [Option<FloatTensor<B>>; N],
        result: FloatTensor<B>,
        gradient: FloatTensor<B>,
    ) -> [Option<FloatTensor<B>>; N];
}

/// Runs an operation that needs no kernels, and registers its gradient in the graph.
pub(super) fn run_recomputed<B: Backend, O: Recomputed<B, N>, const N: usize>(
    operation: O,
    tensors: [Option<Tracked<B>>; N],
) -> Tracked<B> {
    let nodes = present::<B, N>(&tensors).map(|tensor| tensor.node);
    let inputs = tensors.map(|tensor| Some(tensor?.primitive));
    let output = operation.forward(inputs.clone());
    match RecomputedStep::<O>(PhantomData).prepare::<BalancedCheckpointing>(nodes).compute_bound().stateful()
    {
        OpsKind::Tracked(step) => step.finish((operation, inputs, output.clone()), output),
        OpsKind::UnTracked(step) => step.finish(output),
    }
}

/// Returns the inputs as tensors of the graph; an absent input becomes an untracked tensor.
fn present<B: Backend, const N: usize>(tensors: &[Option<Tracked<B>>; N]) -> [Tracked<B>; N] {
    let first = tensors[0].as_ref().expect("the first input is never absent");
    let absent = || Autodiff::<B>::from_inner(first.primitive.clone());
    tensors.each_ref().map(|tensor| tensor.clone().unwrap_or_else(absent))
}

/// The gradient of a recomputed operation, as a step of the graph.
struct RecomputedStep<O>(PhantomData<fn() -> O>);

impl<O> fmt::Debug for RecomputedStep<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<O>())
    }
}

impl<B: Backend, O: Recomputed<B, N>, const N: usize> Backward<B, N> for RecomputedStep<O> {
    type State = (O, [Option<FloatTensor<B>>; N], FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (operation, inputs, output) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let found = operation.backward(inputs, output, gradient);
        for (input, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(input), Some(gradient)) = (input, gradient) {
                gradients.register::<B>(input.id, gradient);
            }
        }
    }
}

/// The data of an operation that is kept for the backward pass.
#[derive(Debug)]
struct StepState<O: Operation<N>, const N: usize> {
    operation: O,
    inputs: [Input; N],
    first: Option<NodeId>,
    saved: O::Saved,
}

/// The gradient of an operation, as a step of the graph.
struct Step<O>(PhantomData<fn() -> O>);

impl<O> fmt::Debug for Step<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<O>())
    }
}

impl<H: Host, O: Operation<N>, const N: usize> Backward<H, N> for Step<O> {
    type State = Arc<StepState<O, N>>;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let kept = Arc::into_inner(ops.state).expect("a step of the graph runs once");
        let StepState { operation, mut inputs, first, saved } = kept;
        let retrieve = |first| Floats::contiguous::<H>(checkpointer.retrieve_node_output(first));
        inputs[0].put(first.map(retrieve));
        let inputs: O::Inputs<Input> = inputs.into();
        let gradient = Floats::contiguous::<H>(gradients.consume::<H>(&ops.node));
        let found: [_; N] = operation.backward(&inputs, saved, &gradient).into();
        // This has no effect if the gradient was passed on as the gradient of an input.
        gradient.recycle();
        let inputs: [Input; N] = inputs.into();
        inputs.into_iter().filter_map(|mut input| input.take()).for_each(Floats::recycle);
        for (input, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(input), Some(gradient)) = (input, gradient) {
                let rc = Arc::new(input.id);
                add::<H>(gradients, Tracked::<H> { primitive: H::unwrap(gradient), node: input, rc });
            }
        }
    }
}

/// Adds a gradient to the gradients from other readers of the same input. `tensor` is the node of the input with the
/// gradient as its value. The sum reuses the memory of an operand, whereas Burn would allocate new memory.
fn add<B: Backend>(gradients: &mut Gradients, tensor: Tracked<B>) {
    let id = tensor.node.id;
    let Some(sum) = gradients.remove(&tensor) else {
        return gradients.register::<B>(id, tensor.primitive);
    };
    gradients.register::<B>(id, super::gradients::sum::<B>(vec![sum, tensor.primitive]));
}

/// Recomputes the result of an operation when a gradient needs it.
#[derive(Debug)]
struct Recompute<B, O, const N: usize> {
    inputs: [Option<NodeId>; N],
    operation: O,
    backend: PhantomData<fn() -> B>,
}

impl<H: Host, O: Operation<N>, const N: usize> RetroForward for Recompute<H, O, N> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let mut input = |id| Floats::contiguous::<H>(states.get_state::<FloatTensor<H>>(&id));
        let inputs = self.inputs.map(|id| Input::new(id.map(&mut input))).into();
        states.save(output, H::unwrap(self.operation.forward(&inputs).0));
    }
}
