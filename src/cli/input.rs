//! The input of a command: a config, a run, a text, or token ids.

use std::io;
use std::path::{Path, PathBuf};

use burn::tensor::backend::{AutodiffBackend, Backend};
use clap::builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};

use super::backend::BackendArgs;
use super::prompt::{encode, encode_part, tokens};
use crate::analysis::Sample;
use crate::backend::{self, Device, Job, compute_as_run};
use crate::config::{Config, PRESETS};
use crate::data::{LossOn, Notation, Role, Source, Vocabulary, has_chat_template};
use crate::error::{Error, Origin, Result};
use crate::model::{Architecture, Model};
use crate::numbers::counted;
use crate::terminal::warn;
use crate::training::{RUNS, RunFolder, checkpoint_steps, checkpoint_weights};
use crate::weights::{file::WeightsFile, native, native::Description};

/// The config of an experiment.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// The config file; `tune` reads its search from [tune]. [default: config.toml in the current folder, else the
    /// built-in config]
    pub config: Option<PathBuf>,
    /// Uses a preset instead of a config file, e.g. --preset characters --data input.txt.
    #[arg(long, value_name = "NAME", value_parser = preset_names(), conflicts_with = "config")]
    pub preset: Option<String>,
    /// Overrides a config key, e.g. --set data.task=random; may be repeated. A key with a unique name is also an
    /// option: --batch-size 16, --learning-rate=1e-3, --layers 4. --data FILE sets the data.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Accepts the names of the presets, which the help describes.
pub fn preset_names() -> PossibleValuesParser {
    let value = |&(name, text): &(&'static str, &str)| PossibleValue::new(name).help(described(text));
    PossibleValuesParser::new(PRESETS.iter().map(value))
}

/// Returns the beginning of the first sentence of a preset.
fn described(text: &str) -> String {
    let comment = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    let comment = comment.collect::<Vec<_>>().join(" ");
    let end = [": ", ". ", ", ", " ("].into_iter().filter_map(|mark| comment.find(mark)).min();
    comment[..end.unwrap_or(comment.len())].to_string()
}

/// Accepts a path. A name that does not exist in the current folder refers to the run of that name in `runs`, if
/// there is one.
pub fn run_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(below_runs)
}

/// Returns the path of the run in `runs` whose name is `path`, if `path` itself does not exist.
fn below_runs(path: PathBuf) -> PathBuf {
    let below = Path::new(RUNS).join(&path);
    let is_name = path.components().count() == 1 && path.file_name().is_some();
    if is_name && !path.exists() && below.exists() { below } else { path }
}

impl ConfigArgs {
    /// Reads the config.
    ///
    /// # Errors
    /// Same as [`Config::load`].
    pub fn load(&self) -> Result<Config> {
        self.load_checked(|_| Ok(()))
    }

    /// Reads the config, and applies `check` to it.
    ///
    /// # Errors
    /// Same as [`Config::load_checked`].
    pub fn load_checked(&self, check: impl Fn(&Config) -> Result<()>) -> Result<Config> {
        let mut config = match &self.preset {
            Some(name) => Config::load_preset(name, &self.set, check),
            None => Config::load_checked(self.config.as_deref(), &self.set, check),
        }?;
        config.run.from = below_runs(config.run.from);
        Ok(config)
    }

    /// Reads the config of a new run or study, and applies `check` to it. If the new one starts from another run, it
    /// gets the vocabulary keys of that run, with a warning about other values.
    ///
    /// # Errors
    /// Same as [`Config::load_checked`].
    pub fn load_new(&self, check: impl Fn(&Config) -> Result<()>) -> Result<Config> {
        let origin = |key: &str, value: &str| self.origin(key, value);
        Ok(self.load_checked(check)?.with_start_vocabulary("`run.from`", origin))
    }

    /// Returns the location where this value of a key was written, unless it is a default.
    fn origin(&self, key: &str, value: &str) -> Option<Origin> {
        match &self.preset {
            Some(name) => Config::origin_in_preset(name, &self.set, key, value),
            None => Config::origin(self.config.as_deref(), &self.set, key, value),
        }
    }

    /// Returns the same overrides for another config file.
    pub fn of(&self, config: PathBuf) -> Self {
        Self { config: Some(config), preset: None, set: self.set.clone() }
    }

    /// Adds the location where a value was set to the error of its key.
    pub fn with_origin<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            if let (Some(_), Error::Io { action: "read", source, .. }) = (&self.preset, &error)
                && source.kind() == io::ErrorKind::NotFound
            {
                return Error::Input(format!("{error}, or pass your own data with --data FILE"));
            }
            let Error::Key { key, value, origin: None, .. } = &error else { return error };
            let origin = self.origin(key, value);
            error.at(origin)
        })
    }
}

/// The run to read, and the device to compute on.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The run folder, or its name in runs/.
    #[arg(value_parser = run_path())]
    run: PathBuf,
    #[command(flatten)]
    backend: BackendArgs,
}

/// A run that a command reads.
#[derive(Debug)]
pub struct OpenedRun {
    /// The run folder.
    pub folder: RunFolder,
    /// The run's config, with the overrides of the command line.
    pub config: Config,
    /// The device to compute on.
    pub device: Device,
    /// The origin of the config.
    pub given: ConfigArgs,
}

impl OpenedRun {
    /// Runs a job in the run's precision; see [`compute_as_run`].
    ///
    /// # Errors
    /// Returns the job's error, or an error if the backend cannot start.
    pub fn compute<J: Job<Output: Send> + Send>(&self, job: J) -> Result<J::Output> {
        struct AsRun<'a, J>(&'a OpenedRun, J);

        impl<J: Job<Output: Send> + Send> Job for AsRun<'_, J> {
            type Output = J::Output;

            fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<J::Output> {
                let Self(run, job) = self;
                let on_device = device.clone();
                compute_as_run::<B, _>(&run.config.training, &run.device, &device, || job.run::<B>(on_device))
            }
        }
        self.given.with_origin(backend::run(&self.device, AsRun(self, job)))
    }
}

impl RunArgs {
    /// Opens the run, with keys that are `set` on the command line.
    ///
    /// # Errors
    /// Returns an error if the run or the device does not exist, or if the run's config cannot be read.
    pub fn open(&self, set: &[String]) -> Result<OpenedRun> {
        let folder = RunFolder::open(&self.run)?;
        let given = ConfigArgs { config: Some(folder.config()), preset: None, set: set.to_vec() };
        let config = given.load()?;
        let device = given.with_origin(self.backend.choose(&config.training, set))?;
        Ok(OpenedRun { folder, config, device, given })
    }
}

/// Warns that the config of the run at `path` has changed since its results were computed.
pub fn warn_changed_config(path: &Path) {
    let config = RunFolder::at(path).config();
    warn(&format!(
        "warning: `{}` has changed since the run ended; the results belong to the original config",
        config.display()
    ));
}

/// Opens the weights of a run: the best weights, or the weights of the checkpoint at a step.
///
/// # Errors
/// Returns an error if they do not exist; the message lists the available checkpoints.
pub fn weights(folder: &RunFolder, checkpoint: Option<usize>) -> Result<WeightsFile> {
    let Some(step) = checkpoint else { return folder.best_weights() };
    let steps = checkpoint_steps(folder).unwrap_or_default();
    if steps.contains(&step) {
        return checkpoint_weights(folder, step);
    }
    let steps = steps.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let available = if steps.is_empty() { "no checkpoints" } else { "checkpoints at the steps " };
    Err(Error::Input(format!("--checkpoint {step}: no such checkpoint; the run has {available}{steps}")))
}

/// Loads a run's model with its best weights, and their description.
///
/// # Errors
/// Returns an error if the run lacks weights, or if they cannot be read.
pub fn model<B: Backend>(folder: &RunFolder, device: &B::Device) -> Result<(Model<B>, Description)> {
    native::load_model(&folder.best_weights()?, device)
}

/// An input sequence.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("given").required(true).args(["text", "text_file", "tokens"])))]
pub struct InputArgs {
    /// The text; with a source, the answer.
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    /// Reads the text from a file, including its final line break; - is standard input.
    #[arg(long, value_name = "FILE")]
    text_file: Option<PathBuf>,
    /// The text as token ids, e.g. "3 1 4".
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    tokens: Option<String>,
    /// The source of the answer: of an encoder-decoder, or of a decoder that was trained on pairs or conversations.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    source: Option<String>,
}

/// The token ids of [`InputArgs`].
#[derive(Debug)]
pub struct EncodedInput {
    /// The text as ids.
    pub tokens: Vec<u32>,
    /// The start token of an encoder-decoder's answer; `None` for a decoder.
    pub start: Option<u32>,
    /// The source of an encoder-decoder's answer.
    pub source: Option<Vec<u32>>,
    /// The index at which a decoder's answer to a source begins; the tokens before it are not scored.
    pub answer: usize,
}

impl InputArgs {
    /// Creates an input from a text, ids and a source, or from the text in a file.
    pub fn new([text, tokens, source]: [&Option<String>; 3], text_file: Option<PathBuf>) -> Self {
        Self { text: text.clone(), text_file, tokens: tokens.clone(), source: source.clone() }
    }

    /// Prints a notice if all targets of the text count although the model learned only answers.
    pub fn warn_without_source(&self, vocabulary: &Vocabulary, config: &Config) {
        let is_decoder = config.model.architecture != Architecture::EncoderDecoder;
        let learns_answers = vocabulary.is_of_questions() && config.data.loss_on == LossOn::Target;
        if is_decoder && learns_answers && self.source.is_none() {
            warn(
                "notice: this model learned only the targets of answers, but all targets of this text count; to count an \
                 answer alone, pass what it answers with --source",
            );
        }
    }

    /// Returns the same input with another text.
    #[must_use]
    pub fn with_text(&self, text: &str) -> Self {
        let (text, source) = (Some(text.to_string()), self.source.clone());
        Self { text, text_file: None, tokens: None, source }
    }

    /// Encodes the input for a model of this architecture.
    ///
    /// # Errors
    /// Returns an error if the input cannot be read, has tokens outside the vocabulary, or lacks a required source.
    pub fn read(&self, vocabulary: &Vocabulary, config: &Config) -> Result<EncodedInput> {
        let is_encoder_decoder = config.model.architecture == Architecture::EncoderDecoder;
        // Without columns, a table of objects may hold pairs.
        let may_be_pairs = config.data.source() == Source::Table && !config.data.column.is_set();
        let is_of_pairs =
            vocabulary.is_of_questions() || vocabulary.notation() == Notation::Text && may_be_pairs;
        let is_part = is_encoder_decoder || self.source.is_some();
        let encode = if is_part { encode_part } else { encode };
        let tokens = tokens(&self.text, &self.text_file, &self.tokens, vocabulary, encode)?;
        let source = self.source.as_deref().map(|text| encode_part(vocabulary, text)).transpose()?;
        let problem = match (is_encoder_decoder, source.as_deref()) {
            (_, Some([])) => "--source is empty; pass at least one token",
            (true, None) => "an encoder-decoder answers a source; pass it with --source TEXT",
            (false, Some(_)) if !is_of_pairs => {
                "--source has no effect, because this decoder was not trained on pairs or conversations; omit it"
            }
            (false, Some(source)) => {
                if has_chat_template(&config.data) {
                    warn(
                        "warning: the tokenizer has a chat template; if it wrote the conversations of the training data, \
                         the source and its separator differ from what the model has learned, so pass the text as the \
                         template writes it with --text",
                    );
                }
                // As in training: the source and its separator are read, but are not targets.
                let (question, tokens) = match (&self.source, &self.text) {
                    (Some(source), Some(text)) => vocabulary.pair(source, text)?,
                    _ => (vocabulary.question(source)?, tokens),
                };
                if tokens.is_empty() {
                    return Err(Error::Input("the answer is empty; pass at least one token".into()));
                }
                let answer = question.len();
                let tokens = [question, tokens].concat();
                return Ok(EncodedInput { tokens, start: None, source: None, answer });
            }
            _ => {
                let start = vocabulary.end().filter(|_| is_encoder_decoder);
                return Ok(EncodedInput { tokens, start, source, answer: 0 });
            }
        };
        Err(Error::Input(problem.into()))
    }
}

impl InputArgs {
    /// Reads the input as a sample; the target of its last token is unknown.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read), and an error if the input is empty.
    pub fn sample(&self, vocabulary: &Vocabulary, config: &Config) -> Result<Sample> {
        self.read(vocabulary, config)?.sample(vocabulary, config)
    }
}

impl EncodedInput {
    /// Converts the input to a sample; the target of its last token is unknown.
    ///
    /// # Errors
    /// Returns an error if the input is empty.
    pub fn sample(self, vocabulary: &Vocabulary, config: &Config) -> Result<Sample> {
        let Self { tokens, start, source, answer } = self;
        if tokens.is_empty() {
            return Err(Error::Input("the input is empty; pass at least one token".into()));
        }
        let inputs = [start.as_slice(), &tokens].concat();
        let mut sample = Sample { source, ..Sample::of_inputs(inputs) };
        sample.roles[..answer.saturating_sub(1)].fill(Role::Padding);
        Ok(sample.split_documents(config.data.text_documents(), vocabulary))
    }
}

/// Returns true if a model has learned positions, which end with its context.
pub fn has_bounded_positions(Description { model, .. }: &Description) -> bool {
    model.position.ends_with_context() && model.architecture != Architecture::OneLayer
}

/// Checks that a model can read an input of `time` tokens and a source of `source_time`. Learned positions end with the
/// context; other schemes extrapolate beyond the trained length, which prints a notice.
///
/// # Errors
/// Returns an error that names both lengths if the input is too long.
pub fn check_length(description: &Description, time: usize, source_time: usize) -> Result<()> {
    let (sizes, is_bounded) = (description.sizes, has_bounded_positions(description));
    let source_context = sizes.source_context.unwrap_or(source_time);
    for (what, time, context) in [("input", time, sizes.context), ("source", source_time, source_context)] {
        let longer = format!(
            "the {what} of {} is longer than the training context of {}",
            counted(time, "token"),
            counted(context, "token")
        );
        if time > context && is_bounded {
            let problem = format!("{longer}, which is the number of learned positions; shorten it");
            return Err(Error::Input(problem));
        }
        if time > context {
            warn(&format!("notice: {longer}; the model extrapolates to positions it was not trained on"));
        }
    }
    Ok(())
}
