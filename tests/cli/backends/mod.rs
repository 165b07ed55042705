//! The same model on every backend: selected by name, with the same results.
//!
//! CPU backends are tested if they are compiled in. wgpu is tested on Mesa's software device if that is installed, and
//! otherwise skipped with a notice.

mod devices;

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{program, rows, set_keys, text};

/// A run whose steps can all be compared. A step takes a third of a second on a software device.
const STEPS: [&str; 15] = [
    "data.vocab=11",
    "data.length=13",
    "data.train_samples=64",
    "data.valid_samples=32",
    "data.period=[3, 5]",
    "model.d_model=16",
    "model.heads=2",
    "training.batch_size=16",
    "training.steps=20",
    "training.log_every=1",
    "training.validate_every=10",
    "training.checkpoint_every=10",
    "analysis.every=0",
    "analysis.snapshots=0",
    // The search for a circuit takes minutes on a software device.
    "analysis.circuit=false",
];

fn run(folder: &Path, arguments: &[&str], sets: &[&str]) -> Output {
    let mut command = program(folder);
    command.args(arguments);
    set_keys(&mut command, sets).output().expect("cannot start the program")
}

fn succeeds(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn train(folder: &Path, name: &str, backend: &str, sets: &[&str]) {
    let sets = [&STEPS[..], sets].concat();
    succeeds(run(folder, &["train", "--run", name, "--backend", backend], &sets));
}

/// Trains a run for one step, after which it pauses.
fn train_one_step(folder: &Path, name: &str, backend: &str, sets: &[&str]) {
    let sets = [&STEPS[..], sets].concat();
    succeeds(run(folder, &["train", "--run", name, "--backend", backend, "--until", "1"], &sets));
}

/// Returns the losses in a run's metrics, in order.
fn losses(run: &Path) -> Vec<f64> {
    let mut reader = csv::Reader::from_path(run.join("metrics.csv")).unwrap();
    let loss = reader.headers().unwrap().iter().position(|name| name == "loss").unwrap();
    reader.records().map(|row| row.unwrap()[loss].parse().unwrap()).collect()
}

fn assert_near(run: &Path, other: &Path, limit: f64) {
    let (losses, others) = (losses(run), losses(other));
    assert_eq!(losses.len(), others.len());
    for (row, (loss, other)) in losses.iter().zip(&others).enumerate() {
        assert!((loss - other).abs() <= limit * other.abs(), "row {row}: {loss}, not {other}");
    }
}

/// Returns the weights of a run by name, without the key biases. These shift all scores of a query equally, so their
/// true gradient is zero and the optimizer amplifies rounding errors.
fn weights(run: &Path) -> Vec<(String, Vec<f32>)> {
    let bytes = fs::read(run.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let numbers = |(name, tensor): (String, safetensors::tensor::TensorView<'_>)| {
        let of_bytes = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        let mut numbers = tensor.data().chunks(4).map(of_bytes).collect::<Vec<_>>();
        if name.ends_with("qkv.bias") {
            numbers.drain(numbers.len() / 3..numbers.len() / 3 * 2);
        }
        (name, numbers)
    };
    let mut tensors = file.tensors().into_iter().map(numbers).collect::<Vec<_>>();
    tensors.sort_by(|one, other| one.0.cmp(&other.0));
    tensors
}

/// Asserts that weights are equal within `limit`, relative to each tensor's largest weight.
fn assert_weights_near(run: &Path, other: &Path, limit: f32) {
    for ((name, found), (_, expected)) in weights(run).into_iter().zip(weights(other)) {
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = expected.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
        let differences = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs());
        let worst = differences.fold(0.0_f32, f32::max);
        assert!(worst <= limit * largest, "{name}: {worst} of {largest}");
    }
}

/// Asserts that a command was refused in one line, and returns the line.
fn refused(output: Output) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    // Ignores Mesa's own messages, and the warning about a software device.
    let ours = |line: &&str| !line.contains("XDG_RUNTIME_DIR") && !line.starts_with("warning: ");
    let lines = error.lines().filter(ours).collect::<Vec<_>>();
    assert_eq!(lines.len(), 1, "{error}");
    lines[0].to_string()
}

/// Returns the backends of this build, other than ndarray, that find a device.
fn others() -> Vec<&'static str> {
    let dir = TempDir::new().unwrap();
    let has = |name: &str| {
        let output = program(dir.path()).args(["backends", "--list", "--json", "--backend", name]).output();
        let list: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        !list[0]["devices"].as_array().unwrap().is_empty()
    };
    let compiled = [
        ("flex", cfg!(feature = "flex")),
        ("wgpu", cfg!(feature = "wgpu")),
        ("cuda", cfg!(feature = "cuda")),
    ];
    // The backends that continuous integration requires.
    let required = std::env::var("REQUIRED_BACKENDS").unwrap_or_default();
    let mut found = Vec::new();
    for (name, _) in compiled.into_iter().filter(|(_, compiled)| *compiled) {
        match has(name) {
            true => found.push(name),
            false if required.split(',').any(|required| required == name) => {
                panic!("REQUIRED_BACKENDS names {name}, but no device for it was found")
            }
            false => eprintln!("notice: {name} is not tested, because no device for it was found"),
        }
    }
    found
}

#[test]
fn every_backend_computes_correctly() {
    let dir = TempDir::new().unwrap();
    let list = succeeds(run(dir.path(), &["backends", "--json"], &[]));
    let list: Value = serde_json::from_str(&list).unwrap();
    let mut checked = 0;
    for backend in list.as_array().unwrap() {
        for device in backend["devices"].as_array().unwrap() {
            assert_eq!(device["check"]["right"], true, "{device}");
            // Deterministic parts agree far better than the dropout rate.
            let parts = device["check"]["parts"].as_array().unwrap();
            assert!(parts.iter().all(|part| part["what"] != "dropout"), "{device}");
            assert!(device["check"]["dropout"]["difference"].as_f64().unwrap() < 0.0102, "{device}");
            checked += 1;
        }
    }
    assert!(checked > others().len(), "ndarray is checked as well: {list}");
}

#[test]
fn every_architecture_trains_the_same_on_every_backend() {
    let dir = TempDir::new().unwrap();
    let architectures = [
        ("decoder", "repeat"),
        ("one_layer", "repeat"),
        // Covers a source, an answer and padding.
        ("encoder_decoder", "sort"),
    ];
    for (architecture, task) in architectures {
        let sets = [format!("model.architecture={architecture}"), format!("data.task={task}")];
        let sets = [&sets[0], &sets[1], "training.steps=10"];
        train(dir.path(), architecture, "ndarray", &sets);
        for backend in others() {
            let name = format!("{architecture}-{backend}");
            train(dir.path(), &name, backend, &sets);
            assert_near(&dir.path().join(name), &dir.path().join(architecture), 1e-3);
        }
    }
}

#[test]
fn runs_can_switch_backends() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    train(folder, "cpu", "ndarray", &[]);
    // A length that is not a multiple of the kernels' tile size.
    train(folder, "long", "ndarray", &["training.steps=2", "data.length=600"]);
    for backend in others() {
        // The schedule covers the entire run, whichever backend resumes it.
        train_one_step(folder, backend, backend, &[]);
        succeeds(run(folder, &["train", "--resume", backend, "--backend", "ndarray"], &[]));
        assert_near(&folder.join(backend), &folder.join("cpu"), 1e-3);
        // Computes every step on the other backend.
        let name = format!("only-{backend}");
        train(folder, &name, backend, &[]);
        assert_near(&folder.join(&name), &folder.join("cpu"), 1e-3);
        assert_weights_near(&folder.join(&name), &folder.join("cpu"), 1e-3);
        let evaluate = |name: &str, backend: &str| {
            let report = succeeds(run(folder, &["evaluate", name, "--json", "--backend", backend], &[]));
            serde_json::from_str::<Value>(&report).unwrap()["loss"].as_f64().unwrap()
        };
        let (expected, loss) = (evaluate("cpu", "ndarray"), evaluate("cpu", backend));
        assert!((expected - loss).abs() < 1e-4 * expected, "{loss}, not {expected}");
        let (expected, loss) = (evaluate("long", "ndarray"), evaluate("long", backend));
        assert!((expected - loss).abs() < 1e-5 * expected, "{loss}, not {expected}");
        let inspect = ["inspect", "cpu", "--tokens", "1 2 3 1", "--json", "--backend", backend];
        let view: Value = serde_json::from_str(&succeeds(run(folder, &inspect, &[]))).unwrap();
        assert_eq!(view["weights"][1][1][3].as_array().unwrap().len(), 4);
    }
}

#[test]
fn bf16_runs_are_inspected_in_bf16() {
    if !cfg!(feature = "ndarray") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    train(folder, "run", "ndarray", &["training.precision=bf16"]);
    let results = || {
        [&["score"][..], &["inspect", "--no-ablation"], &["generate", "--greedy", "--max-new", "1"]].map(
            |command| {
                let words =
                    [&command[..1], &["run", "--tokens", "1 2 3 1", "--json"], &command[1..]].concat();
                succeeds(run(folder, &words, &[]))
            },
        )
    };
    let rounded = results();
    let config = fs::read_to_string(folder.join("run/config.toml")).unwrap();
    fs::write(folder.join("run/config.toml"), config.replace("precision = \"bf16\"", "precision = \"f32\""))
        .unwrap();
    for (rounded, single) in rounded.iter().zip(results()) {
        assert_ne!(*rounded, single);
    }
}

#[test]
fn flex_resumes_bitwise_and_supports_f16() {
    if !cfg!(feature = "flex") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let dropout = "model.dropout=0.1";
    train(folder, "uninterrupted", "flex", &[dropout]);
    train_one_step(folder, "parts", "flex", &[dropout]);
    succeeds(run(folder, &["train", "--resume", "parts"], &[]));
    assert_eq!(rows(&folder.join("parts")), rows(&folder.join("uninterrupted")));
    let weights = |run: &str| fs::read(folder.join(run).join("model.safetensors")).unwrap();
    assert!(weights("parts") == weights("uninterrupted"));

    train(folder, "single", "flex", &[]);
    for precision in ["bf16", "f16"] {
        train(folder, precision, "flex", &[&format!("training.precision={precision}")]);
        let (half, single) = (folder.join(precision), folder.join("single"));
        assert_near(&half, &single, 2e-2);
        assert_ne!(losses(&half), losses(&single), "operands are rounded");
    }

    // Commands that only read the weights may run on a backend without their precision.
    let evaluate = ["evaluate", "f16", "--backend", "ndarray"];
    let output = run(folder, &evaluate, &[]);
    assert_eq!(text(&output.stderr).trim(), "notice: computed in f32, because ndarray does not support f16");
    succeeds(output);
    let stderr = refused(run(folder, &evaluate, &["training.precision=f16"]));
    assert!(
        stderr.starts_with("error: --set: `training.precision` = f16 is not supported by ndarray"),
        "{stderr}"
    );
    assert_eq!(text(&run(folder, &evaluate, &["training.precision=f32"]).stderr), "");
}

/// Returns the peak memory of a training process up to the first checkpoint after step 0, in bytes, and ends it. The
/// pictures at the end of a run would take more memory than its steps.
#[cfg(target_os = "linux")]
fn peak_memory_of_steps(mut command: std::process::Command, run: &Path) -> f64 {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let has_trained = || {
        let mut checkpoints = fs::read_dir(run.join("checkpoints")).into_iter().flatten();
        checkpoints.any(|checkpoint| checkpoint.unwrap().file_name() != "step-00000000")
    };
    let mut peak = 0.0_f64;
    while !has_trained() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended without a checkpoint");
        let status = fs::read_to_string(&status).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = resident.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        peak = peak.max(kilobytes.unwrap_or(0.0) * 1e3);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    peak
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_steps() {
    let dir = TempDir::new().unwrap();
    for backend in others().into_iter().filter(|&name| name != "flex") {
        let peak = |steps: usize, attempt: usize| {
            let mut command = program(dir.path());
            let name = format!("{backend}-{steps}-{attempt}");
            command.args(["train", "--run", &name, "--backend", backend, "--progress", "none"]);
            let steps = format!("training.steps={steps}");
            // Nothing is read back before the end, so the program runs as far ahead of the GPU as it can.
            let ahead = ["log_every", "validate_every", "checkpoint_every"];
            let ahead = ahead.map(|key| format!("training.{key}=1000"));
            let ahead = ahead.iter().map(String::as_str);
            let sets = Vec::from_iter(STEPS.iter().copied().chain([steps.as_str()]).chain(ahead));
            set_keys(&mut command, &sets);
            peak_memory_of_steps(command, &dir.path().join(name))
        };
        // Other processes can delay the device, which then has more steps in its queue for a moment; memory that grows
        // with the steps grows in every run.
        let (few, limit) = (peak(60, 0), 1.1);
        let is_steady = (0..3).any(|attempt| peak(300, attempt) < limit * few);
        assert!(is_steady, "{backend}: {few} bytes in 60 steps, and in 300 more than {limit} times as many");
    }
}
