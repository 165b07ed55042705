//! A model as files that another program reads: the weights, a small `config.json`, and what the
//! ids stand for.

use burn::tensor::TensorData;
use serde_json::{Value, json};

use super::file::transposed;
use super::gpt2;
use super::native::{self, Description, Tensors};
use crate::{data::Vocabulary, error::Result};

/// The naming and layout of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// This program's own names, and Burn's layout: linear weights are [in, out].
    Safetensors,
    /// GPT-2's names and layout, as transformers and nanoGPT load them.
    Gpt2,
    /// PyTorch's names of parameters, and its layout: linear weights are [out, in].
    PytorchNames,
}

/// The files of an export: name and contents.
pub type Files = Vec<(&'static str, Vec<u8>)>;

/// A model as files.
///
/// # Errors
/// [`Error::Key`](crate::error::Error::Key) where the format has no word for what the model computes.
pub fn export(
    description: &Description,
    tensors: Tensors,
    vocabulary: &Vocabulary,
    format: ExportFormat,
) -> Result<Files> {
    let own = || serde_json::to_value(description).expect("a description holds plain values");
    // The entry that transformers looks for.
    let for_pytorch = |tensors| native::serialize(&tensors, Some(("format", "pt".to_string())));
    let (weights, config) = match format {
        ExportFormat::Safetensors => (native::to_bytes(&tensors, Some(description))?, own()),
        ExportFormat::Gpt2 => {
            let (tensors, config) = gpt2::export(description, tensors, vocabulary)?;
            (for_pytorch(tensors)?, config)
        }
        ExportFormat::PytorchNames => {
            (for_pytorch(tensors.into_iter().map(pytorch_tensor).collect())?, own())
        }
    };
    let pretty = |value: &Value| serde_json::to_vec_pretty(value).expect("JSON can be written");
    let stored = json!(vocabulary);
    let mut files = vec![
        ("model.safetensors", weights),
        ("config.json", pretty(&config)),
        ("vocabulary.json", pretty(&stored)),
    ];
    if let Some(tokenizer) = tokenizer(&stored) {
        let end = vocabulary.end().map(|id| vocabulary.token(id));
        let config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": description.sizes.context,
            "clean_up_tokenization_spaces": false,
            "bos_token": end,
            "eos_token": end,
        });
        files.push(("tokenizer.json", pretty(&tokenizer)));
        files.push(("tokenizer_config.json", pretty(&config)));
    }
    Ok(files)
}

/// A vocabulary as a `tokenizer.json`, where it reads texts.
fn tokenizer(stored: &Value) -> Option<Value> {
    if let Some(tokenizer) = stored.get("tokenizer") {
        return Some(tokenizer.clone());
    }
    // Byte pair encoding without a merge splits a text into its characters.
    let characters = stored.get("characters")?.as_str()?;
    let vocab = characters.chars().zip(0..).map(|(character, id)| (character.to_string(), json!(id)));
    Some(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocab.collect::<serde_json::Map<_, _>>(), "merges": [],
        },
    }))
}

/// A parameter by PyTorch's name and in its layout.
fn pytorch_tensor((name, data): (String, TensorData)) -> (String, TensorData) {
    // Tables have a row an entry in PyTorch too.
    let tables = ["embedding.weight", "embedding.token.weight", "position.weight"];
    let data = if tables.iter().any(|table| name.ends_with(table)) { data } else { transposed(data) };
    (name.replace(".gamma", ".weight").replace(".beta", ".bias"), data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_tokenizer_of_characters_gives_the_ids_that_the_model_knows() {
        let vocabulary = Vocabulary::characters("MOER:\n éß".chars()).unwrap();
        let json = tokenizer(&json!(vocabulary)).unwrap().to_string();
        let exported = json.parse::<tokenizers::Tokenizer>().unwrap();
        for text in ["ROMEO:", "ROMEO :\nOMER", "éßé"] {
            let ids = vocabulary.encode(text).unwrap();
            assert_eq!(exported.encode(text, false).unwrap().get_ids(), ids);
            assert_eq!(exported.decode(&ids, false).unwrap(), text);
        }
    }
}
