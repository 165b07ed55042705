//! Runs that are killed, interrupted or damaged end as if nothing had happened.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{SMALL, program, rows, small_run, text, train};

/// A run long enough to be killed in the middle, dropout on.
const LONG: [&str; 5] = [
    "training.steps=260",
    "training.validate_every=40",
    "training.checkpoint_every=15",
    "training.accumulate=2",
    "model.dropout=0.2",
];

fn long_run(folder: &Path, name: &str) -> PathBuf {
    small_run(folder, &LONG, name)
}

fn resume(folder: &Path, run: &str) -> Command {
    let mut command = program(folder);
    command.args(["train", "--backend", "ndarray", "--resume", run]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn assert_same_end(run: &Path, undisturbed: &Path) {
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(weights(run) == weights(undisturbed), "the weights agree byte for byte");
    assert_eq!(rows(run), rows(undisturbed));
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["ended"], "completed");
}

/// Moments in milliseconds, drawn once (the fraction of multiples of the golden ratio).
fn moments(count: usize) -> impl Iterator<Item = u64> {
    (1..=count).map(|index| 40 + ((index as f64 * 0.618_033_988_75).fract() * 360.0) as u64)
}

#[test]
fn a_run_killed_at_twenty_moments_ends_as_the_undisturbed_one() {
    let place = TempDir::new().unwrap();
    let undisturbed = long_run(place.path(), "undisturbed");
    let run = place.path().join("killed");
    let start = || {
        let mut command = program(place.path());
        command.args(["train", "--backend", "ndarray", "--run", "killed"]);
        for set in SMALL.iter().chain(&LONG) {
            command.args(["--set", set]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    for moment in moments(20) {
        let mut command = if run.exists() { resume(place.path(), "killed") } else { start() };
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(moment));
        let _ = child.kill();
        child.wait().unwrap();
        let leftovers = fs::read_dir(place.path()).unwrap().filter_map(Result::ok);
        let visible = leftovers.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count();
        assert!(visible <= 2, "a kill leaves nothing, or a run");
    }
    let end = resume(place.path(), "killed").output().unwrap();
    assert!(end.status.success() || text(&end.stderr).contains("is complete"), "{}", text(&end.stderr));
    assert_same_end(&run, &undisturbed);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_saves_draws_and_goes_on() {
    let place = TempDir::new().unwrap();
    let undisturbed = long_run(place.path(), "undisturbed");
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let name = format!("stopped-by-{signal}");
        let mut command = program(place.path());
        command.args(["train", "--backend", "ndarray", "--run", &name]);
        for set in SMALL.iter().chain(&LONG) {
            command.args(["--set", set]);
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let run = place.path().join(&name);
        while !run.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(150));
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.code(), Some(code));
        assert!(run.join("plots/loss.png").is_file(), "the pictures are drawn");
        let summary: serde_json::Value =
            serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
        assert_eq!(summary["ended"], "interrupted");
        let end = resume(place.path(), &name).output().unwrap();
        assert!(end.status.success(), "{}", text(&end.stderr));
        assert_same_end(&run, &undisturbed);
    }
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_used() {
    let place = TempDir::new().unwrap();
    let undisturbed = long_run(place.path(), "undisturbed");
    let sets = [&LONG[..], &["training.max_minutes=0.003"]].concat();
    let run = small_run(place.path(), &sets, "damaged");
    let mut checkpoints =
        fs::read_dir(run.join("checkpoints")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    checkpoints.sort();
    let newest = checkpoints.last().unwrap().join("model.safetensors");
    let bytes = fs::read(&newest).unwrap();
    fs::write(&newest, &bytes[..bytes.len() / 2]).unwrap();

    let end = resume(place.path(), "damaged").args(["--set", "training.max_minutes=0"]).output().unwrap();
    let said = text(&end.stderr);
    assert!(end.status.success(), "{said}");
    let named = newest.strip_prefix(place.path()).unwrap().to_string_lossy().into_owned();
    assert!(said.contains(&named), "the damaged file is named: {said}");
    assert_same_end(&run, &undisturbed);

    for checkpoint in fs::read_dir(run.join("checkpoints")).unwrap() {
        fs::write(checkpoint.unwrap().path().join("state.json"), "{}").unwrap();
    }
    let refused = resume(place.path(), "damaged").args(["--set", "training.steps=300"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("damaged"), "{}", text(&refused.stderr));
}

#[test]
fn a_run_that_cannot_go_on_is_refused_and_not_touched() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=6"], "run");
    let before = fs::read(run.join("metrics.csv")).unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&[], "is complete"),
        (&["--set", "model.d_model=32"], "`model.d_model` = 32"),
        (&["--set", "data.task=random"], "`data.task`"),
        (&["--set", "run.seed=7"], "`run.seed` = 7"),
    ];
    for (arguments, part) in cases {
        let refused = resume(place.path(), "run").args(arguments).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(fs::read(run.join("metrics.csv")).unwrap(), before);

    let longer = resume(place.path(), "run").args(["--set", "training.steps=9"]).output().unwrap();
    assert!(longer.status.success(), "{}", text(&longer.stderr));
    assert!(
        fs::read_to_string(run.join("config.toml")).unwrap().contains("steps = 9"),
        "the change is recorded"
    );
    assert!(train(place.path(), &SMALL, &["--run", "run"]).status.code() == Some(2), "the folder is taken");
}

#[test]
fn early_stopping_and_accumulation_do_what_they_say() {
    let place = TempDir::new().unwrap();
    let sets =
        ["training.steps=400", "training.validate_every=5", "training.patience=2", "training.min_delta=10"];
    let run = small_run(place.path(), &sets, "early");
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["ended"], "early_stopped");
    assert_eq!(summary["steps"], 15, "the first validation is the best, and two more do not improve on it");

    let whole = small_run(place.path(), &["training.steps=12", "training.batch_size=32"], "whole");
    let parts = small_run(place.path(), &["training.steps=12", "training.accumulate=4"], "parts");
    let losses = |run: &Path| {
        let rows = rows(run).into_iter().filter(|row| row.contains(",train,"));
        rows.map(|row| row.split(',').nth(3).unwrap().parse::<f64>().unwrap()).collect::<Vec<_>>()
    };
    for (whole, parts) in losses(&whole).into_iter().zip(losses(&parts)) {
        assert!((whole - parts).abs() < 1e-5 * whole, "{whole} and {parts}");
    }
}

#[test]
fn a_run_does_not_go_on_with_other_data() {
    let place = TempDir::new().unwrap();
    let text_file = place.path().join("words.txt");
    fs::write(&text_file, "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let sets =
        ["data.source=text", "data.path=words.txt", "training.steps=400", "training.max_minutes=0.002"];
    let run = small_run(place.path(), &sets, "run");
    let before = fs::read(run.join("metrics.csv")).unwrap();
    let refuses = |part: &str| {
        let refused = resume(place.path(), "run").output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
        assert_eq!(fs::read(run.join("metrics.csv")).unwrap(), before);
    };
    fs::write(&text_file, "to be or not to be, that is his question. ".repeat(40)).unwrap();
    refuses("changed");
    fs::remove_file(&text_file).unwrap();
    refuses("words.txt");
}

#[test]
fn any_number_of_threads_trains_the_same_weights() {
    let place = TempDir::new().unwrap();
    let run = |threads: usize| {
        let threads = format!("training.threads={threads}");
        let larger = ["model.d_model=64", "data.length=40", "model.dropout=0.2", "training.steps=7"];
        small_run(place.path(), &[&larger[..], &[threads.as_str()]].concat(), &threads[9..])
    };
    let one = run(1);
    for threads in [2, 3] {
        assert_same_end(&run(threads), &one);
    }
}

/// A small disk of its own, gone with the value; none where this user may not mount one.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    pub fn new(size: &str) -> Option<Self> {
        let place = TempDir::new().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(place.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(place))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_disk_that_fills_up_is_one_line_and_the_run_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::new("4m") else {
        eprintln!("notice: no disk was filled up, for a small one cannot be mounted");
        return;
    };
    let undisturbed = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.steps=40", "training.checkpoint_every=10"]].concat();
    assert!(train(undisturbed.path(), &sets, &["--run", "run"]).status.success());

    // Room for the folder and its first checkpoint, not for what comes.
    let filler = disk.0.path().join("filler");
    fs::write(&filler, vec![1; (4 << 20) - (200 << 10)]).unwrap();
    let output = train(disk.0.path(), &sets, &["--run", "run"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("cannot write `") && said.contains("No space left"), "{said}");

    fs::remove_file(filler).unwrap();
    let output = train(disk.0.path(), &[], &["--resume", "run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let weights = |place: &Path| fs::read(place.join("run/model.safetensors")).unwrap();
    assert!(weights(disk.0.path()) == weights(undisturbed.path()), "as if it had never been full");
}
