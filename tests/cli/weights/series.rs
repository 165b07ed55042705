//! Several checkpoints, imported as one run.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{rows, small_run, stdout_of, summary, text};

#[test]
fn checkpoints_become_one_run_with_curves() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let sets =
        ["model.position=rotary", "model.parallel=true", "training.steps=4", "training.checkpoint_every=2"];
    small_run(folder, &sets, "run");
    for (step, name) in [("2", "rev-2"), ("4", "rev-4")] {
        let export = ["export", "run", "--checkpoint", step, "--format", "gpt-neox", "--out", name];
        stdout_of(folder, &export);
    }
    let data = ["--set", "data.task=repeat", "--set", "data.length=12", "--set", "data.period=[5,6]"];
    let data = [&data[..], &["--set", "data.train_samples=32", "--set", "data.valid_samples=16"]].concat();
    let import = |folders: &[&str], more: &[&str]| {
        run(folder, &[&["import", "--backend", "ndarray"], folders, more, &data].concat())
    };
    // The order of the folders does not matter.
    let imported = import(&["rev-4", "rev-2"], &["--run", "series"]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let shown = text(&imported.stdout);
    assert!(shown.starts_with("step 2: rev-2\nstep 4: rev-4\nstep 2: validation loss "), "{shown}");
    let series = folder.join("series");
    let steps: Vec<String> = rows(&series).iter().map(|row| row[..8].to_string()).collect();
    assert_eq!(steps, ["2,1,vali", "4,1,vali"]);
    assert_eq!(summary(&series)["ended"], "imported");
    assert!(import(&["rev-2", "rev-4"], &["--run", "again"]).status.success());
    for name in ["series", "again"] {
        assert_eq!(summary(&folder.join(name))["imported_from"], "rev-4", "the run holds the last weights");
    }
    // The losses are those of the checkpoints, imported one by one.
    for (name, row) in [("rev-2", 0), ("rev-4", 1)] {
        assert!(import(&[name], &["--run", &format!("{name}-alone")]).status.success());
        let evaluate = ["evaluate", &format!("{name}-alone"), "--json"];
        let alone = json(folder, &evaluate)["loss"].as_f64().unwrap();
        let found: f64 = rows(&series)[row].split(',').nth(3).unwrap().parse().unwrap();
        assert!((alone - found).abs() < 1e-5, "{alone} {found}");
    }
    stdout_of(folder, &["plot", "series"]);
    stdout_of(folder, &["report", "series"]);
    for file in ["plots/loss.png", "plots/head_scores.png", "plots/attention_over_time.png", "report.html"] {
        assert!(series.join(file).is_file(), "{file}");
    }

    let refused = |folders: &[&str], more: &[&str], problem: &str| {
        let output = import(folders, &[&["--run", "refused"], more].concat());
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains(problem) && !folder.join("refused").exists(), "{stderr}");
    };
    copy(&folder.join("rev-2"), &folder.join("first"));
    refused(&["first", "rev-4"], &[], "first: has no step in its name");
    refused(&["first", "rev-4"], &["--steps", "4,4"], "`first` and `rev-4` both have step 4");
    refused(&["first", "rev-4"], &["--steps", "4"], "--steps: has 1 steps, but there are 2 folders");
    refused(&["rev-4"], &["--steps", "4"], "--steps: applies to several folders");
    small_run(folder, &["model.position=rotary", "model.d_inner=20", "training.steps=1"], "wide");
    stdout_of(folder, &["export", "wide", "--format", "gpt-neox", "--out", "step1"]);
    refused(&["step1", "rev-4"], &[], "rev-4: has another model than the other checkpoints");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
