//! Runs whose loss gets worse or explodes report it and keep their best weights.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::{SMALL, program, resume, rows, small_run, summary, text, train};

/// A run whose losses reach thousands of nats but stay finite.
const EXPLODING: [&str; 3] = ["training.learning_rate=30", "training.warmup=0.1", "training.steps=60"];

fn loss_of(folder: &Path, run: &str) -> f64 {
    let output = program(folder).args(["evaluate", run, "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["loss"].as_f64().unwrap()
}

#[test]
fn harmful_fine_tuning_keeps_the_initial_weights() {
    let dir = TempDir::new().unwrap();
    let learns = ["data.task=arithmetic", "training.steps=150", "training.learning_rate=1e-2"];
    small_run(dir.path(), &learns, "start");
    let sets = ["training.steps=24", "training.learning_rate=5e-2", "training.min_learning_rate=5e-2"];
    let more = ["--from", "start", "--run", "tuned"];
    let output = train(dir.path(), &[&sets[..], &["training.warmup=0"]].concat(), &more);
    let (stderr, run) = (text(&output.stderr), dir.path().join("tuned"));
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("no validation was better than the first one"), "{stderr}");
    assert!(stderr.contains("Try --set training.learning_rate=1e-3"), "{stderr}");

    let (tuned, start) = (summary(&run), summary(&dir.path().join("start")));
    assert_eq!((&tuned["ended"], &tuned["best_step"]), (&"completed".into(), &0.into()));
    assert!(rows(&run)[0].starts_with("0,1,valid,"), "{}", rows(&run)[0]);
    let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
    assert!(close(tuned["best_valid_loss"].as_f64().unwrap(), start["best_valid_loss"].as_f64().unwrap()));
    assert!(close(loss_of(dir.path(), "tuned"), loss_of(dir.path(), "start")));
    assert!(tuned["last_valid_loss"].as_f64() > tuned["best_valid_loss"].as_f64());
}

#[test]
fn finite_loss_explosion_counts_as_divergence() {
    let dir = TempDir::new().unwrap();
    let output = train(dir.path(), &[&SMALL[..], &EXPLODING].concat(), &["--run", "run"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("diverged at step ") && stderr.contains("the loss has risen to "), "{stderr}");
    assert!(stderr.contains("Try --set training.learning_rate=1e-3"), "{stderr}");
    assert!(!stderr.contains("max_gradient_norm"), "the limit is already 1: {stderr}");
    assert!(stderr.contains("`run/model.safetensors` holds the untrained weights."), "{stderr}");
    let run = dir.path().join("run");
    let ended = summary(&run);
    assert_eq!(ended["ended"], "diverged");
    assert!(loss_of(dir.path(), "run") < 3.0, "the initial loss is about ln 16");

    let resumed = resume(dir.path(), "run").output().unwrap();
    assert_eq!(
        (resumed.status.code(), summary(&run)["diverged_step"].clone()),
        (Some(1), ended["diverged_step"].clone())
    );
    let lower = resume(dir.path(), "run").args(["--set", "training.learning_rate=1e-3"]).output().unwrap();
    assert!(text(&lower.stderr).contains("start a new run with these settings"), "{}", text(&lower.stderr));
    let advised = ["training.learning_rate=1e-3"];
    let output = train(dir.path(), &[&SMALL[..], &EXPLODING, &advised].concat(), &["--run", "advised"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn memorising_random_data_is_not_divergence() {
    let dir = TempDir::new().unwrap();
    let sets = ["data.task=random", "data.train_samples=8", "data.valid_samples=8", "training.steps=300"];
    let more = ["training.learning_rate=1e-2", "training.schedule=constant", "training.validate_every=100"];
    let run = small_run(dir.path(), &[&sets[..], &more].concat(), "run");
    let (ended, uniform) = (summary(&run), 16f64.ln());
    assert!(ended["last_valid_loss"].as_f64().unwrap() > uniform + 1.0, "{ended}");
    assert_eq!(ended["ended"], "completed");
}

#[test]
fn smoothed_and_plain_losses_are_logged_separately() {
    let dir = TempDir::new().unwrap();
    let sets = ["training.label_smoothing=0.3", "training.steps=150", "training.learning_rate=1e-2"];
    let smoothed = small_run(dir.path(), &[&sets[..], &["data.task=arithmetic"]].concat(), "smoothed");
    let header = |run: &Path| {
        let metrics = fs::read_to_string(run.join("metrics.csv")).unwrap();
        metrics.lines().next().unwrap().to_string()
    };
    assert!(header(&smoothed).ends_with(",clip_rate,objective"), "{}", header(&smoothed));
    let numbers = |row: &String| {
        let columns = row.split(',').map(str::to_string).collect::<Vec<_>>();
        (columns[2].clone(), columns[3].parse::<f64>().unwrap(), columns.last().unwrap().parse::<f64>().ok())
    };
    let rows = rows(&smoothed);
    let last = |split: &str| rows.iter().map(numbers).rfind(|row| row.0 == split).unwrap();
    let ((_, train, objective), (_, _, none)) = (last("train"), last("valid"));
    // The mean over the vocabulary of the negative log-probabilities is at least ln 16.
    let (objective, minimum) = (objective.unwrap(), 0.7 * train + 0.3 * 16f64.ln());
    assert!(train < 2.5 && objective > minimum - 1e-6 && objective > train + 0.05, "{train} {objective}");
    assert_eq!(none, None);
    let drawn =
        program(dir.path()).args(["plot", "smoothed", "--format", "svg", "--out", "svg"]).output().unwrap();
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    let svg = fs::read_to_string(dir.path().join("svg/loss.svg")).unwrap();
    assert!(svg.contains("training objective (with label smoothing)"));
    assert!(resume(dir.path(), "smoothed").args(["--set", "training.steps=160"]).status().unwrap().success());

    let plain = small_run(dir.path(), &["training.steps=9"], "plain");
    assert!(header(&plain).ends_with(",clip_rate"), "{}", header(&plain));
    // A run that started without label smoothing keeps its columns.
    let mut command = resume(dir.path(), "plain");
    let resumed = command.args(["--set", "training.steps=18", "--set", "training.label_smoothing=0.1"]);
    assert!(resumed.status().unwrap().success());
    assert!(program(dir.path()).args(["plot", "plain"]).output().unwrap().status.success());
}

#[test]
fn non_finite_loss_stops_and_keeps_good_weights() {
    let dir = TempDir::new().unwrap();
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
    let output = train(dir.path(), &sets, &["--run", "run"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("diverged at step") && stderr.contains("training.learning_rate"), "{stderr}");
    let run = dir.path().join("run");
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["ended"], "diverged");
    let step = summary["diverged_step"].as_u64().unwrap();
    assert!(stderr.contains(&format!("diverged at step {step}:")), "{stderr}");
    assert_eq!(summary["steps"], step, "steps after the divergence are not counted");
    assert_eq!(summary["tokens"], step * 8 * 12);
    assert!(stderr.contains("`run/model.safetensors` holds the untrained weights."), "{stderr}");
    for file in ["report.html", "plots/attention.png", "plots/loss.png"] {
        assert!(run.join(file).is_file(), "a diverged run has {file}");
    }
    let output =
        program(dir.path()).args(["plot", "run", "--format", "svg", "--out", "svg"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let loss = fs::read_to_string(dir.path().join("svg/loss.svg")).unwrap();
    assert!(loss.contains(&format!("diverged at step {step}")), "{loss}");
    let output = program(dir.path()).args(["report", "run", "--json"]).output().unwrap();
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(page["loss"]["diverged"], step, "the page reports the step");
    let output = program(dir.path()).args(["evaluate", "run", "--json"]).output().unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(kept["loss"].as_f64().unwrap().is_finite(), "the kept weights are finite");
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("notice: the run `run` diverged before any reliable validation"), "{stderr}");
    assert!(stderr.ends_with("so model.safetensors holds the untrained weights\n"), "{stderr}");
}

#[test]
fn steps_after_divergence_are_not_counted() {
    let dir = TempDir::new().unwrap();
    let rare = ["training.log_every=100", "training.validate_every=100", "analysis.every=50"];
    let train = |name: &str, sets: &[&str]| {
        let sets = [&SMALL[..], &rare, &["training.steps=100"], sets].concat();
        train(dir.path(), &sets, &["--run", name]);
        summary(&dir.path().join(name))
    };
    let sets = ["training.learning_rate=1e30", "training.min_learning_rate=0", "training.optimizer=sgd"];
    let diverged = train("run", &[&sets[..], &["training.max_gradient_norm=0"]].concat());
    assert!(diverged["steps"].as_u64().unwrap() < 10, "{diverged}");
    // Eight sequences of twelve targets per step.
    assert_eq!(diverged["tokens"].as_u64().unwrap(), diverged["steps"].as_u64().unwrap() * 96, "{diverged}");
    let scores = fs::read_to_string(dir.path().join("run/head_scores.csv")).unwrap();
    assert!(scores.lines().skip(1).all(|line| line.starts_with("0,")), "{scores}");
}
