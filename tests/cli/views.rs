//! Tests of single panels of report pages: their words and places, links to them, and the undo of typed edits.

use tempfile::TempDir;

use super::page::browse;
use super::{small_run, stdout_of};

#[test]
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
    let reports = [&decoder, &translator, &untrained].map(|run| run.join("report.html"));
    browse("views.mjs", &reports);

    stdout_of(folder, &["inspect", "untrained", "--tokens", "3 1 4", "--out", "inspected"]);
    browse("links.mjs", &[reports[0].clone(), folder.join("inspected/report.html")]);
}
