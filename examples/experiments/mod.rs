//! Small experiments on five tasks, which the examples `lengths` and `variants` share.

use std::path::Path;

use burn::tensor::backend::AutodiffBackend;
use causal_attention::backend::{self, Job, compute_as_run};
use causal_attention::config::Config;
use causal_attention::data::{self, Task};
use causal_attention::evaluation::{AtLength, at_length};
use causal_attention::training::{Control, Mode, Outcome, RunFolder, RunPath, launch};
use causal_attention::weights::native;
use causal_attention::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The settings shared by all runs.
const EXPERIMENT: &str = r"
[data]
train_samples = 32768
valid_samples = 128

[model]
d_model = 64
heads = 4
layers = 2

[training]
batch_size = 32
learning_rate = 3e-3
warmup = 0.05
max_gradient_norm = 1
validate_every = 100000
checkpoint_every = 100000

[analysis]
samples = 1
sequences = 1
snapshots = 0
circuit = false
";

/// A task with its settings, its steps and its lengths, the first of which is the training length.
pub struct Experiment {
    pub task: Task,
    settings: &'static [&'static str],
    pub lengths: [usize; 5],
    steps: usize,
}

impl Experiment {
    /// Returns the overrides of the config for this task.
    pub fn overrides(&self) -> Vec<String> {
        let Self { task, settings, steps, .. } = self;
        let mut overrides: Vec<String> = settings.iter().map(ToString::to_string).collect();
        overrides.extend([format!("data.task={task}"), format!("training.steps={steps}")]);
        overrides
    }
}

pub const EXPERIMENTS: [Experiment; 5] = [
    Experiment {
        task: Task::Repeat,
        settings: &["data.length=32", "data.period=[4,8]", "training.batch_size=16"],
        lengths: [32, 64, 128, 256, 512],
        steps: 2_000,
    },
    Experiment {
        task: Task::CopyGap,
        settings: &["data.length=64", "data.gap=12", "data.valid_samples=32", "training.batch_size=16"],
        lengths: [64, 128, 256, 512, 1024],
        steps: 800,
    },
    // The numbers have 3, 6, 12, 24 and 48 digits.
    Experiment {
        task: Task::Addition,
        settings: &["data.digits=3"],
        lengths: [11, 20, 38, 74, 146],
        steps: 2_000,
    },
    // There are 4 pairs, one per key; longer sequences only have more queries.
    Experiment {
        task: Task::Recall,
        settings: &["data.length=16", "data.vocab=8"],
        lengths: [16, 32, 64, 128, 256],
        steps: 1_200,
    },
    Experiment {
        task: Task::Sort,
        settings: &["data.length=16"],
        lengths: [16, 32, 64, 128, 256],
        steps: 800,
    },
];

/// A trained model with its losses at several lengths.
pub struct Trained {
    pub outcome: Outcome,
    pub at: Vec<AtLength>,
    /// Removes the run when dropped.
    _temporary: tempfile::TempDir,
}

/// Returns the config of an experiment.
pub fn config(overrides: &[String]) -> Result<Config> {
    Config::parse(EXPERIMENT, Path::new("experiments"), overrides)
}

/// Trains a model in a temporary folder, and evaluates it at every length that it can read.
pub fn trained(config: &Config, lengths: &[usize]) -> Result<Trained> {
    let temporary = tempfile::tempdir().map_err(|error| Error::io("create", std::env::temp_dir(), error))?;
    let device = backend::choose(None, None)?;
    let control = Control::unwatched(device.clone());
    let target = RunPath::Folder(temporary.path().join("run"));
    let outcome = launch(config, Mode::New(target), &control)?;
    let at = backend::run(&device, Evaluate { config, folder: &outcome.folder, lengths, on: &device })?;
    Ok(Trained { outcome, at, _temporary: temporary })
}

struct Evaluate<'a> {
    config: &'a Config,
    folder: &'a RunFolder,
    lengths: &'a [usize],
    on: &'a backend::Device,
}

impl Job for Evaluate<'_> {
    type Output = Vec<AtLength>;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Vec<AtLength>> {
        let Self { config, folder, lengths, on } = self;
        let (model, description) = native::load_model::<B::InnerBackend>(&folder.weights()?, &device)?;
        let dataset = data::load(&config.data, config.run.seed)?;
        // The training sequences are not read here.
        let validation_only = data::DataConfig { train_samples: 1, ..config.data.clone() };
        let max_length = description
            .model
            .position
            .max_positions(description.sizes.context, config.model.largest_position);
        let max_tokens = config.training.batch_size * lengths[0];
        let mut found = Vec::new();
        for &length in lengths.iter().filter(|&&length| max_length.is_none_or(|max| length <= max)) {
            let longer = data::load_at_length(&validation_only, config.run.seed, &dataset, length)?;
            assert_eq!(longer.valid.time(), length, "the sequences have the requested length");
            found.extend(compute_as_run::<B, _>(&config.training, on, &device, || {
                Ok(at_length(&model, &longer.valid, &longer.floor_by_position, max_tokens, &device, |_| {}))
            })?);
        }
        Ok(found)
    }
}

/// Reads the rows of a CSV; none if it does not exist.
pub fn read<R: DeserializeOwned>(table: &Path) -> Result<Vec<R>> {
    if !table.exists() {
        return Ok(Vec::new());
    }
    let damaged = |error: csv::Error| Error::file(table, error.to_string());
    let mut reader = csv::Reader::from_path(table).map_err(damaged)?;
    reader.deserialize().collect::<std::result::Result<_, _>>().map_err(damaged)
}

/// Writes rows as CSV.
pub fn write<R: Serialize>(table: &Path, rows: &[R]) -> Result<()> {
    let failed = |error: csv::Error| Error::file(table, error.to_string());
    let mut writer = csv::Writer::from_path(table).map_err(failed)?;
    rows.iter().try_for_each(|row| writer.serialize(row)).map_err(failed)?;
    writer.flush().map_err(|error| Error::io("write", table, error))
}
