//! `evaluate`: the exact loss, perplexity and accuracy of a run's best weights on a whole split or a held-out file.

mod lengths;
mod scored;

use std::f64::consts::LN_2;
use std::path::PathBuf;

use burn::tensor::backend::AutodiffBackend;
use serde::Serialize;

use self::scored::{Scored, ScoredTargets};
use super::input::{self, OpenedRun, RunArgs};
use super::interventions::{InterventionArgs, named};
use crate::backend::{Job, MemoryEstimate};
use crate::config::{Config, differing, sets};
use crate::data::{Dataset, Sequences, Source};
use crate::error::{Error, Result};
use crate::evaluation::{AtLength, DeviceBatch, Evaluation, evaluate};
use crate::files::check_output;
use crate::numbers::{counted, floor_gap, thousands};
use crate::terminal::{PieceProgress, print_json, say, warn};
use crate::training::{
    RunFolder, Split, Unchecked, check_precision, dataset_of, has_different_data, trained_on,
};
use crate::weights::{file::WeightsFile, native};

/// Evaluate a run's best weights on a whole split or file: loss, perplexity, accuracy and entropy floor.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The part of the data to score. [default: valid for the run's own data, whole for any other file]
    #[arg(long, value_enum)]
    split: Option<Scored>,
    /// Scores this file, read with the data settings of the run; same as --set data.path=FILE.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Overrides a key of the run's config, e.g. --set data.path=book.txt; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Uses the weights of the checkpoint at this step. [default: the best weights]
    #[arg(long, value_name = "STEP")]
    checkpoint: Option<usize>,
    /// Also evaluates at these lengths, e.g. 64,128,256: with non-overlapping windows, and with sliding windows an
    /// eighth of the length apart, of which only the last eighth of the targets counts.
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',')]
    length: Vec<usize>,
    /// Draws the losses at all lengths to lengths.png in this folder; an existing folder is replaced only if evaluate
    /// created it.
    #[arg(long, value_name = "DIR", requires = "length")]
    out: Option<PathBuf>,
    #[command(flatten)]
    interventions: InterventionArgs,
    /// An option of other commands.
    #[arg(long, alias = "at", value_name = "TEXT", hide = true, value_parser = refuse_patch)]
    patch_from: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    /// Prints JSON, including the loss and the entropy floor at each position.
    #[arg(long)]
    json: bool,
}

/// Refuses to patch activations.
fn refuse_patch(_: &str) -> Result<String, String> {
    Err("evaluate averages over many sequences, in which a position stands for different tokens; patch one text with \
         score or inspect, or many pairs with explain --prompts"
        .to_string())
}

/// The output. Losses are in nats unless the key says bits.
#[derive(Debug, Serialize)]
struct EvaluateReport {
    split: Scored,
    /// The options that alter the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interventions: Vec<String>,
    /// The number of targets in the file; `None` for generated sequences.
    targets_in_file: Option<usize>,
    #[serde(flatten)]
    evaluation: Evaluation,
    bits: f64,
    perplexity: f64,
    floor: Option<f64>,
    gap: Option<f64>,
    /// The entropy floor at each position; empty if it is unknown.
    floor_by_position: Vec<f64>,
    /// The results of both protocols at each requested length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lengths: Vec<AtLength>,
}

/// Runs the command.
pub fn run(mut args: Args) -> Result<()> {
    if let Some(file) = &args.data {
        args.set.insert(0, scored::as_key(file)?);
    }
    let mut run = args.run.open(&args.set)?;
    if args.data.is_some() {
        // The validation file of the run is not a part of this one.
        run.config.data.valid_path = Default::default();
    }
    run.given.with_origin(evaluate_run(&args, &run))
}

/// Rejects settings that the weights of the run determine.
fn check_settings(
    args: &Args,
    OpenedRun { folder, config, .. }: &OpenedRun,
    made_with: &Config,
) -> Result<()> {
    if let Some(difference) = config.difference(made_with, &["model"]) {
        let owner = format!("the run `{}`", folder.path().display());
        return Err(difference.refused(&owner, "omit it, since `evaluate` does not change the model"));
    }
    // The config of an imported run does not say whether its data consists of short texts.
    let has_effect = |key: &str| key == "data.tokens" && folder.is_imported();
    let vocabulary_keys = [
        "data.tokens",
        "data.vocab",
        "data.values",
        "data.end_of_text",
        "data.bins",
        "data.binning",
        "data.difference",
    ];
    let vocabulary_keys = vocabulary_keys.into_iter().filter(|key| sets(&args.set, key) && !has_effect(key));
    if let Some((key, (value, _))) =
        differing(vocabulary_keys, [&config.values(), &made_with.values()]).next()
    {
        let problem =
            "has no effect with `evaluate`, which reads the file with the vocabulary of the run; omit it";
        return Err(Error::key(key, value, problem));
    }
    Ok(())
}

fn evaluate_run(args: &Args, run: &OpenedRun) -> Result<()> {
    args.out.iter().try_for_each(|out| check_output(out, "evaluate"))?;
    let OpenedRun { folder, config, device, .. } = run;
    let made_with = Config::load_own(&folder.config())?;
    check_settings(args, run, &made_with)?;
    let ScoredTargets { scored, dataset, targets_in_file } =
        scored::select(args.split, args.data.is_some(), run, &made_with)?;
    let weights = input::weights(folder, args.checkpoint)?;
    let at_lengths = lengths::Sets::load(&args.length, scored.split(), run, &dataset, &weights)?;
    let is_own = config.data == made_with.data && config.run.seed == made_with.run.seed;
    if is_own {
        warn_of_change(run, scored, &dataset);
    }
    if !is_own || scored == Scored::Whole {
        let guesses = dataset.guesses().cloned();
        let unknown = dataset.vocabulary.warn_of_unknown(dataset.valid.ids());
        guesses.chain(unknown).for_each(|problem| warn(&format!("warning: {problem}")));
    }
    let (set, floor, floor_by_position) = match scored.split() {
        Split::Valid => {
            (&dataset.valid, dataset.floor.map(|floor| floor.valid), dataset.floor_by_position.clone())
        }
        Split::Train => (&dataset.train, None, Vec::new()),
    };
    warn_of_seen(run, scored, is_own, &dataset, set);
    // Keys from the config of the run may belong to its own file.
    let is_given = |error: &Error| matches!(error, Error::Key { key, .. } if sets(&args.set, key));
    for unused in config.without_effect(Some(&dataset)).into_iter().filter(is_given) {
        warn(&format!("warning: {unused}"));
    }
    if sets(&args.set, "training.precision") {
        check_precision(&config.training, device)?;
    }
    let trained = at_lengths.trained;
    let (evaluation, lengths) = run.compute(Evaluate(args, run, weights, &dataset, set, at_lengths))?;
    if !evaluation.loss.is_finite() {
        return Err(Error::not_finite());
    }
    let report = EvaluateReport {
        split: scored,
        interventions: args.interventions.options(),
        targets_in_file,
        bits: evaluation.loss / LN_2,
        perplexity: evaluation.loss.exp(),
        floor,
        gap: floor.map(|floor| evaluation.loss - floor),
        floor_by_position,
        evaluation,
        lengths,
    };
    match args.json {
        true => print_json(&report),
        false => print(folder, config, &report, trained),
    }
    let name = named(folder.name(), &report.interventions);
    args.out.iter().try_for_each(|out| lengths::draw(&name, &report.lengths, trained, out, args.json))
}

/// The notice for imported weights that are scored on generated data.
pub const GENERATED_DATA_NOTICE: &str = "notice: the run was imported without data, so sequences are generated over \
                                         its token ids; use --set data.path=sequences.csv for your own data";

/// Warns if the data differs from the run's training data although its config is unchanged.
fn warn_of_change(OpenedRun { folder, config, .. }: &OpenedRun, scored: Scored, dataset: &Dataset) {
    if folder.is_imported() {
        return match config.data.source() {
            Source::Sequences => warn(GENERATED_DATA_NOTICE),
            Source::Text | Source::Table | Source::Array | Source::Memory => {}
        };
    }
    let path = &config.data.path;
    let has_changed = match scored {
        Scored::Valid | Scored::Train => has_different_data(folder, dataset),
        // The whole file is a single split, so the splits of the run are read again. A pipe can be read only once.
        Scored::Whole if path.are_files() => {
            dataset_of(config, folder).map_or(true, |splits| has_different_data(folder, &splits))
        }
        Scored::Whole => false,
    };
    if has_changed {
        let run = folder.path().display();
        warn(&format!(
            "warning: the data has changed since the run `{run}` started, so the scores are for other data"
        ));
    }
}

/// Warns if the run, or a run that it started from, was trained on the scored sequences. On the run's own data, checks
/// only the runs that it started from, because `train` warns about its own splits.
fn warn_of_seen(run: &OpenedRun, scored: Scored, is_own: bool, dataset: &Dataset, set: &Sequences) {
    if is_own && scored != Scored::Valid {
        return;
    }
    let lineage = run.folder.lineage();
    let trained = if lineage.len() == 1 { "the run" } else { "the run or a run that it starts from" };
    let mut found = trained_on(&lineage, usize::from(is_own), &run.config.data, dataset, set);
    if is_own {
        // `train` reported missing files, and runs are often shared without the runs that they start from.
        found.unchecked.retain(|unchecked| matches!(unchecked, Unchecked::Changed(_)));
    }
    if found.sequences > 0 {
        let all = counted(set.len(), "sequence");
        let seen = thousands(found.sequences as f64);
        let uncounted = found.uncounted(trained);
        warn(&format!(
            "warning: {trained} was trained on {seen} of the {all}, so the score does not measure \
             generalisation{uncounted}"
        ));
    } else if let Some(gaps) = found.gaps(trained) {
        warn(&format!("warning: {gaps}, so the scored sequences may be training data"));
    }
}

/// The job that evaluates weights on a set.
struct Evaluate<'a>(&'a Args, &'a OpenedRun, WeightsFile, &'a Dataset, &'a Sequences, lengths::Sets);

impl Job for Evaluate<'_> {
    type Output = (Evaluation, Vec<AtLength>);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Self(args, OpenedRun { folder, config, device: on, .. }, weights, dataset, set, lengths) = self;
        MemoryEstimate::of(config, dataset, on).check_tensors(config, config.sizes(dataset), on)?;
        let (model, description) = native::load_model::<B::InnerBackend>(&weights, &device)?;
        let model = args.interventions.apply(model, &description, folder, &device)?;
        let mut batches = set.batches(config.training.batch_size).peekable();
        // Other data may have shapes that the model cannot read.
        if let Some(first) = batches.peek() {
            let source_time = first.source.as_ref().map_or(0, |source| source.time);
            input::check_length(&description, first.time, source_time)?;
            model.check(&DeviceBatch::new(first, &device).inputs)?;
        }
        lengths.check(config, dataset, on)?;
        let evaluation = {
            let pieces = PieceProgress::new(args.json, batches.len(), "batches");
            let counted = batches.zip(1..).inspect(|&(_, number)| pieces.done(number));
            evaluate(&model, counted.map(|(batch, _)| batch), &device)
        };
        Ok((evaluation, lengths.evaluate(&model, args.json, &device)))
    }
}

fn print(folder: &RunFolder, config: &Config, report: &EvaluateReport, trained: usize) {
    let EvaluateReport { evaluation, split, .. } = report;
    let targets = counted(evaluation.tokens as usize, "target");
    say(&match report.targets_in_file {
        None => format!("{}: {targets} of {split}", folder.name()),
        Some(all) => format!(
            "{}: {targets} of {} in `{}` ({split})",
            folder.name(),
            thousands(all as f64),
            match (split, config.data.valid_path.is_empty()) {
                (Scored::Valid, false) => &config.data.valid_path,
                _ => &config.data.path,
            }
        ),
    });
    say(&format!("  loss        {:.6} nats, {:.6} bits", evaluation.loss, report.bits));
    if let Some(floor) = report.floor {
        say(&format!("  floor       {floor:.6} nats: the loss is {}", floor_gap(evaluation.loss, floor, 6)));
    }
    say(&format!("  perplexity  {:.4}", report.perplexity));
    say(&format!("  accuracy    {:.2} %", evaluation.accuracy * 100.0));
    if let (Some(accuracy), Some(loss)) = (evaluation.determined_accuracy, evaluation.determined_loss) {
        let targets = counted(evaluation.determined_tokens as usize, "determined target");
        say(&format!("  determined  {:.2} % of {targets} correct, {loss:.6} nats", accuracy * 100.0));
    }
    lengths::print(&report.lengths, trained);
}
