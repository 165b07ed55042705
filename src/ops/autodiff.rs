//! Fused operations under automatic differentiation: the gradient of each is one step of Burn's graph.

use std::fmt;
use std::marker::PhantomData;

use burn::tensor::ops::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};

use super::host::{Floats, HostAccess};
use super::{Again, Backend, Kernels, Operation};

impl<B: HostAccess, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    type Host = B;

    fn host(tensor: &FloatTensor<Self>) -> &FloatTensor<B> {
        &tensor.primitive
    }

    fn from_host(tensor: FloatTensor<B>) -> FloatTensor<Self> {
        <Self as burn::tensor::backend::AutodiffBackend>::from_inner(tensor)
    }

    fn is_tracked(tensor: &FloatTensor<Self>) -> bool {
        tensor.is_tracked()
    }

    fn run<O: Operation<B>>(operation: O, inputs: &[Option<FloatTensor<Self>>]) -> FloatTensor<Self> {
        let inputs: Vec<_> = inputs.iter().flatten().collect();
        match inputs.as_slice() {
            [a] => record(operation, [a]),
            [a, b] => record(operation, [a, b]),
            [a, b, c] => record(operation, [a, b, c]),
            [a, b, c, d] => record(operation, [a, b, c, d]),
            [a, b, c, d, e] => record(operation, [a, b, c, d, e]),
            [a, b, c, d, e, f] => record(operation, [a, b, c, d, e, f]),
            _ => unreachable!("an operation has one to six inputs that are differentiated"),
        }
    }
}

/// Runs an operation and puts its gradient into the graph.
fn record<B: HostAccess, O: Operation<B>, const N: usize>(
    mut operation: O,
    inputs: [&FloatTensor<Autodiff<B>>; N],
) -> FloatTensor<Autodiff<B>> {
    let nodes = inputs.map(|input| input.node.clone());
    // What an operation says is computed again, whatever the strategy of the backend.
    let step = Step::<O>(PhantomData).prepare::<BalancedCheckpointing>(nodes);
    let step = match operation.again() {
        Some(again) => {
            let inputs_of = inputs.map(|input| input.node.id);
            step.memory_bound().retro_forward(Recompute::<B, N> { inputs: inputs_of, again }).parents(inputs)
        }
        None => step.compute_bound(),
    };
    match step.stateful() {
        OpsKind::Tracked(mut step) => {
            let output = operation.forward(true);
            let input = operation.first_input().map(|held| {
                *held = None;
                step.checkpoint(inputs[0])
            });
            step.finish((operation, input), output)
        }
        OpsKind::UnTracked(step) => step.finish(operation.forward(false)),
    }
}

/// The gradient of an operation, as a step of the graph.
struct Step<O>(PhantomData<fn() -> O>);

impl<O> fmt::Debug for Step<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<O>())
    }
}

impl<B: HostAccess, O: Operation<B>, const N: usize> Backward<B, N> for Step<O> {
    /// An operation that has run, and the first input if the graph keeps it.
    type State = (O, Option<NodeId>);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let (mut operation, input) = ops.state;
        if let (Some(input), Some(held)) = (input, operation.first_input()) {
            *held = Some(Floats::contiguous(checkpointer.retrieve_node_output(input)));
        }
        let gradient = Floats::contiguous(gradients.consume::<B>(&ops.node));
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let found = operation.backward(&gradient, &wanted);
        // It stays where it was passed on as the gradient of an input.
        gradient.recycle();
        for (input, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(input), Some(gradient)) = (input, gradient) {
                gradients.register::<B>(input.id, gradient);
            }
        }
    }
}

/// Computes the result of an operation again when a gradient asks for it.
struct Recompute<B: HostAccess, const N: usize> {
    inputs: [NodeId; N],
    again: Again<B>,
}

impl<B: HostAccess, const N: usize> fmt::Debug for Recompute<B, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Recompute").field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

impl<B: HostAccess, const N: usize> RetroForward for Recompute<B, N> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let inputs = self.inputs.map(|input| states.get_state::<FloatTensor<B>>(&input));
        states.save(output, Kernels::Fused.run(|| (self.again)(&inputs)));
    }
}
