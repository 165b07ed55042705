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

use std::{collections::BTreeMap, path::Path};

use burn::tensor::TensorData;
use serde_json::{Value, json};

use super::file::transposed;
use super::native::{Description, Tensors};
use super::refuse;
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

/// A tensor of a model.
#[derive(Debug)]
struct Entry {
    /// Its name elsewhere.
    theirs: String,
    /// Its name here.
    ours: String,
    /// Its shape here.
    shape: Vec<usize>,
    /// Whether theirs is the transpose of ours.
    is_transposed: bool,
}

/// All tensors of a model. A config without biases has none of theirs either.
fn entries(model: &ModelConfig, sizes: Sizes, layout: Layout) -> Vec<Entry> {
    let (d_model, inner) = (model.d_model, model.d_model * model.feed_forward);
    let mut entries = Vec::new();
    let mut add = |theirs: String, ours: String, shape: &[usize], is_transposed| {
        entries.push(Entry { theirs, ours, shape: shape.to_vec(), is_transposed });
    };
    add("wte.weight".into(), "embedding.token.weight".into(), &[sizes.vocab, d_model], false);
    add("wpe.weight".into(), "position.weight".into(), &[sizes.context, d_model], false);
    if !model.tie_embeddings {
        // `[vocab, d_model]` in both layouts.
        add("lm_head.weight".into(), "head.weight".into(), &[d_model, sizes.vocab], true);
    }
    // A norm, or a linear layer, which has a matrix: a weight, and a bias as wide as its output.
    let mut add_module = |theirs: String, ours: String, shape: &[usize]| {
        let is_linear = shape.len() == 2;
        let [weight, bias] = if is_linear { ["weight", "bias"] } else { ["gamma", "beta"] };
        let is_transposed = is_linear && layout == Layout::OutputInput;
        add(format!("{theirs}.weight"), format!("{ours}.{weight}"), shape, is_transposed);
        if model.bias {
            add(format!("{theirs}.bias"), format!("{ours}.{bias}"), &shape[shape.len() - 1..], false);
        }
    };
    for layer in 0..model.layers {
        for (theirs, ours, shape) in [
            ("ln_1", "attention_norm", &[d_model][..]),
            ("attn.c_attn", "attention.qkv", &[d_model, 3 * d_model]),
            ("attn.c_proj", "attention.output", &[d_model, d_model]),
            ("ln_2", "feed_forward_norm", &[d_model]),
            ("mlp.c_fc", "feed_forward.up", &[d_model, inner]),
            ("mlp.c_proj", "feed_forward.down", &[inner, d_model]),
        ] {
            add_module(format!("h.{layer}.{theirs}"), format!("blocks.{layer}.{ours}"), shape);
        }
    }
    add_module("ln_f".into(), "norm".into(), &[d_model]);
    entries
}

/// Whether a tensor is no parameter but a mask that old files carry along.
pub fn is_mask(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}

/// A name without what wrappers put before it: `torch.compile`, data parallelism, the model's head.
fn bare(name: &str) -> String {
    let prefixes = ["_orig_mod.", "module.", "transformer."];
    prefixes.iter().fold(name, |name, prefix| name.strip_prefix(prefix).unwrap_or(name)).to_string()
}

/// A model in this naming, made ours. `config` is the contents of a `config.json` or nanoGPT's
/// `model_args`, and where it stands; `origin` the file that errors about tensors name.
///
/// # Errors
/// Where the config asks for what this decoder does not do, and one that lists up to 32 tensors that are missing,
/// left over or of another shape.
pub fn import(
    tensors: BTreeMap<String, TensorData>,
    layout: Layout,
    config: (Value, &Path),
    origin: &Path,
) -> Result<(Tensors, Description)> {
    let mut tensors: BTreeMap<String, TensorData> =
        tensors.into_iter().map(|(name, data)| (bare(&name), data)).collect();
    let description = config::read(&tensors, layout, config)?;
    // Theirs may store a tied head once more.
    if description.model.tie_embeddings {
        tensors.remove("lm_head.weight");
    }
    let (mut ours, mut problems) = (Vec::new(), Vec::new());
    for mut entry in entries(&description.model, description.sizes, layout) {
        if entry.is_transposed {
            entry.shape.reverse();
        }
        let Entry { theirs, shape, .. } = entry;
        match tensors.remove(&theirs) {
            None => problems.push(format!("`{theirs}` is missing")),
            Some(data) if data.shape[..] != shape => {
                problems.push(format!("`{theirs}` is {:?}, not {shape:?}", data.shape.to_vec()))
            }
            Some(data) if entry.is_transposed => ours.push((entry.ours, transposed(data))),
            Some(data) => ours.push((entry.ours, data)),
        }
    }
    problems.extend(tensors.keys().map(|name| format!("`{name}` is left over")));
    refuse(origin, &problems, "holds no such GPT-2")?;
    Ok((ours, description))
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
    let model = &description.model;
    let differences = [
        ("architecture", model.architecture != Architecture::Decoder, "\"decoder\""),
        ("position", model.position != PositionScheme::Learned, "\"learned\""),
        ("norm", model.norm != NormPlacement::Pre, "\"pre\""),
        ("key_value_heads", ![0, model.heads].contains(&model.key_value_heads), "as many as heads"),
        ("embedding_norm", model.embedding_norm, "no norm there"),
        ("head_bias", model.head_bias && !model.tie_embeddings, "a head without bias"),
    ];
    if let Some((key, _, gpt2)) = differences.into_iter().find(|(_, differs, _)| *differs) {
        let problem = format!(
            "is not what GPT-2 has, which is {gpt2}: export --format safetensors or pytorch-names instead"
        );
        return Err(Error::key(format!("model.{key}"), &json!(model)[key], problem));
    }
    let with_biases = ModelConfig { bias: true, ..model.clone() };
    let mut ours: BTreeMap<String, TensorData> = tensors.into_iter().collect();
    let their = |Entry { theirs, ours: our_name, shape, is_transposed }| {
        let name = if theirs == "lm_head.weight" { theirs } else { format!("transformer.{theirs}") };
        match ours.remove(&our_name) {
            Some(data) if is_transposed => Ok((name, transposed(data))),
            Some(data) => Ok((name, data)),
            // A model without biases computes as if they were zeros.
            None if shape.len() == 1 && !model.bias => Ok((name, TensorData::zeros::<f32, _>(shape))),
            None => Err(Error::Failed(format!("the weights lack `{our_name}`"))),
        }
    };
    let theirs = entries(&with_biases, description.sizes, Layout::InputOutput).into_iter().map(their);
    Ok((theirs.collect::<Result<_>>()?, config::write(description, vocabulary)))
}
