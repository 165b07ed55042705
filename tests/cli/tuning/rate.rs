//! The sweep over learning rates.

use std::fs;

use super::{study_dir, succeeds, with};
use crate::{program, text};

#[test]
fn rate_finder_suggests_without_changing_the_start() {
    let dir = study_dir();
    let stdout = succeeds(dir.path(), &["study.toml", "--find-rate", "--run", "rate"]);
    assert!(stdout.contains("train with"), "{stdout}");
    assert!(dir.path().join("rate/plots/rate_finder.png").metadata().unwrap().len() > 1_000);

    let flat = ["training.optimizer=sgd", "training.max_gradient_norm=1e-9"];
    let stdout = succeeds(dir.path(), &with(&["study.toml", "--find-rate", "--run", "flat"], &flat));
    assert!(stdout.contains("no minimum"), "{stdout}");

    let output = program(dir.path())
        .args(["train", "study.toml", "--run", "run", "--set", "training.steps=12", "--backend", "ndarray"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let weights = || fs::read(dir.path().join("run/model.safetensors")).unwrap();
    let before = weights();
    let sweep = |name: &str| -> serde_json::Value {
        let from = ["study.toml", "--find-rate", "--set", "run.from=run", "--json", "--run", name];
        serde_json::from_str(&succeeds(dir.path(), &from)).unwrap()
    };
    let found = sweep("from");
    assert!(found["points"].as_array().unwrap().len() > 50);
    assert_eq!(found["points"], sweep("again")["points"], "a sweep is deterministic");
    assert!(weights() == before);
}
