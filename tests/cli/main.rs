//! End-to-end tests of the compiled program, each in a temporary folder.

mod activations;
mod arrays;
mod backends;
mod bad_input;
mod cached;
mod circuits;
mod comparing;
mod comparing_circuits;
mod completions;
mod compressed;
mod conveniences;
mod counterfactual;
mod diverging;
mod documented;
mod documents;
mod foreign_files;
mod full_disk;
mod fuzzed;
mod generate;
mod grokking;
mod guesses;
mod held_out;
mod inspect;
mod interventions;
mod killed;
mod kinds_of_data;
mod lasting;
mod lengths;
mod live;
mod local_folders;
mod odd_paths;
mod own_data;
mod page;
mod patches;
mod phases;
mod plain_decoder;
mod questions;
mod refused;
mod refused_configs;
mod refused_imports;
mod resume;
mod run_folder;
mod scale;
mod starting;
mod system_limits;
mod tables;
mod tasks;
mod tensorboard;
mod terminal;
mod texts;
mod training;
mod tuning;
mod views;
mod weights;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A small run that takes less than a second. The search for a circuit would take as long again.
const SMALL: [&str; 12] = [
    "analysis.circuit=false",
    "training.validate_every=0",
    "data.vocab=16",
    "data.period=[7, 8]",
    "model.position=learned",
    "data.train_samples=96",
    "data.valid_samples=32",
    "data.length=12",
    "model.d_model=16",
    "model.heads=2",
    "training.batch_size=8",
    "training.log_every=3",
];

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causal-attention"));
    // The tests themselves use all cores, and threads that wait for each other would slow them down. Tests of threads
    // set `training.threads`.
    command.current_dir(folder).env("RAYON_NUM_THREADS", "1");
    command
}

fn train(folder: &Path, sets: &[&str], more: &[&str]) -> Output {
    let mut command = program(folder);
    command.args(["train", "--backend", "ndarray"]).args(more);
    set_keys(&mut command, sets).output().expect("cannot start the program")
}

/// Sets keys. A later value of a key replaces an earlier one, of which the program would warn.
fn set_keys<'c, 'a>(
    command: &'c mut Command,
    sets: impl IntoIterator<Item = &'a &'a str>,
) -> &'c mut Command {
    let sets = Vec::from_iter(sets);
    let key = |set: &str| set.split_once('=').map(|(key, _)| key.to_string());
    for (index, set) in sets.iter().enumerate() {
        if !sets[index + 1..].iter().any(|later| key(later).is_some() && key(later) == key(set)) {
            command.args(["--set", set]);
        }
    }
    command
}

fn small_run(folder: &Path, sets: &[&str], name: &str) -> PathBuf {
    let sets = [&SMALL[..], sets].concat();
    let output = train(folder, &sets, &["--run", name]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder.join(name)
}

fn resume(folder: &Path, run: &str) -> Command {
    let mut command = program(folder);
    command.args(["train", "--backend", "ndarray", "--resume", run]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn summary(run: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap()
}

fn assert_same_result(run: &Path, uninterrupted: &Path) {
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(weights(run) == weights(uninterrupted), "the weights agree byte for byte");
    assert_eq!(rows(run), rows(uninterrupted));
    assert_eq!(summary(run)["ended"], "completed");
    assert_eq!(summary(run)["best_step"], summary(uninterrupted)["best_step"]);
}

/// Runs a command in `folder` and returns its standard output.
fn stdout_of(folder: &Path, arguments: &[&str]) -> String {
    let output = program(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard error without the warnings that every run on little data prints.
fn without_data_warnings(stderr: &[u8]) -> String {
    // On a busy machine the search for a circuit takes long enough to show its progress.
    let is_expected = |line: &&str| {
        line.starts_with("warning: validation has ")
            || line.contains(" also occur")
            || line.starts_with("finding the circuit")
    };
    text(stderr).lines().filter(|line| !is_expected(line)).map(|line| format!("{line}\n")).collect()
}

/// Returns the rows of a run's metrics, without the time columns.
fn rows(run: &Path) -> Vec<String> {
    let mut reader = csv::Reader::from_path(run.join("metrics.csv")).unwrap();
    let seconds = reader.headers().unwrap().iter().position(|name| name == "seconds").unwrap();
    let rows = reader.records().map(|row| {
        let row = row.unwrap();
        row.iter()
            .enumerate()
            .filter(|&(column, _)| column != seconds)
            .map(|(_, value)| value)
            .collect::<Vec<_>>()
            .join(",")
    });
    rows.collect()
}
