//! Runs that lose a worker, or in which a worker is signalled or hangs.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use super::{can_start, errors_of, succeeds, train, workers};
use crate::{assert_same_result, program, summary, text};

#[test]
fn runs_resume_bitwise_after_losing_workers() {
    if !can_start() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sets = ["training.steps=800"];
    succeeds(train(dir.path(), 1, "uninterrupted", &sets));
    let run = dir.path().join("run");
    // Every number of workers meets every kind of moment.
    for kill in 1..=12_u32 {
        kill_a_worker(dir.path(), &run, kill, &sets);
    }
    let is_left = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    // The program removes unclaimed folders of killed workers after a minute.
    for entry in fs::read_dir(dir.path()).unwrap().flatten().filter(is_left) {
        let an_hour_ago = SystemTime::now() - Duration::from_hours(1);
        fs::File::open(entry.path()).unwrap().set_modified(an_hour_ago).unwrap();
    }
    for count in [1, 4] {
        let step = if count == 1 { "750" } else { "800" };
        let resume = ["train", "--progress", "none", "--resume", "run", "--until", step];
        succeeds(match count {
            1 => {
                let mut command = program(dir.path());
                command.args(resume);
                command
            }
            _ => workers(dir.path(), count, &resume),
        });
        let siblings = fs::read_dir(dir.path()).unwrap().flatten();
        assert_eq!(siblings.filter(is_left).count(), 0, "no temporary folders remain next to the run");
    }
    assert_same_result(&run, &dir.path().join("uninterrupted"));
    assert!(
        !fs::read_dir(&run).unwrap().flatten().any(|entry| is_left(&entry)),
        "no temporary folders remain in the run"
    );
}

/// Starts or resumes the run and kills one of its workers. The index `kill` determines the number of workers, the
/// killed worker and the moment.
fn kill_a_worker(dir: &Path, run: &Path, kill: u32, sets: &[&str]) {
    // A fixed sequence of moments and workers, from the fractional parts of multiples of the golden ratio.
    let part = (f64::from(kill) * 0.618_033_988_75).fract();
    let count = [2, 8, 4][kill as usize % 3];
    let victim = (part * count as f64) as usize;
    let mut command = match run.exists() {
        false => train(dir, count, "run", sets),
        true => workers(dir, count, &["train", "--progress", "none", "--resume", "run"]),
    };
    let before = fs::metadata(run.join("metrics.csv")).map_or(0, |file| file.len());
    let child = command.spawn().unwrap();
    let process = worker(&child, victim);
    match kill % 4 {
        0 => std::thread::sleep(Duration::from_secs_f64(part)),
        _ => wait_for_rows(run, before + 1 + (part * 300.0) as u64),
    }
    let killed = Instant::now();
    send("-KILL", &process);
    let output = child.wait_with_output().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(10), "all workers end soon after one dies");
    assert!(!output.status.success(), "kill {kill}: {}", text(&output.stderr));
    if !kill.is_multiple_of(4) {
        let [error] = &errors_of(&output)[..] else { panic!("kill {kill}: {}", text(&output.stderr)) };
        assert!(error.starts_with(&format!("error: worker {victim} on ")), "{error}");
        assert!(
            error.contains(&format!("(process {process}) has died")) && error.contains("--resume"),
            "{error}"
        );
    }
}

#[test]
fn signalled_workers_save_and_hung_ones_are_reported() {
    if !can_start() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    let sets =
        ["training.steps=100000", "training.validate_every=100000", "training.checkpoint_every=100000"];
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let command = match run.exists() {
            false => train(dir.path(), 2, "run", &sets),
            true => workers(dir.path(), 2, &["train", "--progress", "none", "--resume", "run"]),
        };
        let before = fs::metadata(run.join("metrics.csv")).map_or(0, |file| file.len());
        let child = { command }.spawn().unwrap();
        let process = worker(&child, 1);
        wait_for_rows(&run, before + 500);
        send(signal, &process);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        let summary = summary(&run);
        assert_eq!(summary["ended"], "interrupted");
        let checkpoint = format!("checkpoints/step-{:08}", summary["steps"].as_u64().unwrap());
        assert!(run.join(&checkpoint).is_dir(), "{checkpoint}");
    }

    let resume = ["train", "--progress", "none", "--resume", "run", "--set", "training.worker_timeout=2"];
    let before = fs::metadata(run.join("metrics.csv")).unwrap().len();
    let child = workers(dir.path(), 4, &resume).spawn().unwrap();
    let process = worker(&child, 2);
    wait_for_rows(&run, before + 200);
    send("-STOP", &process);
    let output = child.wait_with_output().unwrap();
    let [error] = &errors_of(&output)[..] else { panic!("{}", text(&output.stderr)) };
    assert!(
        error.starts_with("error: worker 2 on ") && error.contains("has not answered for 2 s"),
        "{error}"
    );
    assert!(error.contains("training.worker_timeout") && error.contains("--resume run"), "{error}");
}

/// Waits for the worker of this rank that `mpirun` started, and returns its process id.
fn worker(mpirun: &Child, rank: usize) -> String {
    let id = mpirun.id();
    let name = format!("OMPI_COMM_WORLD_RANK={rank}");
    let is_worker = |child: &&str| {
        let environment = fs::read(format!("/proc/{child}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == name.as_bytes())
    };
    let begun = Instant::now();
    loop {
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        if let Some(child) = children.split_whitespace().find(is_worker) {
            return child.to_string();
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "worker {rank} of {id} did not start: {children}");
    }
}

fn send(signal: &str, process: &str) {
    Command::new("kill").args([signal, process]).stderr(Stdio::null()).status().unwrap();
}

fn wait_for_rows(run: &Path, bytes: u64) {
    let begun = Instant::now();
    while fs::metadata(run.join("metrics.csv")).map_or(0, |file| file.len()) < bytes {
        assert!(begun.elapsed() < Duration::from_mins(2), "`{}` writes no rows", run.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}
