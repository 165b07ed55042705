//! Several workers share one run by MPI: the same bytes on any number of them, whatever becomes of one.
//!
//! Skipped with a notice where the program is built without the feature `mpi` or `mpirun` is missing;
//! `REQUIRED_MPI` makes that a failure.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use super::{SMALL, assert_same_end, program, rows, summary, text};

/// Eight shards of one sequence, twice a step.
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

/// Whether workers can be started here.
fn can_start() -> bool {
    let has_mpirun =
        Command::new("mpirun").arg("--version").output().is_ok_and(|output| output.status.success());
    let can = cfg!(feature = "mpi") && has_mpirun;
    assert!(
        can || std::env::var_os("REQUIRED_MPI").is_none(),
        "mpirun and the feature mpi are required here"
    );
    if !can {
        eprintln!("notice: no mpirun, or no feature `mpi`: nothing runs on several workers");
    }
    can
}

/// `mpirun` as continuous integration needs it: as root, with more workers than cores.
fn mpirun(folder: &Path) -> Command {
    let mut command = Command::new("mpirun");
    // Quiet: what it says itself is not what is tested.
    command.args(["-q", "--oversubscribe", "--bind-to", "none"]).current_dir(folder);
    // Without one, the drivers of a GPU say an error of their own.
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

/// `train` with these keys, on workers; of one without `mpirun`.
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
    for set in SMALL.iter().chain(&SHARDS).chain(sets) {
        command.args(["--set", set]);
    }
    command
}

fn done(mut command: Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

/// The process of the worker of this number that `mpirun` started, once it is there.
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
        assert!(begun.elapsed() < Duration::from_secs(30), "worker {rank} of {id} is not there: {children}");
    }
}

fn send(signal: &str, process: &str) {
    Command::new("kill").args([signal, process]).stderr(Stdio::null()).status().unwrap();
}

fn wait_for_rows(run: &Path, bytes: u64) {
    let begun = Instant::now();
    while fs::metadata(run.join("metrics.csv")).map_or(0, |file| file.len()) < bytes {
        assert!(begun.elapsed() < Duration::from_secs(120), "`{}` writes no rows", run.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The words that are left after those of `mpirun` itself.
fn said(output: &Output) -> Vec<String> {
    text(&output.stderr).lines().filter(|line| line.starts_with("error")).map(str::to_string).collect()
}

#[test]
fn any_number_of_workers_makes_the_same_bytes() {
    if !can_start() {
        return;
    }
    let place = TempDir::new().unwrap();
    let backends = [("ndarray", cfg!(feature = "ndarray")), ("flex", cfg!(feature = "flex"))];
    for (backend, _) in backends.into_iter().filter(|(_, is_compiled)| *is_compiled) {
        let run = |count: usize| {
            let (name, backend) = (format!("{backend}-{count}"), format!("training.backend=\"{backend}\""));
            done(train(place.path(), count, &name, &["training.steps=500", &backend]));
            place.path().join(name)
        };
        let alone = run(1);
        for count in [2, 4, 8] {
            let shared = run(count);
            assert_same_end(&shared, &alone);
            let held = |run: &Path| summary(run)["weights_sha256"].clone();
            assert_eq!(held(&shared), held(&alone), "{backend}, {count} workers");
            assert_eq!(summary(&shared)["workers"], count);
        }
    }
}

#[test]
fn a_run_that_loses_workers_goes_on_with_any_other_number_to_the_same_bytes() {
    if !can_start() {
        return;
    }
    let place = TempDir::new().unwrap();
    let sets = ["training.steps=1500"];
    done(train(place.path(), 1, "undisturbed", &sets));
    let run = place.path().join("run");
    for kill in 1..=20_u32 {
        // Moments and workers drawn once: the fractions of multiples of the golden ratio.
        let part = (f64::from(kill) * 0.618_033_988_75).fract();
        let count = [2, 8, 4][kill as usize % 3];
        let victim = (part * count as f64) as usize;
        let mut command = match run.exists() {
            false => train(place.path(), count, "run", &sets),
            true => workers(place.path(), count, &["train", "--progress", "none", "--resume", "run"]),
        };
        let before = fs::metadata(run.join("metrics.csv")).map_or(0, |file| file.len());
        let child = command.spawn().unwrap();
        let process = worker(&child, victim);
        match kill % 4 {
            0 => std::thread::sleep(Duration::from_secs_f64(part)),
            _ => wait_for_rows(&run, before + 1 + (part * 300.0) as u64),
        }
        let killed = Instant::now();
        send("-KILL", &process);
        let output = child.wait_with_output().unwrap();
        assert!(killed.elapsed() < Duration::from_secs(10), "all end soon after one");
        assert!(!output.status.success(), "kill {kill}: {}", text(&output.stderr));
        if kill % 4 != 0 {
            let [said] = &said(&output)[..] else { panic!("kill {kill}: {}", text(&output.stderr)) };
            assert!(said.starts_with(&format!("error: worker {victim} on ")), "{said}");
            assert!(
                said.contains(&format!("(process {process}) has died")) && said.contains("--resume"),
                "{said}"
            );
        }
    }
    let is_left = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    // What a worker was killed in before it took it is removed once it is a minute old.
    for entry in fs::read_dir(place.path()).unwrap().flatten().filter(is_left) {
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        fs::File::open(entry.path()).unwrap().set_modified(an_hour_ago).unwrap();
    }
    for count in [1, 4] {
        let step = if count == 1 { "1450" } else { "1500" };
        let resume = ["train", "--progress", "none", "--resume", "run", "--until", step];
        done(match count {
            1 => {
                let mut command = program(place.path());
                command.args(resume);
                command
            }
            _ => workers(place.path(), count, &resume),
        });
        let beside = fs::read_dir(place.path()).unwrap().flatten();
        assert_eq!(beside.filter(is_left).count(), 0, "nothing hidden is left beside the run");
    }
    assert_same_end(&run, &place.path().join("undisturbed"));
    assert!(!fs::read_dir(&run).unwrap().flatten().any(|entry| is_left(&entry)), "nor in it");
}

#[test]
fn a_signal_to_one_worker_has_all_save_and_one_that_hangs_is_named() {
    if !can_start() {
        return;
    }
    let place = TempDir::new().unwrap();
    let run = place.path().join("run");
    let sets =
        ["training.steps=100000", "training.validate_every=100000", "training.checkpoint_every=100000"];
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let command = match run.exists() {
            false => train(place.path(), 2, "run", &sets),
            true => workers(place.path(), 2, &["train", "--progress", "none", "--resume", "run"]),
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
    let child = workers(place.path(), 4, &resume).spawn().unwrap();
    let process = worker(&child, 2);
    wait_for_rows(&run, before + 200);
    send("-STOP", &process);
    let output = child.wait_with_output().unwrap();
    let [said] = &said(&output)[..] else { panic!("{}", text(&output.stderr)) };
    assert!(said.starts_with("error: worker 2 on ") && said.contains("has not answered for 2 s"), "{said}");
    assert!(said.contains("training.worker_timeout") && said.contains("--resume run"), "{said}");
}

#[test]
fn what_workers_cannot_share_is_refused_in_one_line_and_nothing_is_made() {
    if !can_start() {
        return;
    }
    let place = TempDir::new().unwrap();
    fs::create_dir(place.path().join("made")).unwrap();
    let made = place.path().join("made");
    let refused = |mut command: Command, parts: &[&str]| {
        let output = command.current_dir(&made).output().unwrap();
        let [said] = &said(&output)[..] else { panic!("{command:?}: {}", text(&output.stderr)) };
        assert_eq!(output.status.code(), Some(2), "{said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{part:?} should be in {said}"));
        let left = fs::read_dir(&made).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
        assert!(left.is_empty(), "{command:?} leaves {left:?}");
    };
    let set = |count: usize, sets: &[&str]| {
        train(place.path(), count, "run", &[&["training.steps=5"], sets].concat())
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
    refused(workers(place.path(), 3, &odd), &["`training.shards` = 3", "power of two"]);

    // Two programs side by side, of which the second is another one, reads another config, or has another disk.
    let binary = env!("CARGO_BIN_EXE_causal-attention");
    let other = place.path().join("other");
    let build = [fs::read(binary).unwrap(), b"another build".to_vec()].concat();
    fs::write(&other, build).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let both = |second: &[&str], sets: &[&str]| {
        let mut command = mpirun(&made);
        let common = ["train", "--progress", "none", "--run", "run", "--set", "training.steps=5"];
        let small = SMALL.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>();
        command.args(["-n", "1", binary]).args(common).args(&small).args([":", "-n", "1"]);
        command.args(second).args(common).args(&small);
        for set in sets {
            command.args(["--set", set]);
        }
        command
    };
    let path = other.to_str().unwrap();
    refused(both(&[path], &[]), &["worker 1 on ", "is another build of this program than worker 0"]);
    let lines = ["worker 1 on ", "reads `seed = 5` where worker 0", "reads `seed = 0`"];
    refused(both(&[binary], &["run.seed=5"]), &lines);
    if can_hide_folders() {
        let hidden =
            format!("mount -t tmpfs none '{}' && cd '{}' && exec \"$@\"", made.display(), made.display());
        let second = ["unshare", "-m", "sh", "-c", &hidden, "sh", binary];
        refused(both(&second, &[]), &["worker 1 on ", "does not see what worker 0", "--run DIR"]);
    }

    // A run goes on with a number of workers that divides its shards only.
    let name = place.path().join("two");
    done(train(place.path(), 2, name.to_str().unwrap(), &["training.steps=5", "training.shards=2"]));
    let before = fs::read(name.join("summary.json")).unwrap();
    let resume = ["train", "--resume", name.to_str().unwrap(), "--set", "training.steps=9"];
    refused(workers(place.path(), 4, &resume), &["`training.shards` = 2", "4 workers"]);
    assert_eq!(fs::read(name.join("summary.json")).unwrap(), before);
}

/// Whether file systems can be hidden from a process here.
fn can_hide_folders() -> bool {
    let mounts = Command::new("unshare").args(["-m", "true"]).output();
    mounts.is_ok_and(|output| output.status.success())
}

#[test]
fn shards_change_the_result_and_one_changes_nothing() {
    let place = TempDir::new().unwrap();
    let run = |name: &str, sets: &[&str]| {
        let sets = [&SMALL[..], &["training.steps=12", "model.dropout=0.1", "analysis.circuit=false"], sets]
            .concat();
        assert!(super::train(place.path(), &sets, &["--run", name]).status.success());
        let run = place.path().join(name);
        (rows(&run), fs::read(run.join("model.safetensors")).unwrap())
    };
    let plain = run("plain", &[]);
    assert!(plain == run("one", &["training.shards=1"]));
    let four = ["training.shards=4", "training.validate_every=4", "training.kernels=fused"];
    let alone = run("alone", &[&four[..], &["training.threads=1"]].concat());
    assert!(plain.1 != alone.1, "dropout is drawn for each shard");
    // One after another, two at once, four at once, two of three threads.
    for threads in ["training.threads=2", "training.threads=4", "training.threads=6"] {
        assert!(alone == run(&threads[9..], &[&four[..], &[threads]].concat()), "{threads}");
    }
    // A validation set that the batch does not divide, an epoch whose last batch is smaller than a shard's share.
    let uneven =
        ["data.train_samples=65", "data.valid_samples=21", "model.dropout=0", "training.accumulate=3"];
    let losses = |rows: &[String]| -> Vec<f64> {
        rows.iter().map(|row| row.split(',').nth(3).unwrap().parse().unwrap()).collect()
    };
    let whole = losses(&run("whole", &uneven).0);
    let cut = losses(&run("cut", &[&uneven[..], &["training.shards=8"]].concat()).0);
    assert_eq!(whole.len(), cut.len());
    for (whole, cut) in whole.iter().zip(&cut) {
        assert!(
            (whole - cut).abs() < 1e-4,
            "without dropout shards are another order of the same sums: {whole}, {cut}"
        );
    }
}

#[test]
fn one_worker_speaks_for_all() {
    if !can_start() {
        return;
    }
    let place = TempDir::new().unwrap();
    let mut shared = workers(place.path(), 2, &["train", "--progress", "plain", "--run", "run"]);
    for set in SMALL.iter().chain(&SHARDS).chain(&["training.steps=6"]) {
        shared.args(["--set", set]);
    }
    let said = text(&done(shared).stdout);
    assert_eq!(said.matches("step 6/6").count(), 1, "{said}");
    for command in [&["evaluate", "run"][..], &["data", "--json"], &["--version"], &["train", "--help"]] {
        let mut alone = program(place.path());
        alone.args(command);
        assert_eq!(
            text(&done(workers(place.path(), 3, command)).stdout),
            text(&done(alone).stdout),
            "{command:?}"
        );
    }
}

#[test]
fn workers_of_a_study_make_the_same_table() {
    if !can_start() {
        return;
    }
    let place = TempDir::new().unwrap();
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
    config += "[analysis]\ncircuit = false\n[tune]\ntrials = 5\noverfit_check = false\n[tune.search]\n";
    config += "\"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n";
    config += "\"model.d_model\" = [16, 7]\n";
    fs::write(place.path().join("study.toml"), config).unwrap();
    let tune = ["tune", "study.toml", "--progress", "none", "--run"];
    let mut alone = program(place.path());
    alone.args(tune).arg("alone");
    done(alone);
    done(workers(place.path(), 3, &[&tune[..], &["shared"]].concat()));
    let table = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(place.path().join(name).join("study.csv")).unwrap();
        // The last column tells the time.
        text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_string()).collect()
    };
    assert_eq!(table("shared"), table("alone"));
    let said = done(workers(place.path(), 2, &["tune", "--resume", "shared"]));
    assert_eq!(said.status.code(), Some(0), "a study that is complete is shown once more");
    let mut refused = workers(place.path(), 2, &[&tune[..], &["more", "--jobs", "3"]].concat());
    let output = refused.output().unwrap();
    assert!(text(&output.stderr).contains("--jobs 3: mpirun started 2 workers"), "{}", text(&output.stderr));
    assert!(!place.path().join("more").exists());
}

#[test]
fn two_workers_on_the_software_device_agree_with_one() {
    let is_there = cfg!(feature = "wgpu")
        && text(&program(Path::new(".")).args(["backends", "--list"]).output().unwrap().stdout)
            .contains("software");
    if !is_there || !can_start() {
        return;
    }
    let place = TempDir::new().unwrap();
    let sets =
        ["training.steps=50", "training.shards=2", "training.accumulate=1", "training.backend=\"wgpu\""];
    let losses = |count: usize, name: &str| -> Vec<f64> {
        done(train(place.path(), count, name, &sets));
        let rows = rows(&place.path().join(name));
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
fn each_process_without_mpi_says_how_to_get_it() {
    let place = TempDir::new().unwrap();
    let started = |rank: &str| {
        let mut command = program(place.path());
        command.env("OMPI_COMM_WORLD_RANK", rank).env("OMPI_COMM_WORLD_SIZE", "4");
        let output = command.args(["train", "--set", "training.steps=1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        text(&output.stderr)
    };
    // The variables may be left over, where there is no process of another number.
    for rank in ["0", "3"] {
        let said = started(rank);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("4 times, as OMPI_COMM_WORLD_RANK says"), "{said}");
        assert!(said.contains("--features mpi"), "{said}");
    }
}
