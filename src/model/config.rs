//! The section `[model]` of a config: which model, of which size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{initialisation::Initialisation, residual::NormPlacement};
use crate::attention::{MultiHeadAttentionConfig, SplitHeadsConfig};
use crate::ops::Gelu;
use crate::position::PositionScheme;
use crate::{Error, Result};

/// Which parts the model is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Embedding, causal attention, head; nothing else.
    OneLayer,
    /// A stack of causal blocks, as GPT-2.
    #[default]
    Decoder,
    /// A stack that reads a source, and one that writes its answer.
    EncoderDecoder,
}

/// The section `[model]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Which parts the model is made of.
    pub architecture: Architecture,
    /// Width of the embeddings and the residual stream. 64 learns the sequence tasks in seconds on two cores.
    pub d_model: usize,
    /// Number of heads; divides `d_model`. 4 leaves each head a width of 16.
    pub heads: usize,
    /// Number of key and value heads, which divides `heads`; 0 (the default) for as many as `heads`.
    pub key_value_heads: usize,
    /// Number of blocks. 2 is the least that can copy what followed an earlier match.
    pub layers: usize,
    /// Probability of dropping attention weights and elements of the sub-layers' outputs while
    /// training. 0: the tasks' training sets are large enough for small models.
    pub dropout: f64,
    /// Position scheme. Learned, the simplest that works.
    pub position: PositionScheme,
    /// Where the norms stand. Pre-norm trains without warm-up.
    pub norm: NormPlacement,
    /// Epsilon of the layer norms, added to the variance. 1e-5: PyTorch's and GPT-2's default.
    pub norm_epsilon: f64,
    /// Inner width of the feed-forward layers, in multiples of `d_model`. 4 since the first Transformer.
    pub feed_forward: usize,
    /// Form of GELU. The exact one; GPT-2's weights want "tanh".
    pub gelu: Gelu,
    /// Whether projections and norms have biases, as in the first Transformer and GPT-2.
    pub bias: bool,
    /// Whether the output layer has a bias. Off, as in GPT-2 and most that followed. The output layer of
    /// the one-layer decoder has one where `bias` is on.
    pub head_bias: bool,
    /// Whether the output layer shares the weight of the token embedding. Off: small vocabularies save little by it.
    pub tie_embeddings: bool,
    /// Whether a norm follows the embeddings, as in BERT. Off, as in GPT-2.
    pub embedding_norm: bool,
    /// Epsilon of that norm. 1e-12: BERT's.
    pub embedding_norm_epsilon: f64,
    /// How linear layers start. Uniform suits any width.
    pub initialisation: Initialisation,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            architecture: Architecture::default(),
            d_model: 64,
            heads: 4,
            key_value_heads: 0,
            layers: 2,
            dropout: 0.0,
            position: PositionScheme::default(),
            norm: NormPlacement::default(),
            norm_epsilon: 1e-5,
            feed_forward: 4,
            gelu: Gelu::default(),
            bias: true,
            head_bias: false,
            tie_embeddings: false,
            embedding_norm: false,
            embedding_norm_epsilon: 1e-12,
            initialisation: Initialisation::default(),
        }
    }
}

/// The sizes that the data give a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Number of tokens that exist.
    pub vocab: usize,
    /// Longest sequence in training.
    pub context: usize,
    /// Longest source in training, for a model that reads one.
    pub source_context: Option<usize>,
}

impl ModelConfig {
    /// Whether these keys make a model.
    ///
    /// # Errors
    /// [`Error::Key`] naming the key, its value and the remedy.
    pub fn check(&self) -> Result<()> {
        for (key, value, most) in [
            ("model.d_model", self.d_model, 65_536),
            ("model.layers", self.layers, 1_024),
            ("model.feed_forward", self.feed_forward, 64),
        ] {
            if value == 0 {
                return Err(Error::key(key, value, "must be at least 1"));
            }
            if value > most {
                return Err(Error::key(key, value, format!("is too large: at most {most}")));
            }
        }
        self.attention().check()?;
        self.position.check(self.d_model / self.heads)?;
        for (key, value) in [
            ("model.norm_epsilon", self.norm_epsilon),
            ("model.embedding_norm_epsilon", self.embedding_norm_epsilon),
        ] {
            if !(value > 0.0 && value < 1.0) {
                return Err(Error::key(key, value, "must lie above 0 and below 1, as 1e-5"));
            }
        }
        Ok(())
    }

    /// Blocks of all stacks together; the one-layer decoder counts as one.
    pub fn blocks(&self) -> usize {
        match self.architecture {
            Architecture::OneLayer => 1,
            Architecture::Decoder => self.layers,
            Architecture::EncoderDecoder => 2 * self.layers,
        }
    }

    /// The inner width of the feed-forward layers; 0 where the architecture has none.
    pub fn inner_width(&self) -> usize {
        match self.architecture {
            Architecture::OneLayer => 0,
            Architecture::Decoder | Architecture::EncoderDecoder => self.feed_forward * self.d_model,
        }
    }

    /// The self-attention of each layer.
    pub(super) fn attention(&self) -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(self.d_model, self.heads)
            .with_key_value_heads((self.key_value_heads > 0).then_some(self.key_value_heads))
            .with_dropout(self.dropout)
            .with_bias(self.bias)
    }

    /// The cross-attention of each layer that has one.
    pub(super) fn cross_attention(&self) -> SplitHeadsConfig {
        SplitHeadsConfig::new(self.d_model, self.d_model, self.heads)
            .with_dropout(self.dropout)
            .with_bias(self.bias)
            .with_output_bias(self.bias)
    }
}

#[cfg(test)]
mod tests;
