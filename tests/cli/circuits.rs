//! What `explain` refuses, and what a run keeps whatever becomes of its explanation.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::{program, small_run, text, train};

const COUNTING: [&str; 3] = ["data.task=arithmetic", "training.steps=120", "training.learning_rate=1e-2"];

#[test]
fn a_circuit_of_another_run_is_refused() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &COUNTING, "own");
    small_run(place.path(), &[&COUNTING[..], &["run.seed=5"]].concat(), "other");
    fs::copy(place.path().join("other/circuit.json"), place.path().join("own/circuit.json")).unwrap();
    for command in ["plot", "report", "explain"] {
        let output = program(place.path()).args([command, "own"]).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        assert!(told.contains("circuit.json") && told.contains("another run's"), "{told}");
    }
    fs::remove_file(place.path().join("own/circuit.json")).unwrap();
    let output = program(place.path()).args(["explain", "own"]).output().unwrap();
    assert!(output.status.success(), "the advice works: {}", text(&output.stderr));
}

#[test]
fn a_run_that_learned_nothing_names_no_circuit() {
    let place = TempDir::new().unwrap();
    let sets = ["training.steps=1", "training.learning_rate=1e-9", "training.min_learning_rate=0"];
    let run = small_run(place.path(), &sets, "run");
    let kept: Value = serde_json::from_slice(&fs::read(run.join("circuit.json")).unwrap()).unwrap();
    assert!(kept["no_circuit"].is_string() && kept["components"] == serde_json::json!([]), "{kept}");
    let given = ["explain", "run", "--tokens", "3 1 4 1 5 9 2 6 5 3"];
    for arguments in [&given[..], &["explain", "run"]] {
        let output = program(place.path()).args(arguments).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("no circuit is named") && told.lines().count() == 1, "{told}");
    }
    assert!(run.join("plots/logit_lens.png").is_file() && !run.join("plots/circuit.png").exists());
}

#[test]
fn long_sequences_are_explained_in_part_and_drawn() {
    let place = TempDir::new().unwrap();
    let long = [
        "data.length=3000",
        "data.train_samples=2",
        "data.valid_samples=2",
        "training.batch_size=1",
        "training.steps=1",
        "model.d_model=16",
        "model.heads=2",
        "analysis.snapshots=0",
        "analysis.every=0",
    ];
    let output = train(place.path(), &long, &["--run", "run"]);
    let told = text(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("only the first 1,672 of 3,000 tokens of each sequence are explained"), "{told}");
    let lens = "the tuned lens is left out: the training sequences have 3,000 tokens, and it is trained on up to 1,672\n";
    assert!(told.contains(lens), "{told}");
    for picture in ["loss.png", "heads.png", "logit_lens.png"] {
        assert!(place.path().join("run/plots").join(picture).is_file(), "{picture}");
    }
}
