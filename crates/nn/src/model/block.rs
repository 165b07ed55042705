//! One block of a stack: self-attention, cross-attention in a decoder with a memory, and a feed-forward layer, each
//! with a norm and a residual connection.

use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, backend::Backend};

use super::{config::ModelConfig, feed_forward::FeedForward, residual::NormPlacement};
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
    /// The norm before or after the self-attention.
    pub attention_norm: Norm<B>,
    /// The self-attention.
    pub attention: MultiHeadAttention<B>,
    /// The norm before or after the cross-attention.
    pub cross_attention_norm: Option<Norm<B>>,
    /// The cross-attention, in a block that reads a memory.
    pub cross_attention: Option<SplitHeads<B>>,
    /// The norm before or after the feed-forward layer.
    pub feed_forward_norm: Norm<B>,
    /// The feed-forward layer, applied to each position separately.
    pub feed_forward: FeedForward<B>,
    /// The placement of the norms.
    #[module(skip)]
    pub placement: NormPlacement,
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
            placement: _,
        } = self;
        attention_norm.visit_roles(visit);
        attention.visit_roles(visit);
        cross_attention_norm.visit_roles(visit);
        cross_attention.visit_roles(visit);
        feed_forward_norm.visit_roles(visit);
        feed_forward.visit_roles(visit);
    }
}

impl<B: Backend> Block<B> {
    /// Creates a block with Burn's lazy initialisation.
    ///
    /// # Errors
    /// The errors of [`ModelConfig::check`].
    pub fn new(config: &ModelConfig, reads_memory: bool, device: &B::Device) -> Result<Self> {
        let norm = || config.residual_norm(device);
        Ok(Self {
            attention_norm: norm(),
            attention: config.attention().init(device)?,
            cross_attention_norm: reads_memory.then(norm),
            cross_attention: reads_memory.then(|| config.cross_attention().init(device)).transpose()?,
            feed_forward_norm: norm(),
            feed_forward: FeedForward::new(config, device),
            placement: config.norm,
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
        let placement = self.placement;
        let x = hooks.apply(HookPoint::ResidualPre, x);

        let (norm, attention) = (&self.attention_norm, &self.attention);
        let input = placement.input(norm, x.clone())?;
        let readers = (&[Query, Key, Value][..], attention.heads);
        let head_hooks =
            self.attention_hooks(hooks.reborrow(), HookPoint::SelfAttention, readers, (&x, norm))?;
        let input = AttentionInput { input, residual: Some(x), mask, position, cache };
        let mut x = placement.output(norm, attention.forward_hooked(input, head_hooks)?);

        if let (Some(norm), Some(attention), Some(memory)) =
            (&self.cross_attention_norm, &self.cross_attention, memory)
        {
            let query = placement.input(norm, x.clone())?;
            let readers = (&[Query][..], attention.heads);
            let head_hooks =
                self.attention_hooks(hooks.reborrow(), HookPoint::CrossAttention, readers, (&x, norm))?;
            x = placement.output(norm, attention.forward_memory_hooked(Some(x), query, memory, head_hooks)?);
        }

        let x = hooks.apply(HookPoint::ResidualMid, x);
        let read = hooks.input(HookPoint::FeedForwardHidden, 0, &x).unwrap_or_else(|| x.clone());
        let norm = &self.feed_forward_norm;
        let input = placement.input(norm, read)?;
        let x = placement.output(norm, self.feed_forward.forward_hooked(x, input, hooks.reborrow())?);
        Ok(hooks.apply(HookPoint::ResidualPost, x))
    }

    /// Returns the hooks of the self-attention or the cross-attention, whose `readers` read the residual stream `x`
    /// through `norm`.
    fn attention_hooks<'a>(
        &self,
        mut hooks: BlockHooks<'a, B>,
        point: fn(AttentionPoint) -> HookPoint,
        (readers, heads): (&[AttentionPoint], usize),
        (x, norm): (&Tensor<B, 3>, &Norm<B>),
    ) -> Result<AttentionHooks<'a, B>> {
        let mut inputs = Vec::new();
        for (&reader, head) in readers.iter().flat_map(|reader| (0..heads).map(move |head| (reader, head))) {
            if let Some(read) = hooks.input(point(reader), head, x) {
                inputs.push(HeadInput { point: reader, head, input: self.placement.input(norm, read)? });
            }
        }
        Ok(AttentionHooks { block: hooks, point, inputs })
    }
}
