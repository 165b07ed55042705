//! GPT-Neo (Black et al., 2021), the family of TinyStories (Eldan and Li, 2023, arXiv 2305.07759), under transformers' names:
//! a GPT-2 with windows in every other layer, and scores that are not scaled.
//!
//! | theirs | ours |
//! |---|---|
//! | `wte.weight`, `wpe.weight` | `embedding.token.weight`, `position.weight` |
//! | `h.0.ln_1`, `.ln_2` | `blocks.0.attention_norm`, `.feed_forward_norm` |
//! | `h.0.attn.attention.q_proj`, `.k_proj`, `.v_proj` | the columns of `blocks.0.attention.qkv` |
//! | `h.0.attn.attention.out_proj` | `blocks.0.attention.output` |
//! | `h.0.mlp.c_fc`, `.c_proj` | `blocks.0.feed_forward.up`, `.down` |
//! | `ln_f`, `lm_head.weight` | `norm`, `head.weight` |

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::entry::{ColumnOrder, TensorEntry, TensorPart, module};
use super::gpt2;
use super::keys::Keys;
use super::layout::{Layout, Obstacle};
use super::spans;
use crate::error::Result;
use crate::model::{Architecture, Initialisation, ModelConfig, Sizes};
use crate::position::PositionScheme;
use crate::weights::file::LazyTensor;
use crate::weights::native::Description;

/// The layout of GPT-Neo.
pub(super) struct GptNeo;

impl Layout for GptNeo {
    fn name(&self) -> &'static str {
        "gpt_neo"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(50_256); 2]
    }

    fn expresses(&self) -> &'static [&'static str] {
        &["window", "layer_pattern", "attention_scale"]
    }

    fn prefix(&self) -> &'static str {
        "transformer."
    }

    fn table(&self) -> &'static str {
        "wte.weight"
    }

    fn is_rotary(&self) -> bool {
        false
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("d_model", "hidden_size"),
            ("d_inner", "intermediate_size"),
            ("layers", "num_layers"),
            ("heads", "num_heads"),
            ("dropout", "resid_dropout"),
            ("norm_epsilon", "layer_norm_epsilon"),
            ("window", "window_size"),
        ]
    }

    fn read(&self, keys: Keys, _tensors: &BTreeMap<String, LazyTensor>) -> Result<Description> {
        let [d_model, heads, layers] =
            ["hidden_size", "num_heads", "num_layers"].map(|key| keys.required_size(key));
        let (d_model, heads, layers) = (d_model?, heads?, layers?);
        let context = keys.required_size("max_position_embeddings")?;
        let inner = keys.size("intermediate_size")?;
        let window = keys.size("window_size")?.unwrap_or(256);
        let model = ModelConfig {
            architecture: Architecture::Decoder,
            d_model,
            heads,
            layers,
            dropout: keys.number("resid_dropout")?.unwrap_or(0.0),
            attention_scale: Some(1.0),
            position: PositionScheme::Learned,
            norm_epsilon: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
            d_inner: inner.filter(|inner| Some(*inner) != d_model.checked_mul(4)).unwrap_or(0),
            activation: gpt2::activation(keys, "activation_function", "gelu_new")?,
            query_key_value_bias: Some(false),
            tie_embeddings: keys.flag("tie_word_embeddings")?.unwrap_or(true),
            initialisation: Initialisation::Normal,
            ..ModelConfig::default()
        };
        let model = spans::put(model, Some(window), context, &kinds(keys, layers)?);
        let vocab = keys.required_size("vocab_size")?;
        Ok(Description { model, sizes: Sizes { vocab, context, source_context: None } })
    }

    fn entries(&self, Description { model, sizes }: &Description, has_biases: bool) -> Vec<TensorEntry> {
        let (d_model, inner) = (model.d_model, model.inner_width());
        let part = |theirs: &str, columns| TensorPart {
            theirs: theirs.to_string(),
            columns,
            is_transposed: true,
            order: ColumnOrder::Native,
        };
        let table = |theirs| TensorPart { is_transposed: false, ..part(theirs, d_model) };
        let mut entries =
            Vec::from_iter(module("embedding.token", Some(sizes.vocab), false, &[table("wte")]));
        entries.extend(module("position", Some(sizes.context), false, &[table("wpe")]));
        if !model.tie_embeddings {
            entries.extend(module("head", Some(d_model), false, &[part("lm_head", sizes.vocab)]));
        }
        for layer in 0..model.layers {
            let of = |theirs: &str, columns| part(&format!("h.{layer}.{theirs}"), columns);
            let qkv =
                ["q_proj", "k_proj", "v_proj"].map(|name| of(&format!("attn.attention.{name}"), d_model));
            for (ours, rows, has_bias, parts) in [
                ("attention_norm", None, has_biases, vec![of("ln_1", d_model)]),
                ("attention.qkv", Some(d_model), false, qkv.to_vec()),
                ("attention.output", Some(d_model), has_biases, vec![of("attn.attention.out_proj", d_model)]),
                ("feed_forward_norm", None, has_biases, vec![of("ln_2", d_model)]),
                ("feed_forward.up", Some(d_model), has_biases, vec![of("mlp.c_fc", inner)]),
                ("feed_forward.down", Some(inner), has_biases, vec![of("mlp.c_proj", d_model)]),
            ] {
                entries.extend(module(&format!("blocks.{layer}.{ours}"), rows, has_bias, &parts));
            }
        }
        entries.extend(module("norm", None, has_biases, &[part("ln_f", d_model)]));
        entries
    }

    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle> {
        let qkv_bias = model.query_key_value_bias.unwrap_or(model.bias);
        let mut all = gpt2::obstacles(model);
        all.extend([
            ("attention_scale", model.attention_scale != Some(1.0), "1"),
            ("query_key_value_bias", qkv_bias, "false"),
        ]);
        all
    }

    fn write(&self, Description { model, sizes }: &Description) -> Value {
        let kind = |layer| if model.window_of(layer).is_some() { "local" } else { "global" };
        let kinds: Vec<_> = (0..model.layers).map(kind).collect();
        json!({
            "architectures": ["GPTNeoForCausalLM"],
            "model_type": "gpt_neo",
            "vocab_size": sizes.vocab,
            "max_position_embeddings": sizes.context,
            "hidden_size": model.d_model,
            "num_layers": model.layers,
            "num_heads": model.heads,
            "intermediate_size": model.inner_width(),
            "window_size": model.window.unwrap_or(256),
            "attention_types": [[kinds, 1]],
            "attention_layers": kinds,
            "activation_function": gpt2::activation_name(model.activation),
            "layer_norm_epsilon": model.norm_epsilon,
            "tie_word_embeddings": model.tie_embeddings,
            "resid_dropout": model.dropout,
            "embed_dropout": model.dropout,
            "attention_dropout": model.dropout,
            "initializer_range": 0.02,
            "use_cache": true,
            "dtype": "float32",
            "torch_dtype": "float32",
        })
    }
}

/// Reads `attention_types`, such as `[[["global", "local"], 12]]`: true for each layer with a window. Without the key,
/// every other layer has one.
fn kinds(keys: Keys, layers: usize) -> Result<Vec<bool>> {
    let key = "attention_types";
    let Some(groups) = keys.list(key)? else { return Ok((0..layers).map(|layer| layer % 2 == 1).collect()) };
    let group = |group: &Value| {
        let times: usize = group.get(1)?.as_u64()?.try_into().ok().filter(|times| *times <= layers)?;
        let kinds = group.get(0)?.as_array()?.iter().map(|kind| match kind.as_str() {
            Some("local") => Some(true),
            Some("global") => Some(false),
            _ => None,
        });
        Some(kinds.collect::<Option<Vec<_>>>()?.repeat(times))
    };
    let kinds = groups.iter().map(group).collect::<Option<Vec<_>>>().map(|kinds| kinds.concat());
    kinds.filter(|kinds| kinds.len() == layers).ok_or_else(|| {
        let problem = format!(", but must list \"global\" or \"local\" for {layers} layers");
        keys.refused(key, json!(groups), &problem)
    })
}
