//! Imports a model from the files of another program, fully validated before anything is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use burn_flex::Flex;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde_json::{Value, json};

use super::companions::{self, Companions};
use super::families::{self, Family};
use super::file::{LazyTensor, WeightsFile};
use super::foreign::ForeignWeights;
use super::gguf::Gguf;
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
    let gguf = match format {
        Some(ImportFormat::Native) => None,
        _ => Gguf::open(files)?,
    };
    let is_native = format.map_or_else(|| native::is_own(first), |format| format == ImportFormat::Native);
    let tokenizer_folder = match tokenizer {
        Some(path) if path.is_dir() => path,
        Some(path) => path.parent().unwrap_or(folder),
        None => folder,
    };
    let (tensors, description, companions) = match &gguf {
        Some(gguf) => read_gguf(gguf, first.path(), format, (config, tokenizer.map(|_| tokenizer_folder)))?,
        None if is_native => read_native(files, config, folder)?,
        None => read_foreign(&checkpoint, format, config, tokenizer_folder)?,
    };
    let found = match (tokenizer, &gguf) {
        (Some(path), _) => Some(tokenizer::read(path)?),
        (None, Some(gguf)) => gguf.vocabulary()?,
        (None, None) => find_vocabulary(folder, is_native)?,
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
    if gguf.is_none() {
        warn_about_ignored(folder, has_vocabulary);
    }
    let vocabulary = found.unwrap_or_else(|| Vocabulary::integers(vocab, &[]));
    Ok(Imported { is_native, description, tensors, vocabulary, has_vocabulary, companions })
}

/// Finds the vocabulary of a model in its folder.
fn find_vocabulary(folder: &Path, is_native: bool) -> Result<Option<Vocabulary>> {
    let stored = folder.join("vocabulary.json");
    match Vocabulary::read_given(&stored) {
        Ok(vocabulary) => Ok(Some(vocabulary)),
        Err(error) if is_native && stored.is_file() => Err(error),
        // The vocabulary may be an export of this program; a file of this name from another program is ignored.
        Err(_) => tokenizer::find(folder),
    }
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

/// The tensors of a model under native names, its description, and its metadata.
type ModelParts = (Vec<LazyTensor>, Description, Companions);

/// Reads native weights, whose metadata are in their folder.
fn read_native(files: &[WeightsFile], config: Option<&Path>, folder: &Path) -> Result<ModelParts> {
    if config.is_some() {
        let problem = "--config: native weights contain the config of their model; remove the option";
        return Err(Error::Input(problem.into()));
    }
    let [file] = files else {
        return Err(Error::Input("native weights are a single file; pass only that file".into()));
    };
    // A trial load checks that the weights match their model before anything is written; the model is dropped right
    // away.
    let (_, description) = native::load_model::<Flex>(file, &Default::default())?;
    Ok((file.tensors()?, description, Companions::read_given(&folder.join(companions::FILE))?))
}

/// Reads a config that the user names.
fn read_config(path: &Path) -> Result<Value> {
    parse_json(Text::open(path)?.read_to_string()?.as_bytes(), path, CONFIG)
}

/// Returns the family that `format` names, or else the config.
fn family(format: Option<ImportFormat>, (config, config_path): (&Value, &Path)) -> Result<Family> {
    match format {
        Some(ImportFormat::Family(family)) => Ok(family),
        Some(ImportFormat::Native) | None => Family::named_by(config, config_path),
    }
}

/// Converts a model, and reports a `model_type` that --format replaces.
fn convert(
    family: Family,
    tensors: BTreeMap<String, LazyTensor>,
    (config, config_path): (&Value, &Path),
    origin: &Path,
) -> Result<(Vec<LazyTensor>, Description)> {
    let converted = families::import(family, tensors, (config, config_path), origin)?;
    let declared = config.get("model_type").and_then(Value::as_str);
    if let Some(declared) = declared.filter(|name| *name != family.name()) {
        let (path, family) = (config_path.display(), family.name());
        log::info!("{path}: `model_type` is \"{declared}\", but --format imports it as {family}");
    }
    Ok(converted)
}

/// Reads the model of a GGUF file. Its config is `given_config`, or else the file's own; its metadata are in the folder
/// `tokenizer`, or else in the file.
fn read_gguf(
    gguf: &Gguf,
    path: &Path,
    format: Option<ImportFormat>,
    (given_config, tokenizer): (Option<&Path>, Option<&Path>),
) -> Result<ModelParts> {
    let (config, config_path) = match given_config {
        Some(path) => (read_config(path)?, path),
        None => (gguf.config()?, path),
    };
    let config = (&config, config_path);
    let family = family(format, config)?;
    let (tensors, description) = convert(family, gguf.tensors()?, config, path)?;
    let companions = match tokenizer {
        Some(folder) => Companions::collect(family, config, folder, folder)?,
        None => Companions::of_config(family, config)?
            .with_tokenizer(gguf.tokenizer_config(), gguf.chat_template()),
    };
    Ok((tensors, description, companions))
}

/// Reads a foreign model. Its config is `given_config`, the config in the checkpoint, or the config next to it.
fn read_foreign(
    checkpoint: &ForeignWeights,
    format: Option<ImportFormat>,
    given_config: Option<&Path>,
    tokenizer: &Path,
) -> Result<ModelParts> {
    let first = checkpoint.files[0].path();
    let (tensors, arguments) = foreign::read(checkpoint, families::is_buffer)?;
    let is_nanogpt = arguments.is_some();
    let adjacent = first.with_file_name("config.json");
    let (config, config_path): (Value, &Path) = match (given_config, arguments) {
        (Some(path), _) => (read_config(path)?, path),
        (None, Some(arguments)) => (arguments, first),
        (None, None) if adjacent.is_file() => (read_given_json(&adjacent, CONFIG)?, &adjacent),
        (None, None) if format.is_none() => {
            let problem =
                "does not describe its model, and config.json is not next to it; pass one with --config";
            return Err(Error::file(first, problem));
        }
        (None, None) => (json!({}), first),
    };
    let config = (&config, config_path);
    let family = match format {
        None if is_nanogpt => Family::Nanogpt,
        format => family(format, config)?,
    };
    let (tensors, description) = convert(family, tensors, config, first)?;
    let companions = Companions::collect(family, config, &first.with_file_name(""), tokenizer)?;
    Ok((tensors, description, companions))
}

#[cfg(test)]
mod tests;
