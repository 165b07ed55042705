//! `import`: another program's weights as a run folder.

mod series;

use std::path::{Path, PathBuf};

use burn_flex::Flex;

use super::backend::BackendArgs;
use crate::config::Config;
use crate::data::{Count, DataConfig, EndOfText, Notation, Source, Task, Vocabulary, check};
use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::model::Architecture;
use crate::numbers::thousands;
use crate::terminal::{say, warn};
use crate::training::{Hashes, ImportSummary, RunFolder, RunPath};
use crate::weights::foreign::has_usual_name;
use crate::weights::import::{ImportFormat, Imported, import};
use crate::weights::native;

/// Import the weights of another program as a run folder, for use with evaluate, generate or train --from.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The weights: a file (safetensors, PyTorch or GGUF), its shards or their index, or the folder that contains them.
    /// Several folders are the checkpoints of one training run.
    #[arg(required = true, value_name = "PATH")]
    files: Vec<PathBuf>,
    /// The names and layout of the weights. [default: detected from `model_type` in config.json or from the weights]
    #[arg(long, value_enum)]
    format: Option<ImportFormat>,
    /// The config of the model. [default: config.json next to the weights; nanoGPT and GGUF files contain their own]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The tokenizer.json, or the folder with vocab.json and merges.txt. [default: those next to the weights; GGUF
    /// files contain their own]
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// The steps of several checkpoints, in the order of their folders. [default: the last number of each folder's name]
    #[arg(long, value_name = "STEPS", value_delimiter = ',')]
    steps: Vec<usize>,
    /// The folder to write, which must not exist. [default: runs/NAME, named after the weights]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Sets a key of the run's config, e.g. --set data.path=book.txt; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    backend: BackendArgs,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let is_series = args.files.len() > 1 && args.files.iter().all(|path| path.is_dir());
    if !is_series && !args.steps.is_empty() {
        return Err(Error::Input("--steps: applies to several folders of checkpoints; omit it".into()));
    }
    let target = RunPath::new(args.run.clone(), name(&args.files[0]))?;
    let read =
        |paths: &[PathBuf]| import(paths, args.format, args.config.as_deref(), args.tokenizer.as_deref());
    let series = if is_series { series::read(&args.files, &args.steps, read)? } else { Vec::new() };
    let imported = match series.last() {
        Some((_, last)) => last.clone(),
        None => read(&args.files)?,
    };
    let mut config = config(&args, &imported)?;
    let device = args.backend.choose_for_run(&mut config.training, &args.set)?;
    let origin = if is_series { series::last(&args.files, &args.steps)? } else { &args.files[0] };
    let series = series::prepare(series, &mut config, &imported, origin)?;
    let mut description = imported.description.clone();
    description.model = config.model.clone();
    let sizes = description.sizes;
    let vocabulary =
        serde_json::to_vec_pretty(&imported.vocabulary).expect("a vocabulary holds plain values");
    let (folder, _lock) = RunFolder::create(&target, |folder| {
        write_atomically(&folder.config(), config.to_toml().as_bytes())?;
        write_atomically(&folder.vocabulary(), &vocabulary)?;
        if let Some(companions) = imported.companions.to_json() {
            write_atomically(&folder.transformers(), &companions)?;
        }
        native::write(&folder.model(), &imported.tensors, native::entry(&description))?;
        if let Some(series) = &series {
            return series.measure(&config, &description, folder, &device);
        }
        let summary = ImportSummary {
            imported_from: args.files[0].display().to_string(),
            parameters: config.model.parameters::<Flex>(sizes),
            hashes: Hashes::of(folder),
        };
        summary.write(folder)
    })?;
    say(&format!(
        "{}: {} parameters, a context of {}, a vocabulary of {}",
        folder.path().display(),
        thousands(config.model.parameters::<Flex>(sizes) as f64),
        thousands(sizes.context as f64),
        imported.vocabulary,
    ));
    match EndOfText::of(&imported.vocabulary) {
        Some(end) => say(&format!("  end of text: {end}")),
        None if imported.vocabulary.notation() == Notation::Text => warn(
            "notice: the tokenizer declares no end-of-text token; set `eos_token` in a tokenizer_config.json next to \
             the tokenizer",
        ),
        None => {}
    }
    if !imported.has_vocabulary {
        say("  no tokenizer found; prompts are token ids, e.g. --prompt \"3 1 4\"");
    }
    Ok(())
}

/// Returns the name of the imported model: the file's name, or the folder's name if the file has a usual name.
fn name(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let named = match has_usual_name(&path) {
        true => path.parent().and_then(Path::file_name),
        false => path.file_stem(),
    };
    named.map_or_else(|| "imported".to_string(), |name| name.to_string_lossy().into_owned())
}

/// Returns the config of the run: the one next to a native file, or a new one for the model.
///
/// Another program's weights do not record their training data, so the user names it with `--set`.
fn config(args: &Args, imported: &Imported) -> Result<Config> {
    let (description, sizes) = (&imported.description, imported.description.sizes);
    let config_path = args.files[0].with_file_name("config.toml");
    let config = match imported.is_native && config_path.is_file() {
        true => Config { model: description.model.clone(), ..Config::load(Some(&config_path), &[])? },
        false => Config {
            data: data(description.model.architecture, sizes.context, &imported.vocabulary),
            model: description.model.clone(),
            ..Config::default()
        },
    };
    let config = Config::parse(&config.to_toml(), Path::new("config.toml"), &args.set)?;
    if config.model.parameters::<Flex>(sizes) != description.model.parameters::<Flex>(sizes) {
        return Err(Error::Input(
            "--set: the sizes of the model are fixed by its weights and cannot be changed".into(),
        ));
    }
    Ok(config)
}

/// Returns the data settings: with a tokenizer, a text source without a path; otherwise a task over the ids. Sequences
/// fit the context, up to a maximum length, because training on longer ones takes more memory than most machines have.
fn data(architecture: Architecture, context: usize, vocabulary: &Vocabulary) -> DataConfig {
    const MAX_LENGTH: usize = 1024;
    let (symbols, context) = (vocabulary.size(), context.min(MAX_LENGTH));
    let data = DataConfig { length: context, vocab: Count::Of(symbols), ..DataConfig::default() };
    if architecture == Architecture::EncoderDecoder {
        // Answers have separate begin and end tokens.
        let length = context.saturating_sub(1).max(1);
        DataConfig { task: Task::Reverse, vocab: Count::Of(symbols - 1), length, ..data }
    } else if vocabulary.notation() != Notation::Words {
        DataConfig { source: Some(Source::Text), vocab: Count::Auto, ..data }
    } else if check(&data).is_ok() {
        data
    } else {
        DataConfig { task: Task::Random, ..data }
    }
}
