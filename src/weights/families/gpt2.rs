//! GPT-2 (Radford et al., 2019) under transformers' weight names, which nanoGPT shares.
//!
//! | theirs | ours |
//! |---|---|
//! | `wte.weight`, `wpe.weight` | `embedding.token.weight`, `position.weight` |
//! | `h.0.ln_1.weight`, `.bias` | `blocks.0.attention_norm.gamma`, `.beta` |
//! | `h.0.attn.c_attn`, `h.0.attn.c_proj` | `blocks.0.attention.qkv`, `.output` |
//! | `h.0.ln_2`, `h.0.mlp.c_fc`, `h.0.mlp.c_proj` | `blocks.0.feed_forward_norm`, `.feed_forward.up`, `.down` |
//! | `ln_f`, `lm_head.weight` | `norm`, `head.weight` |
//!
//! transformers stores its `Conv1D` weights as `[in, out]`, as Burn does; nanoGPT uses `nn.Linear`, `[out, in]`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::entry::{ColumnOrder, TensorEntry, TensorPart, module};
use super::keys::Keys;
use super::layout::{Layout, Obstacle};
use crate::error::Result;
use crate::model::{Architecture, Initialisation, ModelConfig, NormPlacement, Sizes};
use crate::ops::{Activation, NormKind};
use crate::position::PositionScheme;
use crate::weights::file::LazyTensor;
use crate::weights::native::Description;

/// Activations by their names in transformers; an export writes the first name of each activation.
const ACTIVATIONS: [(&str, Activation); 8] = [
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::Relu2),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
];

/// GPT-2 in transformers' or nanoGPT's format.
pub(super) struct Gpt2 {
    /// True for nanoGPT.
    pub is_nanogpt: bool,
}

impl Layout for Gpt2 {
    fn name(&self) -> &'static str {
        "gpt2"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(50_256); 2]
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
        &KEYS
    }

    fn read(&self, keys: Keys, tensors: &BTreeMap<String, LazyTensor>) -> Result<Description> {
        read(self, keys, tensors)
    }

    fn entries(&self, description: &Description, has_biases: bool) -> Vec<TensorEntry> {
        entries(self.is_nanogpt, &description.model, description.sizes, has_biases)
    }

    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle> {
        obstacles(model)
    }

    fn write(&self, description: &Description) -> Value {
        write(description)
    }
}

/// Reads the ungated activation at `key`.
///
/// # Errors
/// Returns an error if the activation is not supported.
pub(super) fn activation(keys: Keys, key: &str, default: &str) -> Result<Activation> {
    let name = keys.text(key)?.unwrap_or(default);
    let found = ACTIVATIONS.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, activation)| activation).ok_or_else(|| {
        let known = ACTIVATIONS.map(|(name, _)| name).join(", ");
        keys.refused(key, format!("\"{name}\""), &format!("; the supported activations are {known}"))
    })
}

/// Returns transformers' name of an ungated activation.
pub(super) fn activation_name(activation: Activation) -> Option<&'static str> {
    ACTIVATIONS.into_iter().find(|(_, known)| *known == activation).map(|(name, _)| name)
}

/// Returns the entries of all tensors of a model, with biases or without.
fn entries(is_transposed: bool, model: &ModelConfig, sizes: Sizes, has_biases: bool) -> Vec<TensorEntry> {
    let (d_model, inner) = (model.d_model, model.inner_width());
    let mut entries = Vec::new();
    let mut add = |theirs: &str, ours: &str, rows, columns, is_transposed, has_bias| {
        let part =
            TensorPart { theirs: theirs.to_string(), columns, is_transposed, order: ColumnOrder::Native };
        entries.extend(module(ours, rows, has_bias, &[part]));
    };
    add("wte", "embedding.token", Some(sizes.vocab), d_model, false, false);
    add("wpe", "position", Some(sizes.context), d_model, false, false);
    if !model.tie_embeddings {
        // `[vocab, d_model]` in both layouts.
        add("lm_head", "head", Some(d_model), sizes.vocab, true, false);
    }
    for layer in 0..model.layers {
        for (theirs, ours, rows, columns) in [
            ("ln_1", "attention_norm", None, d_model),
            ("attn.c_attn", "attention.qkv", Some(d_model), 3 * d_model),
            ("attn.c_proj", "attention.output", Some(d_model), d_model),
            ("ln_2", "feed_forward_norm", None, d_model),
            ("mlp.c_fc", "feed_forward.up", Some(d_model), inner),
            ("mlp.c_proj", "feed_forward.down", Some(inner), d_model),
        ] {
            let (theirs, ours) = (format!("h.{layer}.{theirs}"), format!("blocks.{layer}.{ours}"));
            add(&theirs, &ours, rows, columns, is_transposed, has_biases);
        }
    }
    add("ln_f", "norm", None, d_model, is_transposed, has_biases);
    entries
}

/// Native keys and the matching keys of a config.
const KEYS: [(&str, &str); 7] = [
    ("d_model", "n_embd"),
    ("feed_forward", "n_inner"),
    ("d_inner", "n_inner"),
    ("layers", "n_layer"),
    ("heads", "n_head"),
    ("dropout", "resid_pdrop"),
    ("norm_epsilon", "layer_norm_epsilon"),
];

/// Returns true for a causal mask that old files store next to the parameters.
pub(super) fn is_mask(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}

/// Reads the model description from transformers' `GPT2Config` or nanoGPT's `model_args`. Sizes that the config omits
/// are inferred from tensor shapes.
fn read(layout: &Gpt2, keys: Keys, tensors: &BTreeMap<String, LazyTensor>) -> Result<Description> {
    let axis = |name: &str, axis: usize| tensors.get(name).and_then(|tensor| tensor.shape.get(axis).copied());
    let size = |key: &str, found: Option<usize>| match keys.size(key)?.or(found.filter(|&found| found > 0)) {
        Some(size) => Ok(size),
        None => Err(keys.error(format!(
            "the model size `{key}` is missing, and the tensors do not determine it; pass a config.json with \
             --config"
        ))),
    };
    let d_model = size("n_embd", axis("wte.weight", 1))?;
    let vocab = size("vocab_size", axis("wte.weight", 0))?;
    let positions = keys.size("block_size")?.or(axis("wpe.weight", 0));
    let context = size("n_positions", positions)?;
    let blocks = tensors.keys().filter_map(|name| name.strip_prefix("h.")?.split('.').next()?.parse().ok());
    let layers = size("n_layer", blocks.max().map(|last: usize| last.saturating_add(1)))?;
    let heads = keys.size("n_head")?.ok_or_else(|| {
        keys.error("the number of heads (`n_head`) is missing; pass a config.json with --config")
    })?;
    let inner = axis("h.0.mlp.c_fc.weight", usize::from(!layout.is_nanogpt));
    let inner = size("n_inner", inner.or(d_model.checked_mul(4)))?;
    // nanoGPT uses `nn.GELU()`, the exact form.
    let activation =
        activation(keys, "activation_function", if layout.is_nanogpt { "gelu" } else { "gelu_new" })?;
    let is_tied = is_tied(layout, &keys, tensors)?;
    let dropout = keys.number("resid_pdrop")?.or(keys.number("dropout")?);
    let model = ModelConfig {
        architecture: Architecture::Decoder,
        d_model,
        heads,
        key_value_heads: 0,
        layers,
        dropout: dropout.unwrap_or(0.0),
        position: PositionScheme::Learned,
        norm: NormPlacement::Pre,
        norm_epsilon: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        d_inner: if Some(inner) == d_model.checked_mul(4) { 0 } else { inner },
        activation,
        bias: !layout.is_nanogpt || tensors.contains_key("ln_f.bias"),
        head_bias: false,
        tie_embeddings: is_tied,
        embedding_norm: false,
        initialisation: Initialisation::Normal,
        ..ModelConfig::default()
    };
    Ok(Description { model, sizes: Sizes { vocab, context, source_context: None } })
}

/// Returns true if the output layer is the token embedding. The files of transformers may store a copy of a tied head.
fn is_tied(layout: &Gpt2, keys: &Keys, tensors: &BTreeMap<String, LazyTensor>) -> Result<bool> {
    let declared = keys.flag("tie_word_embeddings")?;
    let has_own = super::has_separate_head(tensors, layout)?;
    if declared == Some(true) && has_own {
        return Err(keys.refused("tie_word_embeddings", true, super::NOT_TIED));
    }
    if declared.is_none() && has_own {
        log::warn!(
            "the config does not set `tie_word_embeddings`; the model keeps its own `lm_head.weight`, which differs \
             from the embedding"
        );
    }
    Ok(declared != Some(false) && !has_own)
}

/// Lists the keys that GPT-2 restricts. Missing biases are not an obstacle: they are exported as zeros.
pub(super) fn obstacles(model: &ModelConfig) -> Vec<Obstacle> {
    vec![
        ("position", model.position != PositionScheme::Learned, "\"learned\""),
        ("norm", model.norm != NormPlacement::Pre, "\"pre\""),
        ("norm_kind", model.norm_kind != NormKind::Layer, "\"layer\""),
        ("activation", model.activation.is_gated(), "an ungated activation"),
        ("d_head", model.d_head > 0 && model.d_head * model.heads != model.d_model, "d_model / heads"),
        ("key_value_heads", ![0, model.heads].contains(&model.key_value_heads), "the value of heads"),
        ("qk_norm", model.qk_norm, "false"),
    ]
}

/// Returns the contents of a `config.json`.
fn write(Description { model, sizes }: &Description) -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": sizes.vocab,
        "n_positions": sizes.context,
        "n_ctx": sizes.context,
        "n_embd": model.d_model,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.inner_width(),
        "activation_function": activation_name(model.activation),
        "layer_norm_epsilon": model.norm_epsilon,
        "tie_word_embeddings": model.tie_embeddings,
        "attn_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "resid_pdrop": model.dropout,
        "dtype": "float32",
        "torch_dtype": "float32",
    })
}
