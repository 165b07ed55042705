//! `activations`: any hook point of a forward pass as a safetensors file.

use std::fs;
use std::path::Path;

use safetensors::{SafeTensors, tensor::Dtype};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::run;
use crate::{program, small_run, stdout_of, text};

const INPUT: [&str; 3] = ["run", "--tokens", "3 1 4 1 5"];

fn activations(folder: &Path, arguments: &[&str]) -> String {
    stdout_of(folder, &[&["activations"], &INPUT[..], arguments].concat())
}

/// Returns the values of a tensor in single precision.
fn values(file: &SafeTensors, name: &str) -> Vec<f32> {
    let bytes = file.tensor(name).unwrap();
    bytes.data().as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

#[test]
fn activations_are_those_of_the_forward_pass() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=9", "model.position=rotary", "model.key_value_heads=1"], "run");
    let listed: Value = serde_json::from_str(&activations(folder, &["--list", "--json"])).unwrap();
    let sites = listed["sites"].as_object().unwrap();
    assert_eq!((&sites["attn.1.pattern"], &sites["resid_pre.0"]), (&json!([2, 5, 5]), &json!([5, 16])));
    activations(folder, &["--sites", "*", "--out", "all.safetensors"]);
    let bytes = fs::read(folder.join("all.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.names().len(), sites.len());
    for (name, shape) in sites {
        assert_eq!(json!(file.tensor(name).unwrap().shape()), *shape, "{name}");
    }
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().as_ref().unwrap();
    assert_eq!(metadata["causal_attention.ids"], "[3,1,4,1,5]");
    assert_eq!(metadata["causal_attention.tokens"], "[\"3\",\"1\",\"4\",\"1\",\"5\"]");

    // The residual stream is a sum, and the weights and logits are those of `inspect`.
    let near =
        |a: &[f32], b: &[f32]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    let [middle, written, after] =
        ["resid_mid.0", "mlp.0.out", "resid_post.0"].map(|name| values(&file, name));
    let sum: Vec<f32> = middle.iter().zip(&written).map(|(a, b)| a + b).collect();
    assert!(near(&sum, &after) && near(&after, &values(&file, "resid_pre.1")));
    assert!(near(&values(&file, "resid_post.1"), &values(&file, "final")));
    let inspected = stdout_of(folder, &[&["inspect", "--json"], &INPUT[..]].concat());
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    for layer in [0, 1] {
        let weights: Vec<Vec<Vec<f32>>> =
            serde_json::from_value(inspected["weights"][layer].clone()).unwrap();
        let weights = weights.concat().concat();
        assert!(near(&values(&file, &format!("attn.{layer}.pattern")), &weights));
    }
    let probabilities: Vec<Vec<f32>> = serde_json::from_value(inspected["probabilities"].clone()).unwrap();
    let logits = values(&file, "logits");
    for (row, probabilities) in logits.chunks(probabilities[0].len()).zip(&probabilities) {
        let total: f32 = row.iter().map(|logit| logit.exp()).sum();
        assert!(near(&row.iter().map(|logit| logit.exp() / total).collect::<Vec<_>>(), probabilities));
    }
}

#[test]
fn chosen_sites_are_written_as_half_precision() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=9"], "run");
    let chosen = ["--sites", "resid_pre.*, mlp.1.out", "--dtype", "f16", "--out", "half.safetensors"];
    for _ in 0..2 {
        let printed = activations(folder, &chosen);
        assert!(
            printed.starts_with("resid_pre.0         [5, 16]\n") && printed.ends_with("half.safetensors\n")
        );
    }
    let bytes = fs::read(folder.join("half.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    assert_eq!(names, ["mlp.1.out", "resid_pre.0", "resid_pre.1"]);
    assert!(file.tensors().iter().all(|(_, tensor)| tensor.dtype() == Dtype::F16));
}

#[test]
fn encoder_decoders_have_sites_of_both_stacks() {
    let dir = TempDir::new().unwrap();
    let sets = ["training.steps=2", "data.task=sort", "model.architecture=encoder_decoder"];
    small_run(dir.path(), &sets, "run");
    let arguments = ["activations", "run", "--tokens", "1 3", "--source", "3 1 2", "--list", "--json"];
    let listed: Value = serde_json::from_str(&stdout_of(dir.path(), &arguments)).unwrap();
    let shape = |name: &str| listed["sites"][name].clone();
    // The start token precedes the answer.
    assert_eq!(shape("encoder.attn.0.pattern"), json!([2, 3, 3]));
    assert_eq!(shape("cross.0.pattern"), json!([2, 3, 3]));
    assert_eq!((shape("cross.0.k"), shape("encoder.final")), (json!([2, 3, 8]), json!([3, 16])));
    let written = [&arguments[..6], &["--sites", "cross.*", "--out", "cross.safetensors", "--json"]].concat();
    let written: Value = serde_json::from_str(&stdout_of(dir.path(), &written)).unwrap();
    for (name, found) in written["sites"].as_object().unwrap() {
        assert_eq!(*found, shape(name), "{name}");
    }
}

#[test]
fn wrong_sites_and_foreign_files_are_refused() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=2"], "run");
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    for (arguments, problem) in [
        (
            &["--sites", "attn.0.patterns", "--out", "a.safetensors"][..],
            "--sites: `attn.0.patterns` matches no site of this model; the nearest are attn.0.pattern, attn.1.pattern, ",
        ),
        (&["--sites", "[", "--out", "a.safetensors"], "--sites: `[` is not a pattern"),
        (
            &["--sites", "final", "--out", "notes.txt"],
            "notes.txt: exists and was not made by `activations`; pass another --out",
        ),
        (&["--out", "a.safetensors"], "--sites"),
        (&["--sites", "final"], "--out"),
    ] {
        let output = run(folder, &[&["activations"], &INPUT[..], arguments].concat());
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(problem), "{stderr}");
    }
    assert_eq!(fs::read_to_string(folder.join("notes.txt")).unwrap(), "mine");
    assert!(!folder.join("a.safetensors").exists());
    let empty = program(folder).args(["activations", "run", "--text", "", "--list"]).output().unwrap();
    assert!(text(&empty.stderr).contains("the input is empty"), "{}", text(&empty.stderr));
}
