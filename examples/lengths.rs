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

mod experiments;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use causal_attention::evaluation::{AtLength, Protocol};
use causal_attention::numbers::counted;
use causal_attention::position::PositionScheme;
use causal_attention::reporting::save_all;
use causal_attention::terminal::{say, warn};
use causal_attention::{Error, Result};
use causal_attention_report::Style;
use causal_attention_report::lengths::{LengthPanel, picture};
use clap::{Parser, ValueEnum};
use experiments::{EXPERIMENTS, Experiment, Trained, config, read, trained, write};
use serde::{Deserialize, Serialize};

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
    let mut rows: Vec<Row> = read(&table)?;
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
    let style = Style { scale: 1, ..Style::default() };
    let title = "Loss above the floor beyond the trained length";
    let picture = picture("lengths", title, &note, &panels(&rows), (true, style.logical_width()));
    save_all(&[picture], &args.out, &style)?;
    Ok(())
}

/// Trains one model, and evaluates it at every length it can read.
fn measure(experiment: &Experiment, position: &str, seed: u64) -> Result<Vec<Row>> {
    let Experiment { task, lengths, .. } = experiment;
    let mut overrides = experiment.overrides();
    overrides.extend([format!("model.position={position}"), format!("run.seed={seed}")]);
    let Trained { outcome, at, .. } = trained(&config(&overrides)?, lengths)?;
    let gap = at.first().and_then(|at| at.gap).unwrap_or(f64::NAN);
    let seconds = outcome.summary.work.seconds;
    warn(&format!("{task} {position} seed {seed}: {seconds:.0} s, {gap:.4} above the floor"));
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
    Ok(at.into_iter().map(row).collect())
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
