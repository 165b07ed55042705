//! `evaluate`: exact loss, perplexity and accuracy of a run's best weights over a whole split.

use std::f64::consts::LN_2;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use clap::ValueEnum;
use serde::Serialize;

use super::backend::{BackendArgs, is_set};
use super::input;
use crate::backend::{self, Device, Job, Memory, compute_as_run, smaller_batch};
use crate::config::Config;
use crate::data::{Dataset, Loader, Order};
use crate::error::Result;
use crate::evaluation::{Evaluation, evaluate};
use crate::ops;
use crate::terminal::{Bar, ProgressKind, print_json, say, thousands, warn};
use crate::training::{RunFolder, ValidBatches, check_precision, data_fingerprint, dataset_of};
use crate::weights::native;

/// Evaluate a run's best weights on a whole split: loss, perplexity, accuracy, beside the floor.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    /// The split.
    #[arg(long, value_enum, default_value = "valid")]
    split: Split,
    /// Overrides a key of the run's config, as --set data.path=book.txt; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Takes the weights of the checkpoint at this step. [default: the best weights]
    #[arg(long, value_name = "STEP")]
    checkpoint: Option<u64>,
    #[command(flatten)]
    backend: BackendArgs,
    /// Prints JSON, with the loss and its floor at each position of the sequence.
    #[arg(long)]
    json: bool,
}

/// The set that is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Split {
    /// What the run was judged by.
    Valid,
    /// What it learned from.
    Train,
}

/// What is printed. Losses are in nats unless the key says bits.
#[derive(Debug, Serialize)]
struct Report {
    split: Split,
    #[serde(flatten)]
    evaluation: Evaluation,
    bits: f64,
    perplexity: f64,
    floor: Option<f64>,
    gap: Option<f64>,
    /// The floor at each position; empty where it is not known.
    floor_by_position: Vec<f64>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let folder = RunFolder::open(&args.run)?;
    let config = Config::load(Some(&folder.config()), &args.set)?;
    let made_with = Config::load(Some(&folder.config()), &[])?;
    if let Some(difference) = config.difference(&made_with, &["model"]) {
        return Err(difference.refused("the weights were made with", "they stay as they are"));
    }
    let device = args.backend.choose(&config.training, &args.set)?;
    let dataset = dataset_of(&config, &folder)?;
    let set = match args.split {
        Split::Valid => &dataset.valid,
        Split::Train => &dataset.train,
    };
    let rows = config.training.batch_size.min(set.len());
    let job = Evaluate {
        folder: &folder,
        weights: input::weights(&folder, args.checkpoint)?,
        config: &config,
        dataset,
        split: args.split,
        asked_for_other_data: config.data != made_with.data,
        asked_for_precision: is_set(&args.set, "training.precision"),
        on: &device,
    };
    let report = backend::run(&device, job).map_err(|error| smaller_batch(error, &config.training, rows))?;
    match args.json {
        true => print_json(&report),
        false => print(&folder, &report),
    }
    Ok(ExitCode::SUCCESS)
}

/// What is said of weights that are scored on what they may never have seen.
pub const DRAWN: &str = "notice: these weights were imported and their run names no data, so sequences are drawn over \
                         their ids: give yours, as --set data.path=sequences.csv";

struct Evaluate<'a> {
    folder: &'a RunFolder,
    weights: PathBuf,
    config: &'a Config,
    dataset: Dataset,
    split: Split,
    asked_for_other_data: bool,
    asked_for_precision: bool,
    on: &'a Device,
}

impl Job for Evaluate<'_> {
    type Output = Report;

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Report> {
        let experiment = self.config;
        if self.asked_for_precision {
            check_precision::<B>(&experiment.training, self.on, &device)?;
        }
        self.warn_of_change();
        let Self { dataset, .. } = self;
        let memory = Memory::of(experiment, &dataset, self.on);
        memory.check_tensors(experiment, experiment.sizes(&dataset), self.on)?;
        let (set, floor, floor_by_position) = match self.split {
            Split::Valid => {
                (dataset.valid, dataset.floor.map(|floor| floor.valid), dataset.floor_by_position)
            }
            Split::Train => (dataset.train, None, Vec::new()),
        };
        let loader = Loader::new(set, experiment.training.batch_size, experiment.run.seed, Order::InOrder);
        let evaluation = compute_as_run::<B, _>(&experiment.training, self.on, &device, || {
            let (model, _) = native::load_model::<B::InnerBackend>(&self.weights, &device)?;
            let batches = ValidBatches::new(Arc::new(loader), device.clone());
            // Other data may have another shape than the model was made for.
            if let Some(first) = batches.iter().next() {
                model.check(&first.device.inputs)?;
            }
            let bar = Bar::new(ProgressKind::automatic(), batches.num_items() as u64, "batches");
            let counted = (1..).zip(batches.iter()).map(|(number, batch)| {
                bar.set(number);
                batch
            });
            let evaluation = evaluate(&model, counted);
            bar.finish();
            Ok(evaluation)
        })?;
        Ok(Report {
            split: self.split,
            bits: evaluation.loss / LN_2,
            perplexity: evaluation.loss.exp(),
            floor,
            gap: floor.map(|floor| evaluation.loss - floor),
            floor_by_position,
            evaluation,
        })
    }
}

impl Evaluate<'_> {
    /// Says so where the data is no longer what the run learned from, though its config names the same.
    fn warn_of_change(&self) {
        if self.folder.is_imported() && !self.asked_for_other_data {
            return warn(DRAWN);
        }
        let known = data_fingerprint(self.folder).filter(|_| !self.asked_for_other_data);
        if known.is_some_and(|fingerprint| fingerprint != self.dataset.fingerprint()) {
            let run = self.folder.path().display();
            warn(&format!(
                "warning: the data has changed since the run `{run}` began, so its scores are of other data"
            ));
        }
    }
}

fn print(folder: &RunFolder, report: &Report) {
    let Report { evaluation, .. } = report;
    let split = match report.split {
        Split::Valid => "validation",
        Split::Train => "training",
    };
    say(&format!("{}: {} targets of the {split} set", folder.name(), thousands(evaluation.tokens as f64)));
    say(&format!("  loss        {:.6} nats, {:.6} bits", evaluation.loss, report.bits));
    if let (Some(floor), Some(gap)) = (report.floor, report.gap) {
        say(&format!("  floor       {floor:.6} nats, so {gap:+.6} to the best possible"));
    }
    say(&format!("  perplexity  {:.4}", report.perplexity));
    say(&format!("  accuracy    {:.2} %", evaluation.accuracy * 100.0));
    if let (Some(accuracy), Some(loss)) = (evaluation.determined_accuracy, evaluation.determined_loss) {
        let targets = thousands(evaluation.determined_tokens as f64);
        say(&format!(
            "  determined  {:.2} % of {targets} targets that can be known, {loss:.6} nats",
            accuracy * 100.0
        ));
    }
}
