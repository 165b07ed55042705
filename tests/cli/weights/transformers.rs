//! Exports and imports of models, compared with transformers.

use std::{fs, path::Path};

use burn::tensor::{Int, Tensor, TensorData};
use burn_ndarray::NdArray;
use causal_attention::model::Inputs;
use causal_attention::weights::native::{self, Tensors};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use tempfile::TempDir;

use super::peers::{Expected, flat, peer, typed};
use super::{read, weights_file};
use crate::generate::{json, run};
use crate::{small_run, text};

/// The keys of `[model]` that make it a Llama.
const LLAMA: [&str; 4] = ["position=rotary", "norm_kind=rms", "activation=swiglu", "bias=false"];

/// The keys of `[model]` that make it a Gemma; small runs have a `d_model` of 16.
const GEMMA: [&str; 8] = [
    "position=rotary",
    "norm_kind=rms",
    "norm=sandwich",
    "norm_unit_offset=true",
    "activation=geglu_tanh",
    "bias=false",
    "embedding_scale=4",
    "attention_scale=0.2",
];

/// Runs to export: the name, the family, and the common and further keys of `[model]`.
const EXPORTS: [(&str, &str, &[&str], &[&str]); 17] = [
    ("default", "gpt2", &[], &[]),
    ("tied", "gpt2", &[], &["tie_embeddings=true", "activation=gelu_tanh", "norm_epsilon=1e-3"]),
    ("unbiased", "gpt2", &[], &["bias=false", "d_inner=23", "activation=relu2"]),
    ("shared", "llama", &LLAMA, &["key_value_heads=1", "rope_theta=500", "tie_embeddings=true"]),
    (
        "biased",
        "llama",
        &LLAMA,
        &["bias=true", "activation=geglu", "d_head=6", "rope_scaling=linear", "rope_factor=2"],
    ),
    ("some-biased", "qwen2", &LLAMA, &["query_key_value_bias=true", "d_head=10"]),
    ("attention-biased", "llama", &LLAMA, &["query_key_value_bias=true", "attention_output_bias=true"]),
    // The original context is longer than the model's.
    ("scaled", "llama", &LLAMA, &["rope_scaling=llama3", "rope_factor=8"]),
    ("windowed", "mistral", &LLAMA, &["window=3", "d_head=6"]),
    ("parallel", "gpt_neox", &["position=rotary"], &["parallel=true", "rotary_fraction=0.5"]),
    ("sequential", "gpt_neox", &["position=rotary"], &["activation=gelu_tanh"]),
    (
        "local",
        "gpt_neo",
        &["attention_scale=1", "query_key_value_bias=false"],
        &["window=3", "layer_pattern=[\"local\", \"global\"]", "bias=false"],
    ),
    (
        "gemma",
        "gemma2",
        &GEMMA,
        &["window=3", "layer_pattern=[\"global\", \"local\"]", "attention_softcap=2", "softcap=3"],
    ),
    ("gemma-local", "gemma3_text", &GEMMA, &["window=3", "rope_theta_local=30", "qk_norm=true", "softcap=3"]),
    ("output", "olmo2", &LLAMA, &["norm=output", "qk_norm=true", "qk_norm_scope=all_heads"]),
    ("skipping", "smollm3", &LLAMA, &["rotary_skip_every=2", "layers=3"]),
    ("normed", "qwen3", &LLAMA, &["qk_norm=true", "d_head=6", "d_inner=23"]),
];

/// Compares exported models with transformers, if it is installed.
#[test]
#[ignore = "needs PyTorch and transformers: `.ci/run peers`"]
fn transformers_reproduces_logits_of_our_export() {
    let dir = TempDir::new().unwrap();
    let mut exported = vec!["compare".to_string()];
    for (name, family, common, more) in EXPORTS {
        let sets: Vec<_> = common.iter().chain(more).map(|set| format!("model.{set}")).collect();
        let sets: Vec<_> = sets.iter().map(String::as_str).chain(["training.steps=4"]).collect();
        let folder = small_run(dir.path(), &sets, name);
        let output = run(dir.path(), &["export", name, "--format", "transformers"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let export = folder.join("export/transformers");
        let config: serde_json::Value =
            serde_json::from_slice(&fs::read(export.join("config.json")).unwrap()).unwrap();
        assert_eq!(config["model_type"], family, "{name}");

        let device = Default::default();
        let (model, _) = native::load_model::<NdArray>(&weights_file(&folder), &device).unwrap();
        let ids = [[3i32, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]];
        let tokens = Tensor::<NdArray, 2, Int>::from_ints(ids, &device);
        let logits = model.forward(Inputs::tokens(tokens)).unwrap().into_data();
        let ids: Vec<u8> = ids.as_flattened().iter().flat_map(|id| id.to_le_bytes()).collect();
        let views = [
            ("tokens", TensorView::new(Dtype::I32, vec![2, 7], &ids).unwrap()),
            ("logits", TensorView::new(Dtype::F32, logits.shape.to_vec(), logits.as_bytes()).unwrap()),
        ];
        let expected = folder.join("expected.safetensors");
        fs::write(&expected, safetensors::serialize(views, None).unwrap()).unwrap();
        exported.extend([export, expected].map(|path| path.to_str().unwrap().to_string()));
    }
    peer("families.py", &exported.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn export_reports_keys_that_no_family_supports() {
    let dir = TempDir::new().unwrap();
    let sets = [
        &LLAMA.map(|set| format!("model.{set}"))[..],
        &["model.softcap=5".into(), "model.embedding_scale=2".into()],
    ];
    let sets = sets.concat();
    small_run(
        dir.path(),
        &sets.iter().map(String::as_str).chain(["training.steps=1"]).collect::<Vec<_>>(),
        "capped",
    );
    let output = run(dir.path(), &["export", "capped", "--format", "transformers"]);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    let keys = "in [model], llama needs embedding_scale = 1, softcap = 0; ";
    assert!(stderr.contains(keys), "{stderr}");
}

#[test]
fn small_models_match_stored_transformers_results() {
    let dir = TempDir::new().unwrap();
    for name in ["llama", "qwen3"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families").join(name);
        agrees_with_transformers(dir.path(), &folder);
        // Exported tensors are bit-identical to those that transformers stored.
        let [stored, exported] = [folder, dir.path().join(name).join("export/transformers")].map(|folder| {
            let tensors = weights_file(&folder).tensors().unwrap().into_iter();
            tensors.map(|tensor| (tensor.name.clone(), tensor.read().unwrap())).collect::<Tensors>()
        });
        assert_eq!(stored, exported);

        // After further training, the model is exported as the same family.
        let tuned = format!("{name}-tuned");
        let sets = ["training.steps=2", "data.length=12", "data.train_samples=32", "data.valid_samples=16"];
        let sets = sets.map(|set| ["--set", set]);
        let from = ["train", "--from", name, "--run", &tuned, "--backend", "ndarray"];
        let output = run(dir.path(), &[&from[..], sets.as_flattened()].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(run(dir.path(), &["export", &tuned, "--format", "transformers"]).status.success());
        let config =
            |run: &str| fs::read(dir.path().join(run).join("export/transformers/config.json")).unwrap();
        assert_eq!(config(name), config(&tuned));
    }
}

/// Imports randomly initialised models of every family from transformers, if it is installed, and compares their
/// results; then exports the models and compares their results in transformers.
#[test]
#[ignore = "needs PyTorch and transformers: `.ci/run peers`"]
fn every_family_agrees_with_transformers_in_both_directions() {
    let dir = TempDir::new().unwrap();
    let models = dir.path().join("models");
    if !peer("families.py", &["make", models.to_str().unwrap()]) {
        return;
    }
    let mut exported = vec!["compare".to_string()];
    for model in fs::read_dir(&models).unwrap() {
        let model = model.unwrap();
        agrees_with_transformers(dir.path(), &model.path());
        let export = dir.path().join(model.file_name()).join("export/transformers");
        for path in [export, model.path().join("expected.safetensors")] {
            exported.push(path.to_str().unwrap().to_string());
        }
    }
    assert!(exported.len() > 20, "{exported:?}");
    assert!(peer("families.py", &exported.iter().map(String::as_str).collect::<Vec<_>>()));
}

/// Imports a model saved by transformers and compares all its results; then exports it and imports it again.
fn agrees_with_transformers(dir: &Path, folder: &Path) {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let imported = run(dir, &["import", folder.to_str().unwrap(), "--run", name]);
    assert!(imported.status.success(), "{name}: {}", text(&imported.stderr));

    let expected = Expected::read(folder);
    let (shape, tokens) = expected.numbers("tokens");
    let [batch, time] = shape[..] else { panic!("{shape:?}") };
    let rows: Vec<_> = tokens.chunks(time).map(typed).collect();
    let device = Default::default();
    let (model, _) = native::load_model::<NdArray>(&weights_file(&dir.join(name)), &device).unwrap();
    let ids = tokens.iter().map(|&id| id as i32).collect::<Vec<_>>();
    let ids = TensorData::new(ids, [batch, time]);
    let inputs = Inputs::tokens(Tensor::<NdArray, 2, Int>::from_data(ids, &device));
    let logits = model.forward(inputs).unwrap().into_data();
    expected.assert_close("logits", logits.as_slice().unwrap());

    // transformers has [layers, batch, heads, time, time]; here each row of the batch is inspected separately.
    let inspect = |row: &String| json(dir, &["inspect", name, "--tokens", row, "--no-ablation", "--json"]);
    let inspected: Vec<_> = rows.iter().map(inspect).collect();
    let layers = inspected[0]["weights"].as_array().unwrap().len();
    let maps: Vec<_> =
        (0..layers).flat_map(|layer| inspected.iter().map(move |row| &row["weights"][layer])).collect();
    expected.assert_close("attentions", &flat(&json!(maps)));

    let scored = json(dir, &["score", name, "--tokens", &rows[0], "--json"]);
    let (_, logits) = expected.numbers("logits");
    let vocab = logits.len() / tokens.len();
    for (at, score) in flat(&scored["log_probabilities"]).into_iter().enumerate() {
        let row = &logits[at * vocab..][..vocab];
        let sum = row.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
        let expected = f64::from(row[tokens[at + 1] as usize]) - sum;
        assert!((f64::from(score) - expected).abs() < 1e-4, "{name}: {score}, not {expected}");
    }

    assert_generates_as_expected(dir, name, &expected);
    assert_reimports(dir, name, folder);
}

/// Asserts that greedy generation gives the same tokens as transformers, with and without a KV cache.
fn assert_generates_as_expected(dir: &Path, name: &str, expected: &Expected) {
    let (_, greedy) = expected.numbers("greedy");
    let prompt = typed(&greedy[..5]);
    for cache in [&[][..], &["--no-cache"]] {
        let generate = ["generate", name, "--tokens", &prompt, "--max-new", "32", "--greedy", "--json"];
        let written = json(dir, &[&generate[..], &["--ignore-end"], cache].concat());
        assert_eq!(flat(&written["samples"][0]["tokens"]), greedy[5..], "{name} {cache:?}");
        let (_, generated) = expected.numbers("generated");
        let written = json(dir, &[&generate[..], cache].concat())["samples"][0].take();
        let before_the_end = &generated[5..generated.len() - 1];
        assert_eq!(
            (flat(&written["tokens"]), &written["ended"]),
            (before_the_end.to_vec(), &json!("stop_token"))
        );
    }
}

/// Exports the run `name`, which was imported from `folder`, and imports it again.
fn assert_reimports(dir: &Path, name: &str, folder: &Path) {
    let exported = run(dir, &["export", name, "--format", "transformers"]);
    assert!(exported.status.success(), "{name}: {}", text(&exported.stderr));
    let export = dir.join(name).join("export/transformers");
    let contents = |folder: &Path, file: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap()
    };
    let [stored, exported] = [folder, &export].map(|folder| {
        let config = contents(folder, "config.json");
        let ids = ["bos_token_id", "eos_token_id", "pad_token_id"].map(|key| config[key].clone());
        (ids, contents(folder, "generation_config.json"))
    });
    assert_eq!(stored, exported, "{name}");
    let reimported = format!("{name}-again");
    assert!(run(dir, &["import", export.to_str().unwrap(), "--run", &reimported]).status.success());
    let bytes = |run: &str| fs::read(dir.join(run).join("model.safetensors")).unwrap();
    assert!(read(&dir.join(name)).0 == read(&dir.join(&reimported)).0, "{name}: the weights are identical");
    // The files are byte-identical, config included.
    assert!(bytes(name) == bytes(&reimported), "{name}");
}
