//! Tests of single panels of report pages: their words and places, links to them, and the undo of typed edits.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::page::browse;
use super::{small_run, stdout_of};

/// Checks that pictures of the run `translator` show the cross-attention heads that matter most in its circuit.
fn pictures_open_on_important_heads(folder: &Path) {
    let run = folder.join("translator");
    let read = |name: &str| fs::read(run.join(name)).unwrap();
    let trained = read("plots/attention.png");
    stdout_of(folder, &["plot", "translator"]);
    assert!(read("plots/attention.png") == trained, "the circuit chooses the heads during training as later");
    stdout_of(folder, &["plot", "translator", "--format", "svg", "--out", "plotted"]);
    let input = ["--source", "7 2 3", "--text", "3 2 7"];
    let options = ["inspect", "translator", "--format", "svg", "--out", "seen"];
    stdout_of(folder, &[&options[..], &input].concat());
    let circuit: Value = serde_json::from_slice(&read("circuit.json")).unwrap();
    let components = circuit["components"].as_array().unwrap();
    for layer in 0..2 {
        let is_of_layer = |it: &&Value| it["cross"] == true && it["layer"] == layer;
        let head = &components.iter().find(is_of_layer).expect("the answer needs its source")["head"];
        for pictures in ["plotted", "seen"] {
            let svg = fs::read_to_string(folder.join(pictures).join("attention.svg")).unwrap();
            assert!(
                svg.contains(&format!("cross-attention, layer {layer}, head {head}")),
                "{pictures}: {head}"
            );
        }
    }
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn panels_name_their_numbers_and_stay_in_view() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let trained = ["training.learning_rate=1e-2", "model.d_model=24", "analysis.circuit=true"];
    let decoder =
        ["training.steps=200", "data.task=arithmetic", "data.train_samples=1024", "analysis.every=100"];
    let translator = [
        "training.steps=300",
        "model.architecture=encoder_decoder",
        "data.task=reverse",
        "model.position=relative",
        "analysis.every=150",
    ];
    let untrained = ["training.steps=1", "analysis.circuit=true", "analysis.every=0"];
    let decoder = small_run(folder, &[&trained[..], &decoder].concat(), "decoder");
    let translator = small_run(folder, &[&trained[..], &translator].concat(), "translator");
    let untrained = small_run(folder, &untrained, "untrained");
    // Its page gets the phases as chapters of the replay.
    let phases = json!({"phases": [
        {
            "between": [20, 90], "steps": [30, 50, 80],
            "changes": [{"between": [20, 90]}, {"layer": 1, "head": 0, "between": [30, 80]}],
            "sentences": ["Phase 1 of 2: the loss falls.", "<b>0.1</b> rises."],
        },
        {"between": [100, 200], "steps": null, "changes": [], "sentences": ["Phase 2 of 2: 1.0 rises."]},
    ]});
    fs::write(decoder.join("phases.json"), phases.to_string()).unwrap();
    stdout_of(folder, &["report", "decoder"]);
    let reports = [&decoder, &translator, &untrained].map(|run| run.join("report.html"));
    // An interrupted run has no analysis.
    let [analysis, hidden] = ["analysis.json", "hidden"].map(|name| decoder.join(name));
    fs::rename(&analysis, &hidden).unwrap();
    stdout_of(folder, &["report", "decoder", "--out", "interrupted.html"]);
    fs::rename(&hidden, &analysis).unwrap();
    stdout_of(folder, &["inspect", "untrained", "--tokens", "3 1 4", "--out", "inspected"]);
    let inspected = folder.join("inspected/report.html");
    browse("views.mjs", &[&reports[..], &[folder.join("interrupted.html"), inspected.clone()]].concat());
    pictures_open_on_important_heads(folder);
    browse("links.mjs", &[reports[0].clone(), inspected]);
}
