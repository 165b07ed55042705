//! `phases`: abrupt changes during training, and the runs in which it cannot find or locate them.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{small_run, text};

/// Replaces the recorded training losses after a step and the induction scores of head 1.0, so that they have a phase.
fn with_phase(folder: &Path, at: usize) {
    let edit = |name: &str, change: &dyn Fn(&mut Vec<String>)| {
        let path = folder.join(name);
        let text = fs::read_to_string(&path).unwrap();
        let line = |line: &str| {
            let mut cells: Vec<String> = line.split(',').map(str::to_string).collect();
            if cells[0].parse::<usize>().is_ok() {
                change(&mut cells);
            }
            cells.join(",") + "\n"
        };
        fs::write(&path, text.lines().map(line).collect::<String>()).unwrap();
    };
    let is_after = |cells: &[String]| cells[0].parse::<usize>().unwrap() > at;
    edit("head_scores.csv", &|cells| {
        let score = if is_after(cells) && cells[1..3] == ["1", "0"] { "0.9" } else { "0.1" };
        cells[8] = score.to_string();
    });
    // The summary has the hashes of the original files.
    let path = folder.join("summary.json");
    let mut summary: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    summary.as_object_mut().unwrap().remove("head_scores_sha256");
    fs::write(path, summary.to_string()).unwrap();
}

const RECORDING: [&str; 4] =
    ["training.steps=60", "model.dropout=0.1", "analysis.every=5", "analysis.sequences=8"];

#[test]
fn phases_are_located_by_an_exact_replay() {
    let dir = TempDir::new().unwrap();
    let folder = small_run(dir.path(), &RECORDING, "run");
    with_phase(&folder, 30);
    let recorded = json(dir.path(), &["phases", "run", "--json", "--no-replay", "--backend", "ndarray"]);
    assert_eq!(recorded["phases"][0]["between"], serde_json::json!([30, 35]), "{recorded}");
    assert_eq!(recorded["replay"], Value::Null);

    let output = run(dir.path(), &["phases", "run", "--backend", "ndarray"]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(stdout.starts_with("Phase 1 of 1: "), "{stdout}");
    assert!(
        stdout.contains("head 1.0") && stdout.contains("logged steps equal those in metrics.csv"),
        "{stdout}"
    );
    assert!(stdout.ends_with("run/phases.json\nrun/plots/phases.png\nrun/report.html\n"), "{stdout}");
    let page = json(dir.path(), &["report", "run", "--json"]);
    assert_eq!(page["chapters"][0]["sentences"][0], stdout.lines().next().unwrap());
    assert!(folder.join("plots/phases.png").exists() && !folder.join(".replay").exists());
    let found: Value = serde_json::from_slice(&fs::read(folder.join("phases.json")).unwrap()).unwrap();
    let (replay, phase) = (&found["replay"], &found["phases"][0]);
    assert_eq!((&replay["from"], &replay["until"]), (&0.into(), &35.into()));
    // Every third step is logged.
    assert_eq!((&replay["equal_rows"], &replay["is_complete"]), (&11.into(), &true.into()));
    assert_eq!(phase["losses"].as_array().unwrap().len(), 6);
    assert_eq!(phase["end"]["heads"].as_array().unwrap().len(), 2, "the heads of layer 1");
    assert!(phase["circuits"][0]["qk_norm"].as_f64().unwrap() > 0.0);
}

#[test]
fn runs_without_phases_say_so() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=6", "analysis.every=2", "analysis.sequences=8"], "run");
    let output = run(dir.path(), &["phases", "run"]);
    let stdout = text(&output.stdout);
    assert!(output.status.success() && stdout.starts_with("No phase in 6 steps: none of "), "{stdout}");
    assert!(!dir.path().join("run/plots/phases.png").exists());
}

/// Returns the only line of an error.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let stderr = text(&output.stderr);
    let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!((output.status.code(), lines.len()), (Some(2), 1), "{stderr}");
    lines[0].to_string()
}

#[test]
fn runs_that_cannot_be_searched_are_refused() {
    let dir = TempDir::new().unwrap();
    let unscored = small_run(dir.path(), &["training.steps=6", "analysis.every=0"], "unscored");
    let error = refused(dir.path(), &["phases", "unscored"]);
    assert!(error.contains("did not record the scores") && error.contains("analysis.every"), "{error}");
    let weights = unscored.join("model.safetensors");
    crate::stdout_of(dir.path(), &["import", weights.to_str().unwrap(), "--run", "imported"]);
    let error = refused(dir.path(), &["phases", "imported"]);
    assert!(error.contains("imported without its training"), "{error}");

    let sets = [&RECORDING[..], &["data.path=book.txt"]].concat();
    fs::write(dir.path().join("book.txt"), "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let folder = small_run(dir.path(), &sets, "text");
    with_phase(&folder, 30);
    let error = refused(dir.path(), &["phases", "text", "--budget", "0.000001"]);
    assert!(error.contains("too small for the first phase") && error.contains("--budget 1"), "{error}");
    fs::write(dir.path().join("book.txt"), "to be or not to be, this is the question. ".repeat(40)).unwrap();
    let error = refused(dir.path(), &["phases", "text"]);
    assert!(error.contains("data") && error.contains("restore"), "{error}");
    fs::remove_file(dir.path().join("book.txt")).unwrap();
    let error = refused(dir.path(), &["phases", "text"]);
    assert!(error.contains("book.txt"), "{error}");
}
