//! Attention with hooks: the steps that self-attention and cross-attention share, from queries, keys and values to the
//! output.

use burn::nn::{Dropout, Linear};
use burn::tensor::{Tensor, backend::Backend};

use super::differential::Differential;
use crate::Result;
use crate::hooks::{AttentionPoint, BlockHooks, HookPoint, HookSite, Hooks};
use crate::ops::{self, AttentionOptions, Projections, merge_heads, split_heads};

/// The input of one head's query, key or value projection, replaced by a hook.
#[derive(Debug, Clone)]
pub struct HeadInput<B: Backend> {
    /// The projection: [`Query`](AttentionPoint::Query), [`Key`](AttentionPoint::Key) or
    /// [`Value`](AttentionPoint::Value).
    pub point: AttentionPoint,
    /// The zero-based index of the head.
    pub head: usize,
    /// The input, `[batch, time, d_model]`, normalised like the input of the other heads.
    pub input: Tensor<B, 3>,
}

/// The hooks of one attention layer in a block.
pub struct AttentionHooks<'a, B: Backend> {
    /// The hooks of the block.
    pub block: BlockHooks<'a, B>,
    /// The constructor of this layer's hook points: [`HookPoint::SelfAttention`] or [`HookPoint::CrossAttention`].
    pub point: fn(AttentionPoint) -> HookPoint,
    /// The inputs that hooks replaced.
    pub inputs: Vec<HeadInput<B>>,
}

impl<'a, B: Backend> AttentionHooks<'a, B> {
    /// Creates the hooks of a standalone attention layer, which counts as the self-attention of a decoder's first
    /// block.
    pub fn standalone(hooks: &'a mut dyn Hooks<B>) -> Self {
        Self { block: BlockHooks::standalone(hooks), point: HookPoint::SelfAttention, inputs: Vec::new() }
    }

    /// Returns true if any of these activations is wanted.
    pub(super) fn wants(&self, points: &[AttentionPoint]) -> bool {
        points.iter().any(|&point| self.block.wants((self.point)(point)))
    }

    /// Passes an activation of all heads through the hooks if they want it.
    pub(super) fn apply(&mut self, point: AttentionPoint, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        self.block.apply_heads((self.point)(point), activation)
    }

    /// Returns the output of the layer, added to the `residual`, if hooks replace the outputs of all heads and want no other
    /// activation of the layer.
    pub(super) fn all_replaced(
        &mut self,
        [batch, time]: [usize; 2],
        heads: usize,
        (output, residual): (&Linear<B>, Option<&Tensor<B, 3>>),
    ) -> Option<Tensor<B, 3>> {
        use AttentionPoint::{Key, Output, Parts, Pattern, Query, Scores, Value};
        if self.wants(&[Query, Key, Value, Scores, Parts, Pattern]) {
            return None;
        }
        let replaced = self.block.replaced_output((self.point)(Output), [batch, heads, time])?;
        let residual = residual.filter(|_| replaced.computed.is_none())?;
        Some(with_bias(residual.clone() + replaced.sum, output))
    }

    /// Recomputes the projection of each head whose input a hook replaced, then passes the result through the hooks.
    /// `project` computes the projection of all heads from an input.
    ///
    /// # Shapes
    /// `part`, the result of `project` and the returned tensor are `[batch, heads, time, d_head]`.
    pub(super) fn project(
        &mut self,
        point: AttentionPoint,
        mut part: Tensor<B, 4>,
        project: impl Fn(Tensor<B, 3>) -> Tensor<B, 4>,
    ) -> Tensor<B, 4> {
        for HeadInput { head, input, .. } in self.inputs.iter().filter(|input| input.point == point) {
            let [batch, _, time, d_head] = part.dims();
            let projected = project(input.clone()).narrow(1, *head, 1);
            part = part.slice_assign([0..batch, *head..head + 1, 0..time, 0..d_head], projected);
        }
        self.apply(point, part)
    }
}

/// Calls `attend` with hooks that record the attention weights, and returns the output and the weights.
pub(super) fn with_weights<B: Backend>(
    attend: impl FnOnce(AttentionHooks<'_, B>) -> Result<Tensor<B, 3>>,
) -> Result<(Tensor<B, 3>, Tensor<B, 4>)> {
    struct Recorded<B: Backend>(Option<Tensor<B, 4>>);
    impl<B: Backend> Hooks<B> for Recorded<B> {
        fn wants(&self, site: HookSite) -> bool {
            site.point == HookPoint::SelfAttention(AttentionPoint::Pattern)
        }

        fn hook_heads(&mut self, _site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
            self.0.insert(activation).clone()
        }
    }
    let mut recorded = Recorded(None);
    let output = attend(AttentionHooks::standalone(&mut recorded))?;
    Ok((output, recorded.0.expect("recorded attention has weights")))
}

/// The last steps of a layer, from the contexts of the heads to its output.
pub(super) struct HeadOutput<'a, B: Backend> {
    /// The output projection.
    pub projection: &'a Linear<B>,
    /// The dropout of the output.
    pub dropout: &'a Dropout,
    /// The logits of the contexts' gates, `[batch, query_time, heads]` or `[batch, query_time, heads * d_head]`.
    pub gates: Option<Tensor<B, 3>>,
    /// The subtraction of two maps per head.
    pub differential: Option<&'a Differential<B>>,
}

impl<B: Backend> HeadOutput<'_, B> {
    /// Returns the number of heads, given the number of their softmax maps.
    fn heads(&self, maps: usize) -> usize {
        if self.differential.is_some() { maps / 2 } else { maps }
    }

    /// Returns the pattern of each head, `[batch, heads, query_time, key_time]`, given the softmax maps.
    fn pattern(&self, maps: Tensor<B, 4>, hooks: &mut AttentionHooks<'_, B>) -> Tensor<B, 4> {
        let pattern = match self.differential {
            Some(differential) => differential.subtract(hooks.apply(AttentionPoint::Parts, maps)),
            None => maps,
        };
        hooks.apply(AttentionPoint::Pattern, pattern)
    }

    /// Normalises the contexts of differential attention, and multiplies the contexts of the heads, `[batch, heads,
    /// query_time, d_head]`, by their gates.
    fn gated(&self, context: Tensor<B, 4>) -> Tensor<B, 4> {
        let [_, heads, ..] = context.dims();
        let context = match self.differential {
            Some(differential) => differential.normalise(context),
            None => context,
        };
        match &self.gates {
            Some(gates) => context * split_heads(ops::sigmoid(gates.clone()), heads),
            None => context,
        }
    }

    /// Computes the difference of the contexts of both maps in differential attention, and multiplies the contexts, `[batch,
    /// query_time, heads * d_head]`, by their gates.
    fn gated_merged(&self, context: Tensor<B, 3>) -> Tensor<B, 3> {
        let context = match self.differential {
            Some(differential) => differential.outputs(context),
            None => context,
        };
        match &self.gates {
            None => context,
            Some(gates) => ops::gate(context, gates.clone()),
        }
    }
}

/// Attends, and projects the contexts of the heads to the output, with dropout and an optional `residual`.
///
/// # Shapes
/// `[batch, query_time, d_model]`.
pub(super) fn attend<B: Backend>(
    projections: Projections<B>,
    options: AttentionOptions<B>,
    output: HeadOutput<'_, B>,
    residual: Option<Tensor<B, 3>>,
    hooks: &mut AttentionHooks<'_, B>,
) -> Tensor<B, 3> {
    use AttentionPoint::{Output, Parts, Pattern, Scores};
    let (heads, [batch, time], [d_inner, d_model]) =
        (output.heads(options.heads), projections.query_dims(), output.projection.weight.dims());
    let mut computed = None;
    let mut residual = residual;
    if let Some(replaced) = hooks.block.replaced_output((hooks.point)(Output), [batch, heads, time]) {
        let sum = match residual {
            Some(residual) => residual + replaced.sum,
            None => replaced.sum.expand([batch, time, d_model]),
        };
        let Some(some) = replaced.computed else { return with_bias(sum, output.projection) };
        (computed, residual) = (Some(some), Some(sum));
    }
    let mut context = match hooks.wants(&[Scores, Parts, Pattern, Output]) {
        // [batch, query_time, heads * d_head]
        false => output.gated_merged(ops::attention(projections, options)),
        true => {
            let steps = ops::AttentionSteps::new(projections, options);
            let scores = hooks.apply(Scores, steps.scores());
            let pattern = output.pattern(steps.pattern(scores), hooks); // [batch, heads, query_time, key_time]
            let context = output.gated(steps.context(pattern)); // [batch, heads, query_time, d_head]
            if hooks.wants(&[Output]) {
                return sum_of_heads(context, &output, residual, hooks);
            }
            merge_heads(context)
        }
    };
    if let Some(computed) = computed {
        let [rows, _] = computed.dims();
        let computed = computed.unsqueeze_dim::<3>(2).expand([rows, heads, d_inner / heads]);
        context = context * computed.reshape([rows, 1, d_inner]);
    }
    ops::linear_residual(output.projection, output.dropout, context, residual)
}

/// Adds the bias of the `output` projection.
fn with_bias<B: Backend>(sum: Tensor<B, 3>, output: &Linear<B>) -> Tensor<B, 3> {
    match &output.bias {
        Some(bias) => sum + bias.val().unsqueeze(),
        None => sum,
    }
}

/// Computes the output of each head, passes them through the hooks, and adds them up.
fn sum_of_heads<B: Backend>(
    context: Tensor<B, 4>,
    output: &HeadOutput<'_, B>,
    residual: Option<Tensor<B, 3>>,
    hooks: &mut AttentionHooks<'_, B>,
) -> Tensor<B, 3> {
    let HeadOutput { projection, dropout, .. } = output;
    let ([_, heads, _, d_head], [_, d_model]) = (context.dims(), projection.weight.dims());
    let weight = projection.weight.val().reshape([1, heads, d_head, d_model]);
    let outputs = hooks.apply(AttentionPoint::Output, context.matmul(weight)); // [batch, heads, query_time, d_model]
    let sum = ops::dropout(dropout, with_bias(outputs.sum_dim(1).squeeze_dim(1), projection));
    match residual {
        Some(residual) => residual + sum,
        None => sum,
    }
}

/// Splits one of the projections into heads: `[batch, time, count * d_head]` to `[batch, heads, time, d_head]`. Each of
/// the `count` heads is repeated for the `heads / count` heads that share it.
pub(super) fn split_and_repeat_heads<B: Backend>(
    part: Tensor<B, 3>,
    count: usize,
    heads: usize,
) -> Tensor<B, 4> {
    ops::repeat_heads(split_heads(part, count), heads)
}
