//! `--patch-from`: activations that take their values from another text.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{small_run, text};

const INPUT: &str = "3 1 4 1 5 9 2 6";
const OTHER: &str = "2 7 1 8 2";

/// Returns the next-token probabilities at each position of a text.
fn probabilities(folder: &Path, tokens: &str, more: &[&str]) -> Vec<Vec<f64>> {
    let arguments = ["inspect", "run", "--tokens", tokens, "--json", "--only", "probabilities"];
    let found = json(folder, &[&arguments[..], more].concat());
    serde_json::from_value(found["probabilities"].clone()).unwrap()
}

/// Returns the probabilities of the generated tokens.
fn generated(folder: &Path, prompt: &str, more: &[&str]) -> Vec<f64> {
    let arguments = ["generate", "run", "--prompt", prompt, "--greedy", "--max-new", "5", "--json"];
    let found = json(folder, &[&arguments[..], more].concat());
    serde_json::from_value(found["samples"][0]["probabilities"].clone()).unwrap()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn the_last_residual_stream_carries_the_prediction() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=40", "model.key_value_heads=1"], "run");
    let (plain, other) = (probabilities(folder, INPUT, &[]), probabilities(folder, OTHER, &[]));
    assert!(!near(&plain[7], &other[4]));
    let patch = |at| ["--patch-from", OTHER, "--at", at];
    let patched = probabilities(folder, INPUT, &patch("resid_post.1@last"));
    assert!(near(&patched[7], &other[4]), "the prediction is that of the other text");
    assert!(patched[..7].iter().zip(&plain).all(|(a, b)| near(a, b)), "other positions are unchanged");
    let patched = probabilities(folder, INPUT, &patch("resid_post.1@2=3"));
    assert!(near(&patched[2], &other[3]) && near(&patched[3], &plain[3]));
    // The first layer's residual streams determine the rest up to their position.
    let patched = probabilities(folder, INPUT, &patch("resid_post.0@0-4"));
    assert!(patched[..5].iter().zip(&other).all(|(a, b)| near(a, b)) && !near(&patched[5], &plain[5]));
    let at_last = patch("resid_post.1@last");
    assert!((generated(folder, "3 1 4", &at_last)[0] - generated(folder, OTHER, &[])[0]).abs() < 1e-5);
    // The last token of a scored text is predicted, so the prediction is made at the token before it.
    let scored = json(folder, &[&["score", "run", "--tokens", INPUT, "--json"], &at_last[..]].concat());
    let score = scored["log_probabilities"].as_array().unwrap().last().and_then(Value::as_f64).unwrap();
    assert!((score - other[3][6].ln()).abs() < 1e-5, "{score} {}", other[3][6].ln());
}

#[test]
fn a_patch_from_the_same_text_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=40"], "run");
    let patch = |from| ["--patch-from", from, "--at", "*@*"];
    let plain = probabilities(folder, INPUT, &[]);
    let patched = probabilities(folder, INPUT, &patch(INPUT));
    assert!(plain.iter().zip(&patched).all(|(a, b)| near(a, b)), "{plain:?} {patched:?}");
    assert!(near(&generated(folder, OTHER, &patch(OTHER)), &generated(folder, OTHER, &[])));
    // The KV cache keeps the patched keys and values.
    let some = ["--patch-from", INPUT, "--at", "attn.*@0-1", "--at", "resid_mid.0@3"];
    let cached = generated(folder, OTHER, &some);
    assert!(near(&cached, &generated(folder, OTHER, &[&some[..], &["--no-cache"]].concat())), "{cached:?}");
    assert!(!near(&cached, &generated(folder, OTHER, &[])));
}

#[test]
fn impossible_patches_are_refused() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=2", "model.key_value_heads=1"], "run");
    let pairs = ["training.steps=2", "model.architecture=encoder_decoder", "data.task=reverse"];
    small_run(folder, &pairs, "pairs");
    let score = ["score", "run", "--tokens", INPUT];
    for (command, at, problem) in [
        (
            &score[..],
            "resid_pst.1@last",
            "--at: `resid_pst.1` matches no site of this model; the nearest are resid_post.1",
        ),
        (
            &score,
            "embed@9",
            "--at: position 9 is outside the input, of which the model reads the positions 0 to 6",
        ),
        (
            &score,
            "embed@5",
            "--at: position 5 is outside the --patch-from text, of which the model reads the positions 0 to 3",
        ),
        (
            &score,
            "attn.0.pattern@last",
            "--at: `attn.0.pattern` has a value for each key, so position 6 cannot",
        ),
        (&score, "embed", "write SITE@POSITION"),
        (
            &score,
            "logits@2",
            "--at: the logits cannot be replaced, because nothing reads them; replace final",
        ),
        (&["generate", "run", "--prompt", INPUT, "--max-new", "4"], "attn.0.k@0", "add --no-cache"),
        (
            &["score", "pairs", "--source", "1 2", "--tokens", "2 1"],
            "embed@0",
            "--patch-from: an encoder-decoder",
        ),
    ] {
        let output = run(folder, &[command, &["--patch-from", OTHER, "--at", at]].concat());
        let stderr = text(&output.stderr);
        let problems = stderr.lines().filter(|line| !line.starts_with("notice:")).count();
        assert_eq!((output.status.code(), problems), (Some(2), 1), "{at}: {stderr}");
        assert!(stderr.contains(problem), "{stderr}");
    }
    let twice = ["--patch-from", OTHER, "--at", "embed@2", "--at", "embed@1-3"];
    let output = run(folder, &[&score[..], &twice].concat());
    let stderr = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && stderr.contains("position 2 of embed is replaced twice"),
        "{stderr}"
    );
}
