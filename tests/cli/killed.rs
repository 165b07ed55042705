//! Runs that are killed or interrupted at any moment resume to the same result as an uninterrupted run.
#![cfg(unix)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{
    SMALL, assert_same_result, program, resume, set_keys, small_run, summary, text, without_data_warnings,
};

/// A run too long to complete in twenty pieces. It uses dropout, lengths and positions drawn per batch, bf16, and Muon
/// with AdamW for the remaining parameters.
const LONG: [&str; 11] = [
    "training.steps=3000",
    "data.lengths=[9, 14]",
    "model.position=random_sinusoidal",
    "training.validate_every=40",
    "training.checkpoint_every=15",
    "training.accumulate=2",
    "model.dropout=0.2",
    "training.optimizer=muon",
    "training.precision=bf16",
    "training.momentum_warmup=2000",
    "training.schedule=trapezoid",
];

/// A run that never ends and writes no metrics.
const ENDLESS: [&str; 4] = [
    "training.steps=100000000",
    "training.log_every=100000000",
    "training.validate_every=100000000",
    "training.checkpoint_every=0",
];

fn start(folder: &Path, name: &str, sets: &[&str]) -> Command {
    let mut command = program(folder);
    command.args(["train", "--backend", "ndarray", "--run", name]);
    set_keys(&mut command, SMALL.iter().chain(sets));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Sends a signal to a process. The exit status of the process reveals whether it had ended before.
fn send(child: &Child, signal: &str) {
    let id = child.id().to_string();
    Command::new("kill").args([&format!("-{signal}"), &id]).stderr(Stdio::null()).status().unwrap();
}

/// The moment of a signal: while the folder is prepared, after a time since the start, or after a number of bytes of
/// new rows.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Prepared,
    After(Duration),
    Written(u64),
}

/// Returns a fixed sequence of moments, from the fractional parts of multiples of the golden ratio. The first two are
/// before the run exists. Of the others, every second one is in the first milliseconds, and the rest are among the
/// steps.
fn moments() -> impl Iterator<Item = Moment> {
    (1..=20).map(|index: u32| {
        let part = (f64::from(index) * 0.618_033_988_75).fract();
        match index {
            1 | 2 => Moment::Prepared,
            _ if index.is_multiple_of(2) => Moment::After(Duration::from_micros((50_000.0 * part) as u64)),
            _ => Moment::Written((part * 1_200.0) as u64),
        }
    })
}

/// Waits for a moment; returns false if the run pauses before it.
fn wait_for(moment: Moment, child: &mut Child, run: &Path) -> bool {
    let begun = Instant::now();
    let written = || fs::metadata(run.join("metrics.csv")).map_or(0, |file| file.len());
    let mut least = written();
    let siblings = || fs::read_dir(run.parent().unwrap()).unwrap().flatten().map(|entry| entry.file_name());
    let before = siblings().collect::<Vec<_>>();
    while child.try_wait().unwrap().is_none() {
        // A resumed run first drops the rows after its checkpoint.
        least = least.min(written());
        let is_now = match moment {
            Moment::Prepared => siblings().any(|name| !before.contains(&name)),
            Moment::After(time) => begun.elapsed() >= time,
            Moment::Written(bytes) => run.exists() && written() > least + bytes,
        };
        if is_now {
            return true;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    false
}

/// The maximum number of steps between two signals. The run pauses there, so it cannot end before its last signal, even
/// if a loaded machine delays the test.
const MAX_STEPS_BETWEEN_SIGNALS: usize = 140;

/// Returns the step of the newest checkpoint; 0 without a run.
fn newest_step(run: &Path) -> usize {
    let names = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    let steps = names.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok());
    steps.max().unwrap_or(0)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => assert!(fs::copy(&from, &to).is_ok()),
        }
    }
}

/// Starts or resumes a run and sends it a signal. Returns `None` if the run paused before the moment.
fn signal_once(folder: &Path, name: &str, signal: &str, moment: Moment) -> Option<Output> {
    let run = folder.join(name);
    let mut command = if run.exists() { resume(folder, name) } else { start(folder, name, &LONG) };
    // The previous signal may have come just after the folder was created.
    let moment = match moment {
        Moment::Prepared if run.exists() => Moment::After(Duration::from_millis(20)),
        moment => moment,
    };
    command.args(["--until", &(newest_step(&run) + MAX_STEPS_BETWEEN_SIGNALS).to_string()]);
    let mut child = command.spawn().unwrap();
    if wait_for(moment, &mut child, &run) {
        send(&child, signal);
    }
    let ended = child.wait_with_output().unwrap();
    (!ended.status.success()).then_some(ended)
}

/// Sends a run a signal at every moment, resumes it each time, and finally lets it end.
fn signal_twenty_times(
    folder: &Path,
    name: &str,
    signal: &str,
    is_expected: impl Fn(ExitStatus) -> bool,
) -> PathBuf {
    let run = folder.join(name);
    for moment in moments() {
        let before = TempDir::new().unwrap();
        if run.exists() {
            copy(&run, before.path());
        }
        let ended = (0..100).find_map(|_| {
            let ended = signal_once(folder, name, signal, moment);
            if ended.is_none() {
                // Restores the run, so that every moment is tested.
                assert_eq!(summary(&run)["ended"], "paused");
                fs::remove_dir_all(&run).unwrap();
                if before.path().join("config.toml").exists() {
                    copy(before.path(), &run);
                }
            }
            ended
        });
        let ended = ended.unwrap_or_else(|| panic!("{moment:?} never came before the run paused"));
        assert!(
            is_expected(ended.status),
            "{moment:?} missed the running process: {} {}",
            ended.status,
            text(&ended.stderr)
        );
        let leftovers = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let visible = leftovers.filter(|name| !name.to_string_lossy().starts_with('.')).count();
        assert!(visible <= 1, "a kill leaves at most the run folder");
    }
    let end = resume(folder, name).output().unwrap();
    assert!(end.status.success(), "{}", text(&end.stderr));
    for dir in [folder.to_path_buf(), run.clone(), run.join("checkpoints")] {
        let hidden = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
        let hidden = hidden.filter(|name| name.to_string_lossy().starts_with('.'));
        // A folder without a process id may belong to a process that is about to claim it, so it is kept for a minute.
        let is_taken = |name: &OsString| {
            !dir.join(name).is_dir() || fs::read(dir.join(name).join("lock")).is_ok_and(|id| !id.is_empty())
        };
        let hidden = hidden.filter(is_taken).collect::<Vec<_>>();
        assert!(hidden.is_empty(), "temporary files are left in {}: {hidden:?}", dir.display());
    }
    run
}

#[test]
fn killed_and_interrupted_runs_resume_to_identical_results() {
    let uninterrupted = TempDir::new().unwrap();
    let uninterrupted = small_run(uninterrupted.path(), &LONG, "run");
    let killed = TempDir::new().unwrap();
    let run = signal_twenty_times(killed.path(), "killed", "KILL", |status| status.signal() == Some(9));
    assert_same_result(&run, &uninterrupted);
    let snapshots = |run: &Path| fs::read(run.join("snapshots.jsonl")).unwrap();
    assert!(
        snapshots(&run) == snapshots(&uninterrupted),
        "the snapshots of a killed run agree byte for byte"
    );
    let stopped = TempDir::new().unwrap();
    // In the first milliseconds the program lacks its signal handler.
    let run = signal_twenty_times(stopped.path(), "stopped", "INT", |status| {
        status.code() == Some(130) || status.signal() == Some(2)
    });
    assert_same_result(&run, &uninterrupted);
    assert!(
        snapshots(&run) == snapshots(&uninterrupted),
        "the snapshots of an interrupted run agree byte for byte"
    );
}

/// A run whose first step has so many batches that it does not end during a test.
const SLOW: [&str; 6] = [
    "data.train_samples=32000",
    "training.accumulate=4000",
    "training.steps=1000",
    "model.d_model=128",
    "model.layers=4",
    "analysis.every=0",
];

/// The acknowledgement of a first signal.
const INTERRUPT_NOTICE: &str =
    "\nnotice: interrupted; saving after this step; a second signal exits immediately\n";

/// A model with many heads, so that its analysis takes seconds.
const MANY_HEADS: [&str; 5] =
    ["model.d_model=128", "model.heads=64", "model.layers=24", "training.steps=1", "analysis.every=0"];

/// Starts a run and waits for its folder; the signal handlers are installed by then.
fn started(folder: &Path, name: &str, sets: &[&str]) -> Child {
    let mut child = start(folder, name, sets).spawn().unwrap();
    while !folder.join(name).exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

/// Waits until the program has used half a second of CPU time, so that its first step is in progress.
fn wait_for_work(child: &Child) {
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum::<u64>()
    };
    let (before, begun) = (ticks(), Instant::now());
    while ticks() < before + 50 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn early_interrupted_runs_are_saved_and_plotted() {
    let dir = TempDir::new().unwrap();
    // Under `nohup` a run ignores SIGHUP, as intended.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let receives_hangups = u64::from_str_radix(ignored, 16).unwrap() & 1 == 0;
    let signals = [("INT", 130), ("TERM", 143), ("HUP", 129)];
    for (signal, code) in signals.into_iter().take(if receives_hangups { 3 } else { 2 }) {
        let child = started(dir.path(), signal, &ENDLESS);
        send(&child, signal);
        let ended = child.wait_with_output().unwrap();
        let stderr = without_data_warnings(&ended.stderr);
        // The signal may arrive after the first steps.
        let steps =
            stderr.find("warning: the run stopped before its first validation").unwrap_or(stderr.len());
        // A warning about the data may be printed between the notice's line breaks.
        let notice = stderr[..steps].trim();
        assert_eq!((ended.status.code(), notice), (Some(code), INTERRUPT_NOTICE.trim()), "{signal}");
        let run = dir.path().join(signal);
        assert_eq!(summary(&run)["ended"], "interrupted");
        assert!(run.join("report.html").is_file() && run.join("plots/attention.png").is_file(), "{signal}");
        assert!(!run.join("plots/gradients.png").exists(), "without steps there are no gradients to plot");
    }
}

#[test]
fn one_signal_stops_waiting_for_data() {
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().join("pipe.txt");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child = start(dir.path(), "run", &["data.path=pipe.txt"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    send(&child, "TERM");
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("the program waits forever");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = child.wait().unwrap();
    assert!(status.code() == Some(143) || status.signal() == Some(15), "{status}");
    assert!(!dir.path().join("run").exists(), "no run folder was created");
}

#[test]
fn second_signal_exits_immediately() {
    let dir = TempDir::new().unwrap();
    for (name, signals, code) in
        [("twice", ["INT", "INT"], 130), ("kinds", ["INT", "TERM"], 143), ("back", ["TERM", "INT"], 130)]
    {
        let child = started(dir.path(), name, &SLOW);
        wait_for_work(&child);
        send(&child, signals[0]);
        // Two pending signals of the same kind would be merged.
        std::thread::sleep(Duration::from_millis(50));
        send(&child, signals[1]);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{name}: {}", text(&ended.stderr));
        assert!(
            !dir.path().join(name).join("summary.json").exists(),
            "{name}: the second signal exits before the run is saved"
        );
    }
}

#[test]
fn signal_during_final_analysis_exits_immediately() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    let mut child = started(dir.path(), "run", &MANY_HEADS);
    while !run.join("summary.json").exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Once the summary exists, nothing can be lost.
    std::thread::sleep(Duration::from_millis(200));
    send(&child, "TERM");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", text(&ended.stderr));
    assert_eq!(summary(&run)["ended"], "completed");
    assert!(!run.join("report.html").exists() && run.join("model.safetensors").is_file());
    let plotted = program(dir.path()).args(["plot", "run"]).output().unwrap();
    assert!(plotted.status.success(), "{}", text(&plotted.stderr));
}

#[test]
fn interrupted_validations_are_repeated() {
    let dir = TempDir::new().unwrap();
    // The only validation takes seconds, the steps almost no time.
    let sets = ["training.steps=2", "data.valid_samples=20000", "analysis.snapshots=0", "analysis.every=0"];
    let sets = [&sets[..], &["model.d_model=64", "model.layers=4"]].concat();
    let uninterrupted = small_run(dir.path(), &sets, "uninterrupted");
    let run = dir.path().join("run");
    let child = started(dir.path(), "run", &sets);
    while !fs::read_to_string(run.join("metrics.csv")).is_ok_and(|rows| rows.contains(",train,")) {
        std::thread::sleep(Duration::from_millis(1));
    }
    send(&child, "INT");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    assert_eq!(summary(&run)["ended"], "interrupted");
    let resumed = resume(dir.path(), "run").output().unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert_same_result(&run, &uninterrupted);
}

#[test]
fn resuming_removes_the_old_summary() {
    let dir = TempDir::new().unwrap();
    let sets = ["training.max_minutes=1e-9", "training.steps=50", "training.validate_every=100"];
    let run = small_run(dir.path(), &sets, "run");
    assert_eq!(summary(&run)["ended"], "time_limit");
    let mut command = resume(dir.path(), "run");
    for set in ENDLESS.iter().chain(&["training.max_minutes=0"]) {
        command.args(["--set", set]);
    }
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while run.join("summary.json").exists() && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "the run was killed while training");
    assert!(!run.join("summary.json").exists());
}
