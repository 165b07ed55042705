//! One block of a stack: self-attention, then a feed-forward layer, each with a norm and a
//! residual connection. The mask alone tells an encoder's block from a decoder's.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};

use super::feed_forward::{FeedForward, FeedForwardConfig};
use super::residual::NormPlacement;
use crate::Result;
use crate::attention::{KeyValueCache, Mask, MultiHeadAttention, MultiHeadAttentionConfig};
use crate::ops::{self, Gelu, LayerNorm, ScorePosition};

/// What a [`Block`] is built from.
#[derive(Config, Debug)]
pub struct BlockConfig {
    /// Width of the stream.
    pub d_model: usize,
    /// Number of query heads; divides `d_model`.
    pub heads: usize,
    /// Number of key and value heads of the self-attention; as many as `heads` if absent.
    pub key_value_heads: Option<usize>,
    /// Width inside the feed-forward layer.
    pub d_inner: usize,
    /// Form of the activation.
    #[config(default = "Gelu::Erf")]
    pub gelu: Gelu,
    /// Probability of dropping an attention weight, and an element of each sub-layer's output.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether projections and norms have biases.
    #[config(default = true)]
    pub bias: bool,
    /// Where the norms stand.
    #[config(default = "NormPlacement::Pre")]
    pub norm: NormPlacement,
    /// What the norms add to the variance.
    #[config(default = 1e-5)]
    pub norm_epsilon: f64,
}

/// Self-attention and a feed-forward layer.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    /// Before or after the attention.
    pub attention_norm: LayerNorm<B>,
    /// Looks at other places.
    pub attention: MultiHeadAttention<B>,
    /// Before or after the feed-forward layer.
    pub feed_forward_norm: LayerNorm<B>,
    /// Works on each place by itself.
    pub feed_forward: FeedForward<B>,
    /// Where the norms stand.
    #[module(skip)]
    pub placement: NormPlacement,
}

impl BlockConfig {
    /// The config of the self-attention.
    pub fn attention(&self) -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(self.d_model, self.heads)
            .with_key_value_heads(self.key_value_heads)
            .with_dropout(self.dropout)
            .with_bias(self.bias)
    }

    /// The config of the feed-forward layer.
    pub fn feed_forward(&self) -> FeedForwardConfig {
        FeedForwardConfig::new(self.d_model, self.d_inner)
            .with_gelu(self.gelu)
            .with_dropout(self.dropout)
            .with_bias(self.bias)
    }

    /// A norm over the stream.
    pub fn layer_norm<B: Backend>(&self, device: &B::Device) -> LayerNorm<B> {
        LayerNorm::new(self.d_model, self.norm_epsilon, self.bias, device)
    }

    /// The norm that ends a stack, which pre-norm blocks need and post-norm blocks bring.
    pub fn final_norm<B: Backend>(&self, device: &B::Device) -> Option<LayerNorm<B>> {
        match self.norm {
            NormPlacement::Pre => Some(self.layer_norm(device)),
            NormPlacement::Post => None,
        }
    }

    /// The module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// Those of [`MultiHeadAttentionConfig::check`].
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<Block<B>> {
        Ok(Block {
            attention_norm: self.layer_norm(device),
            attention: self.attention().init(device)?,
            feed_forward_norm: self.layer_norm(device),
            feed_forward: self.feed_forward().init(device)?,
            placement: self.norm,
        })
    }

    /// How many parameters [`Self::init`] makes.
    pub fn parameters(&self) -> usize {
        self.attention().parameters() + self.feed_forward().parameters() + 2 * self.norm_parameters()
    }

    /// How many parameters one norm has.
    pub fn norm_parameters(&self) -> usize {
        self.d_model * if self.bias { 2 } else { 1 }
    }

    /// How many parameters [`Self::final_norm`] has.
    pub fn final_norm_parameters(&self) -> usize {
        match self.norm {
            NormPlacement::Pre => self.norm_parameters(),
            NormPlacement::Post => 0,
        }
    }
}

impl<B: ops::Backend> Block<B> {
    /// Passes the stream through the block; the attention's weights are added to `maps` where
    /// asked for.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where input, mask or position do not fit.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        mask: &Mask<B>,
        position: &ScorePosition<B>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Result<Tensor<B, 3>> {
        let x = self.placement.apply(&self.attention_norm, x, |input, residual| {
            self.attention.forward_onto(residual, input, mask, position, maps)
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
    /// [`crate::Error::Shape`] where input or position do not fit.
    pub fn forward_cached(
        &self,
        x: Tensor<B, 3>,
        position: &ScorePosition<B>,
        cache: &mut KeyValueCache<B>,
    ) -> Result<Tensor<B, 3>> {
        let x = self.placement.apply(&self.attention_norm, x, |input, residual| {
            self.attention.forward_cached(residual, input, position, cache)
        })?;
        self.placement.apply(&self.feed_forward_norm, x, |input, residual| {
            self.feed_forward.forward_onto(residual, input)
        })
    }
}
