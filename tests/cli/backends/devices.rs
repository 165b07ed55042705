//! Device selection, and the errors for a device that is missing, is too small for a run or does not start.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use super::{STEPS, others, refused, run, succeeds, train};
use crate::{program, text, without_data_warnings};

#[test]
fn unavailable_backends_and_devices_suggest_alternatives() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let absent = if cfg!(feature = "cuda") { "wgpu" } else { "cuda" };
    let in_capitals = absent.to_uppercase();
    let mut cases = vec![
        (vec!["train", "--backend", "gpu"], "ndarray"),
        (vec!["train", "--backend", "ndarray", "--device", "7"], "training.device"),
        (vec!["train", "--backend", "ndarray", "--device", "integrated"], "use one of 0 (ndarray processor"),
        (
            vec!["train", "--backend", "ndarray", "--set", "training.device=7"],
            "use one of 0 (ndarray processor",
        ),
        (
            vec!["train", "--backend", "ndarray", "--device", "fast"],
            "= fast does not exist; use one of 0 (nd",
        ),
        (vec!["train", "--backend", "ndarray", "--device", "-1"], "= -1 does not exist; use one of 0 (nd"),
        (
            vec!["train", "--backend", "ndarray", "--set", "training.device=fast"],
            "= fast does not exist; use one of",
        ),
        (vec!["train", "--backend", "ndarray", "--set", "training.device=-1"], "a number or a kind"),
        (
            vec!["train", "--backend", "ndarray", "--set", "training.device=true"],
            "= true does not exist; use one of",
        ),
        (vec!["train", "--set", "training.precision=f64"], "expected one of `f32`, `bf16`, `f16`"),
        (vec!["train", "--set", "training.backend=f64"], "cuda, wgpu, ndarray, flex"),
        (vec!["train", "--backend", "vulkan"], "feature of the backend wgpu"),
        (vec!["train", "--backend", "ndarray", "--set", "training.precision=f16"], "training.precision"),
    ];
    // Every command that trains is refused.
    for command in [&["train", "--dry-run"][..], &["tune"], &["tune", "--find-rate"]] {
        let half = ["--backend", "ndarray", "--set", "training.precision=f16"];
        cases.push(([command, &half].concat(), "which supports f32, bf16; use --set training.precision=f32"));
    }
    if !cfg!(all(feature = "cuda", feature = "wgpu")) {
        cases.push((vec!["train", "--backend", absent], "cargo build --release --features"));
        cases.push((vec!["train", "--backend", absent], "or use --backend ndarray"));
        cases.push((vec!["train", "--backend", in_capitals.as_str()], "is not compiled in"));
        cases.push((vec!["backends", "--backend", absent], "is not compiled in"));
    }
    for (arguments, expected) in cases {
        let output = run(folder, &arguments, &[]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.trim_end().lines().count() == 1 && error.contains(expected), "{arguments:?}: {error}");
        assert!(fs::read_dir(folder).unwrap().next().is_none(), "{arguments:?} leaves files behind");
    }
}

/// A run whose attention scores, 16 maps of 1,456 x 1,456 computed together, slightly exceed the 128 MiB buffer limit
/// of Mesa's software device.
const LONG: [&str; 13] = [
    "data.vocab=8",
    "data.length=1456",
    "data.train_samples=8",
    "data.valid_samples=4",
    "data.period=[3, 5]",
    "model.d_model=16",
    "model.heads=4",
    "model.layers=1",
    "training.batch_size=4",
    "training.steps=2",
    "analysis.every=0",
    "analysis.snapshots=0",
    "analysis.circuit=false",
];

#[test]
fn oversized_gpu_buffers_suggest_a_batch_size() {
    if !others().contains(&"wgpu") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let on_gpu = ["--backend", "wgpu", "--device", "software"];
    let reference = [&LONG[..], &["training.kernels=reference"]].concat();
    let stderr = refused(run(folder, &[&["train", "--run", "long"], &on_gpu[..]].concat(), &reference));
    assert!(stderr.starts_with("error: --set: `training.batch_size` = 4 needs attention scores"), "{stderr}");
    assert!(stderr.contains("training.batch_size = 3"), "{stderr}");
    assert!(fs::read_dir(folder).unwrap().next().is_none(), "no files are left behind");

    // A run trained on the CPU is refused as well, instead of being scored wrongly.
    let train = |name: &str, device: &[&str], sets: &[&str]| {
        // The analysis after the last step would take most of the time.
        let one_step = [&["train", "--run", name, "--until", "1"], device].concat();
        succeeds(run(folder, &one_step, sets));
    };
    train("long", &["--backend", "ndarray"], &reference);
    let evaluate = ["evaluate", "long", "--json"];
    let stderr = refused(run(folder, &[&evaluate[..], &on_gpu].concat(), &[]));
    assert!(stderr.contains("training.batch_size = 3"), "{stderr}");
    let loss = |arguments: &[&str], sets: &[&str]| {
        let report = succeeds(run(folder, &[&evaluate[..], arguments].concat(), sets));
        serde_json::from_str::<Value>(&report).unwrap()["loss"].as_f64().unwrap()
    };
    let on_cpu = loss(&["--backend", "ndarray"], &[]);
    let smaller_batch = loss(&on_gpu, &["training.batch_size=3"]);
    // With fused kernels all four rows fit, because scores are computed in blocks.
    let by_blocks = loss(&on_gpu, &["training.kernels=fused"]);
    for on_gpu in [smaller_batch, by_blocks] {
        assert!((on_cpu - on_gpu).abs() < 1e-4 * on_cpu, "{on_cpu} and {on_gpu}");
    }
    train("blocks", &on_gpu, &LONG);
}

/// Returns true if this machine has a GPU that this build can use.
fn has_gpu(folder: &Path) -> bool {
    let list = succeeds(run(folder, &["backends", "--list", "--json"], &[]));
    let list: Value = serde_json::from_str(&list).unwrap();
    let mut devices =
        list.as_array().unwrap().iter().flat_map(|backend| backend["devices"].as_array().unwrap());
    devices.any(|device| !["processor", "software"].contains(&device["kind"].as_str().unwrap()))
}

#[test]
fn bare_device_number_means_a_gpu() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    if has_gpu(folder) {
        return;
    }
    let sets = [&STEPS[..], &["training.steps=1"]].concat();
    let output = run(folder, &["train", "--run", "run", "--device", "0"], &sets);
    if cfg!(any(feature = "wgpu", feature = "cuda")) {
        let stderr = refused(output);
        assert!(stderr.contains("`training.device` = 0 is not a GPU"), "{stderr}");
        assert!(stderr.contains("0 (ndarray processor"), "{stderr}");
        assert!(!others().contains(&"wgpu") || stderr.contains("0 (wgpu software"), "{stderr}");
        let second = refused(run(folder, &["train", "--run", "run", "--device", "1"], &sets));
        assert!(second.contains("`training.device` = 1 does not exist; use one of"), "{second}");
        assert!(fs::read_dir(folder).unwrap().next().is_none(), "no files are left behind");
    } else {
        // Without GPU backends, the number names a device of a CPU backend.
        succeeds(output);
    }
}

#[test]
fn requested_processor_is_used_without_notices() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let sets = [&STEPS[..], &["training.steps=1"]].concat();
    let arguments = ["train", "--run", "run", "--device", "processor", "--progress", "none"];
    let output = run(folder, &arguments, &sets);
    let stderr = without_data_warnings(&output.stderr);
    succeeds(output);
    assert!(stderr.lines().all(|line| line.contains("XDG_RUNTIME_DIR")), "{stderr}");
    // A run that records a device also records its backend, so a command can choose another backend.
    let config = fs::read_to_string(folder.join("run/config.toml")).unwrap();
    assert!(
        config.contains("device = \"processor\"") && config.contains("backend = \"ndarray\""),
        "{config}"
    );
    for backend in others() {
        succeeds(run(folder, &["evaluate", "run", "--backend", backend], &[]));
        succeeds(run(folder, &["evaluate", "run"], &[&format!("training.backend={backend}")]));
    }
}

#[test]
fn import_uses_the_configured_device() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    train(folder, "run", "ndarray", &["training.steps=1"]);
    let import = ["import", "run/model.safetensors", "--format", "native", "--run", "imported"];
    let stderr = refused(run(folder, &import, &["training.device=7"]));
    assert!(stderr.contains("`training.device` = 7 does not exist; use one of 0 (ndarray"), "{stderr}");
    assert!(!folder.join("imported").exists(), "no files are left behind");
    succeeds(run(folder, &import, &[]));
}

#[test]
fn failed_gpu_start_reports_the_reason() {
    if !others().contains(&"wgpu") {
        return;
    }
    let dir = TempDir::new().unwrap();
    // A value that CubeCL cannot parse stops it on the thread that starts the device.
    let arguments = ["train", "--run", "run", "--backend", "wgpu"];
    let output = program(dir.path()).args(arguments).env("CUBECL_WGPU_MAX_TASKS", "abc").output().unwrap();
    let stderr = refused(output);
    assert!(stderr.starts_with("error: `training.backend` = wgpu cannot start on "), "{stderr}");
    assert!(stderr.contains("CUBECL_WGPU_MAX_TASKS should be a positive integer"), "{stderr}");
    assert!(stderr.contains("it needs") && stderr.contains("--backend ndarray"), "{stderr}");
    assert!(!stderr.contains("RecvError") && !stderr.contains("update"), "{stderr}");
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "no files are left behind");
}

#[cfg(feature = "wgpu")]
#[test]
fn tensors_beyond_largest_buffer_are_errors() {
    use burn::tensor::{Tensor, backend::AutodiffBackend};
    use causal_attention::backend::{Job, devices, run};
    use causal_attention::config::{BackendName, DeviceKind};
    use causal_attention::{Error, Result};

    struct TooLarge(usize);
    impl Job for TooLarge {
        type Output = Vec<f32>;

        fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Vec<f32>> {
            let sum = Tensor::<B, 1>::ones([self.0], &device).mul_scalar(2.0).sum();
            Ok(sum.into_data().iter::<f32>().collect())
        }
    }

    if !others().contains(&"wgpu") {
        return;
    }
    let devices = devices(BackendName::Wgpu);
    let Some(software) = devices.iter().find(|device| device.kind == DeviceKind::Software) else {
        eprintln!("notice: buffers are not tested, because this machine has no software device");
        return;
    };
    let limit = software.largest_buffer.unwrap() as usize / 4;
    assert_eq!(run(software, TooLarge(1_000)).unwrap(), [2_000.0]);
    let error = run(software, TooLarge(limit + 1_000)).unwrap_err();
    assert!(matches!(error, Error::DeviceMemory { .. }), "{error}");
}
