//! Interrupted studies resume to the same result as uninterrupted ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{STUDY, command, errors, refusal, rows, study_dir, succeeds, with};
use crate::{program, text};

fn wait_for(what: &str, mut has_happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !has_happened() {
        assert!(start.elapsed() < Duration::from_mins(2), "{what} did not happen in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn summaries(study: &Path) -> usize {
    let runs = fs::read_dir(study.join("trials")).into_iter().flatten().flatten();
    runs.filter(|run| run.path().join("summary.json").is_file()).count()
}

#[test]
fn killed_studies_resume_to_the_same_result() {
    let dir = study_dir();
    succeeds(dir.path(), &["study.toml", "--run", "uninterrupted"]);
    let study = dir.path().join("killed");
    let spawn = |arguments: &[&str]| -> Child {
        command(dir.path(), arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // Killed before the first trial ends, then after every one or two further runs.
    let mut child = spawn(&["study.toml", "--run", "killed"]);
    wait_for("the study", || study.join("config.toml").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    for runs in [1, 2, 4, 6] {
        let mut child = spawn(&["--resume", "killed", "--jobs", "2"]);
        wait_for("a run", || summaries(&study) >= runs || child.try_wait().unwrap().is_some());
        let _ = child.kill();
        child.wait().unwrap();
    }
    let before = rows_if_any(&study);
    succeeds(dir.path(), &["--resume", "killed"]);
    assert_eq!(rows(&study), rows(&dir.path().join("uninterrupted")));
    assert!(before.len() <= rows(&study).len());
    let best = |study: &str| fs::read_to_string(dir.path().join(study).join("best.toml")).unwrap();
    assert_eq!(best("killed"), best("uninterrupted"));

    // For a complete study, only the pictures are redrawn.
    fs::remove_file(study.join("plots/trials.png")).unwrap();
    let summary = study.join("trials/000/summary.json");
    let written = summary.metadata().unwrap().modified().unwrap();
    succeeds(dir.path(), &["--resume", "killed"]);
    assert!(study.join("plots/trials.png").exists());
    assert_eq!(summary.metadata().unwrap().modified().unwrap(), written, "no finished trial is repeated");
}

#[test]
fn killed_overfit_check_is_repeated() {
    let dir = study_dir();
    let sets = ["tune.overfit_check=true", "tune.trials=2", "tune.method=random", "training.steps=40"];
    succeeds(dir.path(), &with(&["study.toml", "--run", "uninterrupted"], &sets));
    let study = dir.path().join("killed");
    let mut child = command(dir.path(), &with(&["study.toml", "--run", "killed"], &sets))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the study", || study.join("config.toml").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!study.join("overfit_check.json").exists(), "the overfit check was interrupted");
    assert!(succeeds(dir.path(), &["--resume", "killed"]).contains("memorised"));
    assert_eq!(rows(&study), rows(&dir.path().join("uninterrupted")));
    let result = |study: &str| fs::read(dir.path().join(study).join("overfit_check.json")).unwrap();
    assert_eq!(result("killed"), result("uninterrupted"));
    assert!(
        !succeeds(dir.path(), &["--resume", "killed"]).contains("memorised"),
        "the overfit check is not repeated"
    );
}

fn rows_if_any(study: &Path) -> Vec<BTreeMap<String, String>> {
    if study.join("study.csv").exists() { rows(study) } else { Vec::new() }
}

#[cfg(unix)]
#[test]
fn interrupted_study_sets_exit_code_and_resumes() {
    let dir = study_dir();
    succeeds(dir.path(), &["study.toml", "--run", "uninterrupted"]);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let name = format!("stopped-by-{signal}");
        let child = command(dir.path(), &["study.toml", "--run", &name])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let study = dir.path().join(&name);
        wait_for("a run", || summaries(&study) >= 1);
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let stdout = text(&output.stdout);
        assert!(
            stdout.contains(&format!("interrupted; `tune --resume {name}` continues the study")),
            "{stdout}"
        );
        assert!(rows(&study).len() < 8);
        succeeds(dir.path(), &["--resume", &name, "--jobs", "2"]);
        assert_eq!(rows(&study), rows(&dir.path().join("uninterrupted")));
    }
}

#[cfg(unix)]
#[test]
fn study_resumes_after_process_group_interrupts() {
    use std::os::unix::process::CommandExt;
    let dir = study_dir();
    succeeds(dir.path(), &["study.toml", "--run", "uninterrupted"]);
    let study = dir.path().join("study");
    let mut arguments = vec!["study.toml", "--run", "study", "--jobs", "2"];
    for milliseconds in [0, 3, 6, 9, 12, 15, 20, 30] {
        let mut command = command(dir.path(), &arguments);
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
        let alive = study.join("trials/.alive");
        let _ = fs::remove_file(&alive);
        let child = command.spawn().unwrap();
        // This file is created when a trial starts, also in a resumed study.
        wait_for("a run", || alive.exists());
        std::thread::sleep(Duration::from_millis(milliseconds));
        Command::new("kill").args(["-INT", "--", &format!("-{}", child.id())]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            break;
        }
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        arguments = vec!["--resume", "study", "--jobs", "2"];
    }
    succeeds(dir.path(), &["--resume", "study"]);
    assert_eq!(rows(&study), rows(&dir.path().join("uninterrupted")));
}

/// Completes a study of two short trials, and returns its parent folder, its folder and its rows.
fn study_of_two() -> (TempDir, PathBuf, Vec<BTreeMap<String, String>>) {
    let dir = study_dir();
    let sets = ["tune.trials=2", "training.steps=20", "tune.method=random"];
    succeeds(dir.path(), &with(&["study.toml", "--run", "study"], &sets));
    let study = dir.path().join("study");
    let rows = rows(&study);
    (dir, study, rows)
}

#[test]
fn resumed_study_keeps_its_backend() {
    let (dir, study, before) = study_of_two();
    let run = study.join("trials/001");
    fs::remove_dir_all(&run).unwrap();
    let output =
        program(dir.path()).args(["tune", "--resume", "study", "--progress", "none"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary = fs::read_to_string(run.join("summary.json")).unwrap();
    assert!(summary.contains("\"ndarray\""), "{summary}");
    assert_eq!(rows(&study), before);
    if !cfg!(feature = "flex") {
        return;
    }
    let other_backend = ["tune", "--resume", "study", "--backend", "flex"];
    let stderr = text(&program(dir.path()).args(other_backend).output().unwrap().stderr);
    assert!(
        stderr.contains("`training.backend` = \"flex\" differs") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn study_resumes_after_a_full_disk() {
    let Some(disk) = crate::full_disk::SmallDisk::new("8m") else {
        eprintln!("notice: full disks are not tested, because this user may not mount one");
        return;
    };
    let uninterrupted = study_dir();
    succeeds(uninterrupted.path(), &["study.toml", "--run", "study"]);
    fs::write(disk.path().join("study.toml"), STUDY).unwrap();
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; (8 << 20) - (900 << 10)]).unwrap();
    let stderr = refusal(disk.path(), &["study.toml", "--run", "study"]);
    assert!(
        stderr.contains("no space left") && stderr.contains("`tune --resume study` continues"),
        "{stderr}"
    );
    fs::remove_file(filler).unwrap();
    succeeds(disk.path(), &["--resume", "study"]);
    assert_eq!(rows(&disk.path().join("study")), rows(&uninterrupted.path().join("study")));
}

#[cfg(unix)]
#[test]
fn killed_trial_is_recorded_and_study_continues() {
    let dir = study_dir();
    let sets = ["tune.trials=2", "training.steps=1500", "training.checkpoint_every=50", "tune.method=random"];
    let arguments = with(&["study.toml", "--run", "study"], &sets);
    let study = command(dir.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let run = dir.path().join("study/trials/000");
    let worker = || {
        let has_begun = run.join("checkpoints").read_dir().is_ok_and(|mut saved| saved.next().is_some());
        let id = fs::read_to_string(run.join("lock")).ok()?.trim().to_string();
        (has_begun && !id.is_empty()).then_some(id)
    };
    wait_for("the trial", || worker().is_some());
    assert!(Command::new("kill").args(["-9", &worker().unwrap()]).status().unwrap().success());
    let output = study.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ended = rows(&dir.path().join("study")).into_iter().map(|row| row["ended"].clone());
    assert_eq!(ended.collect::<Vec<_>>(), ["failed", "completed"]);
    let reason = fs::read_to_string(dir.path().join("study/trials/000.failed")).unwrap();
    assert!(reason.contains("it may have run out of memory"), "{reason}");
    // Without the record of its failure, the trial resumes from its last checkpoint.
    fs::remove_file(dir.path().join("study/trials/000.failed")).unwrap();
    succeeds(dir.path(), &["--resume", "study"]);
    assert!(rows(&dir.path().join("study")).iter().all(|row| row["ended"] == "completed"));
}

/// Writes a text, and returns it with the arguments of a study that trains on it.
fn study_of_a_text<'a>(dir: &Path, run: &'a str) -> (String, Vec<&'a str>) {
    let text = "to be or not to be, that is the question: ".repeat(97);
    fs::write(dir.join("text.txt"), &text).unwrap();
    let sets = [
        "data.source=text",
        "data.path=text.txt",
        "data.vocab=auto",
        "tune.trials=4",
        "tune.method=random",
        "training.steps=120",
    ];
    (text, with(&["study.toml", "--run", run], &sets))
}

/// Returns true if any trial of a study is marked as failed.
fn has_failures(study: &Path) -> bool {
    let mut trials = study.join("trials").read_dir().unwrap().flatten();
    trials.any(|entry| entry.path().extension().is_some_and(|extension| extension == "failed"))
}

#[test]
fn study_stops_when_its_data_changes() {
    let dir = study_dir();
    let (text, arguments) = study_of_a_text(dir.path(), "uninterrupted");
    succeeds(dir.path(), &arguments);
    let (_, arguments) = study_of_a_text(dir.path(), "study");
    let study = dir.path().join("study");
    let command = &mut command(dir.path(), &arguments);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a run", || summaries(&study) >= 1);
    let changed = text.replace("question", "solution");
    fs::write(dir.path().join("text.txt"), &changed).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = self::text(&output.stderr);
    assert_eq!((output.status.code(), errors(&stderr).len()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("the data has changed") && stderr.contains("`tune --resume study`"), "{stderr}");
    assert!(rows(&study).len() < 4 && !has_failures(&study));
    let stderr = refusal(dir.path(), &["--resume", "study"]);
    assert!(stderr.contains("the data has changed") && !has_failures(&study), "{stderr}");

    fs::write(dir.path().join("text.txt"), text).unwrap();
    succeeds(dir.path(), &["--resume", "study"]);
    assert_eq!(rows(&study), rows(&dir.path().join("uninterrupted")));
}

#[test]
fn locked_trial_is_not_recorded_as_failed() {
    let (dir, study, before) = study_of_two();
    let run = study.join("trials/001");
    fs::remove_file(run.join("summary.json")).unwrap();
    let lock = fs::File::options().write(true).open(run.join("lock")).unwrap();
    lock.lock().unwrap();
    let stderr = refusal(dir.path(), &["--resume", "study"]);
    assert!(stderr.contains("trial 001: the run folder") && stderr.contains("in use"), "{stderr}");
    assert!(!has_failures(&study));
    drop(lock);
    succeeds(dir.path(), &["--resume", "study"]);
    assert_eq!(rows(&study), before);
}
