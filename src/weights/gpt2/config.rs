//! The config of a GPT-2: transformers' `config.json`, or nanoGPT's `model_args`.

use std::{collections::BTreeMap, path::Path};

use burn::tensor::TensorData;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Layout;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::model::{Architecture, Initialisation, ModelConfig, NormPlacement, Sizes};
use crate::ops::Activation;
use crate::position::PositionScheme;
use crate::weights::native::Description;

/// The keys of transformers' `GPT2Config` and of nanoGPT's `model_args` that decide what a model
/// computes; others are allowed.
#[derive(Debug, Deserialize)]
struct Config {
    model_type: Option<String>,
    n_embd: Option<usize>,
    n_head: Option<usize>,
    n_layer: Option<usize>,
    vocab_size: Option<usize>,
    #[serde(alias = "block_size")]
    n_positions: Option<usize>,
    n_inner: Option<usize>,
    activation_function: Option<String>,
    layer_norm_epsilon: Option<f64>,
    #[serde(alias = "dropout")]
    resid_pdrop: Option<f64>,
    tie_word_embeddings: Option<bool>,
    scale_attn_weights: Option<bool>,
    scale_attn_by_inverse_layer_idx: Option<bool>,
    add_cross_attention: Option<bool>,
}

/// What model the tensors belong to: by the config, and by their shapes where it is silent.
pub(super) fn read(
    tensors: &BTreeMap<String, TensorData>,
    layout: Layout,
    (config, place): (Value, &Path),
) -> Result<Description> {
    let refused = |problem: String| Error::file(place, problem);
    let config: Config = serde_json::from_value(config)
        .map_err(|error| refused(format!("is no config of a GPT-2: {error}")))?;
    if let Some(other) = config.model_type.as_deref().filter(|name| *name != "gpt2") {
        return Err(refused(format!("`model_type` is \"{other}\", and only \"gpt2\" can be imported")));
    }
    for (key, value, wanted) in [
        ("scale_attn_weights", config.scale_attn_weights, true),
        ("scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx, false),
        ("add_cross_attention", config.add_cross_attention, false),
    ] {
        if value.is_some_and(|value| value != wanted) {
            return Err(refused(format!("`{key}` is {}, which this decoder does not compute", !wanted)));
        }
    }
    let axis = |name: &str, axis: usize| tensors.get(name).and_then(|data| data.shape.get(axis).copied());
    let size = |key: &str, given: Option<usize>, found: Option<usize>| match given.or(found) {
        Some(0) => Err(refused(format!("`{key}` is 0: it must be at least 1"))),
        Some(size) => Ok(size),
        None => Err(refused(format!("neither `{key}` nor a tensor says how large the model is"))),
    };
    let d_model = size("n_embd", config.n_embd, axis("wte.weight", 1))?;
    let vocab = size("vocab_size", config.vocab_size, axis("wte.weight", 0))?;
    let context = size("n_positions", config.n_positions, axis("wpe.weight", 0))?;
    let blocks = tensors.keys().filter_map(|name| name.strip_prefix("h.")?.split('.').next()?.parse().ok());
    let layers = size("n_layer", config.n_layer, blocks.max().map(|last: usize| last.saturating_add(1)))?;
    let heads = config.n_head.ok_or_else(|| {
        refused("no config says how many heads the model has: give it by --config config.json".into())
    })?;
    let inner = axis("h.0.mlp.c_fc.weight", if layout == Layout::InputOutput { 1 } else { 0 });
    let inner = size("n_inner", config.n_inner, inner.or(Some(4 * d_model)))?;
    if !inner.is_multiple_of(d_model) {
        return Err(refused(format!("the inner width {inner} is no multiple of the width {d_model}")));
    }
    // nanoGPT calls `nn.GELU()`.
    let usual = if layout == Layout::InputOutput { "gelu_new" } else { "gelu" };
    let activation = match config.activation_function.as_deref().unwrap_or(usual) {
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Activation::GeluTanh,
        "gelu" => Activation::Gelu,
        other => {
            let known = "gelu_new, gelu_pytorch_tanh, gelu_fast and gelu are known";
            return Err(refused(format!("`activation_function` is \"{other}\": {known}")));
        }
    };
    let head_differs = tensors.get("lm_head.weight").is_some_and(|head| {
        tensors.get("wte.weight").is_some_and(|table| head.shape != table.shape || head.bytes != table.bytes)
    });
    let model = ModelConfig {
        architecture: Architecture::Decoder,
        d_model,
        heads,
        key_value_heads: 0,
        layers,
        dropout: config.resid_pdrop.unwrap_or(0.0),
        position: PositionScheme::Learned,
        norm: NormPlacement::Pre,
        norm_epsilon: config.layer_norm_epsilon.unwrap_or(1e-5),
        feed_forward: inner / d_model,
        activation,
        bias: layout == Layout::InputOutput || tensors.contains_key("ln_f.bias"),
        head_bias: false,
        tie_embeddings: config.tie_word_embeddings != Some(false) && !head_differs,
        embedding_norm: false,
        initialisation: Initialisation::Normal,
        ..ModelConfig::default()
    };
    model.check().map_err(|error| refused(error.to_string()))?;
    Ok(Description { model, sizes: Sizes { vocab, context, source_context: None } })
}

/// The contents of a `config.json` for a model that is a GPT-2.
pub(super) fn write(description: &Description, vocabulary: &Vocabulary) -> Value {
    let Description { model, sizes } = description;
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": sizes.vocab,
        "n_positions": sizes.context,
        "n_ctx": sizes.context,
        "n_embd": model.d_model,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.feed_forward * model.d_model,
        "activation_function": if model.activation == Activation::GeluTanh { "gelu_new" } else { "gelu" },
        "layer_norm_epsilon": model.norm_epsilon,
        "tie_word_embeddings": model.tie_embeddings,
        "attn_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "resid_pdrop": model.dropout,
        "bos_token_id": vocabulary.end(),
        "eos_token_id": vocabulary.end(),
        "torch_dtype": "float32",
    })
}
