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

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::entry::{ColumnOrder, RotatedHead, TensorEntry, TensorPart, module};
use super::keys::Keys;
use super::layout::{Layout, Obstacle};
use super::{Family, rope};
use crate::error::Result;
use crate::model::{Architecture, Initialisation, ModelConfig, NormPlacement, Sizes};
use crate::ops::{Activation, NormKind};
use crate::position::PositionScheme;
use crate::weights::file::LazyTensor;
use crate::weights::native::Description;

/// The layout of Llama.
pub(super) struct Llama;

impl Layout for Llama {
    fn prefix(&self) -> &'static str {
        "model."
    }

    fn table(&self) -> &'static str {
        "embed_tokens.weight"
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &KEYS
    }

    fn read(
        &self,
        family: Family,
        keys: Keys,
        _tensors: &BTreeMap<String, LazyTensor>,
    ) -> Result<Description> {
        read(family, keys)
    }

    fn entries(&self, _family: Family, description: &Description, _has_biases: bool) -> Vec<TensorEntry> {
        entries(&description.model, description.sizes)
    }

    fn obstacles(&self, family: Family, model: &ModelConfig) -> Vec<Obstacle> {
        obstacles(family, model)
    }

    fn write(&self, family: Family, description: &Description) -> Value {
        write(family, description)
    }
}

/// The differences between the families related to Llama.
#[derive(Debug)]
struct Differences {
    architecture: &'static str,
    biases: Biases,
    /// True if queries and keys are normalised.
    qk_norm: bool,
    /// The default width of a head; `None` for `d_model` divided by the number of heads.
    head_width: Option<usize>,
    /// The default of `tie_word_embeddings`.
    is_tied: bool,
    theta: f64,
}

/// The biases of a family.
#[derive(Debug, PartialEq, Eq)]
enum Biases {
    /// `attention_bias` sets them in attention, and `mlp_bias` in the feed-forward layers.
    Configured,
    /// `attention_bias` sets them in attention; feed-forward layers have none.
    Attention,
    /// None.
    None,
    /// Only queries, keys and values have biases.
    QueryKeyValue,
}

const LLAMA: Differences = Differences {
    architecture: "LlamaForCausalLM",
    biases: Biases::Configured,
    qk_norm: false,
    head_width: None,
    is_tied: false,
    theta: 10_000.0,
};

fn differences(family: Family) -> Differences {
    match family {
        Family::Qwen2 => {
            Differences { architecture: "Qwen2ForCausalLM", biases: Biases::QueryKeyValue, ..LLAMA }
        }
        Family::Mistral => Differences { architecture: "MistralForCausalLM", biases: Biases::None, ..LLAMA },
        Family::Qwen3 => Differences {
            architecture: "Qwen3ForCausalLM",
            biases: Biases::Attention,
            qk_norm: true,
            head_width: Some(128),
            ..LLAMA
        },
        Family::Smollm3 => {
            Differences { architecture: "SmolLM3ForCausalLM", is_tied: true, theta: 2_000_000.0, ..LLAMA }
        }
        Family::Llama | Family::Gpt2 | Family::Nanogpt | Family::GptNeox => LLAMA,
    }
}

/// Native keys and the matching keys of a config.
const KEYS: [(&str, &str); 8] = [
    ("d_model", "hidden_size"),
    ("d_inner", "intermediate_size"),
    ("layers", "num_hidden_layers"),
    ("heads", "num_attention_heads"),
    ("key_value_heads", "num_key_value_heads"),
    ("d_head", "head_dim"),
    ("dropout", "attention_dropout"),
    ("norm_epsilon", "rms_norm_eps"),
];

/// Reads the model description from a config.
fn read(family: Family, keys: Keys) -> Result<Description> {
    let differences = differences(family);
    let [d_model, heads, layers] =
        ["hidden_size", "num_attention_heads", "num_hidden_layers"].map(|key| keys.required_size(key));
    let (d_model, heads, layers) = (d_model?, heads?, layers?);
    let d_head = keys.size("head_dim")?.or(differences.head_width);
    let activation = match keys.text("hidden_act")?.unwrap_or("silu") {
        "silu" | "swish" => Activation::Swiglu,
        "gelu" => Activation::Geglu,
        other => {
            let problem = "; the supported gated activations are silu and gelu";
            return Err(keys.refused("hidden_act", format!("\"{other}\""), problem));
        }
    };
    let flag = |key| keys.flag(key).map(|flag| flag.unwrap_or(false));
    let (attention_bias, bias) = (flag("attention_bias")?, flag("mlp_bias")?);
    let [qkv_bias, output_bias, bias] = match differences.biases {
        Biases::Configured => [attention_bias, attention_bias, bias],
        Biases::Attention => [attention_bias, attention_bias, false],
        Biases::QueryKeyValue => [true, false, false],
        Biases::None => [false; 3],
    };
    let context = keys.required_size("max_position_embeddings")?;
    let window = if family == Family::Mistral { window(keys)? } else { None };
    let model = ModelConfig {
        architecture: Architecture::Decoder,
        d_model,
        heads,
        d_head: d_head.filter(|width| width.checked_mul(heads) != Some(d_model)).unwrap_or(0),
        key_value_heads: keys.size("num_key_value_heads")?.unwrap_or(heads),
        layers,
        dropout: keys.number("attention_dropout")?.unwrap_or(0.0),
        qk_norm: differences.qk_norm,
        // A window of the context hides nothing in training, and generation reads no longer text.
        window: window.filter(|window| *window < context),
        rotary_skip_every: if family == Family::Smollm3 { skip_every(keys, layers)? } else { None },
        position: PositionScheme::Rotary,
        norm: NormPlacement::Pre,
        norm_kind: NormKind::Rms,
        norm_epsilon: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
        d_inner: keys.required_size("intermediate_size")?,
        activation,
        bias,
        query_key_value_bias: (qkv_bias != bias).then_some(qkv_bias),
        attention_output_bias: (output_bias != bias).then_some(output_bias),
        tie_embeddings: keys.flag("tie_word_embeddings")?.unwrap_or(differences.is_tied),
        initialisation: Initialisation::Normal,
        ..ModelConfig::default()
    };
    let model = rope::read(keys, differences.theta, model)?;
    let vocab = keys.required_size("vocab_size")?;
    Ok(Description { model, sizes: Sizes { vocab, context, source_context: None } })
}

/// The window of a Mistral whose config lacks the key.
pub(super) const MISTRAL_WINDOW: usize = 4096;

/// Returns the sliding window of a Mistral; `null` is none.
fn window(keys: Keys) -> Result<Option<usize>> {
    if keys.is_missing("sliding_window") {
        return Ok(Some(MISTRAL_WINDOW));
    }
    keys.size("sliding_window")
}

/// Returns the interval of the layers of a SmolLM3 without rotary positions; `None` if all layers have them.
fn skip_every(keys: Keys, layers: usize) -> Result<Option<usize>> {
    let Some(listed) = keys.list("no_rope_layers")? else {
        let interval = keys.size("no_rope_layer_interval")?.unwrap_or(4);
        return Ok(Some(interval).filter(|interval| *interval <= layers));
    };
    // A layer with the value 1 has rotary positions.
    let every = listed.iter().position(|layer| *layer == json!(0)).map(|first| first + 1);
    let is_regular = (0..layers)
        .map(|layer| json!(u8::from(every.is_none_or(|every| !(layer + 1).is_multiple_of(every)))));
    if every == Some(1) || !is_regular.eq(listed.iter().map(|layer| json!(layer))) {
        let problem = format!(
            ", but must have {layers} values: 1, or 0 in every nth layer for layers without rotary positions"
        );
        return Err(keys.refused("no_rope_layers", json!(listed), &problem));
    }
    Ok(every)
}

/// Returns the entries of all tensors of a model.
fn entries(model: &ModelConfig, sizes: Sizes) -> Vec<TensorEntry> {
    let (d_model, width, inner) = (model.d_model, model.head_width(), model.inner_width());
    let shared = if model.key_value_heads == 0 { model.heads } else { model.key_value_heads };
    let (queries, keys) = (model.heads * width, shared * width);
    let qkv_bias = model.query_key_value_bias.unwrap_or(model.bias);
    let output_bias = model.attention_output_bias.unwrap_or(model.bias);
    let part = |theirs: &str, columns, rotary_width: Option<usize>| {
        let rotary = |width| ColumnOrder::Rotary(RotatedHead { width, rotated: width });
        let (theirs, order) = (theirs.to_string(), rotary_width.map_or(ColumnOrder::Native, rotary));
        TensorPart { theirs, columns, is_transposed: true, order }
    };
    let mut entries = Vec::from_iter(module("norm", None, false, &[part("norm", d_model, None)]));
    let norms = [
        ("attention_norm", "input_layernorm", d_model, None),
        ("feed_forward_norm", "post_attention_layernorm", d_model, None),
        ("attention.query_norm", "self_attn.q_norm", width, Some(width)),
        ("attention.key_norm", "self_attn.k_norm", width, Some(width)),
    ];
    for layer in 0..model.layers {
        for (ours, theirs, columns, rotary_width) in norms.into_iter().take(if model.qk_norm { 4 } else { 2 })
        {
            let part = part(&format!("layers.{layer}.{theirs}"), columns, rotary_width);
            entries.extend(module(&format!("blocks.{layer}.{ours}"), None, false, &[part]));
        }
    }
    let table = TensorPart { is_transposed: false, ..part("embed_tokens", d_model, None) };
    entries.extend(module("embedding.token", Some(sizes.vocab), false, &[table]));
    if !model.tie_embeddings {
        let head = part("lm_head", sizes.vocab, None);
        entries.extend(module("head", Some(d_model), false, &[head]));
    }
    for layer in 0..model.layers {
        let part =
            |theirs, columns, rotary_width| part(&format!("layers.{layer}.{theirs}"), columns, rotary_width);
        let qkv = vec![
            part("self_attn.q_proj", queries, Some(width)),
            part("self_attn.k_proj", keys, Some(width)),
            part("self_attn.v_proj", keys, None),
        ];
        let up = vec![part("mlp.gate_proj", inner, None), part("mlp.up_proj", inner, None)];
        for (ours, rows, has_bias, parts) in [
            ("attention.qkv", d_model, qkv_bias, qkv),
            ("attention.output", queries, output_bias, vec![part("self_attn.o_proj", d_model, None)]),
            ("feed_forward.up", d_model, model.bias, up),
            ("feed_forward.down", inner, model.bias, vec![part("mlp.down_proj", d_model, None)]),
        ] {
            entries.extend(module(&format!("blocks.{layer}.{ours}"), Some(rows), has_bias, &parts));
        }
    }
    entries
}

/// Returns true for a tensor that is not a parameter: the rotary frequencies stored in old files.
pub(super) fn is_computed(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

/// Lists the keys that a family restricts.
fn obstacles(family: Family, model: &ModelConfig) -> Vec<Obstacle> {
    let Differences { biases, qk_norm, .. } = differences(family);
    let qkv_bias = model.query_key_value_bias.unwrap_or(model.bias);
    let output_bias = model.attention_output_bias.unwrap_or(model.bias);
    let is_indivisible = family == Family::Llama && !model.d_model.is_multiple_of(model.heads);
    vec![
        ("position", model.position != PositionScheme::Rotary, "\"rotary\""),
        ("norm", model.norm != NormPlacement::Pre, "\"pre\""),
        ("norm_kind", model.norm_kind != NormKind::Rms, "\"rms\""),
        ("activation", !model.activation.is_gated(), "\"swiglu\" or \"geglu\""),
        ("heads", is_indivisible, "a divisor of d_model"),
        ("qk_norm", model.qk_norm != qk_norm, if qk_norm { "true" } else { "false" }),
        ("bias", model.bias && biases != Biases::Configured, "false"),
        match biases {
            Biases::QueryKeyValue => ("query_key_value_bias", !qkv_bias, "true"),
            _ if model.attention_output_bias.is_some() => {
                ("attention_output_bias", qkv_bias != output_bias, "the value of query_key_value_bias")
            }
            _ => ("query_key_value_bias", qkv_bias != output_bias, "the value of attention_output_bias"),
        },
        ("attention_output_bias", biases == Biases::QueryKeyValue && output_bias && !model.bias, "false"),
    ]
}

/// Returns the contents of a `config.json`, complete for transformers 4 and 5.
fn write(family: Family, Description { model, sizes }: &Description) -> Value {
    let Differences { architecture, biases, .. } = differences(family);
    let [rope_parameters, rope_scaling] = rope::write(model);
    let mut config = json!({
        "architectures": [architecture],
        "model_type": family.name(),
        "vocab_size": sizes.vocab,
        "max_position_embeddings": rope::max_positions(model, sizes.context),
        "hidden_size": model.d_model,
        "intermediate_size": model.inner_width(),
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": if model.key_value_heads == 0 { model.heads } else { model.key_value_heads },
        "head_dim": model.head_width(),
        "hidden_act": if model.activation == Activation::Geglu { "gelu" } else { "silu" },
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
    let qkv_bias = model.query_key_value_bias.unwrap_or(model.bias);
    let more = match biases {
        Biases::Configured => json!({"attention_bias": qkv_bias, "mlp_bias": model.bias}),
        Biases::QueryKeyValue => json!({"use_sliding_window": false}),
        Biases::Attention => json!({"attention_bias": qkv_bias, "use_sliding_window": false}),
        Biases::None => json!({"sliding_window": model.window}),
    };
    let more = more.as_object().expect("an object").clone();
    config.as_object_mut().expect("an object").extend(more);
    if let Some(every) = model.rotary_skip_every.filter(|_| family == Family::Smollm3) {
        let layers: Vec<_> = (0..model.layers).map(|layer| u8::from(!model.skips_rotation(layer))).collect();
        config["no_rope_layer_interval"] = json!(every);
        config["no_rope_layers"] = json!(layers);
        config["use_sliding_window"] = json!(false);
    }
    config
}
