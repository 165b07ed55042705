//! The architecture of a model and its sizes, as plain values.

use std::sync::Arc;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{initialisation::Initialisation, residual::NormPlacement};
use crate::attention::{Mask, MultiHeadAttentionConfig, SplitHeadsConfig};
use crate::choice::UnusedKeys;
use crate::choices;
use crate::ops::{Activation, NormKind};
use crate::position::{PositionScheme, RopeScaling, Rotation};
use crate::range::{Range, Ranged, Section};
use crate::{Error, Result};

choices! {
    /// The architectures: the values of `architecture`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Architecture {
        /// Embedding, causal attention and output layer, nothing else.
        OneLayer,
        /// A stack of causal blocks, as in GPT-2.
        #[default]
        Decoder uses ["layers", "position", "norm", "norm_kind", "feed_forward", "d_inner", "activation", "tie_embeddings", "embedding_norm", "embedding_scale", "softcap"],
        /// An encoder that reads a source, and a decoder that generates the answer.
        EncoderDecoder uses ["layers", "position", "norm", "norm_kind", "feed_forward", "d_inner", "activation", "tie_embeddings", "embedding_norm", "embedding_scale", "softcap"],
    }
}

choices! {
    /// The keys that a layer sees: the elements of `layer_pattern`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum LayerSpan {
        /// The keys within the window.
        Local,
        /// All keys.
        Global,
    }
}

/// The architecture of a model and its sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// The architecture: a single layer, a decoder, or an encoder with a decoder.
    pub architecture: Architecture,
    /// Width of the embeddings and the residual stream. A width of 64 is enough for tasks on short sequences of a few
    /// dozen tokens.
    pub d_model: usize,
    /// Number of heads. With the defaults, each of the 4 heads has a width of 16.
    pub heads: usize,
    /// Width of a head; 0 (the default) for `d_model` / `heads`, which must then be an integer.
    pub d_head: usize,
    /// Number of key and value heads, a divisor of `heads`; 0 (the default) for the value of `heads`.
    pub key_value_heads: usize,
    /// Number of blocks. Copying the token after an earlier match (induction) takes at least 2.
    pub layers: usize,
    /// Probability of dropping attention weights and elements of the sub-layers' outputs in training. The default is 0,
    /// for training sets that are large for the model.
    pub dropout: f64,
    /// Applies an RMS norm to the query and key of each head of self-attention, as in Qwen3. It bounds the scores at
    /// high learning rates.
    pub qk_norm: bool,
    /// Number of positions that a query of a local layer sees, including its own: a sliding window (Beltagy et al., 2020,
    /// arXiv 2004.05150; as in Mistral). In an encoder-decoder, it applies to the self-attention of the decoder. By
    /// default, a query sees all earlier positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Which layers use the `window`, such as ["local", "local", "global"], repeated for all layers. Empty (the default):
    /// all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layer_pattern: Vec<LayerSpan>,
    /// Position scheme. The default, learned positions, is the simplest that works.
    pub position: PositionScheme,
    /// Base of the frequencies of rotary positions. The default of 10000 is from the paper; Llama 3 uses 500000 for
    /// long texts.
    pub rope_theta: f64,
    /// With "random_sinusoidal": the number of positions to draw from, at least the length of the longest sequence. The
    /// default of 2048 is from the paper.
    pub largest_position: usize,
    /// Scaling of the frequencies of rotary positions, for texts longer than those in training.
    pub rope_scaling: RopeScaling,
    /// Factor by which the frequencies of rotary positions are divided; 1 leaves them unchanged.
    pub rope_factor: f64,
    /// With "llama3": frequencies that complete fewer rotations than this within the original context are divided by
    /// `rope_factor`.
    pub rope_low_frequency_factor: f64,
    /// With "llama3": frequencies that complete more rotations than this within the original context are unchanged.
    pub rope_high_frequency_factor: f64,
    /// With "llama3": the context length of the original training.
    pub rope_original_context: usize,
    /// Placement of the norms. Pre-norm trains without warm-up.
    pub norm: NormPlacement,
    /// The kind of norm. An RMS norm, as in Llama, never has a shift, regardless of `bias`.
    pub norm_kind: NormKind,
    /// Epsilon of the norms, added to the variance or mean square. The default of 1e-5 is from PyTorch and GPT-2.
    pub norm_epsilon: f64,
    /// Inner width of the feed-forward layers, in multiples of `d_model`. The default of 4 is from the original
    /// Transformer.
    pub feed_forward: usize,
    /// Inner width of the feed-forward layers; 0 (the default) for `feed_forward` * `d_model`. Gated layers usually
    /// have 8/3 of `d_model`, which gives as many weights as a factor of 4 without a gate.
    pub d_inner: usize,
    /// Activation of the feed-forward layers. GPT-2 uses "gelu_tanh", Llama "swiglu".
    pub activation: Activation,
    /// Adds biases to projections and layer norms, as in the original Transformer and GPT-2.
    pub bias: bool,
    /// Adds biases to the projections of queries, keys and values; Qwen2 has only these. Defaults to `bias`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_key_value_bias: Option<bool>,
    /// Adds a bias to the output projection of attention, as in Llama with `attention_bias`. Defaults to `bias`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_output_bias: Option<bool>,
    /// Adds a bias to the output layer; off by default, as in GPT-2 and most later models. In the one-layer decoder,
    /// `bias` applies to the output layer instead.
    pub head_bias: bool,
    /// Shares the weight of the token embedding with the output layer. Off by default, because small vocabularies save
    /// little memory.
    pub tie_embeddings: bool,
    /// Factor of the token embeddings. Gemma uses the square root of `d_model`.
    pub embedding_scale: f64,
    /// Bound of the logits, which become `softcap` * tanh(logits / `softcap`), as in Gemma 2; 0 for no bound.
    pub softcap: f64,
    /// Adds a norm after the embeddings, as in BERT; off by default, as in GPT-2.
    pub embedding_norm: bool,
    /// Epsilon of the norm after the embeddings. The default of 1e-12 is from BERT.
    pub embedding_norm_epsilon: f64,
    /// Initialisation of the linear layers. "uniform" suits any width.
    pub initialisation: Initialisation,
    /// Initialises the output projections of attention and feed-forward layers to zero, so that each block starts as
    /// the identity (Zhang et al., 2019, arXiv 1901.09321).
    pub zero_projections: bool,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            architecture: Architecture::default(),
            d_model: 64,
            heads: 4,
            d_head: 0,
            key_value_heads: 0,
            layers: 2,
            dropout: 0.0,
            qk_norm: false,
            window: None,
            layer_pattern: Vec::new(),
            position: PositionScheme::default(),
            rope_theta: 10_000.0,
            largest_position: 2048,
            rope_scaling: RopeScaling::default(),
            rope_factor: 1.0,
            rope_low_frequency_factor: 1.0,
            rope_high_frequency_factor: 4.0,
            rope_original_context: 8192,
            norm: NormPlacement::default(),
            norm_kind: NormKind::default(),
            norm_epsilon: 1e-5,
            feed_forward: 4,
            d_inner: 0,
            activation: Activation::default(),
            bias: true,
            query_key_value_bias: None,
            attention_output_bias: None,
            head_bias: false,
            tie_embeddings: false,
            embedding_scale: 1.0,
            softcap: 0.0,
            embedding_norm: false,
            embedding_norm_epsilon: 1e-12,
            initialisation: Initialisation::default(),
            zero_projections: false,
        }
    }
}

/// The maximum of `d_model`, of `d_head` and of the numbers of heads.
const MAX_WIDTH: u64 = 65_536;

impl Section for ModelConfig {
    fn ranges(&self) -> Vec<Ranged> {
        let integer = |key, value: usize, min, max| (key, Some(value.into()), Range::Integer(min, max));
        let real = |key, value: f64, range| (key, Some(value.into()), range);
        vec![
            integer("d_model", self.d_model, 1, MAX_WIDTH),
            integer("heads", self.heads, 1, MAX_WIDTH),
            integer("d_head", self.d_head, 0, MAX_WIDTH),
            integer("key_value_heads", self.key_value_heads, 0, MAX_WIDTH),
            integer("layers", self.layers, 1, 1_024),
            integer("feed_forward", self.feed_forward, 1, 64),
            integer("d_inner", self.d_inner, 0, 64 * MAX_WIDTH),
            ("window", self.window.map(Into::into), Range::Integer(1, 1 << 20)),
            integer("largest_position", self.largest_position, 1, 1 << 20),
            integer("rope_original_context", self.rope_original_context, 1, 1 << 40),
            real("dropout", self.dropout, Range::FRACTION),
            real("rope_theta", self.rope_theta, Range::POSITIVE),
            real("rope_factor", self.rope_factor, Range::FROM_1),
            real("rope_low_frequency_factor", self.rope_low_frequency_factor, Range::POSITIVE),
            real("rope_high_frequency_factor", self.rope_high_frequency_factor, Range::POSITIVE),
            real("embedding_scale", self.embedding_scale, Range::POSITIVE),
            real("softcap", self.softcap, Range::NON_NEGATIVE),
            real("norm_epsilon", self.norm_epsilon, Range::BETWEEN_0_AND_1),
            real("embedding_norm_epsilon", self.embedding_norm_epsilon, Range::BETWEEN_0_AND_1),
        ]
    }

    fn unused_keys(&self) -> UnusedKeys {
        let has_blocks = self.architecture != Architecture::OneLayer;
        let position = if has_blocks { self.position } else { PositionScheme::None };
        let mut unused = UnusedKeys::default();
        unused
            .other_choices("architecture", self.architecture)
            .unless(
                has_blocks || self.qk_norm,
                &["norm_epsilon"],
                "models with blocks or with `qk_norm` = true",
            )
            .unless(self.d_inner == 0, &["feed_forward"], "`d_inner` = 0")
            .other_choices("position", position)
            .other_choices("rope_scaling", self.rope_scaling)
            .unless(self.embedding_norm && has_blocks, &["embedding_norm_epsilon"], "`embedding_norm` = true")
            .unless(
                has_blocks && !self.tie_embeddings,
                &["head_bias"],
                "models with blocks and `tie_embeddings` = false",
            );
        unused
    }
}

/// The sizes of a model that depend on the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// The size of the vocabulary.
    pub vocab: usize,
    /// The length of the longest sequence in training.
    pub context: usize,
    /// The length of the longest source in training, for an encoder-decoder.
    pub source_context: Option<usize>,
}

impl ModelConfig {
    /// Checks that the keys form a valid model.
    ///
    /// # Errors
    /// [`Error::Argument`] with the key, its value and the remedy.
    pub fn check(&self) -> Result<()> {
        self.check_ranges()?;
        self.attention().check()?;
        self.position.check(self.head_width())?;
        self.check_pattern()?;
        let (low, high) = (self.rope_low_frequency_factor, self.rope_high_frequency_factor);
        let problem = format!("must be above `rope_low_frequency_factor` = {low}");
        Error::check(high > low, "rope_high_frequency_factor", high, problem)
    }

    /// Checks the pattern of local and global layers.
    fn check_pattern(&self) -> Result<()> {
        let names: Vec<String> = self.layer_pattern.iter().map(|span| format!("\"{span}\"")).collect();
        let shown = format!("[{}]", names.join(", "));
        let has_window = names.is_empty() || self.window.is_some();
        Error::check(
            has_window,
            "layer_pattern",
            &shown,
            "needs `window`, the number of keys that local layers see",
        )?;
        let problem = format!("has {} elements, more than the {} layers", names.len(), self.layers);
        Error::check(names.len() <= self.layers, "layer_pattern", &shown, problem)
    }

    /// Returns the number of positions that a query sees in the decoder's self-attention of a layer; `None` for all.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        let span = self.layer_pattern.get(layer % self.layer_pattern.len().max(1));
        self.window.filter(|_| span != Some(&LayerSpan::Global))
    }

    /// Returns true if a layer of the decoder has a window.
    pub fn has_window(&self) -> bool {
        (0..self.layers).any(|layer| self.window_of(layer).is_some())
    }

    /// Returns true if a layer of the decoder sees all keys.
    pub fn has_global_layer(&self) -> bool {
        (0..self.layers).any(|layer| self.window_of(layer).is_none())
    }

    /// Returns the number of blocks of all stacks together; the one-layer decoder counts as one.
    pub fn blocks(&self) -> usize {
        match self.architecture {
            Architecture::OneLayer => 1,
            Architecture::Decoder => self.layers,
            Architecture::EncoderDecoder => 2 * self.layers,
        }
    }

    /// Returns the inner width of the feed-forward layers; 0 if the architecture has none.
    pub fn inner_width(&self) -> usize {
        match self.architecture {
            Architecture::OneLayer => 0,
            Architecture::Decoder | Architecture::EncoderDecoder if self.d_inner > 0 => self.d_inner,
            Architecture::Decoder | Architecture::EncoderDecoder => self.feed_forward * self.d_model,
        }
    }

    /// Returns the number of columns of the feed-forward layers' first matrix: twice the inner width if the activation
    /// is gated.
    pub fn up_width(&self) -> usize {
        if self.activation.is_gated() { 2 * self.inner_width() } else { self.inner_width() }
    }

    /// Returns the width of a head.
    pub fn head_width(&self) -> usize {
        if self.d_head > 0 { self.d_head } else { self.d_model / self.heads }
    }

    /// Returns the number of columns of the projection to queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        let [queries, keys] = self.query_and_key_widths();
        queries + 2 * keys
    }

    /// Returns the number of columns of all queries, and of all keys or values.
    fn query_and_key_widths(&self) -> [usize; 2] {
        let shared = if self.key_value_heads > 0 { self.key_value_heads } else { self.heads };
        [self.heads, shared].map(|heads| heads * self.head_width())
    }

    /// Returns the mask of a decoder's self-attention in a layer, given the document of each token if several documents
    /// are packed into a sequence. Training, inference and the memory estimate all take their masks from here.
    pub fn mask<B: Backend>(&self, layer: usize, documents: Option<Arc<[Vec<u32>]>>) -> Mask<B> {
        // The padding of an answer is at its end, where the causal mask hides it from all tokens.
        Mask { window: self.window_of(layer), documents, ..Mask::causal() }
    }

    /// Returns the frequencies of rotary positions.
    pub fn rotation(&self) -> Rotation {
        Rotation {
            theta: self.rope_theta,
            scaling: self.rope_scaling,
            factor: self.rope_factor,
            low_frequency_factor: self.rope_low_frequency_factor,
            high_frequency_factor: self.rope_high_frequency_factor,
            original_context: self.rope_original_context,
        }
    }

    /// Returns the config of the self-attention of each layer.
    pub(super) fn attention(&self) -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(self.d_model, self.heads)
            .with_d_head((self.d_head > 0).then_some(self.d_head))
            .with_key_value_heads((self.key_value_heads > 0).then_some(self.key_value_heads))
            .with_dropout(self.dropout)
            .with_bias(self.bias)
            .with_query_key_value_bias(self.query_key_value_bias)
            .with_output_bias(self.attention_output_bias)
            .with_qk_norm(self.qk_norm.then_some(self.norm_epsilon))
    }

    /// Returns the config of the cross-attention of each layer that has one.
    pub(super) fn cross_attention(&self) -> SplitHeadsConfig {
        SplitHeadsConfig::new(self.d_model, self.d_model, self.heads)
            .with_d_head((self.d_head > 0).then_some(self.d_head))
            .with_dropout(self.dropout)
            .with_bias(self.query_key_value_bias.unwrap_or(self.bias))
            .with_output_bias(self.attention_output_bias.unwrap_or(self.bias))
    }
}

#[cfg(test)]
mod tests;
