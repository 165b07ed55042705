//! GPT-2's weights (Radford et al., 2019) under the names that transformers gives them, which
//! nanoGPT shares.
//!
//! | theirs | ours |
//! |---|---|
//! | `wte.weight`, `wpe.weight` | `embedding.token.weight`, `position.weight` |
//! | `h.0.ln_1.weight`, `.bias` | `blocks.0.attention_norm.gamma`, `.beta` |
//! | `h.0.attn.c_attn`, `h.0.attn.c_proj` | `blocks.0.attention.qkv`, `.output` |
//! | `h.0.ln_2`, `h.0.mlp.c_fc`, `h.0.mlp.c_proj` | `blocks.0.feed_forward_norm`, `.feed_forward.up`, `.down` |
//! | `ln_f`, `lm_head.weight` | `norm`, `head.weight` |
//!
//! transformers keeps the weights of its `Conv1D` as `[in, out]`, as Burn does; nanoGPT's are
//! `nn.Linear`'s, `[out, in]`.

mod config;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::TensorData;
use serde_json::{Value, json};

use super::native::{Description, Tensors};
use super::{listed, transposed};
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::model::{Architecture, ModelConfig, NormPlacement, Sizes};
use crate::position::PositionScheme;

/// How the linear layers' weights lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `[in, out]`: transformers' `Conv1D`.
    InputOutput,
    /// `[out, in]`: `nn.Linear`.
    OutputInput,
}

/// What a tensor is, which says how it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The same everywhere.
    Plain,
    /// The weight of a linear layer.
    Linear,
    /// The head, `[vocab, d_model]` in both.
    Head,
}

/// One tensor: their name, ours, and its shape here.
struct Entry {
    theirs: String,
    ours: String,
    kind: Kind,
    shape: Vec<usize>,
}

/// All tensors of a model. A config without biases has none of theirs either.
fn entries(model: &ModelConfig, sizes: Sizes) -> Vec<Entry> {
    let (d_model, inner) = (model.d_model, model.d_model * model.feed_forward);
    let entry = |theirs: &str, ours: &str, kind, shape: &[usize]| Entry {
        theirs: theirs.to_string(),
        ours: ours.to_string(),
        kind,
        shape: shape.to_vec(),
    };
    let mut entries = vec![
        entry("wte.weight", "embedding.token.weight", Kind::Plain, &[sizes.vocab, d_model]),
        entry("wpe.weight", "position.weight", Kind::Plain, &[sizes.context, d_model]),
    ];
    // A norm or a linear layer: a weight, and a bias as wide as its output.
    let mut module = |theirs: String, ours: String, kind: Kind, shape: &[usize]| {
        let (weight, bias) = if kind == Kind::Linear { ("weight", "bias") } else { ("gamma", "beta") };
        entries.push(entry(&format!("{theirs}.weight"), &format!("{ours}.{weight}"), kind, shape));
        if model.bias {
            let shape = &shape[shape.len() - 1..];
            entries.push(entry(&format!("{theirs}.bias"), &format!("{ours}.{bias}"), Kind::Plain, shape));
        }
    };
    for layer in 0..model.layers {
        for (theirs, ours, kind, shape) in [
            ("ln_1", "attention_norm", Kind::Plain, &[d_model][..]),
            ("attn.c_attn", "attention.qkv", Kind::Linear, &[d_model, 3 * d_model]),
            ("attn.c_proj", "attention.output", Kind::Linear, &[d_model, d_model]),
            ("ln_2", "feed_forward_norm", Kind::Plain, &[d_model]),
            ("mlp.c_fc", "feed_forward.up", Kind::Linear, &[d_model, inner]),
            ("mlp.c_proj", "feed_forward.down", Kind::Linear, &[inner, d_model]),
        ] {
            module(format!("h.{layer}.{theirs}"), format!("blocks.{layer}.{ours}"), kind, shape);
        }
    }
    module("ln_f".to_string(), "norm".to_string(), Kind::Plain, &[d_model]);
    if !model.tie_embeddings {
        entries.push(entry("lm_head.weight", "head.weight", Kind::Head, &[d_model, sizes.vocab]));
    }
    entries
}

/// Whether a tensor is no parameter but a mask that old files carry along.
pub fn is_mask(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}

/// A name without what wrappers put before it: `torch.compile`, data parallelism, the model's head.
pub fn bare(name: &str) -> &str {
    let mut bare = name;
    for prefix in ["_orig_mod.", "module.", "transformer."] {
        bare = bare.strip_prefix(prefix).unwrap_or(bare);
    }
    bare
}

/// A model in this naming, made ours. `config` is the contents of a `config.json` or nanoGPT's
/// `model_args`, `origin` the file that errors about tensors name.
///
/// # Errors
/// Where the config asks for what this decoder does not do; and one that lists up to 32 tensors that are
/// missing, left over or of another shape.
pub fn import(
    tensors: BTreeMap<String, TensorData>,
    layout: Layout,
    config: Option<(&Value, &Path)>,
    origin: &Path,
) -> Result<(Description, Tensors)> {
    let mut tensors: BTreeMap<String, TensorData> =
        tensors.into_iter().map(|(name, data)| (bare(&name).to_string(), data)).collect();
    let description = config::read(&tensors, layout, config, origin)?;
    // Theirs may store a tied head once more.
    if description.model.tie_embeddings {
        tensors.remove("lm_head.weight");
    }

    let mut ours = Vec::new();
    let mut problems = Vec::new();
    for Entry { theirs, ours: name, kind, shape } in entries(&description.model, description.sizes) {
        let Some(data) = tensors.remove(&theirs) else {
            problems.push(format!("`{theirs}` is missing"));
            continue;
        };
        let is_turned = kind == Kind::Head || kind == Kind::Linear && layout == Layout::OutputInput;
        let found = data.shape.to_vec();
        let expected = if is_turned { shape.iter().rev().copied().collect() } else { shape };
        match found == expected {
            true => ours.push((name, if is_turned { transposed(data) } else { data })),
            false => problems.push(format!("`{theirs}` is {found:?}, not {expected:?}")),
        }
    }
    problems.extend(tensors.keys().map(|name| format!("`{name}` is left over")));
    match problems.is_empty() {
        true => Ok((description, ours)),
        false => {
            let problem = format!("holds no such GPT-2: {}", listed(&problems));
            Err(Error::file(origin, None, None, problem))
        }
    }
}

/// A model in transformers' naming and layout, with the contents of its `config.json`.
///
/// # Errors
/// Names the key that makes the model something else than a GPT-2.
pub fn export(
    description: &Description,
    tensors: Tensors,
    vocabulary: &Vocabulary,
) -> Result<(Tensors, Value)> {
    let (model, sizes) = (&description.model, description.sizes);
    let other = |key: &str, value: Value, gpt2: &str| {
        let problem = format!(
            "is not what GPT-2 has, which is {gpt2}: export --format safetensors or pytorch-names instead"
        );
        Err(Error::key(key, value, problem))
    };
    let word = |variant: Result<Value, serde_json::Error>| variant.unwrap_or_default();
    match model {
        ModelConfig { architecture: Architecture::OneLayer | Architecture::EncoderDecoder, .. } => {
            return other(
                "model.architecture",
                word(serde_json::to_value(model.architecture)),
                "\"decoder\"",
            );
        }
        ModelConfig { position, .. } if *position != PositionScheme::Learned => {
            return other("model.position", word(serde_json::to_value(position)), "\"learned\"");
        }
        ModelConfig { norm: NormPlacement::Post, .. } => {
            return other("model.norm", word(serde_json::to_value(model.norm)), "\"pre\"");
        }
        ModelConfig { key_value_heads, heads, .. } if ![0, *heads].contains(key_value_heads) => {
            return other("model.key_value_heads", json!(key_value_heads), "as many as heads");
        }
        ModelConfig { embedding_norm: true, .. } => {
            return other("model.embedding_norm", json!(true), "no norm there");
        }
        ModelConfig { head_bias: true, tie_embeddings: false, .. } => {
            return other("model.head_bias", json!(true), "a head without bias");
        }
        _ => {}
    }
    let mut ours: BTreeMap<String, TensorData> = tensors.into_iter().collect();
    // What has no biases computes as what has zeros for them.
    let with_biases = ModelConfig { bias: true, ..model.clone() };
    let mut theirs = Vec::new();
    for entry in entries(&with_biases, sizes) {
        let data = match ours.remove(&entry.ours) {
            Some(data) if entry.kind == Kind::Head => transposed(data),
            Some(data) => data,
            None if entry.shape.len() == 1 && !model.bias => TensorData::zeros::<f32, _>(entry.shape),
            None => return Err(Error::Failed(format!("the weights lack `{}`", entry.ours))),
        };
        let is_head = entry.kind == Kind::Head;
        theirs.push((if is_head { entry.theirs } else { format!("transformer.{}", entry.theirs) }, data));
    }
    Ok((theirs, config::write(description, vocabulary)))
}
