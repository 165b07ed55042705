//! Export and import of weights.

mod declared;
mod peers;
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
fn gpt2_export_reimports_bitwise_and_trains_on() {
    let place = TempDir::new().unwrap();
    for (name, sets) in
        [("untied", &[][..]), ("tied", &["model.tie_embeddings=true", "model.activation=gelu_tanh"])]
    {
        let run_folder = small_run(place.path(), &[&["training.steps=20"], sets].concat(), name);
        let out = place.path().join(name).join("export/gpt2");
        assert!(run(place.path(), &["export", name, "--format", "gpt2"]).status.success());
        let again = format!("{name}-again");
        let out = out.to_str().unwrap();
        let imported = run(place.path(), &["import", out, "--format", "gpt2", "--run", &again]);
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        let before = read(&run_folder).0;
        let after = read(&place.path().join(&again)).0;
        assert_eq!(before, after, "the weights come back in every bit");

        let arguments = |run| ["generate", run, "--prompt", "3 1 4", "--max-new", "9", "--json"];
        assert_eq!(json(place.path(), &arguments(name)), json(place.path(), &arguments(&again)));
        let evaluated = json(place.path(), &["evaluate", &again, "--json"]);
        assert!(evaluated["loss"].as_f64().unwrap() > 0.0);

        let tuned = format!("{name}-tuned");
        let sets = ["training.steps=3", "training.learning_rate=1e-9", "training.min_learning_rate=1e-9"];
        let sets = sets.map(|set| ["--set", set]);
        let sets = sets.as_flattened();
        let from = ["train", "--from", &again, "--run", &tuned, "--backend", "ndarray"];
        let output = run(place.path(), &[&from[..], sets].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let loss = json(place.path(), &["evaluate", &tuned, "--json"])["loss"].as_f64().unwrap();
        assert!((loss - evaluated["loss"].as_f64().unwrap()).abs() < 1e-4, "it starts from the weights");
    }
}

#[test]
fn run_started_from_another_resumes() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=6"], "first");
    let train = |more: &[&str]| {
        let output = run(place.path(), &[&["train", "--backend", "ndarray"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    // Sequences shorter than the positions of the weights.
    let sets = ["--set", "data.length=9", "--set", "training.schedule=constant", "--set"];
    let from = |name, steps| [&["--from", "first", "--run", name][..], &sets, &[steps]].concat();
    train(&from("whole", "training.steps=8"));
    train(&from("parts", "training.steps=4"));
    train(&["--resume", "parts", "--set", "training.steps=8"]);
    let (whole, description) = read(&place.path().join("whole"));
    assert_eq!(description.sizes.context, 12, "all positions stay");
    let last = |name: &str| rows(&place.path().join(name)).pop().unwrap();
    assert_eq!(last("whole"), last("parts"));
    assert!(!whole.is_empty());

    let output = run(place.path(), &["train", "--from", "first", "--set", "data.length=13"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`data.length` = 13") && said.contains("12 positions"), "{said}");
}

/// The peak memory of the program in bytes, as Linux reports it.
#[cfg(target_os = "linux")]
fn peak_memory(place: &Path, arguments: &[&str]) -> f64 {
    let mut child =
        crate::program(place).args(arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut peak = 0.0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        peak = most.map_or(peak, |most| 1024.0 * most.trim().parse::<f64>().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    peak
}

#[test]
#[cfg(target_os = "linux")]
fn weights_are_in_memory_once() {
    let place = TempDir::new().unwrap();
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
        fs::write(place.path().join(format!("{name}.safetensors")), &bytes).unwrap();
        bytes.len() as f64
    };
    let (large, small) = (write("large", 384), write("small", 16));
    let check = |arguments: &[&str]| {
        let peak = |name| {
            let arguments: Vec<_> = arguments.iter().map(|part| part.replace("NAME", name)).collect();
            peak_memory(place.path(), &arguments.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let ratio = (peak("large") - peak("small")) / (large - small);
        assert!(ratio < 1.3, "{arguments:?}: {ratio} of the weights");
    };
    check(&["import", "NAME.safetensors", "--run", "NAME"]);
    check(&["generate", "NAME", "--tokens", "1 2", "--max-new", "2"]);
    check(&["export", "NAME", "--format", "transformers"]);
    check(&["import", "NAME/export/transformers", "--run", "NAME-again"]);
}

#[test]
fn imported_weights_and_their_vocabulary_are_known_again() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "trained");
    let import = ["import", "trained/model.safetensors", "--format", "native", "--run", "run"];
    assert!(run(place.path(), &import).status.success());
    let evaluate = || run(place.path(), &["evaluate", "run"]);
    assert!(evaluate().status.success());
    for (file, problem) in
        [("model.safetensors", "its content has changed"), ("vocabulary.json", "is not the file")]
    {
        let path = place.path().join("run").join(file);
        let whole = fs::read(&path).unwrap();
        let mut changed = whole.clone();
        // Flips the last bit of the last weight, or replaces a line break by a space.
        match file {
            "model.safetensors" => *changed.last_mut().unwrap() ^= 1,
            _ => *changed.iter_mut().find(|byte| **byte == b'\n').unwrap() = b' ',
        }
        fs::write(&path, changed).unwrap();
        let refused = evaluate();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("run/{file}: ")) && said.contains(problem), "{said}");
        fs::write(&path, whole).unwrap();
    }
    assert!(evaluate().status.success());
}

#[test]
fn pytorch_names_export_describes_itself() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "run");
    let output = run(place.path(), &["export", "run", "--format", "pytorch-names", "--out", "here"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = fs::read(place.path().join("here/model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("blocks.0.attention.qkv.weight").unwrap().shape(), [48, 16]);
    assert_eq!(file.tensor("blocks.1.attention_norm.weight").unwrap().shape(), [16]);
    assert_eq!(file.tensor("embedding.token.weight").unwrap().shape(), [16, 16]);
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path().join("here/config.json")).unwrap()).unwrap();
    assert_eq!(config["model"]["d_model"], 16);
    assert_eq!(config["sizes"]["context"], 12);
    assert!(place.path().join("here/vocabulary.json").is_file());
}
