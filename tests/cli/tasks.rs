//! Tasks with a known optimum are learned down to it.

use std::fs;

use tempfile::TempDir;

use super::{text, train};

#[test]
fn three_tasks_come_within_a_twentieth_of_a_nat_of_their_floor() {
    let place = TempDir::new().unwrap();
    let sets = [
        "data.vocab=8",
        "data.length=12",
        "data.train_samples=8192",
        "model.d_model=48",
        "model.position=learned",
        "training.steps=900",
        "analysis.every=0",
    ];
    for task in ["arithmetic", "reverse", "copy_gap"] {
        let chosen = format!("data.task={task}");
        let output = train(place.path(), &[&sets[..], &[&chosen]].concat(), &["--run", task]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let summary = fs::read(place.path().join(task).join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_slice(&summary).unwrap();
        let (loss, floor) =
            (summary["best_valid_loss"].as_f64().unwrap(), summary["floor"].as_f64().unwrap());
        assert!(loss - floor < 0.05, "{task}: {loss} is not within 0.05 of {floor}");
        assert!(summary["determined_accuracy"].as_f64().unwrap() > 0.98, "{task}: {summary}");
    }
}
