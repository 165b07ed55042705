//! Links, pipes and folders in place of a run's own files: their targets are never read or changed.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{SMALL, program, resume, small_run, text, train};

/// Runs a command, asserts that it does not block on a pipe, and returns its output.
fn answer(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_mins(2) {
            child.kill().unwrap();
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Asserts that a command fails with exit code 2 and one error line, and returns its standard error.
fn refusal(command: Command) -> String {
    let output = answer(command);
    let stderr = text(&output.stderr);
    let errors = stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!((output.status.code(), errors), (Some(2), 1), "{stderr}");
    stderr
}

/// Creates a paused run with all files that a run appends to.
fn paused_run(dir: &Path) {
    let sets = ["training.steps=40", "training.tensorboard=true", "analysis.every=5"];
    let output = train(dir, &[&SMALL[..], &sets].concat(), &["--run", "run", "--until", "20"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn resumed_runs_never_write_through_links() {
    let dir = TempDir::new().unwrap();
    paused_run(dir.path());
    let (run, mine) = (dir.path().join("run"), dir.path().join("mine"));
    let files =
        ["lock", "metrics.csv", "head_scores.csv", "snapshots.jsonl", "events.out.tfevents", "config.toml"];
    for name in files {
        let (own, aside) = (run.join(name), dir.path().join("aside"));
        fs::rename(&own, &aside).unwrap();
        for is_hard in [false, true] {
            // A hard link has the expected contents; a symbolic link has more, which a resumed run would truncate.
            let more: &[u8] = if is_hard { b"" } else { b"mine" };
            let contents = [&fs::read(&aside).unwrap()[..], more].concat();
            fs::write(&mine, &contents).unwrap();
            match is_hard {
                true => fs::hard_link(&mine, &own).unwrap(),
                false => symlink(&mine, &own).unwrap(),
            }
            // A hard link is harmless if the run replaces the file instead of changing it in place.
            if !is_hard || name != "config.toml" {
                let stderr = refusal(resume(dir.path(), "run"));
                let problem = if is_hard { "has a second name" } else { "is a link" };
                assert!(stderr.contains(&format!("run/{name}: {problem}")), "{stderr}");
                assert_eq!(fs::read(&mine).unwrap(), contents, "{name}");
                assert!(run.join("summary.json").exists(), "the summary is kept");
            }
            fs::remove_file(&own).unwrap();
        }
        fs::rename(&aside, &own).unwrap();
    }
    let output = resume(dir.path(), "run").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn nothing_is_written_into_linked_checkpoints() {
    let dir = TempDir::new().unwrap();
    paused_run(dir.path());
    let (checkpoints, mine) = (dir.path().join("run/checkpoints"), dir.path().join("mine"));
    fs::rename(&checkpoints, &mine).unwrap();
    // A step that the run never reached, which a resumed run would remove.
    fs::create_dir(mine.join("step-00000030")).unwrap();
    symlink(&mine, &checkpoints).unwrap();
    let stderr = refusal(resume(dir.path(), "run"));
    assert!(stderr.contains("run/checkpoints: is a link"), "{stderr}");
    assert!(mine.join("step-00000030").is_dir());
}

#[test]
fn config_pipes_are_refused_without_blocking() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "runs/good");
    let bad = dir.path().join("runs/bad");
    fs::create_dir_all(bad.join("checkpoints")).unwrap();
    assert!(Command::new("mkfifo").arg(bad.join("config.toml")).status().unwrap().success());
    for (command, code) in [(vec!["runs"], 0), (vec!["compare", "runs"], 2), (vec!["plot", "runs/bad"], 2)] {
        let mut process = program(dir.path());
        process.args(&command);
        let output = answer(process);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("bad/config.toml: is a pipe"), "{command:?}: {stderr}");
        assert!(output.status.code() == Some(code) || command[0] == "compare", "{command:?}: {stderr}");
    }
}

#[test]
fn links_below_a_study_are_not_listed() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=2"], "runs/study/trials/000");
    fs::copy(run.join("config.toml"), dir.path().join("runs/study/config.toml")).unwrap();
    fs::write(dir.path().join("runs/study/study.csv"), "ended,loss,floor\ncompleted,1.5,\n").unwrap();
    for number in 0..30 {
        symlink("..", dir.path().join(format!("runs/study/trials/up-{number}"))).unwrap();
    }
    // A link next to the study was created by its owner on purpose, so it is listed.
    symlink("study/trials/000", dir.path().join("runs/latest")).unwrap();
    let mut command = program(dir.path());
    command.args(["runs", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&answer(command).stdout).unwrap();
    let names = listed.as_array().unwrap().iter().map(|run| (run["name"].as_str(), run["trials"].as_u64()));
    assert_eq!(names.collect::<Vec<_>>(), [(Some("latest"), None), (Some("study"), Some(1))]);
}

#[test]
fn output_may_go_into_an_empty_folder() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    fs::create_dir(dir.path().join("mine")).unwrap();
    let mut command = program(dir.path());
    command.args(["plot", "run", "--out", "mine"]);
    let output = answer(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(dir.path().join("mine/loss.png").is_file());
}

#[test]
fn changed_model_in_the_config_is_reported() {
    let dir = TempDir::new().unwrap();
    paused_run(dir.path());
    let (run, config) = (dir.path().join("run"), dir.path().join("run/config.toml"));
    let written = fs::read_to_string(&config).unwrap();
    fs::write(&config, written.replace("activation = \"gelu\"", "activation = \"relu\"")).unwrap();
    let refused = || {
        let stderr = refusal(resume(dir.path(), "run"));
        assert!(
            stderr.contains("config.toml: describes a different model") && stderr.contains("[model]"),
            "{stderr}"
        );
    };
    refused();
    // Without the best weights, the checkpoints identify the model.
    let _ = fs::remove_file(run.join("model.safetensors"));
    let _ = fs::remove_file(run.join("summary.json"));
    refused();
    fs::write(&config, written).unwrap();
    assert!(resume(dir.path(), "run").status().unwrap().success());
}

#[test]
fn conflicting_from_options_are_refused() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=3"], "a");
    let mut command = program(dir.path());
    command.args(["train", "--from", "a", "--set", "run.from=b"]);
    assert!(refusal(command).contains("keep one"));
}
