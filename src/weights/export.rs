//! Exports a model to files that another program reads: the weights, a small `config.json`, and the vocabulary.

use std::collections::HashSet;
use std::path::Path;
use std::sync::LazyLock;

use burn_flex::Flex;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde_json::{Value, json};

use super::companions::{self, Companions};
use super::families::{self, Family};
use super::file::{LazyTensor, transposed};
use super::native::{self, Description};
use crate::data::Vocabulary;
use crate::data::vocabulary::{END, delimited_by_end};
use crate::error::Result;
use crate::files::write_atomically;
use crate::role::{ParamRole, ParamRoles};

/// The naming and layout of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// The transformers names and layout of a family that the model fits.
    Transformers,
    /// This program's own names and Burn's layout: linear weights are [in, out].
    Safetensors,
    /// PyTorch's parameter names and layout: linear weights are [out, in].
    PytorchNames,
    /// The transformers names and layout of this family.
    Family(Family),
}

impl ValueEnum for ExportFormat {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<ExportFormat>> = LazyLock::new(|| {
            use ExportFormat::{PytorchNames, Safetensors, Transformers};
            let families = Family::named().map(ExportFormat::Family);
            [Transformers, Safetensors, PytorchNames].into_iter().chain(families).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Transformers => {
                ("transformers", "The transformers names and layout of the first family that the model fits")
            }
            Self::Safetensors => {
                ("safetensors", "This program's own names and Burn's layout: linear weights are [in, out]")
            }
            Self::PytorchNames => {
                ("pytorch-names", "PyTorch's parameter names and layout: linear weights are [out, in]")
            }
            Self::Family(family) => {
                let value = family.to_possible_value()?;
                return Some(value.help("The transformers names and layout of this family"));
            }
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// A model converted for export, ready to be written.
#[derive(Debug)]
pub struct Export {
    tensors: Vec<LazyTensor>,
    /// The only metadata entry of the weights file.
    metadata: (String, String),
    /// The other files: name and contents.
    files: Vec<(&'static str, Vec<u8>)>,
    /// True if transformers' `AutoTokenizer` misreads the tokenizer: since version 5 it loads the tokenizer of every
    /// qwen2 model as Qwen2's own, whichever class the config names.
    pub is_misread: bool,
}

impl Export {
    /// Writes all files to a folder, the weights tensor by tensor.
    ///
    /// # Errors
    /// Returns an error if the weights cannot be read, or if a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        native::write(&folder.join("model.safetensors"), &self.tensors, self.metadata.clone())?;
        self.files.iter().try_for_each(|(name, bytes)| write_atomically(&folder.join(name), bytes))
    }
}

/// Converts a model to files. The contents of an imported model's transformers files are preserved.
///
/// # Errors
/// Returns an error that names the keys which the format cannot express.
pub fn export(
    description: &Description,
    tensors: Vec<LazyTensor>,
    vocabulary: &Vocabulary,
    companions: &Companions,
    format: ExportFormat,
) -> Result<Export> {
    let native_config = || serde_json::to_value(description).expect("a description holds plain values");
    // The metadata entry that transformers requires.
    let for_pytorch = || ("format".to_string(), "pt".to_string());
    let family = match format {
        ExportFormat::Transformers => Some(families::fitting(&description.model)?),
        ExportFormat::Family(family) => Some(family),
        ExportFormat::Safetensors | ExportFormat::PytorchNames => None,
    };
    let (tensors, metadata, config) = match family {
        Some(family) => {
            let (tensors, mut config) = families::export(family, description, tensors)?;
            config["bos_token_id"] = json!(vocabulary.begin());
            config["eos_token_id"] = json!(vocabulary.end());
            companions.put_ids(&mut config);
            (tensors, for_pytorch(), config)
        }
        None if format == ExportFormat::PytorchNames => {
            let tables = embedding_tables(description)?;
            let tensors = tensors.into_iter().map(|tensor| pytorch_tensor(tensor, &tables));
            (tensors.collect(), for_pytorch(), native_config())
        }
        None => (tensors, native::entry(description), native_config()),
    };
    let pretty = |value: &Value| serde_json::to_vec_pretty(value).expect("JSON can be written");
    let stored = json!(vocabulary);
    let mut files = vec![("config.json", pretty(&config)), ("vocabulary.json", pretty(&stored))];
    if family.is_some() {
        let generation =
            companions.file("generation_config.json").unwrap_or_else(|| generation_config(&config));
        files.push(("generation_config.json", pretty(&generation)));
    }
    let tokenizer = tokenizer(&stored);
    let default =
        tokenizer.as_ref().map(|_| tokenizer_config(&config, vocabulary, description.sizes.context));
    if tokenizer.is_some()
        && let Some(template) = companions.chat_template()
    {
        files.push((companions::CHAT_TEMPLATE, template.as_bytes().to_vec()));
    }
    let imported = companions.file("tokenizer_config.json");
    let is_misread = family == Some(Family::Qwen2) && tokenizer.is_some() && imported.is_none();
    let tokenizer_files = [
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", imported.or(default)),
        ("special_tokens_map.json", companions.file("special_tokens_map.json")),
    ];
    files.extend(tokenizer_files.into_iter().filter_map(|(name, value)| Some((name, pretty(&value?)))));
    // Native weights may be imported again, so the metadata is next to them, as in a run folder.
    if format == ExportFormat::Safetensors {
        files.extend(companions.to_json().map(|json| (companions::FILE, json)));
    }
    Ok(Export { tensors, metadata, files, is_misread })
}

/// Creates the `generation_config.json` that transformers derives from a config.
fn generation_config(config: &Value) -> Value {
    let mut generation = json!({
        "_from_model_config": true,
        "bos_token_id": config["bos_token_id"],
        "eos_token_id": config["eos_token_id"],
    });
    if let Some(pad) = config.get("pad_token_id").filter(|pad| !pad.is_null()) {
        generation["pad_token_id"] = pad.clone();
    }
    generation
}

/// Creates the default `tokenizer_config.json` of a model with a context of `context` tokens.
fn tokenizer_config(config: &Value, vocabulary: &Vocabulary, context: usize) -> Value {
    // A tokenizer names only the first of several end-of-text tokens.
    let token = |key: &str| {
        let id = config[key].as_u64().or_else(|| config[key].get(0)?.as_u64())?;
        Some(vocabulary.token(id.try_into().ok().filter(|&id: &u32| (id as usize) < vocabulary.size())?))
    };
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": false,
        "bos_token": token("bos_token_id"),
        "eos_token": token("eos_token_id"),
    })
}

/// Converts a vocabulary to a `tokenizer.json`; returns `None` if the vocabulary does not encode text.
fn tokenizer(stored: &Value) -> Option<Value> {
    if let Some(tokenizer) = stored.get("tokenizer") {
        return Some(tokenizer.clone());
    }
    // Byte pair encoding without merges splits a text into its characters.
    let characters = stored.get("characters")?.as_str()?;
    let vocab = characters.chars().zip(0..).map(|(character, id)| (character.to_string(), json!(id)));
    // The special tokens of the texts of a table; the end token begins each text.
    let names = stored["special"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let special: Vec<(&str, usize)> = names.zip(characters.chars().count()..).collect();
    let end = special.iter().find(|(name, _)| *name == END).map(|(_, id)| delimited_by_end(*id));
    let added = special.iter().map(|(name, id)| {
        json!({
            "id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        })
    });
    Some(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": null, "post_processor": end, "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocab.collect::<serde_json::Map<_, _>>(), "merges": [],
        },
    }))
}

/// Returns the names of the model's embedding tables.
fn embedding_tables(description: &Description) -> Result<HashSet<String>> {
    let model = description.model.init::<Flex>(description.sizes, &Default::default())?;
    let roles = native::names(&model).into_iter().zip(model.roles());
    Ok(roles.filter(|(_, role)| *role == ParamRole::Embedding).map(|(name, _)| name).collect())
}

/// Converts a parameter to PyTorch's name and layout. Embedding tables have one row per entry in PyTorch too.
fn pytorch_tensor(tensor: LazyTensor, tables: &HashSet<String>) -> LazyTensor {
    let is_table = tables.contains(&tensor.name);
    let name = tensor.name.replace(".gamma", ".weight").replace(".beta", ".bias");
    match tensor.shape[..] {
        [rows, columns] if !is_table => {
            LazyTensor::new(name, vec![columns, rows], move || Ok(transposed(tensor.read()?)))
        }
        _ => tensor.renamed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_tokens_of_a_table_keep_their_ids() {
        let stored = json!({"kind": "characters", "characters": "+0123", "special": [END, "<sep>"]});
        let vocabulary: Vocabulary = serde_json::from_value(stored).unwrap();
        let json = tokenizer(&json!(vocabulary)).unwrap().to_string();
        let exported = json.parse::<tokenizers::Tokenizer>().unwrap();
        let ids = exported.encode("1+2<sep>3", true).unwrap().get_ids().to_vec();
        assert_eq!(ids, [5, 2, 0, 3, 6, 4]);
        let question = vocabulary.as_question(&vocabulary.encode_whole("1+2").unwrap());
        assert_eq!(ids[..5], question);
        assert_eq!(exported.get_vocab_size(true), vocabulary.size());
        assert_eq!(exported.decode(&ids, true).unwrap(), "1+23");
    }

    #[test]
    fn exported_character_tokenizer_keeps_ids() {
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
