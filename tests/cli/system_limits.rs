//! System limits and interfering files cause a one-line error and an exit code, not a panic or an abort.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::{SMALL, program, small_run, text};

/// Returns the arguments of a short training run.
fn training() -> Vec<String> {
    let sets = SMALL.iter().chain(&["training.steps=3"]);
    let sets = sets.flat_map(|set| ["--set".to_string(), set.to_string()]);
    ["train", "--backend", "ndarray", "--run", "run"].map(String::from).into_iter().chain(sets).collect()
}

/// Returns the arguments of a training run that takes half a gigabyte, most of it for logits.
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
    let stderr = text(&output.stderr);
    let errors: Vec<_> = stderr.lines().filter(|line| !line.starts_with("warning: ")).collect();
    assert_eq!((output.status.code(), errors.len()), (Some(code), 1), "{:?}: {stderr}", output.status);
    assert!(errors[0].starts_with("error: ") && stderr.contains(part), "{part}: {stderr}");
    assert!(!stderr.contains("internal error"), "{stderr}");
}

#[test]
fn file_size_limit_fails_the_write() {
    let dir = TempDir::new().unwrap();
    let output = limited(dir.path(), "ulimit -f 1", &training());
    assert_one_line(&output, 2, "exceed the size limit of the system");
    assert!(!dir.path().join("run").exists(), "a failed start leaves no run folder");
}

#[cfg(target_os = "linux")]
#[test]
fn out_of_memory_is_reported_in_one_line() {
    let dir = TempDir::new().unwrap();
    let mut codes = Vec::new();
    // Too little memory for the threads, for the model, and for the logits.
    for mib in [100, 150, 250] {
        let output = limited(dir.path(), &format!("ulimit -v {}", mib * 1024), &large_training());
        let stderr = text(&output.stderr);
        let code = output.status.code().unwrap_or_else(|| panic!("{mib} MiB: {:?}: {stderr}", output.status));
        let errors: Vec<_> = stderr.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert!([0, 1, 2].contains(&code) && errors.len() <= 1, "{mib} MiB: {code}: {stderr}");
        assert!(!stderr.contains("internal error") && !stderr.contains("panicked"), "{mib} MiB: {stderr}");
        codes.push(code);
        let _ = fs::remove_dir_all(dir.path().join("run"));
    }
    assert!(codes.contains(&2), "{codes:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn address_space_limit_counts_as_memory() {
    let dir = TempDir::new().unwrap();
    let output = limited(dir.path(), &format!("ulimit -v {}", 500 * 1024), &large_training());
    assert_one_line(&output, 2, "is free; lower it");
    assert!(text(&output.stderr).contains("`training.batch_size` = 64"), "{}", text(&output.stderr));
    assert!(!dir.path().join("run").exists(), "a failed start leaves no run folder");
}

#[test]
fn excessive_thread_counts_are_refused() {
    let dir = TempDir::new().unwrap();
    let mut command = program(dir.path());
    let output = command.args(training()).env("RAYON_NUM_THREADS", "100000").output().unwrap();
    assert_one_line(&output, 2, "RAYON_NUM_THREADS = 100000 must be at most");
}

#[test]
fn settings_of_libraries_are_not_read_from_files() {
    let dir = TempDir::new().unwrap();
    let below = dir.path().join("below");
    fs::create_dir(&below).unwrap();
    fs::write(dir.path().join("burn.toml"), "[[broken").unwrap();
    // Reading a pipe without a writer would block forever.
    for name in ["burn.toml", "cubecl.toml"] {
        assert!(Command::new("mkfifo").arg(below.join(name)).status().unwrap().success());
    }
    for folder in [dir.path(), &below] {
        let output = program(folder).args(training()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

/// Runs the program through the command `before` as an unprivileged user, because root bypasses limits and permissions.
fn unprivileged(dir: &Path, before: &[&str], arguments: &[&str]) -> Output {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    // The build folder may not be readable for other users.
    // A copy by this process could not be started while another test starts a process, which inherits the open file.
    let copied =
        Command::new("cp").arg(env!("CARGO_BIN_EXE_causal-attention")).arg(dir.join("program")).status();
    assert!(copied.unwrap().success());
    let words: Vec<_> = before.iter().chain(&["./program"]).chain(arguments).collect();
    let mut command = Command::new(words[0]);
    command.current_dir(dir).args(&words[1..]);
    if fs::metadata(dir).unwrap().uid() == 0 {
        command.uid(65_534).gid(65_534);
    }
    command.output().unwrap()
}

#[test]
fn missing_permissions_are_reported() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=1"], "closed/run");
    fs::write(dir.path().join("closed/book.txt"), "to be or not to be").unwrap();
    let closed = |mode| {
        fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(mode)).unwrap();
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
        let output = unprivileged(dir.path(), &[], arguments);
        assert_one_line(&output, 2, "permission denied; change the permissions");
    }
    closed(0o755);
}

#[cfg(target_os = "linux")]
#[test]
fn failing_thread_starts_are_reported_in_one_line() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=1"], "run");
    for arguments in [
        &["train", "--run", "other", "--set", "training.steps=3"][..],
        &["generate", "run", "--tokens", "1"],
        &["runs", "."],
    ] {
        let output = unprivileged(dir.path(), &["prlimit", "--nproc=1"], arguments);
        assert_one_line(&output, 2, "cannot start another thread; raise the limits");
    }
}
