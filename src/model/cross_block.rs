//! One block of a decoder that reads a memory: causal self-attention, cross-attention over the
//! memory, then a feed-forward layer, each with a norm and a residual connection.

use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};

use super::AttentionMaps;
use super::block::BlockConfig;
use super::feed_forward::FeedForward;
use super::residual::NormPlacement;
use crate::Result;
use crate::attention::{
    CrossAttention, CrossAttentionConfig, KeyValueCache, Mask, Memory, MultiHeadAttention,
};
use crate::ops::{self, LayerNorm, ScorePosition};

/// Self-attention, cross-attention and a feed-forward layer.
#[derive(Module, Debug)]
pub struct CrossBlock<B: Backend> {
    /// Before or after the self-attention.
    pub attention_norm: LayerNorm<B>,
    /// Looks at earlier places.
    pub attention: MultiHeadAttention<B>,
    /// Before or after the cross-attention.
    pub cross_attention_norm: LayerNorm<B>,
    /// Looks at the memory.
    pub cross_attention: CrossAttention<B>,
    /// Before or after the feed-forward layer.
    pub feed_forward_norm: LayerNorm<B>,
    /// Works on each place by itself.
    pub feed_forward: FeedForward<B>,
    /// Where the norms stand.
    #[module(skip)]
    pub placement: NormPlacement,
}

impl BlockConfig {
    /// The config of the cross-attention.
    pub fn cross_attention(&self) -> CrossAttentionConfig {
        CrossAttentionConfig::new(self.d_model, self.heads).with_dropout(self.dropout).with_bias(self.bias)
    }

    /// A block with cross-attention, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// Those of [`BlockConfig::init`].
    pub fn init_cross<B: Backend>(&self, device: &B::Device) -> Result<CrossBlock<B>> {
        Ok(CrossBlock {
            attention_norm: self.layer_norm(device),
            attention: self.attention().init(device)?,
            cross_attention_norm: self.layer_norm(device),
            cross_attention: self.cross_attention().init(device)?,
            feed_forward_norm: self.layer_norm(device),
            feed_forward: self.feed_forward().init(device)?,
            placement: self.norm,
        })
    }

    /// How many parameters [`Self::init_cross`] makes.
    pub fn cross_parameters(&self) -> usize {
        self.parameters() + self.cross_attention().parameters() + self.norm_parameters()
    }
}

impl<B: ops::Backend> CrossBlock<B> {
    /// Passes the stream through the block. `mask` and `position` are for the self-attention,
    /// `memory_mask` is for the cross-attention; both attentions' weights are added to `maps`
    /// where asked for.
    ///
    /// # Shapes
    /// `x` and the result `[batch, time, d_model]`, `memory` `[batch, memory_time, d_model]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where inputs, masks or position do not fit.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        memory: Tensor<B, 3>,
        mask: &Mask<B>,
        memory_mask: &Mask<B>,
        position: &ScorePosition<B>,
        maps: Option<&mut AttentionMaps<B>>,
    ) -> Result<Tensor<B, 3>> {
        let (causal, cross) = match maps {
            Some(maps) => (Some(&mut maps.causal), Some(&mut maps.cross)),
            None => (None, None),
        };
        let x = self.placement.apply(&self.attention_norm, x, |input, residual| {
            self.attention.forward_onto(residual, input, mask, position, causal)
        })?;
        let x = self.placement.apply(&self.cross_attention_norm, x, |input, residual| {
            self.cross_attention.forward_onto(residual, input, memory, memory_mask, cross)
        })?;
        self.placement.apply(&self.feed_forward_norm, x, |input, residual| {
            self.feed_forward.forward_onto(residual, input)
        })
    }

    /// Passes the places that follow those in the cache through the block.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where input, memory or position do not fit.
    pub fn forward_cached(
        &self,
        x: Tensor<B, 3>,
        memory: &Memory<B>,
        position: &ScorePosition<B>,
        cache: &mut KeyValueCache<B>,
    ) -> Result<Tensor<B, 3>> {
        let x = self.placement.apply(&self.attention_norm, x, |input, residual| {
            self.attention.forward_cached(residual, input, position, cache)
        })?;
        let x = self.placement.apply(&self.cross_attention_norm, x, |input, residual| {
            self.cross_attention.forward_cached(residual, input, memory)
        })?;
        self.placement.apply(&self.feed_forward_norm, x, |input, residual| {
            self.feed_forward.forward_onto(residual, input)
        })
    }
}
