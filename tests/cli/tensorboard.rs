//! A run's TensorBoard events: every step exactly once, even if the run was interrupted.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::generate::run;
use crate::{SMALL, program, resume, small_run, text};

const EVENTS: &str = "events.out.tfevents";

/// Returns the events of a complete file, without checksums and timestamps.
fn events(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    let (mut rest, mut found) = (&file[..], Vec::new());
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let size = u64::from_le_bytes(*length) as usize;
        found.push(after[4 + 9..4 + size].to_vec());
        rest = &after[4 + size + 4..];
    }
    found
}

/// Reads the events of a folder with TensorBoard; skipped if TensorBoard is not installed.
fn compare_with_tensorboard(run: &Path, events: &Path) {
    let python = std::env::var("PEER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/events.py");
    match Command::new(&python).arg(script).args([run, events]).output() {
        Ok(output) if output.status.code() != Some(77) => {
            assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        }
        _ => eprintln!("notice: event files are not compared, because `{python}` lacks TensorBoard"),
    }
}

#[test]
fn killed_and_resumed_run_logs_each_step_once() {
    let dir = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.tensorboard=true", "training.steps=600"]].concat();
    let more = ["training.validate_every=40", "training.checkpoint_every=15"];
    let mut command = program(dir.path());
    command.args(["train", "--backend", "ndarray", "--run", "run"]);
    for set in sets.iter().chain(&more) {
        command.args(["--set", set]);
    }
    let path = dir.path().join("run");
    let size = || fs::metadata(path.join(EVENTS)).map_or(0, |file| file.len());
    for part in 0..2 {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let before = size();
        // The file grows while the run trains.
        while size() < before + 3_000 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(300));
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "part {part} was killed");
        command = resume(dir.path(), "run");
    }
    assert!(resume(dir.path(), "run").status().unwrap().success());

    let exported = run(dir.path(), &["export", "run", "--format", "tensorboard"]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let export = path.join("export/tensorboard");
    assert_eq!(text(&exported.stdout).trim(), format!("run/export/tensorboard/{EVENTS}"));
    let written = events(&path.join(EVENTS));
    let rows = fs::read_to_string(path.join("metrics.csv")).unwrap().lines().count() - 1;
    assert_eq!(written.len(), 1 + rows + 1, "the header, the rows, and the config with pictures");
    assert!(written == events(&export.join(EVENTS)), "the file written during training equals the export");
    compare_with_tensorboard(&path, &path);
    compare_with_tensorboard(&path, &export);
}

#[test]
fn curves_of_imports_and_checkpoints_are_not_exported() {
    let dir = TempDir::new().unwrap();
    let path = small_run(dir.path(), &["training.steps=2"], "run");
    assert!(!path.join(EVENTS).exists(), "the file is written only if `training.tensorboard` is set");
    let import = ["import", "run/model.safetensors", "--format", "native", "--run", "imported"];
    assert!(run(dir.path(), &import).status.success());
    for (arguments, expected) in [
        (&["export", "imported", "--format", "tensorboard"][..], "was imported, so it lacks curves"),
        (
            &["export", "run", "--format", "tensorboard", "--checkpoint", "2"],
            "--checkpoint has no effect with --format tensorboard",
        ),
    ] {
        let output = run(dir.path(), arguments);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}
