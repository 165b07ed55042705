//! `explain`: the circuit of a run's model.

mod neurons;

use std::path::{Path, PathBuf};

use burn::tensor::backend::{AutodiffBackend, Backend};
use causal_attention_report::Style;

use super::input::{self, OpenedRun, RunArgs};
use super::prompt;
use super::question::QuestionArgs;
use crate::analysis::Sample;
use crate::analysis::circuit::{
    ContextSource, Explanation, ExplanationContext, NeuronSearch, Question, QuestionPrompt,
    affordable_samples, check_memory, context_samples, explain, explainable, repeated_sequences,
    tuned_lens_skip_reason, unigram,
};
use crate::backend::{self, Device, Job};
use crate::config::Config;
use crate::data::{Dataset, Role, Source, Vocabulary, tasks};
use crate::error::{Error, Result};
use crate::files::{check_output, write_atomically, write_output};
use crate::model::{Architecture, Decoder, NormPlacement};
use crate::reporting::{circuit_pictures, save_all};
use crate::terminal::{print_json, say, warn};
use crate::training::{Hashes, RunFolder, dataset_of, has_different_data};

/// Find the circuit of a run's model: the heads and feed-forward layers that make its predictions, their kinds and the
/// connections between them, each confirmed by ablation. Writes circuit.json and pictures to the run folder, or to its
/// explain/ folder for your own input. If the prediction may be due to chance, there is nothing to explain, and the
/// result says why.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("given").args(["text", "text_file", "tokens"])))]
#[command(group(clap::ArgGroup::new("own").args(["text", "text_file", "tokens", "prompts", "pattern"])))]
pub struct Args {
    /// Explains the model on this text. [default: sequences of the run's validation set]
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    /// Reads the text from a file; - is standard input.
    #[arg(long, value_name = "FILE")]
    text_file: Option<PathBuf>,
    /// The text as token ids, e.g. "3 1 4".
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    tokens: Option<String>,
    /// Explains the model on a standard probe: repeat, or repeat:N, generates N random tokens and repeats them.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    pattern: Option<Pattern>,
    #[command(flatten)]
    question: QuestionArgs,
    #[command(flatten)]
    options: ExplainOptions,
    /// The folder for the results on your own input; an existing folder is replaced only if explain created it.
    /// [default: explain/ in the run folder]
    #[arg(long, value_name = "DIR", requires = "own", conflicts_with = "json")]
    out: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
    /// Prints circuit.json and writes no files.
    #[arg(long)]
    json: bool,
}

/// Options of the search.
#[derive(Debug, Clone, clap::Args)]
pub struct ExplainOptions {
    /// Proves that no smaller circuit exists at this tolerance, by evaluating all smaller sets of components: up to about a
    /// thousand passes for 10 components, and 65,536 for 16, the most that are allowed.
    #[arg(long)]
    certify: bool,
    /// The number of feed-forward neurons to report: those whose ablation matters most, with the tokens at which they are
    /// most active; 0 for none.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_NEURONS)]
    neurons: usize,
}

impl Default for ExplainOptions {
    fn default() -> Self {
        Self { certify: false, neurons: DEFAULT_NEURONS }
    }
}

/// The number of neurons that are reported by default.
const DEFAULT_NEURONS: usize = 8;

/// A standard probe: random tokens, repeated once.
#[derive(Debug, Clone, Copy)]
struct Pattern {
    /// The number of tokens in each copy.
    length: Option<usize>,
}

/// The number of tokens in each copy by default, if the context and the vocabulary hold them.
const DEFAULT_REPEAT: usize = 24;

fn pattern(text: &str) -> Result<Pattern, String> {
    let problem = "write repeat, or repeat:N for N tokens from 2";
    match text.split_once(':').unwrap_or((text, "")) {
        ("repeat", "") if !text.ends_with(':') => Ok(Pattern { length: None }),
        ("repeat", length) => {
            let length = length.parse().ok().filter(|length| *length >= 2);
            length.map(|length| Pattern { length: Some(length) }).ok_or_else(|| problem.to_string())
        }
        _ => Err(problem.to_string()),
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let OpenedRun { folder, config, device, .. } = args.run.open(&[])?;
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let out = args.out.clone().unwrap_or_else(|| folder.path().join("explain"));
    let has_text = args.text.is_some() || args.text_file.is_some() || args.tokens.is_some();
    let is_given = has_text || args.pattern.is_some() || args.question.has_prompts();
    if is_given && !args.json {
        check_output(&out, "explain")?;
    }
    let found = match is_given {
        true if config.model.architecture == Architecture::EncoderDecoder => {
            let problem = "an encoder-decoder is explained only on its validation set; omit your own input";
            return Err(Error::Input(problem.into()));
        }
        true => {
            let (subject, question) = given(&args, &config, &vocabulary)?;
            let mut found = backend::run(&device, Explain(&folder, &config, &subject, &args.options))?;
            found.sentences.splice(..0, question);
            found
        }
        false => of_run(&folder, &config, &device, &args.options)?,
    };
    if args.json {
        print_json(&found);
        return Ok(());
    }
    let pictures = circuit_pictures(&folder.name(), &found, &vocabulary);
    let draw = |folder: &Path| save_all(&pictures, folder, &Style::default());
    let written = match is_given {
        // The run's own circuit is found on its validation set, so it is not overwritten.
        true => write_output(&out, "explain", |folder| {
            write_atomically(&folder.join("circuit.json"), &json_of(&found))?;
            draw(folder)
        })?,
        false => {
            save(&folder, &found)?;
            folder.remove_circuit_pictures()?;
            draw(&folder.plots())?
        }
    };
    found.sentences.iter().for_each(|sentence| say(sentence));
    neurons::print(&found, &vocabulary);
    written.iter().for_each(|path| say(&path.display().to_string()));
    Ok(())
}

/// Returns the user's own input, and the question about it as a sentence.
fn given(args: &Args, config: &Config, vocabulary: &Vocabulary) -> Result<(Subject, Option<String>)> {
    if let Some(pattern) = args.pattern {
        return Ok((Subject::Repeated(pattern, vocabulary.clone()), None));
    }
    let tokens = prompt::tokens(&args.text, &args.text_file, &args.tokens, vocabulary, prompt::encode)?;
    if let Some((prompts, question)) = args.question.prompts(&tokens, vocabulary)? {
        return Ok((Subject::Prompts(prompts), Some(question)));
    }
    let sample = sample(&tokens)?.split_documents(config.data.text_documents(), vocabulary);
    Ok((Subject::Given(sample), None))
}

/// Returns true if a model of `config` can be explained.
pub(super) fn is_explainable(config: &Config) -> bool {
    config.model.architecture != Architecture::OneLayer && config.model.norm == NormPlacement::Pre
}

/// Explains a run's best weights on sequences of its validation set. ///
/// # Errors
/// Returns an error if the data cannot be read, and the errors of [`explain`].
pub fn of_run(
    folder: &RunFolder,
    config: &Config,
    device: &Device,
    options: &ExplainOptions,
) -> Result<Explanation> {
    if folder.is_imported() {
        return Err(Error::Input(format!(
            "the run `{}` was imported, so it lacks validation sequences; pass a text with --text TEXT",
            folder.path().display()
        )));
    }
    let dataset = dataset_of(config, folder)?;
    if has_different_data(folder, &dataset) {
        return Err(Error::Input(format!(
            "the data has changed since the run `{}` started, and a circuit is found only on the original data; \
             restore the file, or pass a text with --text TEXT",
            folder.path().display()
        )));
    }
    backend::run(device, Explain(folder, config, &Subject::Validation(dataset), options))
}

/// Writes `circuit.json`.
pub(super) fn save(folder: &RunFolder, explanation: &Explanation) -> Result<()> {
    write_atomically(&folder.circuit(), &json_of(explanation))
}

fn json_of(explanation: &Explanation) -> Vec<u8> {
    serde_json::to_vec(explanation).expect("an explanation holds plain values")
}

/// Converts the input to a sample; the target of the last token is unknown.
fn sample(tokens: &[u32]) -> Result<Sample> {
    let problem = match tokens {
        [] => "the input is empty; pass at least two tokens",
        [_] => "the input has a single token, so nothing is predicted; pass at least two",
        [inputs @ .., _] => {
            let (roles, targets) = (vec![Role::Unknown; inputs.len()], tokens[1..].to_vec());
            return Ok(Sample { inputs: inputs.to_vec(), targets, roles, source: None, documents: None });
        }
    };
    Err(Error::Input(problem.into()))
}

/// The sequences on which a model is explained.
enum Subject {
    /// The user's sequence.
    Given(Sample),
    /// Prompts with answers.
    Prompts(Vec<QuestionPrompt>),
    /// Random tokens of the vocabulary, repeated once.
    Repeated(Pattern, Vocabulary),
    /// Sequences of a run's validation set.
    Validation(Dataset),
}

struct Explain<'a>(&'a RunFolder, &'a Config, &'a Subject, &'a ExplainOptions);

impl Job for Explain<'_> {
    type Output = Explanation;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Explanation> {
        let Self(folder, config, subject, &ExplainOptions { certify: certifies, neurons }) = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let decoder = explainable(&model)?;
        let seed = config.data.seed.unwrap_or(config.run.seed);
        let task = (config.data.source() == Source::Sequences).then(|| tasks::build(&config.data, seed));
        let task = task.transpose()?;
        let (samples, origin) = match subject {
            Subject::Given(sample) => (
                vec![sample.clone()],
                ExplanationContext { selects_targets: true, ..ExplanationContext::default() },
            ),
            Subject::Prompts(prompts) => {
                let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
                input::check_length(&description, longest, 0)?;
                let (samples, question) = Question::of_prompts(decoder, prompts, &device)?;
                (samples, ExplanationContext { question, ..ExplanationContext::default() })
            }
            Subject::Repeated(pattern, vocabulary) => {
                let (length, samples) = repeated(*pattern, vocabulary, description.sizes.context, seed)?;
                (samples, ExplanationContext { repeated: Some(length), ..ExplanationContext::default() })
            }
            Subject::Validation(Dataset { train, valid, .. }) => {
                let (samples, truncation_note) = affordable_samples(decoder, valid, backend::free_memory());
                let lens = tuned_lens_skip_reason(decoder, train);
                truncation_note.iter().chain(&lens).for_each(|note| warn(&format!("warning: {note}")));
                let unigram = Some(unigram(train, &samples, description.sizes.vocab));
                let (train, task) = (Some(train), task.as_deref());
                (
                    samples,
                    ExplanationContext {
                        unigram,
                        train,
                        task,
                        truncation_note,
                        ..ExplanationContext::default()
                    },
                )
            }
        };
        let longest = samples.iter().map(|sample| sample.inputs.len()).max().unwrap_or(0);
        input::check_length(&description, longest, 0)?;
        check_memory(decoder, &samples, backend::free_memory())?;
        let question = origin.question.clone();
        let mut found = explain(&model, &samples, ExplanationContext { certifies, ..origin }, &device)?;
        let (source, contexts) = contexts(subject, decoder, folder, description.sizes.vocab)?;
        let search = NeuronSearch { count: neurons, contexts: &contexts, source };
        found = found.with_neurons(&model, (&samples, &question), search, &device)?;
        if !matches!(subject, Subject::Validation(_)) {
            B::InnerBackend::seed(&device, seed);
            let random = description.model.init::<B::InnerBackend>(description.sizes, &device)?;
            found = found.with_random_effects(&random, &samples, &question, &device)?;
        }
        found.basis.weights_sha256 = match Hashes::read(folder).and_then(|hashes| hashes.weights_sha256) {
            Some(written) => Some(written),
            None => Some(folder.unverified_weights()?.sha256()?),
        };
        Ok(found)
    }
}

/// Returns the sequences in which neurons are active: of the validation set, or stored with the run. For an imported model,
/// they are those explained.
fn contexts<B: Backend>(
    subject: &Subject,
    decoder: &Decoder<B>,
    folder: &RunFolder,
    vocab: usize,
) -> Result<(ContextSource, Vec<Sample>)> {
    if let Subject::Validation(Dataset { valid, .. }) = subject {
        return Ok((ContextSource::ValidationSet, context_samples(decoder, valid)));
    }
    if !folder.samples().is_file() {
        return Ok((ContextSource::Input, Vec::new()));
    }
    let samples = Sample::read(&folder.samples(), vocab)?;
    let source = if samples.is_empty() { ContextSource::Input } else { ContextSource::StoredSequences };
    Ok((source, samples))
}

/// Returns the number of tokens in each copy, and the sequences of the probe.
fn repeated(
    Pattern { length }: Pattern,
    vocabulary: &Vocabulary,
    context: usize,
    seed: u64,
) -> Result<(usize, Vec<Sample>)> {
    let longest = length.unwrap_or(DEFAULT_REPEAT.min(context / 2));
    let lengths = if length.is_some() { longest..=longest } else { 2..=longest };
    let found =
        lengths.rev().find_map(|length| Some((length, repeated_sequences(vocabulary, length, seed)?)));
    found.ok_or_else(|| {
        let problem = "more than the vocabulary has; pass a smaller number";
        Error::Input(format!("--pattern: {} different tokens are {problem}", longest.max(2)))
    })
}
