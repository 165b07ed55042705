//! The program as a user meets it: the real binary, in a folder of its own.

mod backends;
mod bad_input;
mod circuits;
mod comparing;
mod completions;
mod conveniences;
mod diverging;
mod documented;
mod foreign_files;
mod generate;
mod guesses;
mod held_out;
mod killed;
mod lasting;
mod lengths;
mod live;
mod odd_paths;
mod own_data;
mod page;
mod refused_imports;
mod resume;
mod run_folder;
mod scale;
mod seeing;
mod system_limits;
mod tables;
mod tasks;
mod tensorboard;
mod terminal;
mod texts;
mod tuning;
mod weights;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A small run: seconds, not minutes.
const SMALL: [&str; 11] = [
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
    command.current_dir(folder);
    command
}

fn train(folder: &Path, sets: &[&str], more: &[&str]) -> Output {
    let mut command = program(folder);
    command.args(["train", "--backend", "ndarray"]).args(more);
    for set in sets {
        command.args(["--set", set]);
    }
    command.output().expect("the program starts")
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

fn assert_same_end(run: &Path, undisturbed: &Path) {
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(weights(run) == weights(undisturbed), "the weights agree byte for byte");
    assert_eq!(rows(run), rows(undisturbed));
    assert_eq!(summary(run)["ended"], "completed");
    assert_eq!(summary(run)["best_step"], summary(undisturbed)["best_step"]);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What is said on standard error, but for what every run on little data is warned of.
fn beside_data_warnings(stderr: &[u8]) -> String {
    // On a busy machine the search for a circuit takes long enough to be shown.
    let is_expected = |line: &&str| {
        line.starts_with("warning: validation has ")
            || line.contains(" also stand")
            || line.starts_with("finding the circuit")
    };
    text(stderr).lines().filter(|line| !is_expected(line)).map(|line| format!("{line}\n")).collect()
}

/// The rows of a run's metrics without the columns that tell the time.
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

#[test]
fn a_run_leaves_everything_that_explains_it() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.epochs=2"], "run");
    let files = [
        "config.toml",
        "metrics.csv",
        "summary.json",
        "model.safetensors",
        "vocabulary.json",
        "samples.json",
        "analysis.json",
        "report.html",
        "plots/heads.png",
        "plots/head_scores.png",
        "plots/positions.png",
        "plots/gradients.png",
        "plots/generated.png",
        "plots/loss.png",
        "plots/attention.png",
        "plots/prediction.png",
        "plots/attention_over_time.png",
    ];
    for file in files {
        assert!(run.join(file).metadata().is_ok_and(|data| data.len() > 0), "{file} is there and not empty");
    }
    assert!(run.join("checkpoints").is_dir());

    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["ended"], "completed");
    assert_eq!(summary["steps"], 24, "two epochs of 96 samples in batches of 8");
    assert_eq!(summary["tokens"], 24 * 8 * 12);
    assert_eq!(summary["backend"], "ndarray");
    let (floor, loss) = (summary["floor"].as_f64().unwrap(), summary["best_valid_loss"].as_f64().unwrap());
    assert!(0.0 < floor && floor < loss && loss < 3.5, "floor {floor}, loss {loss}");

    let rows = rows(&run);
    let train = rows.iter().filter(|row| row.contains(",train,")).count();
    let valid = rows.iter().filter(|row| row.contains(",valid,")).count();
    assert_eq!((train, valid), (8, 2), "a row each third step, a validation each epoch");

    let written = fs::read_to_string(run.join("config.toml")).unwrap();
    for key in ["learning_rate", "period", "initialisation", "seed", "log_every = 3"] {
        assert!(written.contains(key), "config.toml holds every key as used, {key} too");
    }
}

#[test]
fn two_runs_with_one_seed_are_equal_and_another_seed_differs() {
    let place = TempDir::new().unwrap();
    let sets = ["training.steps=15", "model.dropout=0.1"];
    let first = small_run(place.path(), &sets, "first");
    let second = small_run(place.path(), &sets, "second");
    let other = small_run(place.path(), &[&sets[..], &["run.seed=1"]].concat(), "other");
    assert_eq!(rows(&first), rows(&second));
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(weights(&first) == weights(&second), "the weights agree byte for byte");
    assert_ne!(rows(&first), rows(&other));
}

#[test]
fn a_name_taken_gets_a_number() {
    let place = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.steps=2", "run.name=mine"]].concat();
    for expected in ["mine", "mine-2", "mine-3"] {
        assert!(train(place.path(), &sets, &[]).status.success());
        assert!(place.path().join("runs").join(expected).join("summary.json").is_file(), "{expected}");
    }
}

#[test]
fn bad_input_is_one_line_and_leaves_nothing() {
    let place = TempDir::new().unwrap();
    fs::create_dir(place.path().join("folder")).unwrap();
    fs::write(place.path().join("broken.toml"), "[model]\nheads = = 4\n").unwrap();
    fs::write(place.path().join("misspelt.toml"), "[model]\nlayers = 2\nhed = 4\n").unwrap();
    fs::write(place.path().join("text.toml"), "[model]\n\nheads = \"four\"\n").unwrap();
    fs::write(place.path().join("binary.toml"), [0x5b, 0xff, 0xfe]).unwrap();
    fs::write(place.path().join("twice.toml"), "[model]\nheads = 4\nheads = 2\n").unwrap();
    fs::write(place.path().join("file"), "").unwrap();
    let before = fs::read_dir(place.path()).unwrap().count();

    let sets: [(&str, &[&str]); 16] = [
        ("model.hed=4", &["`model.hed` = 4", "did you mean `model.heads`?"]),
        ("modell.heads=4", &["did you mean `model`?"]),
        ("heads=4", &["the key has no section: write model.heads=4"]),
        ("model.heads", &["section.key=value"]),
        ("model.heads=four", &["--set: `model.heads` = \"four\"", "must be a positive integer"]),
        ("model.heads=5", &["`model.heads` = 5", "`model.d_model` = 64"]),
        ("model.d_model=0", &["`model.d_model` = 0"]),
        ("model.layers=100000000", &["`model.layers` = 100000000 must be from 1 to 1024"]),
        ("model.dropout=1", &["`model.dropout` = 1", "[0, 1)"]),
        ("model.dropout=-0.5", &["`model.dropout` = -0.5", "[0, 1)"]),
        ("training.batch_size=0", &["`training.batch_size` = 0", "from 1 to"]),
        ("training.learning_rate=-1", &["`training.learning_rate` = -1", "above 0"]),
        ("data.length=0", &["`data.length` = 0"]),
        ("data.task=riddle", &["`data.task` = \"riddle\"", "repeat"]),
        ("model.d_model=65536", &["`model.d_model` = 65536", "choose a smaller model"]),
        ("training.backend=tpu", &["`training.backend` = \"tpu\"", "ndarray"]),
    ];
    let mut cases: Vec<(Vec<&str>, &[&str])> =
        sets.into_iter().map(|(set, parts)| (vec!["--set", set], parts)).collect();
    cases.extend([
        (vec!["missing.toml"], &["no config file `missing.toml`"] as &[&str]),
        (vec!["folder"], &["`folder` is a folder"]),
        (vec!["broken.toml"], &["broken.toml:2:"]),
        (vec!["misspelt.toml"], &["misspelt.toml:3:", "`model.hed` = 4", "did you mean `model.heads`?"]),
        (vec!["text.toml"], &["text.toml:3:", "`model.heads` = \"four\""]),
        (vec!["twice.toml"], &["twice.toml:3:", "`heads` stands here a second time: remove one"]),
        (vec!["binary.toml"], &["binary.toml", "is not UTF-8 at byte 1", "-t UTF-8"]),
        (
            vec![
                "--set",
                "data.length=30000",
                "--set",
                "training.batch_size=512",
                "--set",
                "data.train_samples=512",
            ],
            &[
                "`training.batch_size` = 512",
                "sequences of 30,000 tokens",
                "are free here: lower it",
                "data.length",
            ],
        ),
        (vec!["--run", ""], &["--run", "--help"]),
        (vec!["--step", "4"], &["--step", "--help"]),
        (vec!["--progress", "loud"], &["'loud'", "plain", "--help"]),
        (vec!["--run", "folder"], &["`folder` exists"]),
        (vec!["--run", "folder", "--dry-run"], &["`folder` exists"]),
        (vec!["--until", "x"], &["'x' for '--until <STEP>'", "a positive integer"]),
        (vec!["--until", "0"], &["'0' for '--until <STEP>'", "a positive integer"]),
        (vec!["--run", "file/run"], &["`file` is no folder", "name another place with --run DIR"]),
        (vec!["--resume", "folder"], &["`folder` is not the folder of a run"]),
        (vec!["--resume", "nowhere"], &["no run folder `nowhere`"]),
    ]);
    for (arguments, parts) in cases {
        let output = train(place.path(), &[], &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{arguments:?} should say {part:?}: {said}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), before, "{arguments:?} leaves nothing");
    }
}

#[test]
fn a_loss_that_is_not_finite_stops_with_its_step_and_keeps_the_last_good_weights() {
    let place = TempDir::new().unwrap();
    let sets = [
        &SMALL[..],
        &[
            "training.steps=400",
            "training.learning_rate=1e30",
            "training.min_learning_rate=0",
            "training.optimizer=sgd",
            "training.max_gradient_norm=0",
        ],
    ]
    .concat();
    let output = train(place.path(), &sets, &["--run", "run"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("diverged at step") && said.contains("training.learning_rate"), "{said}");
    let run = place.path().join("run");
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["ended"], "diverged");
    let step = summary["diverged_step"].as_u64().unwrap();
    assert!(said.contains(&format!("diverged at step {step}:")), "{said}");
    assert_eq!(summary["steps"], step, "it may be seen some steps later, which count for nothing");
    assert_eq!(summary["tokens"], step * 8 * 12);
    assert!(said.contains("`run/model.safetensors` holds the untrained weights."), "{said}");
    for shown in ["report.html", "plots/attention.png", "plots/loss.png"] {
        assert!(run.join(shown).is_file(), "a run that diverged shows {shown}");
    }
    let output =
        program(place.path()).args(["plot", "run", "--format", "svg", "--out", "svg"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let loss = fs::read_to_string(place.path().join("svg/loss.svg")).unwrap();
    assert!(loss.contains(&format!("diverged at step {step}")), "{loss}");
    let output = program(place.path()).args(["report", "run", "--json"]).output().unwrap();
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(page["loss"]["diverged"], step, "the page names it too");
    let output = program(place.path()).args(["evaluate", "run", "--json"]).output().unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(kept["loss"].as_f64().unwrap().is_finite(), "the weights that are kept are good");
    let said = text(&output.stderr);
    assert!(
        said.starts_with("notice: the run `run` diverged before a validation that could be trusted"),
        "{said}"
    );
    assert!(said.ends_with("these are the untrained weights\n"), "{said}");
}

#[test]
fn steps_under_way_when_a_run_diverges_count_for_nothing() {
    let place = TempDir::new().unwrap();
    let rare = ["training.log_every=100", "training.validate_every=100", "analysis.every=50"];
    let train = |name: &str, sets: &[&str]| {
        let sets = [&SMALL[..], &rare, &["training.steps=100"], sets].concat();
        train(place.path(), &sets, &["--run", name]);
        summary(&place.path().join(name))
    };
    let sets = ["training.learning_rate=1e30", "training.min_learning_rate=0", "training.optimizer=sgd"];
    let diverged = train("run", &[&sets[..], &["training.max_gradient_norm=0"]].concat());
    assert!(diverged["steps"].as_u64().unwrap() < 10, "{diverged}");
    let seconds = |summary: &serde_json::Value| summary["seconds"].as_f64().unwrap();
    let sane = train("sane", &[]);
    assert!(seconds(&diverged) < seconds(&sane) / 3.0, "the time of fifty steps counts for two: {diverged}");
    let scores = fs::read_to_string(place.path().join("run/head_scores.csv")).unwrap();
    assert!(scores.lines().skip(1).all(|line| line.starts_with("0,")), "{scores}");
}

#[test]
fn evaluate_says_exactly_what_training_said_of_the_best_weights() {
    let place = TempDir::new().unwrap();
    for kernels in ["fused", "composed"] {
        let chosen = format!("training.kernels={kernels}");
        let sets = ["training.steps=40", "training.validate_every=7", "training.threads=1", chosen.as_str()];
        let run = small_run(place.path(), &sets, kernels);
        let summary = summary(&run);
        let output = program(place.path()).args(["evaluate", kernels, "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["loss"], summary["best_valid_loss"], "{kernels}");
        assert_eq!(said["accuracy"], summary["accuracy"]);
        assert_eq!(said["determined_accuracy"], summary["determined_accuracy"]);
        assert_eq!(said["floor"], summary["floor"]);
        let by_position = |key: &str| -> Vec<f64> {
            said[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
        };
        assert_eq!(by_position("loss_by_position").len(), 12);
        let floor = by_position("floor_by_position");
        let mean = floor.iter().sum::<f64>() / 12.0;
        assert!((mean - summary["floor"].as_f64().unwrap()).abs() < 1e-9, "{floor:?}");
    }
}

#[test]
fn pictures_come_again_from_the_folder_alone() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("words.txt"), "to be or not to be, that is the question. ".repeat(40))
        .unwrap();
    let sets = ["data.source=text", "data.path=words.txt", "training.steps=9"];
    let run = small_run(place.path(), &sets, "run");
    fs::remove_file(place.path().join("words.txt")).unwrap();
    let before = fs::read(run.join("plots/attention.png")).unwrap();
    fs::remove_dir_all(run.join("plots")).unwrap();
    let output = program(place.path()).args(["plot", "run"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(run.join("plots/attention.png")).unwrap() == before);
    let output = program(place.path()).args(["plot", "run", "--format", "svg"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(run.join("plots/loss.svg")).unwrap().contains("learning rate"));
}

#[test]
fn shipped_experiments_are_valid_and_say_what_they_take() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("input.txt"), "a small text to count the characters of. ".repeat(40))
        .unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = fs::read_dir(root.join("assets/configs")).unwrap().map(|entry| entry.unwrap().path());
    let mut configs = shipped.collect::<Vec<_>>();
    configs.push(root.join("config.toml"));
    assert!(configs.len() >= 5);
    for config in configs {
        let config = config.to_str().unwrap();
        let output = program(place.path())
            .args(["train", config, "--dry-run", "--backend", "ndarray"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{config}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        assert!(said.contains("parameters") && said.contains("learning rate"), "{config}: {said}");
        assert!(said.contains("  time        about "), "{config}: {said}");
        assert!(!place.path().join("runs").exists(), "nothing is trained");
        let output = program(place.path()).args(["data", config]).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{config}: {}", text(&output.stderr));
    }
}
