//! One block of a stack: self-attention, in a decoder that reads a memory cross-attention too, then a
//! feed-forward layer, each with a norm and a residual connection.

use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, backend::Backend};

use super::{config::ModelConfig, feed_forward::FeedForward, residual::NormPlacement};
use crate::Result;
use crate::attention::{KeyValueCache, Mask, Memory, MultiHeadAttention, SplitHeads};
use crate::ops::{Norm, ScorePosition};
use crate::role::{ParamRole, ParamRoles};

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

    /// Passes the stream through the block. Each place looks at those of its sequence that `mask` shows; with a
    /// cache, at those that are kept there too. The weights of self-attention and cross-attention are added to
    /// `maps` where asked for.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where input, memory, mask or position do not fit.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        memory: Option<&Memory<B>>,
        mask: &Mask<B>,
        position: &ScorePosition<B>,
        cache: Option<&mut KeyValueCache<B>>,
        [maps, cross_maps]: [Option<&mut Vec<Tensor<B, 4>>>; 2],
    ) -> Result<Tensor<B, 3>> {
        let mut x = self.placement.apply(&self.attention_norm, x, |input, residual| {
            self.attention.forward_residual(Some(residual), input, mask, position, cache, maps)
        })?;
        if let (Some(norm), Some(attention), Some(memory)) =
            (&self.cross_attention_norm, &self.cross_attention, memory)
        {
            x = self.placement.apply(norm, x, |input, residual| {
                attention.forward_memory(Some(residual), input, memory, cross_maps)
            })?;
        }
        self.placement.apply(&self.feed_forward_norm, x, |input, residual| {
            self.feed_forward.forward_residual(residual, input)
        })
    }
}
