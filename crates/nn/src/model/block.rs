//! One block of a stack: self-attention, cross-attention in a decoder with a memory, and a feed-forward layer, each
//! with norms and a residual connection.
//!
//! In a parallel block, the feed-forward layer reads the residual stream before the attention instead of after it, so that
//! both can be computed at the same time (Wang and Komatsuzaki, 2021, GPT-J; Black et al., 2022, arXiv 2204.06745).

use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, backend::Backend};

use super::{
    config::ModelConfig,
    feed_forward::FeedForward,
    residual::{NormPlacement, SublayerNorms},
};
use crate::Result;
use crate::attention::{
    AttentionHooks, AttentionInput, HeadInput, KeyValueCache, Mask, Memory, MultiHeadAttention, SplitHeads,
};
use crate::display::display_tree;
use crate::hooks::{AttentionPoint, BlockHooks, HookPoint};
use crate::ops::{Norm, ScorePosition};
use crate::role::{ParamRole, ParamRoles};

/// The input of a [`Block`].
pub struct BlockInput<'a, B: Backend> {
    /// The residual stream, `[batch, time, d_model]`.
    pub x: Tensor<B, 3>,
    /// The memory of the cross-attention, if the block has one.
    pub memory: Option<&'a Memory<B>>,
    /// The mask of the self-attention.
    pub mask: &'a Mask<B>,
    /// The effect of positions on the scores of the self-attention.
    pub position: &'a ScorePosition<B>,
    /// The KV cache of the positions before the input.
    pub cache: Option<&'a mut KeyValueCache<B>>,
}

/// A block of attention and a feed-forward layer.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Block<B: Backend> {
    /// The norm of the self-attention.
    pub attention_norm: Norm<B>,
    /// The self-attention.
    pub attention: MultiHeadAttention<B>,
    /// The norm of the cross-attention.
    pub cross_attention_norm: Option<Norm<B>>,
    /// The cross-attention, in a block that reads a memory.
    pub cross_attention: Option<SplitHeads<B>>,
    /// The norm of the feed-forward layer.
    pub feed_forward_norm: Norm<B>,
    /// The feed-forward layer, applied to each position separately.
    pub feed_forward: FeedForward<B>,
    /// The norms of the outputs of self-attention, cross-attention and feed-forward layer, in a sandwich.
    pub output_norms: Option<OutputNorms<B>>,
    /// The placement of the norms.
    #[module(skip)]
    pub placement: NormPlacement,
    /// True if the feed-forward layer reads the residual stream before the attention.
    #[module(skip)]
    pub parallel: bool,
    /// True if rotary positions do not rotate the queries and keys.
    #[module(skip)]
    pub skips_rotation: bool,
}

/// The norms of the sub-layers' outputs, in blocks with a sandwich of norms.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct OutputNorms<B: Backend> {
    /// The norm of the self-attention's output.
    pub attention: Norm<B>,
    /// The norm of the cross-attention's output, in a block that reads a memory.
    pub cross_attention: Option<Norm<B>>,
    /// The norm of the feed-forward layer's output.
    pub feed_forward: Norm<B>,
}

display_tree!(OutputNorms);

impl<B: Backend> ParamRoles for OutputNorms<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { attention, cross_attention, feed_forward } = self;
        attention.visit_roles(visit);
        cross_attention.visit_roles(visit);
        feed_forward.visit_roles(visit);
    }
}

display_tree!(Block);

impl<B: Backend> ParamRoles for Block<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self {
            attention_norm,
            attention,
            cross_attention_norm,
            cross_attention,
            feed_forward_norm,
            feed_forward,
            output_norms,
            placement: _,
            parallel: _,
            skips_rotation: _,
        } = self;
        attention_norm.visit_roles(visit);
        attention.visit_roles(visit);
        cross_attention_norm.visit_roles(visit);
        cross_attention.visit_roles(visit);
        feed_forward_norm.visit_roles(visit);
        feed_forward.visit_roles(visit);
        output_norms.visit_roles(visit);
    }
}

impl<B: Backend> Block<B> {
    /// Creates the block of a layer with Burn's lazy initialisation.
    ///
    /// # Errors
    /// The errors of [`ModelConfig::check`].
    pub fn new(config: &ModelConfig, layer: usize, reads_memory: bool, device: &B::Device) -> Result<Self> {
        let norm = || config.residual_norm(device);
        let is_sandwich = config.norm == NormPlacement::Sandwich;
        Ok(Self {
            attention_norm: norm(),
            attention: config.attention(layer).init(device)?,
            cross_attention_norm: reads_memory.then(norm),
            cross_attention: reads_memory.then(|| config.cross_attention().init(device)).transpose()?,
            feed_forward_norm: norm(),
            feed_forward: FeedForward::new(config, device),
            output_norms: is_sandwich.then(|| OutputNorms {
                attention: norm(),
                cross_attention: reads_memory.then(norm),
                feed_forward: norm(),
            }),
            placement: config.norm,
            parallel: config.parallel,
            skips_rotation: config.skips_rotation(layer),
        })
    }

    /// Passes the residual stream through the block.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the shapes of input, memory, mask and position do not match.
    pub fn forward(&self, block: BlockInput<'_, B>, mut hooks: BlockHooks<'_, B>) -> Result<Tensor<B, 3>> {
        use AttentionPoint::{Key, Query, Value};
        let BlockInput { x, memory, mask, position, cache } = block;
        let x = hooks.apply(HookPoint::ResidualPre, x);
        let start = self.parallel.then(|| x.clone());
        let output_norms = self.output_norms.as_ref();

        let attention = &self.attention;
        let norms = self.norms(&self.attention_norm, output_norms.map(|norms| &norms.attention));
        let input = norms.input(x.clone())?;
        let readers = (&[Query, Key, Value][..], attention.heads);
        let head_hooks = attention_hooks(hooks.reborrow(), HookPoint::SelfAttention, readers, (&x, &norms))?;
        let [residual, x] = norms.split(x);
        let input = AttentionInput { input, residual, mask, position, cache };
        let mut x = norms.output(x, attention.forward_hooked(input, head_hooks)?);

        if let (Some(norm), Some(attention), Some(memory)) =
            (&self.cross_attention_norm, &self.cross_attention, memory)
        {
            let norms = self.norms(norm, output_norms.and_then(|norms| norms.cross_attention.as_ref()));
            let query = norms.input(x.clone())?;
            let readers = (&[Query][..], attention.heads);
            let head_hooks =
                attention_hooks(hooks.reborrow(), HookPoint::CrossAttention, readers, (&x, &norms))?;
            let [residual, before] = norms.split(x);
            x = norms.output(before, attention.forward_memory_hooked(residual, query, memory, head_hooks)?);
        }

        let x = hooks.apply(HookPoint::ResidualMid, x);
        let stream = start.unwrap_or_else(|| x.clone());
        let read = hooks.input(HookPoint::FeedForwardHidden, 0, &stream).unwrap_or(stream);
        let norms = self.norms(&self.feed_forward_norm, output_norms.map(|norms| &norms.feed_forward));
        let input = norms.input(read)?;
        let [residual, x] = norms.split(x);
        let output = self.feed_forward.forward_hooked(residual, input, hooks.reborrow())?;
        Ok(hooks.apply(HookPoint::ResidualPost, norms.output(x, output)))
    }

    /// Returns the input's `position` for this block, given the effect of positions on a block that does not skip any.
    pub fn position(&self, position: &ScorePosition<B>) -> ScorePosition<B> {
        match position {
            ScorePosition::Rotation { .. } if self.skips_rotation => ScorePosition::None,
            position => position.clone(),
        }
    }

    /// Returns the norms of a sub-layer.
    fn norms<'a>(&self, norm: &'a Norm<B>, output: Option<&'a Norm<B>>) -> SublayerNorms<'a, B> {
        SublayerNorms { placement: self.placement, norm, output }
    }
}

/// Returns the hooks of the self-attention or the cross-attention, whose `readers` read the residual stream `x` through
/// its `norms`.
fn attention_hooks<'a, B: Backend>(
    mut hooks: BlockHooks<'a, B>,
    point: fn(AttentionPoint) -> HookPoint,
    (readers, heads): (&[AttentionPoint], usize),
    (x, norms): (&Tensor<B, 3>, &SublayerNorms<'_, B>),
) -> Result<AttentionHooks<'a, B>> {
    let mut inputs = Vec::new();
    for (&reader, head) in readers.iter().flat_map(|reader| (0..heads).map(move |head| (reader, head))) {
        if let Some(read) = hooks.input(point(reader), head, x) {
            inputs.push(HeadInput { point: reader, head, input: norms.input(read)? });
        }
    }
    Ok(AttentionHooks { block: hooks, point, inputs })
}
