//! A model out of the files of another program, checked whole before anything is written.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::checkpoint::{Checkpoint, files};
use super::gpt2::{self, Layout};
use super::native::{self, Description, Tensors};
use super::tokenizer;
use crate::data::Vocabulary;
use crate::error::{Error, Result};

/// The naming of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Naming {
    /// transformers' GPT-2, in one safetensors file or several, or a PyTorch file.
    Gpt2,
    /// nanoGPT's checkpoint, a PyTorch file.
    Nanogpt,
    /// This program's own.
    Native,
}

/// A model and what its ids stand for.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The model's config and sizes.
    pub description: Description,
    /// Its weights under our names.
    pub tensors: Tensors,
    /// What the ids stand for: the tokenizer that came along, or integers.
    pub vocabulary: Vocabulary,
    /// Whether there was a tokenizer or vocabulary.
    pub has_vocabulary: bool,
}

/// Reads a model. Without `config`, a `config.json` beside the first file is taken, and without
/// `tokenizer` what lies there too.
///
/// # Errors
/// If a file cannot be read, is damaged, or holds another model than its config says: then every
/// tensor that is missing, left over or of another shape is named.
pub fn import(
    named: &[PathBuf],
    naming: Naming,
    config: Option<&Path>,
    tokenizer: Option<&Path>,
) -> Result<Imported> {
    let files = files(named)?;
    let Some(first) = files.first() else {
        return Err(Error::Input("there is no file to import".into()));
    };
    let folder = first.parent().unwrap_or(Path::new("."));
    let (description, tensors) = match naming {
        Naming::Native => {
            let [file] = &files[..] else {
                return Err(Error::Input("native weights are one file: name only that".into()));
            };
            let (tensors, description) = native::read(file)?;
            (description, tensors)
        }
        Naming::Gpt2 | Naming::Nanogpt => {
            let layout = match naming {
                Naming::Nanogpt => Layout::OutputInput,
                _ => Layout::InputOutput,
            };
            let Checkpoint { tensors, arguments } = Checkpoint::read(&files, gpt2::is_mask)?;
            let beside = folder.join("config.json");
            let (json, place) = match (config, arguments) {
                (Some(path), _) => (Some(read_json(path)?), path),
                (None, Some(arguments)) => (Some(arguments), first.as_path()),
                (None, None) if beside.is_file() => (Some(read_json(&beside)?), beside.as_path()),
                (None, None) => (None, first.as_path()),
            };
            gpt2::import(tensors, layout, json.as_ref().map(|json| (json, place)), first)?
        }
    };
    let stored = folder.join("vocabulary.json");
    let found = match tokenizer {
        Some(path) => Some(tokenizer::read(path)?),
        None if naming == Naming::Native && stored.is_file() => Some(Vocabulary::read(stored)?),
        None => tokenizer::beside(folder)?,
    };
    let vocab = description.sizes.vocab;
    if let Some(found) = found.as_ref().filter(|found| found.size() > vocab) {
        return Err(Error::Input(format!(
            "the tokenizer has {} tokens, but the model only {vocab}: it belongs to another model; name the \
             right one by --tokenizer",
            found.size()
        )));
    }
    let has_vocabulary = found.is_some();
    let vocabulary = found.unwrap_or_else(|| Vocabulary::integers(vocab, &[]));
    Ok(Imported { description, tensors, vocabulary, has_vocabulary })
}

fn read_json(path: &Path) -> Result<Value> {
    let bytes = fs::read(path).map_err(|error| Error::io("read", path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let problem = format!("is no JSON: {error}");
        Error::file(path, Some(error.line()), Some(error.column()), problem)
    })
}
