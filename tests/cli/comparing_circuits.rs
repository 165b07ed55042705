//! `compare --circuits`: the circuits of runs with different seeds, and the runs whose circuits cannot be compared.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{small_run, stdout_of, text};

const COUNTING: [&str; 4] =
    ["data.task=arithmetic", "training.steps=120", "training.learning_rate=1e-2", "analysis.circuit=true"];

/// Trains runs with a circuit, named by their seeds.
fn train_seeds(folder: &Path, seeds: &[&str]) {
    for seed in seeds {
        small_run(folder, &[&COUNTING[..], &[&format!("run.seed={seed}")]].concat(), seed);
    }
}

/// Returns the circuit of a run.
fn circuit(folder: &Path, run: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(run).join("circuit.json")).unwrap()).unwrap()
}

/// Returns the last line of standard error of a refused command.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    stderr
}

#[test]
fn circuits_of_seeds_are_matched_and_counted() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    train_seeds(folder, &["1", "2", "3"]);
    let found = json(folder, &["compare", "--circuits", "1", "2", "3", "--json"]);
    let names = ["1", "2", "3"];
    assert_eq!(found["runs"].as_array().unwrap().len(), 3, "{found}");
    assert!(names.contains(&found["reference"].as_str().unwrap()), "{found}");

    // Each component of each circuit is counted once, with the effect that its circuit.json has.
    let mut counts = [0; 3];
    for component in found["components"].as_array().unwrap() {
        let matched = component["matched"].as_array().unwrap();
        let with_it: Vec<&Value> = matched.iter().filter(|it| !it["effect"].is_null()).collect();
        assert_eq!((component["runs"].as_u64(), matched.len()), (Some(with_it.len() as u64), 3));
        for matched in with_it {
            let name = matched["run"].as_str().unwrap();
            let own = circuit(folder, name);
            let is_it = |it: &&Value| it["layer"] == component["layer"] && it["head"] == matched["head"];
            let it = own["components"].as_array().unwrap().iter().find(is_it).unwrap();
            let effect = it["ablated"].as_f64().unwrap() - own["model"].as_f64().unwrap();
            assert!((matched["effect"].as_f64().unwrap() - effect).abs() < 1e-12, "{matched}");
            counts[names.iter().position(|it| *it == name).unwrap()] += 1;
        }
    }
    for (name, count) in names.iter().zip(counts) {
        assert_eq!(circuit(folder, name)["components"].as_array().unwrap().len(), count, "{name}");
    }
    let edges = |name: &str| circuit(folder, name)["edges"].as_array().unwrap().len();
    let counted =
        found["edges"].as_array().unwrap().iter().map(|edge| edge["in_runs"].as_array().unwrap().len());
    assert_eq!(counted.sum::<usize>(), names.map(edges).iter().sum::<usize>());

    let stdout = stdout_of(folder, &["compare", "--circuits", "1", "2", "3"]);
    assert!(stdout.starts_with("component"), "{stdout}");
    assert!(
        stdout.contains("\nThe circuits of 3 runs share ") && stdout.contains("layers of 2 heads"),
        "{stdout}"
    );
}

#[test]
fn runs_without_comparable_circuits_are_refused() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    train_seeds(folder, &["1", "2"]);
    let compare = |more: &[&str]| refused(folder, &[&["compare", "--circuits"], more].concat());
    small_run(folder, &COUNTING, "same");
    small_run(folder, &COUNTING, "again");
    let error = compare(&["same", "again"]);
    assert!(error.contains("all runs have the same weights") && error.contains("run.seed"), "{error}");
    let stdout = stdout_of(folder, &["compare", "--circuits", "same", "again", "1"]);
    assert!(stdout.contains(" is not counted, because it has the same weights as "), "{stdout}");

    small_run(folder, &[&COUNTING[..], &["model.heads=4"]].concat(), "four");
    let error = compare(&["1", "four"]);
    assert!(error.contains("2 layers of 2 heads") && error.contains("2 layers of 4 heads"), "{error}");

    // Both suggested commands succeed.
    fs::remove_file(folder.join("2/circuit.json")).unwrap();
    let error = compare(&["1", "2"]);
    assert!(error.contains("`2` has no circuit.json") && error.contains("explain 2"), "{error}");
    stdout_of(folder, &["explain", "2"]);
    fs::remove_file(folder.join("2/analysis.json")).unwrap();
    let error = compare(&["1", "2"]);
    assert!(error.contains("`2` has no analysis.json") && error.contains("train --resume 2"), "{error}");
    stdout_of(folder, &["train", "--resume", "2"]);
    let stdout = stdout_of(folder, &["compare", "--circuits", "1", "2"]);
    assert!(stdout.contains("The circuits of 2 runs share "), "{stdout}");
}

#[test]
fn transplants_align_runs_that_started_differently() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    train_seeds(folder, &["1", "2"]);
    small_run(folder, &[&COUNTING[..], &["run.seed=1", "training.weight_decay=0.2"]].concat(), "decayed");
    for (other, is_aligned) in [("2", true), ("decayed", false)] {
        let found = json(folder, &["compare", "--circuits", "--transplant", "1", other, "--json"]);
        let transplants = found["transplants"].as_array().unwrap();
        assert!(!transplants.is_empty(), "{found}");
        for transplant in transplants {
            assert_eq!(transplant["is_aligned"], is_aligned, "{transplant}");
            let [loss, ablated, transplanted, recovered] =
                ["loss", "ablated", "transplanted", "recovered"].map(|key| transplant[key].as_f64().unwrap());
            assert!((recovered - (ablated - transplanted) / (ablated - loss)).abs() < 1e-9, "{transplant}");
        }
        let sentences = found["sentences"].to_string();
        assert!(sentences.contains(" in the place of the matched head of 1 other run"), "{sentences}");
        assert_eq!(sentences.contains("aligned by the embeddings"), is_aligned, "{sentences}");
    }
    small_run(folder, &[&COUNTING[..], &["run.seed=1", "model.d_model=24"]].concat(), "wide");
    let error = refused(folder, &["compare", "--circuits", "--transplant", "1", "wide"]);
    assert!(error.contains("differ in model.d_model") && error.contains("omit --transplant"), "{error}");
}
