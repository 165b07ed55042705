//! The architecture of a model and its sizes, as plain values.

use serde::{Deserialize, Serialize};

mod check;
mod derived;
#[cfg(test)]
mod tests;

use super::{initialisation::Initialisation, residual::NormPlacement};
use crate::attention::{AttentionGate, Sinks};
use crate::choices;
use crate::ops::{Activation, NormKind};
use crate::position::{PositionScheme, RopeScaling};

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
        Decoder uses ["layers", "position", "norm", "norm_kind", "parallel", "feed_forward", "d_inner", "activation", "tie_embeddings", "embedding_norm", "embedding_scale", "softcap"],
        /// An encoder that reads a source, and a decoder that generates the answer.
        EncoderDecoder uses ["layers", "position", "norm", "norm_kind", "parallel", "feed_forward", "d_inner", "activation", "tie_embeddings", "embedding_norm", "embedding_scale", "softcap"],
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

choices! {
    /// The scopes of a norm of queries or keys: the values of `qk_norm_scope`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum QkNormScope {
        /// Each head by itself, as in Qwen3.
        #[default]
        Head,
        /// All heads together, as in OLMo 2.
        AllHeads,
    }
}

/// Returns true if a value is the default of its type, and need not be written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
    /// Scope of each norm with `qk_norm`: the query or key of one head, or the queries or keys of all heads, as in OLMo 2.
    #[serde(skip_serializing_if = "is_default")]
    pub qk_norm_scope: QkNormScope,
    /// Factor of the products of queries and keys, instead of 1 / sqrt(`d_head`). GPT-Neo uses 1, Gemma 2 a constant of
    /// its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_scale: Option<f64>,
    /// Bound of the scores, which become `attention_softcap` * tanh(scores / `attention_softcap`), as in Gemma 2 (arXiv
    /// 2408.00118). By default, scores are unbounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_softcap: Option<f64>,
    /// Sinks in the softmax of each head, which take the weight that a head does not want to give to any token: none, a
    /// constant ("off_by_one"; Miller, 2023) or learned as in gpt-oss (arXiv 2508.10925).
    #[serde(skip_serializing_if = "is_default")]
    pub sinks: Sinks,
    /// Sigmoid gates of the heads' outputs, one for each head or for each element (Qiu et al., 2025, arXiv 2505.06708).
    #[serde(skip_serializing_if = "is_default")]
    pub attention_gate: AttentionGate,
    /// Subtracts two softmax maps in each head of self-attention, computed by the halves of its queries and keys:
    /// softmax(q1 k1) - lambda softmax(q2 k2), with an RMS norm of each head's output (Ye et al., 2024, arXiv 2410.05258).
    #[serde(skip_serializing_if = "is_default")]
    pub differential: bool,
    /// Number of positions that a query of a local layer sees, including its own: a sliding window (Beltagy et al., 2020,
    /// arXiv 2004.05150; as in Mistral). In an encoder-decoder, it applies to the self-attention of the decoder. By
    /// default, a query sees all earlier positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Which layers use the `window`, such as `["local", "local", "global"]`, repeated for all layers. Empty (the default):
    /// all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layer_pattern: Vec<LayerSpan>,
    /// Position scheme. The default, learned positions, is the simplest that works.
    pub position: PositionScheme,
    /// Base of the frequencies of rotary positions. The default of 10000 is from the paper; Llama 3 uses 500000 for
    /// long texts.
    pub rope_theta: f64,
    /// Base of the frequencies in local layers, which are not scaled, as in Gemma 3. Defaults to `rope_theta` with its
    /// scaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta_local: Option<f64>,
    /// Fraction of each head's elements that rotary positions rotate. Pythia uses 0.25 (Black
    /// et al., 2022, arXiv 2204.06745). By default, all are rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_fraction: Option<f64>,
    /// Interval of the layers without rotary positions: 4 for layers 4, 8, ..., as in SmolLM3 (Yang et
    /// al., 2025, arXiv 2501.18795). By default, all layers have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_skip_every: Option<usize>,
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
    /// Lets the feed-forward layer of a block read the residual stream before the attention instead of after it, as in
    /// GPT-J and Pythia (Black et al., 2022, arXiv 2204.06745).
    #[serde(skip_serializing_if = "is_default")]
    pub parallel: bool,
    /// The kind of norm. An RMS norm, as in Llama, never has a shift, regardless of `bias`.
    pub norm_kind: NormKind,
    /// Stores the gains of the norms minus one, as in Gemma (arXiv 2403.08295).
    #[serde(skip_serializing_if = "is_default")]
    pub norm_unit_offset: bool,
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
            qk_norm_scope: QkNormScope::default(),
            attention_scale: None,
            attention_softcap: None,
            sinks: Sinks::default(),
            attention_gate: AttentionGate::default(),
            differential: false,
            window: None,
            layer_pattern: Vec::new(),
            position: PositionScheme::default(),
            rope_theta: 10_000.0,
            rope_theta_local: None,
            rotary_fraction: None,
            rotary_skip_every: None,
            largest_position: 2048,
            rope_scaling: RopeScaling::default(),
            rope_factor: 1.0,
            rope_low_frequency_factor: 1.0,
            rope_high_frequency_factor: 4.0,
            rope_original_context: 8192,
            norm: NormPlacement::default(),
            parallel: false,
            norm_kind: NormKind::default(),
            norm_unit_offset: false,
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
