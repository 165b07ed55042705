//! `explain`: the circuit of a run's model.

mod neurons;
mod pattern;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::tensor::backend::{AutodiffBackend, Backend};

use self::pattern::{Pattern, pattern, repeated};
use self::watch::ExplanationWatch;
use super::fourier;
use super::input::{self, InputArgs, OpenedRun, RunArgs};
use super::pictures::PictureArgs;
use super::question::{QuestionArgs, with_prediction};
use super::scale::positive;
use super::signals;
use crate::analysis::Sample;
use crate::analysis::circuit::{
    ContextSource, Explanation, ExplanationContext, ExplanationStage, NeuronSearch, Question, QuestionPrompt,
    Unwatched, Watch, affordable_samples, check_memory, context_samples, explain, explainable,
    tuned_lens_skip_reason, unigram,
};
use crate::backend::{self, Device, Job};
use crate::config::Config;
use crate::data::tasks::{self, SequenceTask};
use crate::data::{Dataset, Source, Vocabulary};
use crate::error::{Error, Result};
use crate::files::{check_output, write_atomically, write_output};
use crate::model::{Architecture, Decoder};
use crate::reporting::{circuit_pictures, save_all};
use crate::terminal::{print_json, say, warn};
use crate::training::{Hashes, RunFolder, dataset_of, has_different_data};
use crate::weights::native::Description;

/// Find the circuit of a run's model: the heads and feed-forward layers that make its predictions, their kinds and the
/// connections between them, each confirmed by ablation, with 95 % intervals and with what the same searches find with
/// random weights. Writes circuit.json and pictures to the run folder, or to its explain/ folder for your own input. If the
/// prediction may be due to chance, there is nothing to explain, and the result says why.
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
    /// The source of the text, for a model that was trained on pairs or conversations: only targets of the text count.
    #[arg(long, value_name = "TEXT", requires = "given", allow_hyphen_values = true)]
    source: Option<String>,
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
    pictures: PictureArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Prints circuit.json and writes no files.
    #[arg(long)]
    json: bool,
}

/// Options of the search.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ExplainOptions {
    /// Proves that no smaller circuit exists at this tolerance, by evaluating all smaller sets of components: up to about a
    /// thousand passes for 10 components, and 65,536 for 16, the most that are allowed.
    #[arg(long)]
    certify: bool,
    /// The number of feed-forward neurons to report, with the tokens at which they are most active; 0 for none. Neurons are
    /// ablated in the order of their estimates, until further ablations find none with a larger effect.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_NEURONS)]
    neurons: usize,
    /// Ends the search after about this time, and reports what is known: stages that ended early are named.
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    budget: Option<f64>,
}

impl Default for ExplainOptions {
    fn default() -> Self {
        Self { certify: false, neurons: DEFAULT_NEURONS, budget: None }
    }
}

/// The number of neurons that are reported by default.
const DEFAULT_NEURONS: usize = 8;

/// Runs the command.
///
/// # Errors
/// If the run or the input cannot be read, or there is nothing to explain.
pub fn run(args: Args) -> Result<ExitCode> {
    let OpenedRun { folder, config, device, .. } = args.run.open(&[])?;
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    if args.question.only_aligns() {
        let tokens = input_args(&args).read(&vocabulary, &config)?.tokens;
        let lines = args.question.aligned(&tokens, &vocabulary)?;
        lines.iter().flatten().for_each(|line| say(line));
        return Ok(ExitCode::SUCCESS);
    }
    args.pictures.style()?;
    if let (Some(option), true) = (args.pictures.given(), args.json) {
        return Err(Error::Input(format!(
            "{option} has no effect with --json, which draws nothing; omit one of them"
        )));
    }
    let out = args.out.clone().unwrap_or_else(|| folder.path().join("explain"));
    let has_text = args.text.is_some() || args.text_file.is_some() || args.tokens.is_some();
    let is_given = has_text || args.pattern.is_some() || args.question.has_prompts();
    if is_given && !args.json {
        check_output(&out, "explain")?;
    }
    let subject = is_given.then(|| given(&args, &config, &vocabulary)).transpose()?;
    let watch = ExplanationWatch::new(args.json, args.options.budget)?;
    let search = Search { options: args.options, has_random: true, watch: Some(&watch) };
    let found = match subject {
        Some((subject, question)) => {
            let found = backend::run(&device, Explain(&folder, &config, &subject, search));
            found.map(|mut found| {
                let predicted = found.basis.next.last().copied();
                let question = question.map(|it| with_prediction(it, predicted, &vocabulary));
                found.sentences.splice(..0, question);
                found
            })
        }
        None => of_run(&folder, &config, &device, search),
    };
    let signal = watch.finish();
    let code = signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(signals::exit_code(signal)));
    let found = found?;
    if args.json {
        print_json(&found);
        return Ok(code);
    }
    found.sentences.iter().for_each(|sentence| say(sentence));
    neurons::print(&found, &vocabulary);
    // An interrupted search does not replace a complete one, and neither does one that ended without a result.
    let has_nothing = found.cut.is_some() && found.gain.no_circuit.is_some();
    if signal.is_none() && !has_nothing {
        let out = is_given.then_some(out.as_path());
        let written = write(&found, &args.pictures, (&folder, &vocabulary), out)?;
        written.iter().for_each(|path| say(&path.display().to_string()));
    }
    if !is_given && signal.is_none() {
        let (sentences, written) = fourier::analyse(&folder, &config, &device)?;
        sentences.iter().for_each(|sentence| say(sentence));
        written.iter().for_each(|path| say(&path.display().to_string()));
    }
    Ok(code)
}

/// Writes `circuit.json` and the pictures to the folder `out` for the user's own input, otherwise to the run folder.
/// Returns the paths of the written files.
fn write(
    found: &Explanation,
    args: &PictureArgs,
    (folder, vocabulary): (&RunFolder, &Vocabulary),
    out: Option<&Path>,
) -> Result<Vec<PathBuf>> {
    let style = args.style()?;
    let pictures = args.titled(circuit_pictures((&folder.name(), style.logical_width()), found, vocabulary));
    let draw = |folder: &Path| save_all(&pictures, folder, &style);
    match out {
        // The run's own circuit is found on its validation set, so it is not overwritten.
        Some(out) => write_output(out, "explain", |folder| {
            write_atomically(&folder.join("circuit.json"), &json_of(found))?;
            draw(folder)
        }),
        None => {
            save(folder, found)?;
            folder.remove_circuit_pictures()?;
            draw(&folder.plots())
        }
    }
}

/// The options of a search for a circuit, and the watch that follows it and may end it early.
#[derive(Clone, Copy, Default)]
pub struct Search<'a> {
    /// The options.
    pub options: ExplainOptions,
    /// True to add the effects of the same search with random weights.
    pub has_random: bool,
    /// The watch.
    pub watch: Option<&'a dyn Watch>,
}

fn input_args(args: &Args) -> InputArgs {
    InputArgs::new([&args.text, &args.tokens, &args.source], args.text_file.clone())
}

/// Returns the user's own input, and the question about it as a sentence.
fn given(args: &Args, config: &Config, vocabulary: &Vocabulary) -> Result<(Subject, Option<String>)> {
    if config.model.architecture == Architecture::EncoderDecoder {
        let problem = "an encoder-decoder is explained only on its validation set; omit your own input";
        return Err(Error::Input(problem.into()));
    }
    if let Some(pattern) = args.pattern {
        return Ok((Subject::Repeated(pattern, vocabulary.clone()), None));
    }
    let input = input_args(args);
    let encoded = input.read(vocabulary, config)?;
    let documents = config.data.text_documents();
    if let Some((prompts, question)) = args.question.prompts(&encoded.tokens, vocabulary, documents)? {
        return Ok((Subject::Prompts(prompts, vocabulary.clone()), Some(question)));
    }
    input.warn_without_source(vocabulary, config);
    let sample = encoded.sample(vocabulary, config)?;
    // The last token is only a target.
    let Some(length @ 1..) = sample.inputs.len().checked_sub(1) else {
        let problem = "the input has a single token, so nothing is predicted; pass at least two";
        return Err(Error::Input(problem.into()));
    };
    Ok((Subject::Given(sample.truncated(length)), None))
}

/// Returns true if a model of `config` can be explained.
pub(super) fn is_explainable(config: &Config) -> bool {
    config.model.architecture != Architecture::OneLayer
        && !config.model.differential
        && config.model.norm.is_sum()
}

/// Explains a run's best weights on sequences of its validation set.
///
/// # Errors
/// Returns an error if the data cannot be read, and the errors of [`explain`].
pub fn of_run(folder: &RunFolder, config: &Config, device: &Device, search: Search) -> Result<Explanation> {
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
    backend::run(device, Explain(folder, config, &Subject::Validation(dataset), search))
}

/// Writes `circuit.json`.
pub(super) fn save(folder: &RunFolder, explanation: &Explanation) -> Result<()> {
    write_atomically(&folder.circuit(), &json_of(explanation))
}

fn json_of(explanation: &Explanation) -> Vec<u8> {
    serde_json::to_vec(explanation).expect("an explanation holds plain values")
}

/// The sequences on which a model is explained.
enum Subject {
    /// The user's sequence.
    Given(Sample),
    /// Prompts with answers.
    Prompts(Vec<QuestionPrompt>, Vocabulary),
    /// Random tokens of the vocabulary, repeated once.
    Repeated(Pattern, Vocabulary),
    /// Sequences of a run's validation set.
    Validation(Dataset),
}

impl Subject {
    /// Returns the sequences, with their origin.
    fn samples<'a, B: Backend>(
        &'a self,
        (decoder, description): (&Decoder<B>, &Description),
        task: Option<&'a dyn SequenceTask>,
        seed: u64,
        device: &B::Device,
    ) -> Result<(Vec<Sample>, ExplanationContext<'a>)> {
        Ok(match self {
            Subject::Given(sample) => (
                vec![sample.clone()],
                ExplanationContext { selects_targets: true, ..ExplanationContext::default() },
            ),
            Subject::Prompts(prompts, vocabulary) => {
                let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
                input::check_length(description, longest, 0)?;
                let (samples, question) = Question::of_prompts(decoder, prompts, device)?;
                let vocabulary = Some(vocabulary);
                (samples, ExplanationContext { question, vocabulary, ..ExplanationContext::default() })
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
                let train = Some(train);
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
        })
    }
}

struct Explain<'a>(&'a RunFolder, &'a Config, &'a Subject, Search<'a>);

impl Job for Explain<'_> {
    type Output = Explanation;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Explanation> {
        let Self(folder, config, subject, Search { options, has_random, watch }) = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let decoder = explainable(&model)?;
        let seed = config.data.seed.unwrap_or(config.run.seed);
        let task = (config.data.source() == Source::Sequences).then(|| tasks::build(&config.data, seed));
        let task = task.transpose()?;
        let (samples, origin) = subject.samples((decoder, &description), task.as_deref(), seed, &device)?;
        let longest = samples.iter().map(|sample| sample.inputs.len()).max().unwrap_or(0);
        input::check_length(&description, longest, 0)?;
        check_memory(decoder, &samples, backend::free_memory())?;
        let question = origin.question.clone();
        let context = ExplanationContext { certifies: options.certify, watch, ..origin };
        let found = explain(&model, &samples, context, &device)?;
        let has_ended = |stage| watch.is_some_and(|watch| watch.ends(stage));
        let follow = watch.unwrap_or(&Unwatched);
        let found = match has_ended(ExplanationStage::Neurons) {
            _ if options.neurons == 0 => found,
            true => found.without_neurons(),
            false => {
                let (source, contexts) = contexts(subject, decoder, (folder, config))?;
                let search =
                    NeuronSearch { count: options.neurons, contexts: &contexts, source, watch: follow };
                found.with_neurons(&model, (&samples, &question), search, &device)?
            }
        };
        let mut found = match has_ended(ExplanationStage::RandomWeights) {
            _ if !has_random => found,
            true => found.without_random_effects(),
            false => {
                B::InnerBackend::seed(&device, seed);
                let random = description.model.init::<B::InnerBackend>(description.sizes, &device)?;
                found.with_random_effects(&random, (&samples, &question), follow, &device)?
            }
        };
        found.basis.weights_sha256 = match Hashes::read(folder).and_then(|hashes| hashes.weights_sha256) {
            Some(written) => Some(written),
            None => Some(folder.unverified_weights()?.sha256()?),
        };
        Ok(found)
    }
}

/// Returns the sequences in which neurons are active: of the validation set or, if it is read from a file, which may be
/// large, those stored with the run. For an imported model, they are those explained.
fn contexts<B: Backend>(
    subject: &Subject,
    decoder: &Decoder<B>,
    (folder, config): (&RunFolder, &Config),
) -> Result<(ContextSource, Vec<Sample>)> {
    if let Subject::Validation(Dataset { valid, .. }) = subject {
        return Ok((ContextSource::ValidationSet, context_samples(decoder, valid)));
    }
    if !folder.samples().is_file() {
        return Ok((ContextSource::Input, Vec::new()));
    }
    if config.data.source() == Source::Sequences {
        let dataset = dataset_of(config, folder)?;
        if !has_different_data(folder, &dataset) {
            return Ok((ContextSource::ValidationSet, context_samples(decoder, &dataset.valid)));
        }
    }
    let [vocab, _] = decoder.embedding.token.weight.dims();
    let samples = Sample::read(&folder.samples(), vocab)?;
    let source = if samples.is_empty() { ContextSource::Input } else { ContextSource::StoredSequences };
    Ok((source, samples))
}
