//! `evaluate`: exact loss, perplexity and accuracy of a run's best weights over a whole split.

use std::f64::consts::LN_2;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use clap::ValueEnum;
use serde::Serialize;

use super::backend::BackendArgs;
use crate::backend::{self, Job};
use crate::config::Config;
use crate::data::{Loader, Order};
use crate::error::Result;
use crate::evaluation::Evaluation;
use crate::ops::{self, Precision};
use crate::training::{RunFolder, Trainee, ValidBatches, evaluate, say, thousands};
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
    #[command(flatten)]
    backend: BackendArgs,
    /// Prints JSON, with the loss at each position of the sequence.
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
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let folder = RunFolder::open(&args.run)?;
    let config = Config::load(Some(&folder.config()), &args.set)?;
    let device = args.backend.choose(Some(&config.training))?;
    let report = backend::run(&device, Evaluate { folder: &folder, config: &config, split: args.split })?;
    match args.json {
        true => say(&serde_json::to_string_pretty(&report).expect("a report holds plain values")),
        false => tell(&folder, &report),
    }
    Ok(ExitCode::SUCCESS)
}

struct Evaluate<'a> {
    folder: &'a RunFolder,
    config: &'a Config,
    split: Split,
}

impl Job for Evaluate<'_> {
    type Output = Report;

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Report> {
        let experiment = self.config.experiment();
        let (model, _) = native::load_model::<B::InnerBackend>(&self.folder.model(), &device)?;
        let dataset = experiment.dataset_of(self.folder)?;
        let (set, floor) = match self.split {
            Split::Valid => (dataset.valid, dataset.floor.map(|floor| floor.valid)),
            Split::Train => (dataset.train, None),
        };
        let loader = Loader::new(set, experiment.training.batch_size, experiment.seed, Order::InOrder);
        let trainee = Trainee { model, label_smoothing: 0.0 };
        // As the run did, where this device can.
        let precision = experiment.training.precision;
        let precision = if precision.is_served::<B>(&device) { precision } else { Precision::F32 };
        let batches = ValidBatches::new(Arc::new(loader), device);
        let evaluation = precision.run(|| evaluate(&trainee, batches.iter()));
        Ok(Report {
            split: self.split,
            bits: evaluation.loss / LN_2,
            perplexity: evaluation.loss.exp(),
            floor,
            gap: floor.map(|floor| evaluation.loss - floor),
            evaluation,
        })
    }
}

fn tell(folder: &RunFolder, report: &Report) {
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
