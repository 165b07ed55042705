//! The contents of the `config.json` that transformers has for a model.

use serde_json::{Map, Value, json};

use super::architectures::GgufArchitecture;
use super::header::GgufHeader;
use super::rotation;
use crate::error::Result;
use crate::weights::file::WeightsFile;

/// The keys of an architecture that are read for themselves, or have no effect.
const OTHER_KEYS: [&str; 5] =
    ["vocab_size", "attention.value_length", "rope.dimension_count", "rope.freq_base", "tensor_data_layout"];

/// The ids of special tokens, in a config and in a file.
const IDS: [(&str, &str); 3] = [
    ("bos_token_id", "tokenizer.ggml.bos_token_id"),
    ("eos_token_id", "tokenizer.ggml.eos_token_id"),
    ("pad_token_id", "tokenizer.ggml.padding_token_id"),
];

/// Returns the config of a model.
///
/// # Errors
/// Returns an error that names a key which is not supported.
pub(super) fn config(
    file: &WeightsFile,
    header: &GgufHeader,
    architecture: &GgufArchitecture,
) -> Result<Value> {
    let remedy = "pass the config.json of the original model with --config";
    let mut config = Map::new();
    config.insert("model_type".into(), json!(architecture.model_type));
    let prefix = format!("{}.", architecture.name);
    for (key, value) in &header.metadata {
        let Some(name) = key.strip_prefix(&prefix) else { continue };
        match architecture.key(name) {
            // A model without experts may declare that it has none.
            Some(_) if name.starts_with("expert_") && *value == json!(0) => {}
            Some(theirs) => drop(config.insert(theirs.into(), value.clone())),
            None if OTHER_KEYS.contains(&name) || name.starts_with("rope.scaling.") => {}
            None => return Err(file.error(format!("the key `{key}` is not supported; {remedy}"))),
        }
    }
    let Some(table) = header.tensor("token_embd.weight") else {
        return Err(file.error("lacks the tensor `token_embd.weight`; convert the model again"));
    };
    config.insert("vocab_size".into(), json!(table.shape[0]));
    config.insert("tie_word_embeddings".into(), json!(header.tensor("output.weight").is_none()));
    for (key, theirs) in IDS {
        config.insert(key.into(), json!(header.metadata.get(theirs)));
    }
    let size = |name: &str| header.size(&format!("{prefix}{name}"));
    if architecture.rotation.is_some() && !config.contains_key("head_dim") {
        let heads = size("attention.head_count").filter(|heads| *heads > 0);
        let width = size("embedding_length").zip(heads).map(|(width, heads)| width / heads);
        config.extend(width.map(|width| ("head_dim".to_string(), json!(width))));
    }
    if let Some(width) =
        size("attention.value_length").filter(|&width| config.get("head_dim") != Some(&json!(width)))
    {
        let problem =
            format!("`{prefix}attention.value_length` is {width}, but the width of queries and keys differs");
        return Err(file.error(format!("{problem}, which is not supported")));
    }
    rotation::add(file, header, architecture, &mut config)?;
    config.extend((architecture.more)(header).into_iter().map(|(key, value)| (key.to_string(), value)));
    Ok(Value::Object(config))
}
