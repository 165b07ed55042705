//! Runs that several workers share through MPI: the results are byte-identical for any number of workers, even if the
//! run loses a worker and is resumed.
//!
//! Skipped with a notice if the program is built without the feature `mpi`, or if `mpirun` is missing; `REQUIRED_MPI`
//! turns the notice into a failure.
#![cfg(unix)]

mod lost;
mod refused;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::{SMALL, assert_same_result, program, rows, set_keys, summary, text};

/// Eight shards of one sequence, with two gradient accumulation steps.
const SHARDS: [&str; 10] = [
    "training.backend=\"ndarray\"",
    "training.shards=8",
    "training.accumulate=2",
    "training.max_gradient_norm=0.1",
    "training.validate_every=50",
    "training.checkpoint_every=25",
    "model.dropout=0.1",
    "analysis.circuit=false",
    "analysis.every=0",
    "analysis.snapshots=0",
];

/// Returns true if workers can be started on this machine.
fn can_start() -> bool {
    let has_mpirun =
        Command::new("mpirun").arg("--version").output().is_ok_and(|output| output.status.success());
    let can = cfg!(feature = "mpi") && has_mpirun;
    assert!(
        can || std::env::var_os("REQUIRED_MPI").is_none(),
        "REQUIRED_MPI is set, but mpirun or the feature `mpi` is missing"
    );
    if !can {
        eprintln!("notice: workers are not tested, because mpirun or the feature `mpi` is missing");
    }
    can
}

/// `mpirun` as continuous integration needs it: as root, with more workers than cores.
fn mpirun(folder: &Path) -> Command {
    let mut command = Command::new("mpirun");
    // Suppresses the messages of `mpirun` itself.
    command.args(["-q", "--oversubscribe", "--bind-to", "none"]).current_dir(folder);
    // GPU drivers print an error if this variable is unset.
    command.env("XDG_RUNTIME_DIR", folder);
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn workers(folder: &Path, count: usize, arguments: &[&str]) -> Command {
    let mut command = mpirun(folder);
    command.args(["-n", &count.to_string(), env!("CARGO_BIN_EXE_causal-attention")]).args(arguments);
    command
}

/// `train` with these keys on `count` workers; a single worker runs without `mpirun`.
fn train(folder: &Path, count: usize, name: &str, sets: &[&str]) -> Command {
    let train = ["train", "--progress", "none", "--run", name];
    let mut command = match count {
        1 => {
            let mut command = program(folder);
            command.args(train).stdout(Stdio::null()).stderr(Stdio::piped());
            command
        }
        _ => workers(folder, count, &train),
    };
    set_keys(&mut command, SMALL.iter().chain(&SHARDS).chain(sets));
    command
}

fn succeeds(mut command: Command) -> Output {
    let output = command.output().expect("cannot start the program");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

/// Returns the error lines of the program, without the messages of `mpirun`.
fn errors_of(output: &Output) -> Vec<String> {
    text(&output.stderr).lines().filter(|line| line.starts_with("error")).map(str::to_string).collect()
}

#[test]
fn any_number_of_workers_trains_identical_weights() {
    if !can_start() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let backends = [("ndarray", cfg!(feature = "ndarray")), ("flex", cfg!(feature = "flex"))];
    for (backend, _) in backends.into_iter().filter(|(_, is_compiled)| *is_compiled) {
        let run = |count: usize| {
            let (name, backend) = (format!("{backend}-{count}"), format!("training.backend=\"{backend}\""));
            succeeds(train(dir.path(), count, &name, &["training.steps=50", &backend]));
            dir.path().join(name)
        };
        let alone = run(1);
        for count in [2, 4, 8] {
            let shared = run(count);
            assert_same_result(&shared, &alone);
            let hash = |run: &Path| summary(run)["weights_sha256"].clone();
            assert_eq!(hash(&shared), hash(&alone), "{backend}, {count} workers");
            assert_eq!(summary(&shared)["workers"], count);
        }
    }
}

#[test]
fn a_single_shard_changes_nothing_but_several_do() {
    let dir = TempDir::new().unwrap();
    let run = |name: &str, sets: &[&str]| {
        let sets = [&SMALL[..], &["training.steps=12", "model.dropout=0.1", "analysis.circuit=false"], sets]
            .concat();
        assert!(crate::train(dir.path(), &sets, &["--run", name]).status.success());
        let run = dir.path().join(name);
        (rows(&run), fs::read(run.join("model.safetensors")).unwrap())
    };
    let plain = run("plain", &[]);
    assert!(plain == run("one", &["training.shards=1"]));
    let four = ["training.shards=4", "training.validate_every=4", "training.kernels=fused"];
    let alone = run("alone", &[&four[..], &["training.threads=1"]].concat());
    assert!(plain.1 != alone.1, "each shard draws its own dropout");
    // Two shards at a time, four at a time, and two with three threads each.
    for threads in ["training.threads=2", "training.threads=4", "training.threads=6"] {
        assert!(alone == run(&threads[9..], &[&four[..], &[threads]].concat()), "{threads}");
    }
    // A validation set that the batch size does not divide, and an epoch whose last batch is smaller than a shard.
    let uneven =
        ["data.train_samples=65", "data.valid_samples=21", "model.dropout=0", "training.accumulate=3"];
    let losses = |rows: &[String]| -> Vec<f64> {
        rows.iter().map(|row| row.split(',').nth(3).unwrap().parse().unwrap()).collect()
    };
    let unsharded = losses(&run("unsharded", &uneven).0);
    let sharded = losses(&run("sharded", &[&uneven[..], &["training.shards=8"]].concat()).0);
    assert_eq!(unsharded.len(), sharded.len());
    for (unsharded, sharded) in unsharded.iter().zip(&sharded) {
        assert!(
            (unsharded - sharded).abs() < 1e-4,
            "without dropout, shards only change the order of the sums: {unsharded}, {sharded}"
        );
    }
}

#[test]
fn only_one_worker_prints() {
    if !can_start() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mut shared = workers(dir.path(), 2, &["train", "--progress", "plain", "--run", "run"]);
    set_keys(&mut shared, SMALL.iter().chain(&SHARDS).chain(&["training.steps=6"]));
    let stdout = text(&succeeds(shared).stdout);
    assert_eq!(stdout.matches("step 6/6").count(), 1, "{stdout}");
    for command in [&["evaluate", "run"][..], &["data", "--json"], &["--version"], &["train", "--help"]] {
        let mut alone = program(dir.path());
        alone.args(command);
        assert_eq!(
            text(&succeeds(workers(dir.path(), 3, command)).stdout),
            text(&succeeds(alone).stdout),
            "{command:?}"
        );
    }
}

#[test]
fn workers_of_a_study_make_the_same_table() {
    if !can_start() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let small = SMALL.map(|set| set.replacen('=', " = ", 1));
    let mut sections = std::collections::BTreeMap::<&str, Vec<&str>>::new();
    for set in &small {
        let (section, key) = set.split_once('.').unwrap();
        sections.entry(section).or_default().push(key);
    }
    let mut config = String::new();
    for (section, keys) in sections {
        config += &format!("[{section}]\n{}\n", keys.join("\n").replace("= learned", "= \"learned\""));
        config += if section == "training" { "steps = 40\n" } else { "" };
    }
    config += "[tune]\ntrials = 5\noverfit_check = false\n[tune.search]\n";
    config += "\"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n";
    config += "\"model.d_model\" = [16, 7]\n";
    fs::write(dir.path().join("study.toml"), config).unwrap();
    let tune = ["tune", "study.toml", "--progress", "none", "--run"];
    let mut alone = program(dir.path());
    alone.args(tune).arg("alone");
    succeeds(alone);
    succeeds(workers(dir.path(), 3, &[&tune[..], &["shared"]].concat()));
    let table = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(dir.path().join(name).join("study.csv")).unwrap();
        // The last column is the time.
        text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_string()).collect()
    };
    assert_eq!(table("shared"), table("alone"));
    let output = succeeds(workers(dir.path(), 2, &["tune", "--resume", "shared"]));
    assert_eq!(output.status.code(), Some(0), "the results of a complete study are printed again");
    let mut refused = workers(dir.path(), 2, &[&tune[..], &["more", "--jobs", "3"]].concat());
    let output = refused.output().unwrap();
    assert!(
        text(&output.stderr).contains("--jobs 3: mpirun started only 2 workers"),
        "{}",
        text(&output.stderr)
    );
    assert!(!dir.path().join("more").exists());
}

#[test]
fn two_software_gpu_workers_match_one() {
    let has_software_gpu = cfg!(feature = "wgpu")
        && text(&program(Path::new(".")).args(["backends", "--list"]).output().unwrap().stdout)
            .contains("software");
    if !has_software_gpu || !can_start() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sets =
        ["training.steps=15", "training.shards=2", "training.accumulate=1", "training.backend=\"wgpu\""];
    let losses = |count: usize, name: &str| -> Vec<f64> {
        succeeds(train(dir.path(), count, name, &sets));
        let rows = rows(&dir.path().join(name));
        rows.iter().map(|row| row.split(',').nth(3).unwrap().parse().unwrap()).collect()
    };
    let (alone, shared) = (losses(1, "alone"), losses(2, "shared"));
    assert_eq!(alone.len(), shared.len());
    for (alone, shared) in alone.iter().zip(&shared) {
        assert!((alone - shared).abs() < 1e-3, "{alone} and {shared}");
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn builds_without_mpi_name_the_missing_feature() {
    let dir = TempDir::new().unwrap();
    let started = |rank: &str| {
        let mut command = program(dir.path());
        command.env("OMPI_COMM_WORLD_RANK", rank).env("OMPI_COMM_WORLD_SIZE", "4");
        let output = command.args(["train", "--set", "training.steps=1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        text(&output.stderr)
    };
    // The variables may be stale, with no process of another rank.
    for rank in ["0", "3"] {
        let stderr = started(rank);
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains("4 times (OMPI_COMM_WORLD_RANK is set)"), "{stderr}");
        assert!(stderr.contains("--features mpi"), "{stderr}");
    }
}
