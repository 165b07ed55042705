//! Imports of GGUF files.

use std::fs;

use burn::tensor::{Int, Tensor, TensorData};
use burn_ndarray::NdArray;
use causal_attention::model::Inputs;
use causal_attention::weights::native;
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::peers::{Expected, flat, peer, typed};
use super::weights_file;
use crate::generate::{json, run};
use crate::refused_imports::refuses_as;
use crate::text;

/// Imports randomly initialised models in all supported types, and compares their results with transformers', if it is
/// installed.
#[test]
#[ignore = "needs PyTorch and transformers: `.ci/run peers`"]
fn gguf_models_of_all_types_match_transformers() {
    let dir = TempDir::new().unwrap();
    let models = dir.path().join("models");
    if !peer("gguf_files.py", &["make", models.to_str().unwrap()]) {
        return;
    }
    let folders: Vec<_> = fs::read_dir(&models).unwrap().map(|model| model.unwrap()).collect();
    assert_eq!(folders.len(), 28);
    for folder in folders {
        let name = &*folder.file_name().into_string().unwrap();
        let path = folder.path().join("model.gguf");
        let imported = run(dir.path(), &["import", path.to_str().unwrap(), "--run", name]);
        assert!(imported.status.success(), "{name}: {}", text(&imported.stderr));
        let expected = Expected::read(&folder.path());
        let (shape, tokens) = expected.numbers("tokens");
        let device = Default::default();
        let (model, _) =
            native::load_model::<NdArray>(&weights_file(&dir.path().join(name)), &device).unwrap();
        let ids = TensorData::new(tokens.iter().map(|&id| id as i32).collect::<Vec<_>>(), shape);
        let inputs = Inputs::tokens(Tensor::<NdArray, 2, Int>::from_data(ids, &device));
        let logits = model.forward(inputs).unwrap().into_data();
        expected.assert_close("logits", logits.as_slice().unwrap());

        let (_, greedy) = expected.numbers("greedy");
        let prompt = typed(&greedy[..5]);
        let generate = ["generate", name, "--tokens", &prompt, "--max-new", "32", "--greedy", "--ignore-end"];
        let written = json(dir.path(), &[&generate[..], &["--json"]].concat());
        assert_eq!(flat(&written["samples"][0]["tokens"]), greedy[5..], "{name}");

        let texts: Map<String, Value> =
            serde_json::from_slice(&fs::read(folder.path().join("texts.json")).unwrap()).unwrap();
        for (text, ids) in texts {
            let scored = json(dir.path(), &["score", name, "--text", &text, "--json"]);
            assert_eq!(scored["tokens"], ids, "{name}: {text:?}");
        }
    }
}

#[test]
fn gguf_files_of_other_types_are_refused() {
    let dir = TempDir::new().unwrap();
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    // One tensor of type Q2_K, and one key.
    let counts = [&b"GGUF"[..], &3u32.to_le_bytes(), &1u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    let key = [string("general.architecture"), 8u32.to_le_bytes().to_vec(), string("llama")].concat();
    let sizes = [&1u32.to_le_bytes()[..], &256u64.to_le_bytes(), &10u32.to_le_bytes(), &[0; 8]].concat();
    let tensor = [string("blk.0.ffn_up.weight"), sizes, vec![0; 256]].concat();
    fs::write(dir.path().join("model.gguf"), [counts, key, tensor].concat()).unwrap();
    let parts = ["model.gguf: `blk.0.ffn_up.weight` has the type Q2_K", "the supported types are F32, F16, "];
    refuses_as(dir.path(), "run", &["model.gguf"], &parts);
    refuses_as(dir.path(), "run", &["model.gguf", "--format", "native"], &["is GGUF, not safetensors"]);
}
