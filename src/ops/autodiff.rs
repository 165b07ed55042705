//! The operations under automatic differentiation: a fused operation of the inner backend, whose
//! gradient is one step of the graph.
//!
//! Where the inner backend has no fused operation, Burn differentiates the composed one.

use std::fmt;
use std::marker::PhantomData;

use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend as _;
use burn::tensor::ops::{BoolTensor, FloatTensor, FloatTensorOps, IntTensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, ComputePropertyDone, Ops, OpsKind, OpsPrep};
use burn_autodiff::{Autodiff, NodeId};

use super::fused::{self, Operation, draw_dropout};
use super::{
    AttentionOptions, Backend, Gelu, IntoFloat, Kernels, Layer, Mask, ScorePosition, attention,
    cross_entropy, dropout, embedding, float, linear, split_packed,
};

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    fn multi_head_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        options: AttentionOptions<Self>,
    ) -> FloatTensor<Self> {
        let operation = inner_options(&options).and_then(|inner| {
            fused::attention::<B>(&query.primitive, &key.primitive, &value.primitive, &inner)
        });
        let Some(operation) = operation else {
            return attention::composed(float(query), float(key), float(value), options).0.into_float();
        };
        let operation = operation.dropped(draw_dropout::<Self>(options.dropout, &Self::float_device(&query)));
        let parents = [Some(query), Some(key), Some(value), bias(options)];
        record::<B, C, _>(operation, &parents)
    }

    fn packed_attention(
        query_key_value: FloatTensor<Self>,
        options: AttentionOptions<Self>,
    ) -> FloatTensor<Self> {
        let operation = inner_options(&options)
            .and_then(|inner| fused::packed_attention::<B>(&query_key_value.primitive, &inner));
        let Some(operation) = operation else {
            let [query, key, value] = split_packed(float(query_key_value), &options);
            return attention::composed(query, key, value, options).0.into_float();
        };
        let device = Self::float_device(&query_key_value);
        let operation = operation.dropped(draw_dropout::<Self>(options.dropout, &device));
        record::<B, C, _>(operation, &[Some(query_key_value), bias(options)])
    }

    fn linear_activation(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        activation: Option<Gelu>,
    ) -> FloatTensor<Self> {
        match fused::linear::<B>(&input.primitive, &weight.primitive, primitive::<B, C>(&bias)) {
            Some(operation) => {
                record::<B, C, _>(operation.activated(activation), &[Some(input), Some(weight), bias])
            }
            None => linear::composed::<Self>(input, weight, bias, activation),
        }
    }

    fn linear_residual(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        residual: FloatTensor<Self>,
        dropout: f64,
    ) -> FloatTensor<Self> {
        let operation = fused::linear::<B>(&input.primitive, &weight.primitive, primitive::<B, C>(&bias))
            .and_then(|operation| operation.added_to(&residual.primitive));
        let Some(operation) = operation else {
            let output = linear::composed::<Self>(input, weight, bias, None);
            return Self::float_add(residual, dropout::composed::<Self>(output, dropout));
        };
        let operation = operation.dropped(draw_dropout::<Self>(dropout, &Self::float_device(&input)));
        record::<B, C, _>(operation, &[Some(input), Some(weight), bias, Some(residual)])
    }

    fn feed_forward(
        input: FloatTensor<Self>,
        up: Layer<FloatTensor<Self>>,
        form: Gelu,
        down: Layer<FloatTensor<Self>>,
        residual: FloatTensor<Self>,
        dropout: f64,
    ) -> FloatTensor<Self> {
        let operation = fused::feed_forward::<B>(
            &input.primitive,
            up.map(|tensor| &tensor.primitive),
            form,
            down.map(|tensor| &tensor.primitive),
            &residual.primitive,
        );
        let Some(operation) = operation else {
            let inner = Self::linear_activation(input, up.weight, up.bias, Some(form));
            return Self::linear_residual(inner, down.weight, down.bias, residual, dropout);
        };
        let operation = operation.dropped(draw_dropout::<Self>(dropout, &Self::float_device(&input)));
        let parents = [Some(input), Some(up.weight), up.bias, Some(down.weight), down.bias, Some(residual)];
        record::<B, C, _>(operation, &parents)
    }

    fn scaled_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        match fused::norm::<B>(&input.primitive, &gamma.primitive, primitive::<B, C>(&beta), epsilon) {
            Some(operation) => {
                let parents: Vec<_> = [Some(input), Some(gamma), beta].into_iter().flatten().collect();
                let again = NormAgain::<B> {
                    parents: parents.iter().map(|parent| parent.node.id).collect(),
                    epsilon,
                    backend: PhantomData,
                };
                match parents.as_slice() {
                    [a, b] => record_norm([a, b], again, operation),
                    [a, b, c] => record_norm([a, b, c], again, operation),
                    _ => unreachable!("a norm has a scale, and a shift or none"),
                }
            }
            None => <Self as burn::tensor::ops::ModuleOps<Self>>::layer_norm(input, gamma, beta, epsilon),
        }
    }

    fn token_embedding(
        tokens: IntTensor<Self>,
        table: FloatTensor<Self>,
        positions: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        match fused::embedding::<B>(&tokens, &table.primitive, primitive::<B, C>(&positions)) {
            Some(operation) => record::<B, C, _>(operation, &[Some(table), positions]),
            None => embedding::composed::<Self>(tokens, table, positions),
        }
    }

    fn token_cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        hidden: Option<BoolTensor<Self>>,
        smoothing: f64,
    ) -> FloatTensor<Self> {
        match fused::cross_entropy::<B>(&logits.primitive, &targets, hidden.as_ref(), smoothing) {
            Some(operation) => record::<B, C, _>(operation, &[Some(logits)]),
            None => cross_entropy::composed::<Self>(logits, targets, hidden, smoothing),
        }
    }

    fn token_scores(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        hidden: Option<BoolTensor<Self>>,
    ) -> (FloatTensor<Self>, IntTensor<Self>) {
        let (losses, likeliest) = B::token_scores(logits.primitive, targets, hidden);
        (Self::from_inner(losses), likeliest)
    }

    fn dropout(input: FloatTensor<Self>, probability: f64) -> FloatTensor<Self> {
        if probability == 0.0 {
            return input;
        }
        let Some(operation) = fused::dropout::<B>(&input.primitive) else {
            return dropout::composed::<Self>(input, probability);
        };
        let operation = operation.dropped(draw_dropout::<Self>(probability, &Self::float_device(&input)));
        record::<B, C, _>(operation, &[Some(input)])
    }
}

/// Runs an operation and puts its gradient into the graph; `inputs` are those of the gradient, without
/// the absent ones.
fn record<B: Backend, C: CheckpointStrategy, O: Operation<B>>(
    operation: O,
    inputs: &[Option<FloatTensor<Autodiff<B, C>>>],
) -> FloatTensor<Autodiff<B, C>> {
    let inputs: Vec<_> = inputs.iter().flatten().collect();
    match inputs.as_slice() {
        [a] => record_step::<B, C, O, 1>(operation, [a]),
        [a, b] => record_step::<B, C, O, 2>(operation, [a, b]),
        [a, b, c] => record_step::<B, C, O, 3>(operation, [a, b, c]),
        [a, b, c, d] => record_step::<B, C, O, 4>(operation, [a, b, c, d]),
        [a, b, c, d, e] => record_step::<B, C, O, 5>(operation, [a, b, c, d, e]),
        [a, b, c, d, e, f] => record_step::<B, C, O, 6>(operation, [a, b, c, d, e, f]),
        _ => unreachable!("an operation has one to six inputs that are differentiated"),
    }
}

fn record_step<B: Backend, C: CheckpointStrategy, O: Operation<B>, const N: usize>(
    operation: O,
    inputs: [&FloatTensor<Autodiff<B, C>>; N],
) -> FloatTensor<Autodiff<B, C>> {
    let step = Step::<O>(PhantomData).prepare::<C>(inputs.map(|input| input.node.clone()));
    finish(step.compute_bound(), operation, inputs)
}

/// As [`record`], for a norm. It is cheap beside the memory of its result, so what needs that for its own
/// gradient has it computed again: whatever the strategy, as none keeps more than is worth it.
fn record_norm<B: Backend, O: Operation<B>, const N: usize>(
    inputs: [&FloatTensor<Autodiff<B>>; N],
    again: NormAgain<B>,
    operation: O,
) -> FloatTensor<Autodiff<B>> {
    let nodes = inputs.map(|input| input.node.clone());
    let step = Step::<O>(PhantomData).prepare::<BalancedCheckpointing>(nodes).memory_bound();
    finish(step.retro_forward(again).parents(inputs), operation, inputs)
}

fn finish<B: Backend, C: CheckpointStrategy, O: Operation<B>, const N: usize>(
    step: OpsPrep<Step<O>, B, State<O>, C, N, ComputePropertyDone>,
    mut operation: O,
    inputs: [&FloatTensor<Autodiff<B>>; N],
) -> FloatTensor<Autodiff<B>> {
    match step.stateful() {
        OpsKind::Tracked(mut step) => {
            let output = operation.forward(true);
            let input = operation.leave_input().then(|| step.checkpoint(inputs[0]));
            step.finish((operation, input), output)
        }
        OpsKind::UnTracked(step) => step.finish(operation.forward(false)),
    }
}

/// An operation that has run, and the input that it left to the graph.
type State<O> = (O, Option<NodeId>);

/// A norm's result from its inputs, once more.
#[derive(Debug)]
struct NormAgain<B: Backend> {
    parents: Vec<NodeId>,
    epsilon: f64,
    backend: PhantomData<B>,
}

impl<B: Backend> RetroForward for NormAgain<B> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let inputs: Vec<_> =
            self.parents.iter().map(|parent| states.get_state::<FloatTensor<B>>(parent)).collect();
        let norm = Kernels::Fused.run(|| fused::norm(&inputs[0], &inputs[1], inputs.get(2), self.epsilon));
        let mut norm: fused::Norm<B> = norm.expect("what was served once is served again");
        states.save(output, norm.forward(false));
    }
}

/// The gradient of an operation, as a step of the graph.
struct Step<O>(PhantomData<fn() -> O>);

impl<O> fmt::Debug for Step<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<O>())
    }
}

impl<B: Backend, O: Operation<B>, const N: usize> Backward<B, N> for Step<O> {
    type State = State<O>;

    fn backward(self, ops: Ops<State<O>, N>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let (mut operation, input) = ops.state;
        if let Some(input) = input {
            operation.take_input(checkpointer.retrieve_node_output(input));
        }
        let gradient = gradients.consume::<B>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let found = operation.backward(gradient, &wanted);
        for (input, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(input), Some(gradient)) = (input, gradient) {
                gradients.register::<B>(input.id, gradient);
            }
        }
    }
}

/// The tensor below a differentiated one, where there is one.
fn primitive<B: Backend, C: CheckpointStrategy>(
    tensor: &Option<FloatTensor<Autodiff<B, C>>>,
) -> Option<&FloatTensor<B>> {
    tensor.as_ref().map(|tensor| &tensor.primitive)
}

/// The options on the inner backend; none where a rotation is learned, whose gradient is not fused.
fn inner_options<B: Backend, C: CheckpointStrategy>(
    options: &AttentionOptions<Autodiff<B, C>>,
) -> Option<AttentionOptions<B>> {
    let AttentionOptions { heads, key_value_heads, mask, position, dropout } = options.clone();
    let mask = Mask {
        causal: mask.causal,
        queries: mask.queries.map(Tensor::inner),
        keys: mask.keys.map(Tensor::inner),
        pairs: mask.pairs.map(Tensor::inner),
    };
    let is_learned =
        |table: &Tensor<Autodiff<B, C>, 2>| !table.clone().into_float().node.requirement.is_none();
    let position = match position {
        ScorePosition::None => ScorePosition::None,
        ScorePosition::Rotation { cosine, sine } if is_learned(&cosine) || is_learned(&sine) => return None,
        ScorePosition::Rotation { cosine, sine } => {
            ScorePosition::Rotation { cosine: cosine.inner(), sine: sine.inner() }
        }
        ScorePosition::Bias(bias) => ScorePosition::Bias(bias.inner()),
    };
    Some(AttentionOptions { heads, key_value_heads, mask, position, dropout })
}

fn bias<B: Backend, C: CheckpointStrategy>(
    options: AttentionOptions<Autodiff<B, C>>,
) -> Option<FloatTensor<Autodiff<B, C>>> {
    match options.position {
        ScorePosition::Bias(bias) => Some(bias.into_float()),
        ScorePosition::None | ScorePosition::Rotation { .. } => None,
    }
}
