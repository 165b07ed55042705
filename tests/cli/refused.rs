//! Keys, configs and options that are refused, each in one line.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::{program, small_run, text, train};

/// Asserts that these arguments are refused in one line containing all `parts`, and that nothing is written.
fn refuses(dir: &Path, arguments: &[&str], parts: &[&str]) {
    let before = fs::read_dir(dir).unwrap().count();
    let output = train(dir, &[], arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{arguments:?}: expected {part:?} in {stderr}");
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), before, "{arguments:?} leaves files behind");
}

#[test]
fn invalid_keys_are_refused_and_leave_nothing() {
    let dir = TempDir::new().unwrap();
    let sets: [(&str, &[&str]); 16] = [
        ("model.hed=4", &["`model.hed` = 4", "did you mean `model.heads`?"]),
        ("modell.heads=4", &["did you mean `model`?"]),
        ("heads=4", &["the key is missing its section; use model.heads=4"]),
        ("model.heads", &["section.key=value"]),
        ("model.heads=four", &["--set: `model.heads` = \"four\"", "must be a positive integer"]),
        ("model.heads=5", &["`model.heads` = 5", "`model.d_model` = 64"]),
        ("model.d_model=0", &["`model.d_model` = 0"]),
        ("model.layers=100000000", &["`model.layers` = 100000000 must be in [1, 1024]"]),
        ("model.dropout=1", &["`model.dropout` = 1", "[0, 1)"]),
        ("model.dropout=-0.5", &["`model.dropout` = -0.5", "[0, 1)"]),
        ("training.batch_size=0", &["`training.batch_size` = 0", "must be in [1, "]),
        ("training.learning_rate=-1", &["`training.learning_rate` = -1", "above 0"]),
        ("data.length=0", &["`data.length` = 0"]),
        ("data.task=riddle", &["`data.task` = \"riddle\"", "repeat"]),
        ("model.d_model=65536", &["`model.d_model` = 65536", "use a smaller model"]),
        ("training.backend=tpu", &["`training.backend` = \"tpu\"", "ndarray"]),
    ];
    for (set, parts) in sets {
        refuses(dir.path(), &["--set", set], parts);
    }
    let large = ["data.length=30000", "training.batch_size=512", "data.train_samples=512"];
    let large = large.map(|set| ["--set", set]);
    refuses(
        dir.path(),
        large.as_flattened(),
        &["`training.batch_size` = 512", "sequences of 30,000 tokens", "is free; lower it", "data.length"],
    );
}

#[test]
fn invalid_files_and_options_leave_nothing() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("folder")).unwrap();
    fs::write(dir.path().join("broken.toml"), "[model]\nheads = = 4\n").unwrap();
    fs::write(dir.path().join("misspelt.toml"), "[model]\nlayers = 2\nhed = 4\n").unwrap();
    fs::write(dir.path().join("text.toml"), "[model]\n\nheads = \"four\"\n").unwrap();
    fs::write(dir.path().join("binary.toml"), [0x5b, 0xff, 0xfe]).unwrap();
    fs::write(dir.path().join("twice.toml"), "[model]\nheads = 4\nheads = 2\n").unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let cases: [(&[&str], &[&str]); 17] = [
        (&["missing.toml"], &["`missing.toml`: no such config file"]),
        (&["folder"], &["`folder` is a folder"]),
        (&["broken.toml"], &["broken.toml:2:"]),
        (&["misspelt.toml"], &["misspelt.toml:3:", "`model.hed` = 4", "did you mean `model.heads`?"]),
        (&["text.toml"], &["text.toml:3:", "`model.heads` = \"four\""]),
        (&["twice.toml"], &["twice.toml:3:", "`heads` appears twice; remove one"]),
        (&["binary.toml"], &["binary.toml", "is not UTF-8 at byte 1", "-t UTF-8"]),
        (&["--run", ""], &["--run", "--help"]),
        (&["--step", "4"], &["--step", "--help"]),
        (&["--progress", "loud"], &["'loud'", "plain", "--help"]),
        (&["--run", "folder"], &["`folder` already exists"]),
        (&["--run", "folder", "--dry-run"], &["`folder` already exists"]),
        (&["--until", "x"], &["'x' for '--until <STEP>'", "a positive integer"]),
        (&["--until", "0"], &["'0' for '--until <STEP>'", "a positive integer"]),
        (&["--run", "file/run"], &["`file` is not a folder", "pass another folder with --run DIR"]),
        (&["--resume", "folder"], &["`folder` is not a run folder"]),
        (&["--resume", "nowhere"], &["`nowhere`: no such run folder"]),
    ];
    for (arguments, parts) in cases {
        refuses(dir.path(), arguments, parts);
    }
}

#[test]
fn evaluate_refuses_incompatible_settings() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=1"], "run");
    for (set, part) in [("data.length=20", "12"), ("model.d_model=32", "`model.d_model` = 32")] {
        let output = program(dir.path()).args(["evaluate", "run", "--set", set]).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
}
