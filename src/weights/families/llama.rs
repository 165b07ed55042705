//! Llama (Touvron et al., 2023, arXiv 2302.13971) and related families, under transformers' names.
//!
//! | theirs | ours |
//! |---|---|
//! | `embed_tokens.weight` | `embedding.token.weight` |
//! | `layers.0.input_layernorm`, `.post_attention_layernorm` | `blocks.0.attention_norm`, `.feed_forward_norm` |
//! | `layers.0.self_attn.q_proj`, `.k_proj`, `.v_proj` | the columns of `blocks.0.attention.qkv` |
//! | `layers.0.self_attn.q_norm`, `.k_norm` | `blocks.0.attention.query_norm`, `.key_norm` |
//! | `layers.0.self_attn.o_proj` | `blocks.0.attention.output` |
//! | `layers.0.mlp.gate_proj`, `.up_proj` | the columns of `blocks.0.feed_forward.up` |
//! | `layers.0.mlp.down_proj` | `blocks.0.feed_forward.down` |
//! | `norm.weight`, `lm_head.weight` | `norm.gamma`, `head.weight` |

mod entries;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::entry::TensorEntry;
use super::keys::Keys;
use super::layout::{Layout, Obstacle};
use super::rope::{self, Base};
use crate::error::Result;
use crate::model::{Architecture, Initialisation, ModelConfig, NormPlacement, QkNormScope, Sizes};
use crate::ops::{Activation, NormKind};
use crate::position::PositionScheme;
use crate::weights::file::LazyTensor;
use crate::weights::native::Description;

/// Llama, SmolLM, SmolLM2 and TinyLlama.
pub(super) struct Llama;

impl LlamaLike for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    fn architecture(&self) -> &'static str {
        "LlamaForCausalLM"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(1), Some(2)]
    }

    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle> {
        vec![("heads", !model.d_model.is_multiple_of(model.heads), "a divisor of d_model")]
    }
}

/// A family related to Llama; the default methods describe Llama.
pub(super) trait LlamaLike: Sync {
    /// Returns the family's `model_type`.
    fn name(&self) -> &'static str;

    /// Returns the name of transformers' class.
    fn architecture(&self) -> &'static str;

    /// Same as [`Layout::default_ids`].
    fn default_ids(&self) -> [Option<u32>; 2] {
        [None; 2]
    }

    /// Same as [`Layout::own_keys`].
    fn own_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Same as [`Layout::expresses`].
    fn expresses(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the biases of the family.
    fn biases(&self) -> Biases {
        Biases::Configured
    }

    /// Returns the scope of the norms of queries and keys, if the family has them.
    fn qk_norm(&self) -> Option<QkNormScope> {
        None
    }

    /// Returns the placement of the norms.
    fn norm(&self) -> NormPlacement {
        NormPlacement::Pre
    }

    /// Returns the key of the activation and its default.
    fn activation(&self) -> [&'static str; 2] {
        ["hidden_act", "silu"]
    }

    /// Returns the default width of a head; `None` for `d_model` divided by the number of heads.
    fn head_width(&self) -> Option<usize> {
        None
    }

    /// Returns the default of `num_key_value_heads`; `None` for the number of heads.
    fn key_value_heads(&self) -> Option<usize> {
        None
    }

    /// Returns the default of `rms_norm_eps`.
    fn epsilon(&self) -> f64 {
        1e-6
    }

    /// Returns the default of `tie_word_embeddings`.
    fn is_tied(&self) -> bool {
        false
    }

    /// Returns true if queries, keys and values are one tensor, as well as gates and inputs.
    fn is_packed(&self) -> bool {
        false
    }

    /// Returns the base of the rotary frequencies.
    fn base(&self) -> Base {
        Base::new("rope_theta", 10_000.0)
    }

    /// Reads the keys that only this family has into `model`, for a context of `context` tokens.
    ///
    /// # Errors
    /// Returns an error if a key has an unsupported value.
    fn read_more(&self, keys: Keys, _context: usize, model: ModelConfig) -> Result<ModelConfig> {
        rope::read(keys, self.base(), model)
    }

    /// Writes the keys that only this family has.
    fn write_more(&self, _model: &ModelConfig, _config: &mut Value) {}

    /// Lists the keys that only this family restricts.
    fn obstacles(&self, _model: &ModelConfig) -> Vec<Obstacle> {
        Vec::new()
    }
}

/// The biases of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Biases {
    /// `attention_bias` sets them in attention, and `mlp_bias` in the feed-forward layers.
    Configured,
    /// `attention_bias` sets them in attention; feed-forward layers have none.
    Attention,
    /// None.
    None,
    /// Only queries, keys and values have biases.
    QueryKeyValue,
}

/// Gated activations by their names in transformers; an export writes the first name of each activation.
const ACTIVATIONS: [(&str, Activation); 4] = [
    ("silu", Activation::Swiglu),
    ("swish", Activation::Swiglu),
    ("gelu", Activation::Geglu),
    ("gelu_pytorch_tanh", Activation::GegluTanh),
];

impl<T: LlamaLike> Layout for T {
    fn name(&self) -> &'static str {
        LlamaLike::name(self)
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        LlamaLike::default_ids(self)
    }

    fn own_keys(&self) -> &'static [&'static str] {
        LlamaLike::own_keys(self)
    }

    fn expresses(&self) -> &'static [&'static str] {
        LlamaLike::expresses(self)
    }

    fn prefix(&self) -> &'static str {
        "model."
    }

    fn table(&self) -> &'static str {
        "embed_tokens.weight"
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("d_model", "hidden_size"),
            ("d_inner", "intermediate_size"),
            ("layers", "num_hidden_layers"),
            ("heads", "num_attention_heads"),
            ("key_value_heads", "num_key_value_heads"),
            ("d_head", "head_dim"),
            ("dropout", "attention_dropout"),
            ("norm_epsilon", "rms_norm_eps"),
            ("window", "sliding_window"),
        ]
    }

    fn read(&self, keys: Keys, _tensors: &BTreeMap<String, LazyTensor>) -> Result<Description> {
        let [d_model, heads, layers] =
            ["hidden_size", "num_attention_heads", "num_hidden_layers"].map(|key| keys.required_size(key));
        let (d_model, heads, layers) = (d_model?, heads?, layers?);
        let d_head = keys.size("head_dim")?.or(self.head_width());
        let [key, default] = self.activation();
        let name = keys.text(key)?.unwrap_or(default);
        let Some((_, activation)) = ACTIVATIONS.into_iter().find(|(known, _)| *known == name) else {
            let problem = "; the supported gated activations are silu, gelu and gelu_pytorch_tanh";
            return Err(keys.refused(key, format!("\"{name}\""), problem));
        };
        let [qkv_bias, output_bias, bias] = biases(self, keys)?;
        let context = keys.required_size("max_position_embeddings")?;
        let model = ModelConfig {
            architecture: Architecture::Decoder,
            d_model,
            heads,
            d_head: d_head.filter(|width| width.checked_mul(heads) != Some(d_model)).unwrap_or(0),
            key_value_heads: keys.size("num_key_value_heads")?.or(self.key_value_heads()).unwrap_or(heads),
            layers,
            dropout: keys.number("attention_dropout")?.unwrap_or(0.0),
            qk_norm: self.qk_norm().is_some(),
            qk_norm_scope: self.qk_norm().unwrap_or_default(),
            position: PositionScheme::Rotary,
            norm: self.norm(),
            norm_kind: NormKind::Rms,
            norm_epsilon: keys.number("rms_norm_eps")?.unwrap_or(self.epsilon()),
            d_inner: keys.required_size("intermediate_size")?,
            activation,
            bias,
            query_key_value_bias: (qkv_bias != bias).then_some(qkv_bias),
            attention_output_bias: (output_bias != bias).then_some(output_bias),
            tie_embeddings: keys.flag("tie_word_embeddings")?.unwrap_or(self.is_tied()),
            initialisation: Initialisation::Normal,
            ..ModelConfig::default()
        };
        let model = self.read_more(keys, context, model)?;
        let vocab = keys.required_size("vocab_size")?;
        Ok(Description { model, sizes: Sizes { vocab, context, source_context: None } })
    }

    fn entries(&self, description: &Description, _has_biases: bool) -> Vec<TensorEntry> {
        entries::all(description, self.is_packed())
    }

    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle> {
        let biases = self.biases();
        let qkv_bias = model.query_key_value_bias.unwrap_or(model.bias);
        let output_bias = model.attention_output_bias.unwrap_or(model.bias);
        let norm = match self.norm() {
            NormPlacement::Sandwich => "\"sandwich\"",
            NormPlacement::Output => "\"output\"",
            NormPlacement::Pre | NormPlacement::Post => "\"pre\"",
        };
        let scope = match self.qk_norm() {
            Some(QkNormScope::AllHeads) => "\"all_heads\"",
            _ => "\"head\"",
        };
        let has_scope = model.qk_norm && self.qk_norm().is_some_and(|scope| scope != model.qk_norm_scope);
        let has_norm = self.qk_norm().is_some();
        let mut all = vec![
            ("position", model.position != PositionScheme::Rotary, "\"rotary\""),
            ("norm", model.norm != self.norm(), norm),
            ("norm_kind", model.norm_kind != NormKind::Rms, "\"rms\""),
            ("activation", !model.activation.is_gated(), "\"swiglu\", \"geglu\" or \"geglu_tanh\""),
            ("qk_norm", model.qk_norm != has_norm, if has_norm { "true" } else { "false" }),
            ("qk_norm_scope", has_scope, scope),
            ("bias", model.bias && biases != Biases::Configured, "false"),
            match biases {
                Biases::QueryKeyValue => ("query_key_value_bias", !qkv_bias, "true"),
                Biases::None => ("query_key_value_bias", qkv_bias && !model.bias, "false"),
                _ if model.attention_output_bias.is_some() => {
                    ("attention_output_bias", qkv_bias != output_bias, "the value of query_key_value_bias")
                }
                _ => ("query_key_value_bias", qkv_bias != output_bias, "the value of attention_output_bias"),
            },
            (
                "attention_output_bias",
                matches!(biases, Biases::QueryKeyValue | Biases::None) && output_bias && !model.bias,
                "false",
            ),
        ];
        all.extend(LlamaLike::obstacles(self, model));
        all
    }

    fn write(&self, Description { model, sizes }: &Description) -> Value {
        let [rope_parameters, rope_scaling] = rope::write(model);
        let activation = ACTIVATIONS.into_iter().find(|(_, activation)| *activation == model.activation);
        let mut config = json!({
            "architectures": [self.architecture()],
            "model_type": LlamaLike::name(self),
            "vocab_size": sizes.vocab,
            "max_position_embeddings": rope::max_positions(model, sizes.context),
            "hidden_size": model.d_model,
            "intermediate_size": model.inner_width(),
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": if model.key_value_heads == 0 { model.heads } else { model.key_value_heads },
            "head_dim": model.head_width(),
            "rms_norm_eps": model.norm_epsilon,
            "rope_theta": model.rope_theta,
            "rope_scaling": rope_scaling,
            "rope_parameters": rope_parameters,
            "attention_dropout": model.dropout,
            "tie_word_embeddings": model.tie_embeddings,
            "pad_token_id": null,
            "initializer_range": 0.02,
            "use_cache": true,
            "dtype": "float32",
            "torch_dtype": "float32",
        });
        config[self.activation()[0]] = json!(activation.map(|(name, _)| name));
        let qkv_bias = model.query_key_value_bias.unwrap_or(model.bias);
        if matches!(self.biases(), Biases::Configured | Biases::Attention) {
            config["attention_bias"] = json!(qkv_bias);
        }
        if self.biases() == Biases::Configured {
            config["mlp_bias"] = json!(model.bias);
        }
        self.write_more(model, &mut config);
        config
    }
}

/// Returns true for each bias that a config sets: of queries, keys and values, of attention outputs, and of feed-forward
/// layers.
fn biases(family: &impl LlamaLike, keys: Keys) -> Result<[bool; 3]> {
    let flag = |key| keys.flag(key).map(|flag| flag.unwrap_or(false));
    let (attention, inner) = (flag("attention_bias")?, flag("mlp_bias")?);
    Ok(match family.biases() {
        Biases::Configured => [attention, attention, inner],
        Biases::Attention => [attention, attention, false],
        Biases::QueryKeyValue => [true, false, false],
        Biases::None => [false; 3],
    })
}

/// Returns true for a tensor that is not a parameter: the rotary frequencies stored in old files.
pub(super) fn is_computed(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}
