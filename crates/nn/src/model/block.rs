//! One block of a stack: self-attention, in a decoder that reads a memory cross-attention too, then a
//! feed-forward layer, each with a norm and a residual connection.

use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, backend::Backend};

use super::{config::ModelConfig, feed_forward::FeedForward, residual::NormPlacement};
use crate::Result;
use crate::attention::{
    AttentionHooks, AttentionInput, HeadInput, KeyValueCache, Mask, Memory, MultiHeadAttention, SplitHeads,
};
use crate::hooks::{AttentionPoint, BlockHooks, HookPoint};
use crate::ops::{Norm, ScorePosition};
use crate::role::{ParamRole, ParamRoles};

/// The input of a [`Block`].
pub struct BlockInput<'a, B: Backend> {
    /// The residual stream, `[batch, time, d_model]`.
    pub x: Tensor<B, 3>,
    /// The memory of the cross-attention, in a block that has one.
    pub memory: Option<&'a Memory<B>>,
    /// The keys that each query of the self-attention may not see.
    pub mask: &'a Mask<B>,
    /// The influence of positions on the scores of the self-attention.
    pub position: &'a ScorePosition<B>,
    /// Keys and values of earlier positions, which the input's positions follow and see.
    pub cache: Option<&'a mut KeyValueCache<B>>,
}

/// Attention and a feed-forward layer.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    /// Before or after the self-attention.
    pub attention_norm: Norm<B>,
    /// Looks at other places.
    pub attention: MultiHeadAttention<B>,
    /// Before or after the cross-attention.
    pub cross_attention_norm: Option<Norm<B>>,
    /// Looks at a memory, in a block that reads one.
    pub cross_attention: Option<SplitHeads<B>>,
    /// Before or after the feed-forward layer.
    pub feed_forward_norm: Norm<B>,
    /// Works on each place by itself.
    pub feed_forward: FeedForward<B>,
    /// Where the norms stand.
    #[module(skip)]
    pub placement: NormPlacement,
}

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
    /// A block of this config, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// Those of [`ModelConfig::check`].
    pub fn new(config: &ModelConfig, reads_memory: bool, device: &B::Device) -> Result<Self> {
        let norm = || config.stream_norm(device);
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
    /// [`crate::Error::Shape`] where input, memory, mask or position do not fit.
    pub fn forward(&self, block: BlockInput<'_, B>, mut hooks: BlockHooks<'_, B>) -> Result<Tensor<B, 3>> {
        use AttentionPoint::{Key, Query, Value};
        let BlockInput { x, memory, mask, position, cache } = block;
        let placement = self.placement;
        let x = hooks.apply(HookPoint::ResidualPre, x);

        let (norm, attention) = (&self.attention_norm, &self.attention);
        let input = placement.input(norm, x.clone())?;
        let readers = (&[Query, Key, Value][..], attention.heads);
        let of_heads =
            self.attention_hooks(hooks.reborrow(), HookPoint::SelfAttention, readers, (&x, norm))?;
        let input = AttentionInput { input, residual: Some(x), mask, position, cache };
        let mut x = placement.output(norm, attention.forward_hooked(input, of_heads)?);

        if let (Some(norm), Some(attention), Some(memory)) =
            (&self.cross_attention_norm, &self.cross_attention, memory)
        {
            let query = placement.input(norm, x.clone())?;
            let readers = (&[Query][..], attention.heads);
            let of_heads =
                self.attention_hooks(hooks.reborrow(), HookPoint::CrossAttention, readers, (&x, norm))?;
            x = placement.output(norm, attention.forward_memory_hooked(Some(x), query, memory, of_heads)?);
        }

        let x = hooks.apply(HookPoint::ResidualMid, x);
        let read = hooks.input(HookPoint::FeedForwardHidden, 0, &x).unwrap_or_else(|| x.clone());
        let norm = &self.feed_forward_norm;
        let input = placement.input(norm, read)?;
        let x = placement.output(norm, self.feed_forward.forward_hooked(x, input, hooks.reborrow())?);
        Ok(hooks.apply(HookPoint::ResidualPost, x))
    }

    /// Returns the hooks of one of its attentions, whose `readers` read the residual stream `x` after a norm.
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
