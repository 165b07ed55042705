//! Export and import of weights.

mod declared;
mod gguf;
pub(crate) mod peers;
mod series;
mod tokenizers;
mod transformers;

use std::{fs, path::Path};

use burn_ndarray::NdArray;
use causal_attention::model::{ModelConfig, Sizes};
use causal_attention::ops::{Activation, NormKind};
use causal_attention::position::PositionScheme;
use causal_attention::weights::file::WeightsFile;
use causal_attention::weights::native::{self, Description, Tensors};
use safetensors::SafeTensors;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{rows, small_run, text};

fn weights_file(run: &Path) -> WeightsFile {
    WeightsFile::open(run.join("model.safetensors")).unwrap()
}

fn read(run: &Path) -> (Tensors, Description) {
    native::read(&weights_file(run)).unwrap()
}

#[test]
fn gpt2_export_reimports_bitwise_and_trains_further() {
    let dir = TempDir::new().unwrap();
    for (name, sets) in
        [("untied", &[][..]), ("tied", &["model.tie_embeddings=true", "model.activation=gelu_tanh"])]
    {
        let run_folder = small_run(dir.path(), &[&["training.steps=20"], sets].concat(), name);
        let out = dir.path().join(name).join("export/gpt2");
        assert!(run(dir.path(), &["export", name, "--format", "gpt2"]).status.success());
        let again = format!("{name}-again");
        let out = out.to_str().unwrap();
        let imported = run(dir.path(), &["import", out, "--format", "gpt2", "--run", &again]);
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        let before = read(&run_folder).0;
        let after = read(&dir.path().join(&again)).0;
        assert_eq!(before, after, "the weights are bit-identical");

        let arguments = |run| ["generate", run, "--prompt", "3 1 4", "--max-new", "9", "--json"];
        assert_eq!(json(dir.path(), &arguments(name)), json(dir.path(), &arguments(&again)));
        let evaluated = json(dir.path(), &["evaluate", &again, "--json"]);
        assert!(evaluated["loss"].as_f64().unwrap() > 0.0);

        let tuned = format!("{name}-tuned");
        let sets = ["training.steps=3", "training.learning_rate=1e-9", "training.min_learning_rate=1e-9"];
        let sets = sets.map(|set| ["--set", set]);
        let sets = sets.as_flattened();
        let from = ["train", "--from", &again, "--run", &tuned, "--backend", "ndarray"];
        let output = run(dir.path(), &[&from[..], sets].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let loss = json(dir.path(), &["evaluate", &tuned, "--json"])["loss"].as_f64().unwrap();
        assert!(
            (loss - evaluated["loss"].as_f64().unwrap()).abs() < 1e-4,
            "training starts from the imported weights"
        );
    }
}

#[test]
fn runs_started_from_another_run_can_resume() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=6"], "first");
    let train = |more: &[&str]| {
        let output = run(dir.path(), &[&["train", "--backend", "ndarray"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    // The sequences are shorter than the context of the weights.
    let sets = ["--set", "data.length=9", "--set", "training.schedule=constant", "--set"];
    let from = |name, steps| [&["--from", "first", "--run", name][..], &sets, &[steps]].concat();
    train(&from("uninterrupted", "training.steps=8"));
    train(&from("parts", "training.steps=4"));
    train(&["--resume", "parts", "--set", "training.steps=8"]);
    let (weights, description) = read(&dir.path().join("uninterrupted"));
    assert_eq!(description.sizes.context, 12, "the context is kept");
    let last = |name: &str| rows(&dir.path().join(name)).pop().unwrap();
    assert_eq!(last("uninterrupted"), last("parts"));
    assert!(!weights.is_empty());

    let output = run(dir.path(), &["train", "--from", "first", "--set", "data.length=13"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("`data.length` = 13") && stderr.contains("a context of 12"), "{stderr}");
}

/// Returns the peak memory of the program in bytes, as Linux reports it.
#[cfg(target_os = "linux")]
fn peak_memory(dir: &Path, arguments: &[&str]) -> f64 {
    let mut child = crate::program(dir).args(arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut peak = 0.0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        peak = kilobytes.map_or(peak, |number| 1024.0 * number.trim().parse::<f64>().unwrap());
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    peak
}

#[test]
#[cfg(target_os = "linux")]
fn weights_are_held_in_memory_only_once() {
    let dir = TempDir::new().unwrap();
    // A model that exports as a Llama, whose matrices are packed from several tensors.
    let write = |name: &str, d_model: usize| {
        let model = ModelConfig {
            d_model,
            layers: 5,
            position: PositionScheme::Rotary,
            norm_kind: NormKind::Rms,
            activation: Activation::Swiglu,
            bias: false,
            ..ModelConfig::default()
        };
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let weights = native::collect(&model.init::<NdArray>(sizes, &Default::default()).unwrap()).unwrap();
        let bytes = native::to_bytes(&weights, Some(&Description { model, sizes })).unwrap();
        fs::write(dir.path().join(format!("{name}.safetensors")), &bytes).unwrap();
        bytes.len() as f64
    };
    let (large, small) = (write("large", 384), write("small", 16));
    let check = |arguments: &[&str]| {
        let peak = |name| {
            let arguments: Vec<_> = arguments.iter().map(|part| part.replace("NAME", name)).collect();
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            // Threads that start at the same time need more memory, and a peak just before the end may be missed.
            let repeats = if arguments[0] == "generate" { 3 } else { 1 };
            let peaks: Vec<f64> = (0..repeats).map(|_| peak_memory(dir.path(), &arguments)).collect();
            let choose = if name == "large" { f64::min } else { f64::max };
            peaks.into_iter().reduce(choose).unwrap()
        };
        let ratio = (peak("large") - peak("small")) / (large - small);
        assert!(ratio < 1.3, "{arguments:?}: {ratio} times the size of the weights");
    };
    check(&["import", "NAME.safetensors", "--run", "NAME"]);
    check(&["generate", "NAME", "--tokens", "1 2", "--max-new", "2"]);
    check(&["export", "NAME", "--format", "transformers"]);
    check(&["import", "NAME/export/transformers", "--run", "NAME-again"]);
}

#[test]
fn changed_imported_weights_and_vocabulary_are_refused() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "trained");
    let import = ["import", "trained/model.safetensors", "--format", "native", "--run", "run"];
    assert!(run(dir.path(), &import).status.success());
    let evaluate = || run(dir.path(), &["evaluate", "run"]);
    assert!(evaluate().status.success());
    for (file, problem) in
        [("model.safetensors", "has changed since"), ("vocabulary.json", "has changed, or belongs")]
    {
        let path = dir.path().join("run").join(file);
        let original = fs::read(&path).unwrap();
        let mut changed = original.clone();
        // Flips the last bit of the last weight, or replaces a line break by a space.
        match file {
            "model.safetensors" => *changed.last_mut().unwrap() ^= 1,
            _ => *changed.iter_mut().find(|byte| **byte == b'\n').unwrap() = b' ',
        }
        fs::write(&path, changed).unwrap();
        let refused = evaluate();
        let stderr = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(&format!("run/{file}: ")) && stderr.contains(problem), "{stderr}");
        fs::write(&path, original).unwrap();
    }
    assert!(evaluate().status.success());
}

#[test]
fn pytorch_names_export_describes_itself() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    let output = run(dir.path(), &["export", "run", "--format", "pytorch-names", "--out", "here"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = fs::read(dir.path().join("here/model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("blocks.0.attention.qkv.weight").unwrap().shape(), [48, 16]);
    assert_eq!(file.tensor("blocks.1.attention_norm.weight").unwrap().shape(), [16]);
    assert_eq!(file.tensor("embedding.token.weight").unwrap().shape(), [16, 16]);
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("here/config.json")).unwrap()).unwrap();
    assert_eq!(config["model"]["d_model"], 16);
    assert_eq!(config["sizes"]["context"], 12);
    assert!(dir.path().join("here/vocabulary.json").is_file());
}
