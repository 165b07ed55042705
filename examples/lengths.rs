//! Length extrapolation of every position scheme.
//!
//!     cargo run --release --example lengths -- --out lengths
//!
//! Trains each scheme on five tasks at one length, and evaluates it at up to 16 times that length, with three seeds.
//! Writes two files into the folder: `lengths.csv` with a row per run, length and protocol, and `lengths.png` with the
//! loss above the floor by length. Also prints the tables of `docs/lengths.md`. Skips runs that are already in the CSV,
//! so parts of the example can be run separately:
//!
//!     cargo run --release --example lengths -- --out lengths --tasks copy_gap,sort --positions alibi --seeds 1
//!
//! All runs together take about half an hour on one core.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::backend::AutodiffBackend;
use causal_attention::backend::{self, Job, compute_as_run};
use causal_attention::config::Config;
use causal_attention::data::{self, Task};
use causal_attention::evaluation::{AtLength, Protocol, at_length};
use causal_attention::numbers::counted;
use causal_attention::position::PositionScheme;
use causal_attention::reporting::save_all;
use causal_attention::terminal::{say, warn};
use causal_attention::training::{Control, Mode, Outcome, RunFolder, RunPath, launch};
use causal_attention::weights::native;
use causal_attention::{Error, Result};
use causal_attention_report::Style;
use causal_attention_report::lengths::{LengthPanel, picture};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

/// The settings shared by all runs.
const EXPERIMENT: &str = r#"
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
"#;

/// A task with its settings, its steps and its lengths, the first of which is the training length.
struct Experiment {
    task: Task,
    settings: &'static [&'static str],
    lengths: [usize; 5],
    steps: usize,
}

const EXPERIMENTS: [Experiment; 5] = [
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

#[derive(Parser)]
struct Args {
    /// The folder for the table and the picture.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The tasks. [default: all five]
    #[arg(long, value_delimiter = ',')]
    tasks: Vec<String>,
    /// The position schemes. [default: all]
    #[arg(long, value_delimiter = ',')]
    positions: Vec<String>,
    /// The seeds.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// Trains missing runs, or only draws existing ones.
    #[arg(long, value_enum, default_value = "train")]
    mode: Action,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Action {
    Train,
    Draw,
}

/// A row of the CSV.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    task: String,
    position: String,
    seed: u64,
    /// The training length.
    trained: usize,
    length: usize,
    protocol: Protocol,
    stride: usize,
    loss: f64,
    floor: f64,
    gap: f64,
    accuracy: f64,
    determined_accuracy: Option<f64>,
    tokens: u64,
}

fn main() {
    if let Err(error) = run_experiments(&Args::parse()) {
        warn(&format!("error: {error}"));
        std::process::exit(error.exit_code().into());
    }
}

fn run_experiments(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.out).map_err(|error| Error::io("create", &args.out, error))?;
    let table = args.out.join("lengths.csv");
    let mut rows = read(&table)?;
    let is_chosen = |chosen: &[String], name: &str| chosen.is_empty() || chosen.iter().any(|it| it == name);
    for &seed in args.seeds.iter().filter(|_| args.mode == Action::Train) {
        for experiment in EXPERIMENTS.iter().filter(|it| is_chosen(&args.tasks, &it.task.to_string())) {
            let positions = PositionScheme::ALL.map(|position| position.to_string());
            for position in positions.iter().filter(|position| is_chosen(&args.positions, position)) {
                let task = experiment.task.to_string();
                if rows.iter().any(|row| row.task == task && row.position == *position && row.seed == seed) {
                    continue;
                }
                rows.extend(measure(experiment, position, seed)?);
                write(&table, &rows)?;
            }
        }
    }
    print(&rows);
    let seeds = counted(rows.iter().map(|row| row.seed).collect::<BTreeSet<_>>().len(), "seed");
    let note = format!(
        "all targets of sequences of that length, mean over {seeds}; decoders with two layers, width 64"
    );
    let picture =
        picture("lengths", "Loss above the floor beyond the trained length", &note, &panels(&rows), true);
    save_all(&[picture], &args.out, &Style { scale: 1, ..Style::default() })?;
    Ok(())
}

fn read(table: &Path) -> Result<Vec<Row>> {
    if !table.exists() {
        return Ok(Vec::new());
    }
    let damaged = |error: csv::Error| Error::file(table, error.to_string());
    let mut reader = csv::Reader::from_path(table).map_err(damaged)?;
    reader.deserialize().collect::<std::result::Result<_, _>>().map_err(damaged)
}

fn write(table: &Path, rows: &[Row]) -> Result<()> {
    let failed = |error: csv::Error| Error::file(table, error.to_string());
    let mut writer = csv::Writer::from_path(table).map_err(failed)?;
    rows.iter().try_for_each(|row| writer.serialize(row)).map_err(failed)?;
    writer.flush().map_err(|error| Error::io("write", table, error))
}

/// Trains one model, and evaluates it at every length it can read.
fn measure(experiment: &Experiment, position: &str, seed: u64) -> Result<Vec<Row>> {
    let Experiment { task, settings, lengths, steps } = experiment;
    let mut overrides: Vec<String> = settings.iter().map(ToString::to_string).collect();
    overrides.extend([
        format!("data.task={task}"),
        format!("training.steps={steps}"),
        format!("model.position={position}"),
        format!("run.seed={seed}"),
    ]);
    let config = Config::parse(EXPERIMENT, Path::new("lengths.rs"), &overrides)?;
    let temporary = tempfile::tempdir().map_err(|error| Error::io("create", std::env::temp_dir(), error))?;
    let device = backend::choose(None, None)?;
    let control = Control::unwatched(device.clone());
    let target = RunPath::Folder(temporary.path().join("run"));
    let Outcome { folder, summary, .. } = launch(&config, Mode::New(target), &control)?;
    let found = backend::run(&device, Evaluate { config: &config, folder: &folder, lengths, on: &device })?;
    let gap = found.first().and_then(|at| at.gap).unwrap_or(f64::NAN);
    warn(&format!("{task} {position} seed {seed}: {:.0} s, {gap:.4} above the floor", summary.work.seconds));
    let row = |at: AtLength| Row {
        task: task.to_string(),
        position: position.to_string(),
        seed,
        trained: lengths[0],
        length: at.length,
        protocol: at.protocol,
        stride: at.stride,
        loss: at.loss,
        floor: at.floor.unwrap_or(f64::NAN),
        gap: at.gap.unwrap_or(f64::NAN),
        accuracy: at.accuracy,
        determined_accuracy: at.determined_accuracy,
        tokens: at.tokens,
    };
    Ok(found.into_iter().map(row).collect())
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

/// Returns the mean over seeds of the loss above the floor, by task, position and length.
fn means(rows: &[Row], protocol: Protocol) -> BTreeMap<(&str, &str, usize), (f64, usize)> {
    let mut sums = BTreeMap::new();
    for row in rows.iter().filter(|row| row.protocol == protocol) {
        let (sum, count) = sums.entry((&*row.task, &*row.position, row.length)).or_insert((0.0, 0));
        *sum += row.gap;
        *count += 1;
    }
    sums.values_mut().for_each(|(sum, count)| *sum /= *count as f64);
    sums
}

fn print(rows: &[Row]) {
    for (protocol, what) in
        [(Protocol::Windows, "all targets"), (Protocol::Sliding, "the last eighth of the targets")]
    {
        say(&format!("Nats above the floor, {what}, mean over seeds:"));
        say("");
        say("| task | position | seeds | 1 x | 2 x | 4 x | 8 x | 16 x |");
        say("|---|---|---|---|---|---|---|---|");
        let means = means(rows, protocol);
        for Experiment { task, lengths, .. } in &EXPERIMENTS {
            let task = task.to_string();
            for position in PositionScheme::ALL.map(|position| position.to_string()) {
                let at = |length: &usize| means.get(&(&*task, &*position, *length));
                let Some((_, seeds)) = at(&lengths[0]) else { continue };
                let cell = |length| at(length).map_or("-".to_string(), |(gap, _)| format!("{gap:.3}"));
                let cells: Vec<String> = lengths.iter().map(cell).collect();
                say(&format!("| `{task}` | `{position}` | {seeds} | {} |", cells.join(" | ")));
            }
        }
        say("");
    }
}

fn panels(rows: &[Row]) -> Vec<LengthPanel> {
    let means = means(rows, Protocol::Windows);
    let panel = |Experiment { task, lengths, .. }: &Experiment| {
        let name = task.to_string();
        let curve = |position: PositionScheme| {
            let position = position.to_string();
            let point = |&length: &usize| Some((length, means.get(&(&*name, &*position, length))?.0));
            (position.clone(), lengths.iter().filter_map(point).collect())
        };
        LengthPanel { trained: lengths[0], curves: PositionScheme::ALL.map(curve).into(), name: name.clone() }
    };
    EXPERIMENTS.iter().map(panel).collect()
}
