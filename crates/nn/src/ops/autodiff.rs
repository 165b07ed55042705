//! Fused operations under automatic differentiation: the gradient of each is one step of Burn's graph.

use std::{fmt, marker::PhantomData, sync::Arc};

use burn::tensor::{backend::AutodiffBackend, ops::FloatTensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};

use super::host::{Floats, HostAccess};
use super::operation::{Backend, Inputs, Operation, Recomputed};

impl<B: HostAccess, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    type Host = B;

    fn host(tensor: &FloatTensor<Self>) -> &FloatTensor<B> {
        &tensor.primitive
    }

    fn run<O: Operation<B, N>, const N: usize>(
        operation: O,
        tensors: [Option<FloatTensor<Self>>; N],
        mut inputs: Inputs<B, N>,
    ) -> FloatTensor<Self> {
        let first = tensors[0].as_ref().expect("the first input is never absent");
        let nodes = present::<B, C, N>(&tensors).map(|tensor| tensor.node);
        // What an operation says is computed again, whatever the strategy of the backend.
        let step = Step::<O>(PhantomData).prepare::<BalancedCheckpointing>(nodes);
        let step = match O::IS_CHEAP {
            true => {
                let inputs = tensors.each_ref().map(|tensor| tensor.as_ref().map(|it| it.node.id));
                let again =
                    Recompute { inputs, operation: operation.clone(), backend: PhantomData::<fn() -> B> };
                step.memory_bound().retro_forward(again).parents(tensors.iter().flatten())
            }
            false => step.compute_bound(),
        };
        match step.stateful() {
            OpsKind::Tracked(mut step) => {
                inputs.wanted =
                    tensors.each_ref().map(|tensor| tensor.as_ref().is_some_and(|it| it.is_tracked()));
                let (output, saved) = operation.forward(&inputs);
                if O::IS_CHEAP {
                    // The graph does not keep it, and Burn would free what the next step needs again.
                    Floats::<B>::contiguous(output.clone()).recycle_once_free();
                }
                inputs.values[O::READS..].fill_with(|| None);
                // The graph keeps the first input in the operation's place: it has it from elsewhere, or
                // computes it again.
                let first = inputs.values[0].take().map(|_| step.checkpoint(first));
                step.finish(Arc::new(Kept { operation, inputs, first, saved }), output)
            }
            OpsKind::UnTracked(step) => step.finish(operation.forward(&inputs).0),
        }
    }

    fn run_recomputed<O: Recomputed<B, N>, const N: usize>(
        operation: O,
        tensors: [Option<FloatTensor<Self>>; N],
    ) -> FloatTensor<Self> {
        let nodes = present::<B, C, N>(&tensors).map(|tensor| tensor.node);
        let inputs = tensors.map(|tensor| Some(tensor?.primitive));
        let output = operation.forward(inputs.clone());
        match Again::<O>(PhantomData).prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((operation, inputs, output.clone()), output),
            OpsKind::UnTracked(step) => step.finish(output),
        }
    }
}

/// The inputs of an operation as they stand in the graph: what is absent is a tensor that asks for no gradient.
fn present<B: HostAccess, C: CheckpointStrategy, const N: usize>(
    tensors: &[Option<FloatTensor<Autodiff<B, C>>>; N],
) -> [FloatTensor<Autodiff<B, C>>; N] {
    let first = tensors[0].as_ref().expect("the first input is never absent");
    let absent = || Autodiff::<B, C>::from_inner(first.primitive.clone());
    tensors.each_ref().map(|tensor| tensor.clone().unwrap_or_else(absent))
}

/// The gradient of an operation that is computed again, as a step of the graph.
struct Again<O>(PhantomData<fn() -> O>);

impl<O> fmt::Debug for Again<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<O>())
    }
}

impl<B: HostAccess, O: Recomputed<B, N>, const N: usize> Backward<B, N> for Again<O> {
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

/// What is kept of an operation until its gradient is due.
#[derive(Debug)]
struct Kept<B: HostAccess, O: Operation<B, N>, const N: usize> {
    operation: O,
    inputs: Inputs<B, N>,
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

impl<B: HostAccess, O: Operation<B, N>, const N: usize> Backward<B, N> for Step<O> {
    type State = Arc<Kept<B, O, N>>;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let kept = Arc::into_inner(ops.state).expect("a step of the graph is made once");
        let Kept { operation, mut inputs, first, saved } = kept;
        inputs.values[0] = first.map(|first| Floats::contiguous(checkpointer.retrieve_node_output(first)));
        let gradient = Floats::contiguous(gradients.consume::<B>(&ops.node));
        let found = operation.backward(&inputs, saved, &gradient);
        // It stays where it was passed on as the gradient of an input.
        gradient.recycle();
        inputs.values.into_iter().flatten().for_each(Floats::recycle);
        for (input, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(input), Some(gradient)) = (input, gradient) {
                let rc = Arc::new(input.id);
                add(gradients, Tracked::<B> { primitive: gradient, node: input, rc });
            }
        }
    }
}

/// A tensor in the graph.
type Tracked<B> = FloatTensor<Autodiff<B>>;

/// Adds a gradient, which stands in the place of its tensor, to what other readers of the tensor have given
/// it: where that lies, as Burn would take fresh memory for the sum.
fn add<B: HostAccess>(gradients: &mut Gradients, tensor: Tracked<B>) {
    let id = tensor.node.id;
    let Some(sum) = gradients.remove(&tensor) else {
        return gradients.register::<B>(id, tensor.primitive);
    };
    gradients.register::<B>(id, super::gradients::sum::<B>(vec![sum, tensor.primitive]));
}

/// Computes the result of an operation again when a gradient asks for it.
#[derive(Debug)]
struct Recompute<B, O, const N: usize> {
    inputs: [Option<NodeId>; N],
    operation: O,
    backend: PhantomData<fn() -> B>,
}

impl<B: HostAccess, O: Operation<B, N>, const N: usize> RetroForward for Recompute<B, O, N> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let mut input = |id| Floats::contiguous(states.get_state::<FloatTensor<B>>(&id));
        let inputs = Inputs { values: self.inputs.map(|id| id.map(&mut input)), wanted: [false; N] };
        states.save(output, self.operation.forward(&inputs).0);
    }
}
