//! System limits and files in the way: one line and an exit code, without a panic or an abort.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::{SMALL, program, small_run, text};

/// A short training, as the arguments of the program.
fn training() -> Vec<String> {
    let sets = SMALL.iter().chain(&["training.steps=3", "analysis.circuit=false"]);
    let sets = sets.flat_map(|set| ["--set".to_string(), set.to_string()]);
    ["train", "--backend", "ndarray", "--run", "run"].map(String::from).into_iter().chain(sets).collect()
}

/// A training that takes half a gigabyte, most of it for logits.
#[cfg(target_os = "linux")]
fn large_training() -> Vec<String> {
    let large = ["--set", "data.length=1024", "--set", "training.batch_size=64", "--set", "data.vocab=512"];
    training().into_iter().chain(large.map(String::from)).collect()
}

/// Runs the program in a shell that sets a limit.
fn limited(folder: &Path, limit: &str, arguments: &[String]) -> Output {
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args([
        "-c",
        &format!("{limit}; exec \"$0\" \"$@\""),
        env!("CARGO_BIN_EXE_causal-attention"),
    ]);
    shell.args(arguments).output().unwrap()
}

fn assert_one_line(output: &Output, code: i32, part: &str) {
    let said = text(&output.stderr);
    let errors: Vec<_> = said.lines().filter(|line| !line.starts_with("warning: ")).collect();
    assert_eq!((output.status.code(), errors.len()), (Some(code), 1), "{:?}: {said}", output.status);
    assert!(errors[0].starts_with("error: ") && said.contains(part), "{part}: {said}");
    assert!(!said.contains("internal error"), "{said}");
}

#[test]
fn file_size_limit_fails_the_write() {
    let place = TempDir::new().unwrap();
    let output = limited(place.path(), "ulimit -f 1", &training());
    assert_one_line(&output, 2, "larger than the system allows");
    assert!(!place.path().join("run").exists(), "a run that could not begin leaves nothing");
}

#[cfg(target_os = "linux")]
#[test]
fn without_memory_the_program_ends_in_one_line() {
    let place = TempDir::new().unwrap();
    let mut codes = Vec::new();
    // Too little memory for the threads, for the model, and for the logits.
    for mib in [100, 150, 250] {
        let output = limited(place.path(), &format!("ulimit -v {}", mib * 1024), &large_training());
        let said = text(&output.stderr);
        let code = output.status.code().unwrap_or_else(|| panic!("{mib} MiB: {:?}: {said}", output.status));
        let errors: Vec<_> = said.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert!([0, 1, 2].contains(&code) && errors.len() <= 1, "{mib} MiB: {code}: {said}");
        assert!(!said.contains("internal error") && !said.contains("panicked"), "{mib} MiB: {said}");
        codes.push(code);
        let _ = fs::remove_dir_all(place.path().join("run"));
    }
    assert!(codes.contains(&2), "{codes:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_addresses_counts_as_memory() {
    let place = TempDir::new().unwrap();
    let output = limited(place.path(), &format!("ulimit -v {}", 500 * 1024), &large_training());
    assert_one_line(&output, 2, "are free here: lower it");
    assert!(text(&output.stderr).contains("`training.batch_size` = 64"), "{}", text(&output.stderr));
    assert!(!place.path().join("run").exists(), "a run that could not begin leaves nothing");
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let place = TempDir::new().unwrap();
    let mut command = program(place.path());
    let output = command.args(training()).env("RAYON_NUM_THREADS", "100000").output().unwrap();
    assert_one_line(&output, 2, "RAYON_NUM_THREADS = 100000 must be at most");
}

#[test]
fn settings_of_libraries_are_not_read_from_files() {
    let place = TempDir::new().unwrap();
    let below = place.path().join("below");
    fs::create_dir(&below).unwrap();
    fs::write(place.path().join("burn.toml"), "[[broken").unwrap();
    // Reading a pipe without a writer would block forever.
    for name in ["burn.toml", "cubecl.toml"] {
        assert!(Command::new("mkfifo").arg(below.join(name)).status().unwrap().success());
    }
    for folder in [place.path(), &below] {
        let output = program(folder).args(training()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

/// Runs the program through the command `before` as an unprivileged user, because root bypasses limits and permissions.
fn unprivileged(place: &Path, before: &[&str], arguments: &[&str]) -> Output {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
    // The build folder may not be readable for other users.
    fs::copy(env!("CARGO_BIN_EXE_causal-attention"), place.join("program")).unwrap();
    let words: Vec<_> = before.iter().chain(&["./program"]).chain(arguments).collect();
    let mut command = Command::new(words[0]);
    command.current_dir(place).args(&words[1..]);
    if fs::metadata(place).unwrap().uid() == 0 {
        command.uid(65_534).gid(65_534);
    }
    command.output().unwrap()
}

#[test]
fn a_missing_permission_is_called_so() {
    use std::os::unix::fs::PermissionsExt;
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=1"], "closed/run");
    fs::write(place.path().join("closed/book.txt"), "to be or not to be").unwrap();
    let closed = |mode| {
        fs::set_permissions(place.path().join("closed"), fs::Permissions::from_mode(mode)).unwrap();
    };
    closed(0o000);
    for arguments in [
        &["evaluate", "closed/run"][..],
        &["inspect", "closed/run", "--tokens", "1"],
        &["data", "--set", "data.path=closed/book.txt"],
        &["train", "closed/config.toml"],
        &["import", "closed/model.safetensors"],
        &["tune", "--resume", "closed/study"],
        &["runs", "closed"],
    ] {
        let output = unprivileged(place.path(), &[], arguments);
        assert_one_line(&output, 2, "permission denied: change the permissions");
    }
    closed(0o755);
}

#[cfg(target_os = "linux")]
#[test]
fn without_threads_the_program_ends_in_one_line() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=1"], "run");
    for arguments in [
        &["train", "--run", "other", "--set", "training.steps=3"][..],
        &["generate", "run", "--tokens", "1"],
        &["runs", "."],
    ] {
        let output = unprivileged(place.path(), &["prlimit", "--nproc=1"], arguments);
        assert_one_line(&output, 2, "the system starts no more threads: raise the limits");
    }
}
