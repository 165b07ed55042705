//! Complete training runs: the files that they write, and the settings that must not change their results.

use std::fs;
use std::path::Path;

use causal_attention_report::RUN_PICTURES;
use tempfile::TempDir;

use crate::{SMALL, assert_same_result, program, rows, small_run, summary, text, train};

#[test]
fn run_folder_contains_every_artifact() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.epochs=2"], "run");
    let files = [
        "config.toml",
        "metrics.csv",
        "summary.json",
        "model.safetensors",
        "vocabulary.json",
        "samples.json",
        "analysis.json",
        "report.html",
    ];
    // A run folder holds every picture of a run; the scores of heads are not recorded in so short a run.
    let drawn =
        RUN_PICTURES.iter().filter(|name| **name != "formation").map(|name| format!("plots/{name}.png"));
    for file in files.into_iter().map(str::to_string).chain(drawn) {
        assert!(run.join(&file).metadata().is_ok_and(|data| data.len() > 0), "{file} is missing or empty");
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
    assert_eq!((train, valid), (8, 2), "a row every third step, a validation every epoch");

    let written = fs::read_to_string(run.join("config.toml")).unwrap();
    for key in ["learning_rate", "period", "initialisation", "seed", "log_every = 3"] {
        assert!(written.contains(key), "config.toml lacks {key}");
    }
}

#[test]
fn only_equal_seeds_train_identically() {
    let dir = TempDir::new().unwrap();
    let sets = ["training.steps=15", "model.dropout=0.1"];
    let first = small_run(dir.path(), &sets, "first");
    let second = small_run(dir.path(), &sets, "second");
    let other = small_run(dir.path(), &[&sets[..], &["run.seed=1"]].concat(), "other");
    assert_eq!(rows(&first), rows(&second));
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(weights(&first) == weights(&second), "the weights agree byte for byte");
    assert_ne!(rows(&first), rows(&other));
}

#[test]
fn taken_run_names_get_a_number() {
    let dir = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.steps=2", "run.name=mine"]].concat();
    for expected in ["mine", "mine-2", "mine-3"] {
        assert!(train(dir.path(), &sets, &[]).status.success());
        assert!(dir.path().join("runs").join(expected).join("summary.json").is_file(), "{expected}");
    }
}

#[test]
fn evaluate_matches_the_training_summary_exactly() {
    let dir = TempDir::new().unwrap();
    for kernels in ["fused", "reference"] {
        let chosen = format!("training.kernels={kernels}");
        let sets = ["training.steps=40", "training.validate_every=7", "training.threads=1", chosen.as_str()];
        let run = small_run(dir.path(), &sets, kernels);
        let summary = summary(&run);
        let output = program(dir.path()).args(["evaluate", kernels, "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["loss"], summary["best_valid_loss"], "{kernels}");
        assert_eq!(result["accuracy"], summary["accuracy"]);
        assert_eq!(result["determined_accuracy"], summary["determined_accuracy"]);
        assert_eq!(result["floor"], summary["floor"]);
        let by_position = |key: &str| -> Vec<f64> {
            result[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
        };
        assert_eq!(by_position("loss_by_position").len(), 12);
        let floor = by_position("floor_by_position");
        let mean = floor.iter().sum::<f64>() / 12.0;
        assert!((mean - summary["floor"].as_f64().unwrap()).abs() < 1e-9, "{floor:?}");
    }
}

#[test]
fn pictures_are_regenerated_from_the_folder_alone() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("words.txt"), "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let sets = ["data.source=text", "data.path=words.txt", "training.steps=9"];
    let run = small_run(dir.path(), &sets, "run");
    fs::remove_file(dir.path().join("words.txt")).unwrap();
    let before = fs::read(run.join("plots/attention.png")).unwrap();
    fs::remove_dir_all(run.join("plots")).unwrap();
    let output = program(dir.path()).args(["plot", "run"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(run.join("plots/attention.png")).unwrap() == before);
    let output = program(dir.path()).args(["plot", "run", "--format", "svg"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(run.join("plots/loss.svg")).unwrap().contains("learning rate"));
}

#[test]
fn shipped_configs_pass_a_dry_run() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("input.txt"), "a small text to count the characters of. ".repeat(40)).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = fs::read_dir(root.join("assets/configs")).unwrap().map(|entry| entry.unwrap().path());
    let mut configs = shipped.collect::<Vec<_>>();
    configs.push(root.join("config.toml"));
    assert!(configs.len() >= 5);
    for config in configs {
        let config = config.to_str().unwrap();
        let output = program(dir.path())
            .args(["train", config, "--dry-run", "--backend", "ndarray"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{config}: {}", text(&output.stderr));
        let stdout = text(&output.stdout);
        assert!(stdout.contains("parameters") && stdout.contains("learning rate"), "{config}: {stdout}");
        assert!(stdout.contains("  time        about "), "{config}: {stdout}");
        assert!(!dir.path().join("runs").exists(), "nothing is trained");
        let output = program(dir.path()).args(["data", config]).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{config}: {}", text(&output.stderr));
    }
}

#[test]
fn early_stopping_and_accumulation_follow_their_keys() {
    let dir = TempDir::new().unwrap();
    let sets =
        ["training.steps=400", "training.validate_every=5", "training.patience=2", "training.min_delta=10"];
    let run = small_run(dir.path(), &sets, "early");
    assert_eq!(summary(&run)["ended"], "early_stopped");
    assert_eq!(summary(&run)["steps"], 15, "two validations after the first do not improve on it");

    // 96 sequences; 100 sequences, with a smaller last step; and windows at any offset.
    fs::write(dir.path().join("words.txt"), "to be or not to be, that is the question. ".repeat(30)).unwrap();
    let uneven = ["data.train_samples=100", "training.epochs=3", "training.log_every=1"];
    let windows = ["data.source=text", "data.path=words.txt", "training.epochs=3", "training.log_every=1"];
    let cases = [("even", &["training.steps=12"][..], 12), ("uneven", &uneven, 12), ("windows", &windows, 9)];
    for (name, sets, steps) in cases {
        let run = |kind: &str, more: &[&str]| {
            small_run(dir.path(), &[sets, more].concat(), &format!("{name}-{kind}"))
        };
        let single = run("single", &["training.batch_size=32"]);
        let accumulated = run("accumulated", &["training.accumulate=4"]);
        assert_eq!(summary(&single)["steps"], steps, "{name}");
        assert_eq!(summary(&single)["tokens"], summary(&accumulated)["tokens"], "{name}");
        let losses = |run: &Path| {
            let rows = rows(run).into_iter().filter(|row| row.contains(",train,"));
            rows.map(|row| row.split(',').nth(3).unwrap().parse::<f64>().unwrap()).collect::<Vec<_>>()
        };
        let (single, accumulated) = (losses(&single), losses(&accumulated));
        assert_eq!(single.len(), accumulated.len(), "{name}");
        for (single, accumulated) in single.into_iter().zip(accumulated) {
            assert!((single - accumulated).abs() < 1e-5 * single, "{name}: {single} and {accumulated}");
        }
    }
}

#[test]
fn any_number_of_threads_trains_the_same_weights() {
    let dir = TempDir::new().unwrap();
    let run = |set, threads: usize| {
        let threads = format!("training.threads={threads}");
        let larger = ["model.d_model=64", "data.length=40", "model.dropout=0.2", "training.steps=7"];
        let larger = [&larger[..], &[set, threads.as_str()]].concat();
        small_run(dir.path(), &larger, &format!("{set}-{}", &threads[9..]))
    };
    for set in ["training.optimizer=adamw", "training.optimizer=muon", "training.precision=bf16"] {
        let one = run(set, 1);
        for threads in [2, 3] {
            assert_same_result(&run(set, threads), &one);
        }
    }
}
