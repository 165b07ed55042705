//! Imports a model from the files of another program, fully validated before anything is written.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use burn_flex::Flex;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde_json::{Value, json};

use super::companions::{self, Companions};
use super::families::{self, Family};
use super::file::LazyTensor;
use super::foreign::ForeignWeights;
use super::native::{self, Description};
use super::{foreign, tokenizer};
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::files::{Text, parse_json, read_given_json};
use crate::numbers::{counted, thousands};

/// The format of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFormat {
    /// A family of models.
    Family(Family),
    /// Weights written by this program.
    Native,
}

impl ValueEnum for ImportFormat {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<ImportFormat>> = LazyLock::new(|| {
            let families = Family::value_variants().iter().copied().map(ImportFormat::Family);
            families.chain([ImportFormat::Native]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Family(family) => family.to_possible_value(),
            Self::Native => Some(PossibleValue::new("native").help("Weights written by this program")),
        }
    }
}

/// An imported model with its vocabulary.
#[derive(Debug, Clone)]
pub struct Imported {
    /// True if this program wrote the files.
    pub is_native: bool,
    /// The model's config and sizes.
    pub description: Description,
    /// The weights under native names, each read on demand.
    pub tensors: Vec<LazyTensor>,
    /// The vocabulary: the tokenizer next to the weights, or integers.
    pub vocabulary: Vocabulary,
    /// True if a tokenizer or vocabulary was found.
    pub has_vocabulary: bool,
    /// The transformers metadata next to the weights.
    pub companions: Companions,
}

/// Opens a model. Without `format` the format is detected. Without `config` or `tokenizer`, the `config.json` or the
/// tokenizer next to the first file is used.
///
/// # Errors
/// Returns an error if a file cannot be read, is damaged, or does not match its config. The error about a mismatch
/// lists up to 32 tensors that are missing, unexpected or of a different shape.
pub fn import(
    paths: &[PathBuf],
    format: Option<ImportFormat>,
    config: Option<&Path>,
    tokenizer: Option<&Path>,
) -> Result<Imported> {
    let checkpoint = foreign::open(paths)?;
    let files = &checkpoint.files;
    let Some(first) = files.first() else {
        return Err(Error::Input("no file to import; pass a weights file or its folder".into()));
    };
    let folder = first.path().parent().unwrap_or(Path::new("."));
    let is_native = format.map_or_else(|| native::is_own(first), |format| format == ImportFormat::Native);
    let tokenizer_folder = match tokenizer {
        Some(path) if path.is_dir() => path,
        Some(path) => path.parent().unwrap_or(folder),
        None => folder,
    };
    let (tensors, description, companions) = match is_native {
        true if config.is_some() => {
            let problem = "--config: native weights contain the config of their model; remove the option";
            return Err(Error::Input(problem.into()));
        }
        true if files.len() > 1 => {
            return Err(Error::Input("native weights are a single file; pass only that file".into()));
        }
        true => {
            // A trial load checks that the weights match their model before anything is written; the model is dropped
            // right away.
            let (_, description) = native::load_model::<Flex>(first, &Default::default())?;
            (first.tensors()?, description, Companions::read_given(&folder.join(companions::FILE))?)
        }
        false => read_foreign(&checkpoint, format, config, tokenizer_folder)?,
    };
    let stored = folder.join("vocabulary.json");
    let found = match tokenizer {
        Some(path) => Some(tokenizer::read(path)?),
        None if is_native && stored.is_file() => Some(Vocabulary::read_given(&stored)?),
        // The vocabulary may be an export of this program; a file of this name from another program is ignored.
        None => match Vocabulary::read_given(&stored) {
            Ok(vocabulary) => Some(vocabulary),
            Err(_) => tokenizer::find(folder)?,
        },
    };
    let vocab = description.sizes.vocab;
    if let Some(found) = found.as_ref().filter(|found| found.size() > vocab) {
        return Err(Error::Input(format!(
            "the tokenizer has {}, but the model has only {}, so it belongs to another model; pass the \
             right one with --tokenizer",
            counted(found.size(), "token"),
            thousands(vocab as f64)
        )));
    }
    let has_vocabulary = found.is_some();
    warn_about_ignored(folder, has_vocabulary);
    let vocabulary = found.unwrap_or_else(|| Vocabulary::integers(vocab, &[]));
    Ok(Imported { is_native, description, tensors, vocabulary, has_vocabulary, companions })
}

/// Warns about files next to the weights that are not read.
fn warn_about_ignored(folder: &Path, has_vocabulary: bool) {
    if let Some(unsupported) = tokenizer::unsupported_in(folder).filter(|_| !has_vocabulary) {
        log::warn!("{unsupported}, then import again");
    }
    let adapter = folder.join("adapter_config.json");
    if adapter.is_file() {
        log::warn!(
            "{}: describes an adapter (LoRA), which is not applied; merge it into the weights with `merge_and_unload` \
             of peft, then import the result",
            adapter.display()
        );
    }
}

/// The expected content of a config file, for error messages.
const CONFIG: &str = "the config of a model, as transformers writes it";

/// Reads a foreign model. Its config is `given_config`, the config in the checkpoint, or the config next to it.
fn read_foreign(
    checkpoint: &ForeignWeights,
    format: Option<ImportFormat>,
    given_config: Option<&Path>,
    tokenizer: &Path,
) -> Result<(Vec<LazyTensor>, Description, Companions)> {
    let first = checkpoint.files[0].path();
    let (tensors, arguments) = foreign::read(checkpoint, families::is_buffer)?;
    let is_nanogpt = arguments.is_some();
    let adjacent = first.with_file_name("config.json");
    let (config, config_path): (Value, &Path) = match (given_config, arguments) {
        (Some(path), _) => (parse_json(Text::open(path)?.read_to_string()?.as_bytes(), path, CONFIG)?, path),
        (None, Some(arguments)) => (arguments, first),
        (None, None) if adjacent.is_file() => (read_given_json(&adjacent, CONFIG)?, &adjacent),
        (None, None) if format.is_none() => {
            let problem =
                "does not describe its model, and config.json is not next to it; pass one with --config";
            return Err(Error::file(first, problem));
        }
        (None, None) => (json!({}), first),
    };
    let declared = config.get("model_type").and_then(Value::as_str);
    let family = match format {
        Some(ImportFormat::Family(family)) => family,
        None if is_nanogpt => Family::Nanogpt,
        Some(ImportFormat::Native) | None => Family::named_by(&config, config_path)?,
    };
    let (tensors, description) = families::import(family, tensors, (&config, config_path), first)?;
    if let Some(declared) = declared.filter(|name| *name != family.name()) {
        let (path, family) = (config_path.display(), family.name());
        log::info!("{path}: `model_type` is \"{declared}\", but --format imports it as {family}");
    }
    let companions =
        Companions::collect(family, (&config, config_path), &first.with_file_name(""), tokenizer)?;
    Ok((tensors, description, companions))
}

#[cfg(test)]
mod tests;
