//! Runs that workers cannot share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{can_start, errors_of, mpirun, succeeds, train, workers};
use crate::{SMALL, set_keys, text};

/// Asserts that a command is refused in one line containing all `parts`, and that it writes nothing to `work_dir`.
fn refuses(work_dir: &Path, mut command: Command, parts: &[&str]) {
    let output = command.current_dir(work_dir).output().unwrap();
    let [error] = &errors_of(&output)[..] else { panic!("{command:?}: {}", text(&output.stderr)) };
    assert_eq!(output.status.code(), Some(2), "{error}");
    parts.iter().for_each(|part| assert!(error.contains(part), "expected {part:?} in {error}"));
    let left = fs::read_dir(work_dir).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
    assert!(left.is_empty(), "{command:?} leaves {left:?}");
}

/// Returns a temporary folder, and an empty folder in it as the working directory of a run.
fn empty_dirs() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let work_dir = dir.path().join("work");
    fs::create_dir(&work_dir).unwrap();
    (dir, work_dir)
}

#[test]
fn invalid_worker_setups_are_refused_and_leave_nothing() {
    if !can_start() {
        return;
    }
    let (dir, work_dir) = empty_dirs();
    let refused = |command: Command, parts: &[&str]| refuses(&work_dir, command, parts);
    let set = |count: usize, sets: &[&str]| {
        train(dir.path(), count, "run", &[&["training.steps=5"], sets].concat())
    };
    refused(set(4, &["training.shards=2"]), &["`training.shards` = 2", "4 workers"]);
    refused(
        set(2, &["training.shards=16"]),
        &["`training.shards` = 16", "must divide `training.batch_size` = 8"],
    );
    refused(set(2, &["training.shards=6"]), &["`training.shards` = 6", "power of two"]);
    refused(set(2, &["model.hed=6"]), &["did you mean `model.heads`"]);
    let mut planned = set(4, &["training.shards=2"]);
    planned.arg("--dry-run");
    refused(planned, &["`training.shards` = 2", "4 workers"]);
    let odd = ["train", "--set", "data.train_samples=96", "--set", "data.valid_samples=32"];
    refused(workers(dir.path(), 3, &odd), &["`training.shards` = 3", "power of two"]);

    // A run can only be resumed with a number of workers that divides its shards.
    let name = dir.path().join("two");
    succeeds(train(dir.path(), 2, name.to_str().unwrap(), &["training.steps=5", "training.shards=2"]));
    let before = fs::read(name.join("summary.json")).unwrap();
    let resume = ["train", "--resume", name.to_str().unwrap(), "--set", "training.steps=9"];
    refused(workers(dir.path(), 4, &resume), &["`training.shards` = 2", "4 workers"]);
    assert_eq!(fs::read(name.join("summary.json")).unwrap(), before);
}

#[test]
fn workers_with_mismatched_setup_are_refused() {
    if !can_start() {
        return;
    }
    let (dir, work_dir) = empty_dirs();
    let refused = |command: Command, parts: &[&str]| refuses(&work_dir, command, parts);
    // Two workers, the second of which has a different build, config or disk.
    let binary = env!("CARGO_BIN_EXE_causal-attention");
    let other = dir.path().join("other");
    let build = [fs::read(binary).unwrap(), b"another build".to_vec()].concat();
    fs::write(&other, build).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let both = |second: &[&str], sets: &[&str]| {
        let mut command = mpirun(&work_dir);
        let common = ["train", "--progress", "none", "--run", "run", "--set", "training.steps=5"];
        command.args(["-n", "1", binary]).args(common);
        set_keys(&mut command, &SMALL).args([":", "-n", "1"]).args(second).args(common);
        set_keys(&mut command, SMALL.iter().chain(sets));
        command
    };
    let path = other.to_str().unwrap();
    refused(both(&[path], &[]), &["worker 1 on ", "runs a different build of this program than worker 0"]);
    let lines = ["worker 1 on ", "has the config `seed = 5` where worker 0", "has `seed = 0`"];
    refused(both(&[binary], &["run.seed=5"]), &lines);
    if can_hide_folders() {
        let path = work_dir.display();
        let hidden = format!("mount -t tmpfs none '{path}' && cd '{path}' && exec \"$@\"");
        let second = ["unshare", "-m", "sh", "-c", &hidden, "sh", binary];
        refused(both(&second, &[]), &["worker 1 on ", "cannot see the files that worker 0", "--run DIR"]);
    }
}

/// Returns true if file systems can be hidden from a process on this machine.
fn can_hide_folders() -> bool {
    let mounts = Command::new("unshare").args(["-m", "true"]).output();
    mounts.is_ok_and(|output| output.status.success())
}
