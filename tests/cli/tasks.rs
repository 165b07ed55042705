//! Tasks with a known optimum are learned down to their entropy floor, by the mechanism that their docs name.

use std::fs;

use causal_attention::analysis::circuit::{Explanation, HeadInput, HeadKind};
use tempfile::TempDir;

use super::{text, train};

/// Trains a small decoder on a task, asserts that it has learned the task, and returns its explanation.
fn explain(task: &str, sets: &[&str]) -> Explanation {
    let dir = TempDir::new().unwrap();
    let chosen = format!("data.task={task}");
    let small = [
        "data.vocab=8",
        "data.length=12",
        "data.train_samples=8192",
        "model.d_model=48",
        "model.position=learned",
        "training.steps=450",
        "training.learning_rate=3e-3",
        "analysis.every=0",
        &chosen,
    ];
    let output = train(dir.path(), &[&small[..], sets].concat(), &["--run", task]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |file: &str| fs::read(dir.path().join(task).join(file)).unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&read("summary.json")).unwrap();
    let (loss, floor) = (summary["best_valid_loss"].as_f64().unwrap(), summary["floor"].as_f64().unwrap());
    assert!(loss - floor < 0.05, "{task}: {loss} is not within 0.05 of {floor}");
    if let Some(accuracy) = summary["determined_accuracy"].as_f64() {
        assert!(accuracy > 0.98, "{task}: {summary}");
    }
    serde_json::from_slice(&read("circuit.json")).unwrap()
}

/// Returns true if the most important head of the circuit in this layer is of this kind.
fn first_head_has_kind(found: &Explanation, layer: usize, kind: HeadKind) -> bool {
    let head = found.components.iter().find(|part| part.layer == layer && part.head.is_some());
    head.is_some_and(|head| head.kinds.contains(&kind))
}

#[test]
fn fixed_positions_are_read_by_a_positional_head() {
    for task in ["reverse", "copy_gap"] {
        let found = explain(task, &[]);
        assert!(first_head_has_kind(&found, 0, HeadKind::Positional), "{task}: {:?}", found.sentences);
    }
}

#[test]
fn addition_uses_positional_heads_and_an_mlp() {
    let found = explain("addition", &["data.digits=1", "training.steps=900"]);
    let fetches = found.components.iter().any(|part| part.kinds.contains(&HeadKind::Positional));
    let adds = found.components.iter().any(|part| part.feed_forward);
    assert!(fetches && adds, "{:?}", found.sentences);
}

#[test]
fn arithmetic_uses_an_attention_head_and_an_mlp() {
    let found = explain("arithmetic", &[]);
    assert!(found.components[0].feed_forward, "{:?}", found.sentences);
    let fetches = found.components.iter().any(|part| (part.layer, part.head.is_some()) == (0, true));
    assert!(fetches, "{:?}", found.sentences);
}

#[test]
fn second_order_markov_uses_a_previous_token_head() {
    let found = explain("markov", &["data.vocab=6", "data.order=2"]);
    assert!(first_head_has_kind(&found, 0, HeadKind::PreviousToken), "{:?}", found.sentences);
    assert!(
        found.components.iter().any(|part| part.feed_forward),
        "an MLP looks up the pair: {:?}",
        found.sentences
    );
}

#[test]
fn recall_uses_a_copying_head_with_key_composition() {
    let sets = ["data.length=16", "data.train_samples=32768", "model.position=alibi", "training.steps=1000"];
    let found = explain("recall", &sets);
    assert!(first_head_has_kind(&found, 1, HeadKind::Copying), "{:?}", found.sentences);
    let by_key = found.edges.iter().any(|edge| edge.input == Some(HeadInput::Key) && edge.to.0 == 1);
    assert!(by_key, "{:?}", found.sentences);
}
