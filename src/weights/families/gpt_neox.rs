//! GPT-NeoX (Black et al., 2022, arXiv 2204.06745), the family of Pythia (Biderman et al., 2023, arXiv 2304.01373), under
//! transformers' names.
//!
//! | theirs | ours |
//! |---|---|
//! | `embed_in.weight` | `embedding.token.weight` |
//! | `layers.0.input_layernorm`, `.post_attention_layernorm` | `blocks.0.attention_norm`, `.feed_forward_norm` |
//! | `layers.0.attention.query_key_value` | `blocks.0.attention.qkv` |
//! | `layers.0.attention.dense` | `blocks.0.attention.output` |
//! | `layers.0.mlp.dense_h_to_4h`, `.dense_4h_to_h` | `blocks.0.feed_forward.up`, `.down` |
//! | `final_layer_norm`, `embed_out.weight` | `norm`, `head.weight` |
//!
//! `query_key_value` stores the query, key and value of a head next to each other.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::entry::{ColumnOrder, RotatedHead, TensorEntry, TensorPart, module};
use super::gpt2;
use super::keys::Keys;
use super::layout::{Layout, Obstacle};
use super::rope::{self, Base};
use crate::error::Result;
use crate::model::{Architecture, Initialisation, ModelConfig, NormPlacement, Sizes};
use crate::ops::NormKind;
use crate::position::PositionScheme;
use crate::weights::file::LazyTensor;
use crate::weights::native::Description;

/// The layout of GPT-NeoX.
pub(super) struct GptNeox;

impl Layout for GptNeox {
    fn name(&self) -> &'static str {
        "gpt_neox"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(0), Some(2)]
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &["use_parallel_residual", "rotary_pct", "partial_rotary_factor"]
    }

    fn expresses(&self) -> &'static [&'static str] {
        &["parallel", "rotary_fraction"]
    }

    fn prefix(&self) -> &'static str {
        "gpt_neox."
    }

    fn head(&self) -> &'static str {
        "embed_out.weight"
    }

    fn table(&self) -> &'static str {
        "embed_in.weight"
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("d_model", "hidden_size"),
            ("d_inner", "intermediate_size"),
            ("layers", "num_hidden_layers"),
            ("heads", "num_attention_heads"),
            ("dropout", "hidden_dropout"),
            ("norm_epsilon", "layer_norm_eps"),
            ("rotary_fraction", "rotary_pct"),
            ("rope_theta", "rotary_emb_base"),
        ]
    }

    fn read(&self, keys: Keys, _tensors: &BTreeMap<String, LazyTensor>) -> Result<Description> {
        let d_model = keys.required_size("hidden_size")?;
        let inner = keys.required_size("intermediate_size")?;
        let has_biases = keys.flag("attention_bias")?.unwrap_or(true);
        let model = ModelConfig {
            architecture: Architecture::Decoder,
            d_model,
            heads: keys.required_size("num_attention_heads")?,
            layers: keys.required_size("num_hidden_layers")?,
            dropout: keys.number("hidden_dropout")?.unwrap_or(0.0),
            position: PositionScheme::Rotary,
            norm: NormPlacement::Pre,
            parallel: keys.flag("use_parallel_residual")?.ok_or_else(|| {
                keys.error("lacks the key `use_parallel_residual`: true for Pythia and GPT-NeoX-20B")
            })?,
            norm_epsilon: keys.number("layer_norm_eps")?.unwrap_or(1e-5),
            d_inner: if Some(inner) == d_model.checked_mul(4) { 0 } else { inner },
            activation: gpt2::activation(keys, "hidden_act", "gelu")?,
            query_key_value_bias: (!has_biases).then_some(false),
            attention_output_bias: (!has_biases).then_some(false),
            tie_embeddings: keys.flag("tie_word_embeddings")?.unwrap_or(false),
            initialisation: Initialisation::Normal,
            ..ModelConfig::default()
        };
        let base = Base::new("rotary_emb_base", 10_000.0).with_fraction("rotary_pct", 0.25);
        let model = rope::read(keys, base, model)?;
        let context = keys.required_size("max_position_embeddings")?;
        let vocab = keys.required_size("vocab_size")?;
        Ok(Description { model, sizes: Sizes { vocab, context, source_context: None } })
    }

    fn entries(&self, Description { model, sizes }: &Description, _has_biases: bool) -> Vec<TensorEntry> {
        let (d_model, inner, width) = (model.d_model, model.inner_width(), model.head_width());
        let part = |theirs: &str, columns, order| TensorPart {
            theirs: theirs.to_string(),
            columns,
            is_transposed: true,
            order,
        };
        let plain = |theirs: &str, columns| part(theirs, columns, ColumnOrder::Native);
        let table = TensorPart { is_transposed: false, ..plain("embed_in", d_model) };
        let mut entries = Vec::from_iter(module("embedding.token", Some(sizes.vocab), false, &[table]));
        entries.extend(module("norm", None, model.bias, &[plain("final_layer_norm", d_model)]));
        if !model.tie_embeddings {
            entries.extend(module("head", Some(d_model), false, &[plain("embed_out", sizes.vocab)]));
        }
        let head = RotatedHead { width, rotated: model.rotation().width(width) };
        let by_head = ColumnOrder::ByHead { heads: model.heads, head };
        let qkv_bias = model.query_key_value_bias.unwrap_or(model.bias);
        let output_bias = model.attention_output_bias.unwrap_or(model.bias);
        let native = ColumnOrder::Native;
        for layer in 0..model.layers {
            for (ours, theirs, rows, columns, order, has_bias) in [
                ("attention_norm", "input_layernorm", None, d_model, native, model.bias),
                ("feed_forward_norm", "post_attention_layernorm", None, d_model, native, model.bias),
                ("attention.qkv", "attention.query_key_value", Some(d_model), 3 * d_model, by_head, qkv_bias),
                ("attention.output", "attention.dense", Some(d_model), d_model, native, output_bias),
                ("feed_forward.up", "mlp.dense_h_to_4h", Some(d_model), inner, native, model.bias),
                ("feed_forward.down", "mlp.dense_4h_to_h", Some(inner), d_model, native, model.bias),
            ] {
                let part = part(&format!("layers.{layer}.{theirs}"), columns, order);
                entries.extend(module(&format!("blocks.{layer}.{ours}"), rows, has_bias, &[part]));
            }
        }
        entries
    }

    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle> {
        let [qkv_bias, output_bias] =
            [model.query_key_value_bias, model.attention_output_bias].map(|bias| bias.unwrap_or(model.bias));
        vec![
            ("position", model.position != PositionScheme::Rotary, "\"rotary\""),
            ("norm", model.norm != NormPlacement::Pre, "\"pre\""),
            ("norm_kind", model.norm_kind != NormKind::Layer, "\"layer\""),
            ("activation", model.activation.is_gated(), "an ungated activation"),
            ("bias", !model.bias, "true"),
            ("attention_output_bias", qkv_bias != output_bias, "the value of query_key_value_bias"),
            ("d_head", model.d_head > 0 && model.d_head * model.heads != model.d_model, "d_model / heads"),
            ("key_value_heads", ![0, model.heads].contains(&model.key_value_heads), "the value of heads"),
            ("qk_norm", model.qk_norm, "false"),
        ]
    }

    fn write(&self, Description { model, sizes }: &Description) -> Value {
        let [mut rope_parameters, rope_scaling] = rope::write(model);
        let fraction = model.rotary_fraction.unwrap_or(1.0);
        rope_parameters["partial_rotary_factor"] = json!(fraction);
        json!({
            "architectures": ["GPTNeoXForCausalLM"],
            "model_type": "gpt_neox",
            "vocab_size": sizes.vocab,
            "max_position_embeddings": rope::max_positions(model, sizes.context),
            "hidden_size": model.d_model,
            "intermediate_size": model.inner_width(),
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "hidden_act": gpt2::activation_name(model.activation),
            "layer_norm_eps": model.norm_epsilon,
            "rotary_pct": fraction,
            "rotary_emb_base": model.rope_theta,
            "rope_parameters": rope_parameters,
            "rope_scaling": rope_scaling,
            "use_parallel_residual": model.parallel,
            "attention_bias": model.query_key_value_bias.unwrap_or(model.bias),
            "tie_word_embeddings": model.tie_embeddings,
            "attention_dropout": model.dropout,
            "hidden_dropout": model.dropout,
            "initializer_range": 0.02,
            "use_cache": true,
            "dtype": "float32",
            "torch_dtype": "float32",
        })
    }
}

/// Returns true for a tensor that is not a parameter: the masks and rotary frequencies of old files.
pub(super) fn is_buffer(name: &str) -> bool {
    [".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"]
        .iter()
        .any(|end| name.ends_with(end))
}
