//! `explain` with a question: a target, an answer, a corrupted text, a file of prompts, or a standard probe.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::{program, small_run, stdout_of, text};

/// The settings of a run that counts.
pub const COUNTING: [&str; 5] = [
    "data.task=arithmetic",
    "data.train_samples=4000",
    "training.steps=1000",
    "training.batch_size=32",
    "training.learning_rate=1e-2",
];

/// Trains a run that counts, so that the previous two tokens determine the next one.
fn counting_run() -> TempDir {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &COUNTING, "run");
    dir
}

fn explained(dir: &TempDir, arguments: &[&str]) -> Value {
    let arguments = [&["explain", "run"], arguments, &["--json"]].concat();
    serde_json::from_str(&stdout_of(dir.path(), &arguments)).unwrap()
}

#[test]
fn an_answer_is_explained_against_another() {
    let dir = counting_run();
    let question =
        ["--tokens", "2 4 6 8 10 12", "--answer", "14", "--against", "13", "--corrupt", "1 3 5 7 9 11"];
    let found = explained(&dir, &question);
    assert_eq!((&found["quantity"], &found["ablation"]), (&"logit_difference".into(), &"resample".into()));
    assert_eq!((&found["targets"], &found["positions"]), (&1.into(), &serde_json::json!([5])));
    let sentence = found["sentences"][0].as_str().unwrap();
    assert_eq!(sentence, "Question: why `14` (id 14) and not `13` (id 13) after `12` (id 12) at position 5?");
    let value = |key: &str| found[key].as_f64().unwrap();
    assert!((value("faithfulness") - 1.0).abs() <= 0.05, "{found}");
    let share = (value("circuit") - value("baseline")) / (value("model") - value("baseline"));
    assert!((value("faithfulness") - share).abs() < 1e-6 && value("baseline") < 0.0, "{found}");
    let random = &found["random_effects"];
    assert_eq!(random["targets"], 1);
    let largest = |found: &Value| {
        let components = found["components"].as_array().unwrap().iter();
        let changes =
            components.map(|it| (it["ablated"].as_f64().unwrap() - found["model"].as_f64().unwrap()).abs());
        changes.fold(0.0, f64::max)
    };
    assert!(random["largest"].as_f64().unwrap() < largest(&found), "{found}");
    let restored = &random["patching"];
    assert!(
        restored["tested"].as_u64().unwrap() > 1 && restored["largest"].as_f64().unwrap() < 2.0,
        "{random}"
    );
    // Each head is followed by what it attends to at the target.
    let heads: Vec<&Value> =
        found["components"].as_array().unwrap().iter().filter(|it| it["head"].is_number()).collect();
    let attended = found["sentences"].as_array().unwrap().iter().filter_map(Value::as_str);
    let attended = attended.filter(|it| it.contains(" attends from `12` (position 5) to `"));
    assert!(!heads.is_empty() && attended.count() == heads.len(), "{found}");
    // The target chooses the position, and the next token of the text is the answer.
    let found = explained(&dir, &["--tokens", "2 4 6 8 10 12", "--target", "3"]);
    assert_eq!((&found["inputs"], &found["next"][3]), (&serde_json::json!([2, 4, 6, 8]), &10.into()));
    let printed = stdout_of(dir.path(), &[&["explain", "run"], &question[..]].concat());
    assert!(printed.contains("resampled from the corrupted sequence"), "{printed}");
    assert!(dir.path().join("run/explain/circuit.png").is_file(), "{printed}");
}

#[test]
fn prompts_of_a_file_are_explained_together() {
    let dir = counting_run();
    let line = |text: &str, answer: u32, against: u32| {
        serde_json::json!({"text": text, "answer": answer.to_string(), "against": against.to_string()})
            .to_string()
    };
    let lines = [
        line("2 4 6 8", 10, 9),
        line("1 2 3 4 5", 6, 7),
        line("3 6 9 12", 15, 13),
        line("1 3 5 7 9 11", 13, 12),
        line("3 6 9 12", 15, 13),
    ];
    fs::write(dir.path().join("prompts.jsonl"), lines.join("\n")).unwrap();
    let found = explained(&dir, &["--prompts", "prompts.jsonl"]);
    assert_eq!((&found["sequences"], &found["targets"]), (&4.into(), &4.into()));
    let first = found["sentences"][0].as_str().unwrap();
    assert!(first.starts_with("Question: the answers of 4 prompts, such as the first: why "), "{first}");
    for component in found["components"].as_array().unwrap() {
        assert_eq!(component["interval"].as_array().unwrap().len(), 2, "{component}");
    }
}

#[test]
fn repeated_tokens_are_generated() {
    let dir = counting_run();
    let printed = stdout_of(dir.path(), &["explain", "run", "--pattern", "repeat:4"]);
    assert!(printed.starts_with("Random tokens, repeated after 4: the loss is "), "{printed}");
    assert!(printed.contains("Heads of the kind previous-token"), "{printed}");
    let found = explained(&dir, &["--pattern", "repeat"]);
    assert_eq!((&found["sequences"], &found["repeated"]["length"]), (&8.into(), &6.into()), "{found}");
}

#[test]
fn bad_questions_are_refused_in_one_line() {
    let dir = counting_run();
    let prompts = [("bad.jsonl", "{\"text\": \"1 2\"}\n{\"txt\": 3}\n"), ("empty.jsonl", "\n")];
    let mixed = "{\"text\": \"1 2\", \"against\": \"4\"}\n{\"text\": \"1 2\"}\n";
    for (name, text) in prompts.into_iter().chain([("mixed.jsonl", mixed)]) {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let long = "1 ".repeat(40);
    for (arguments, expected) in [
        (
            &["--tokens", "1 2 3", "--target", "7"][..],
            "position 7 is outside the text of 3 tokens, whose positions are 0 to 2",
        ),
        (
            &["--tokens", "1 2 3", "--target", "x"],
            "`x` is not a token of the text, whose tokens are `1` `2` `3`",
        ),
        (
            &["--tokens", "1 2 3", "--answer", "4 5"],
            "`4 5` must be one token, but has 2: `4` (id 4) `5` (id 5)",
        ),
        (&["--tokens", "1 2 3", "--answer", "99"], "vocabulary"),
        (&["--tokens", "1 2 3", "--answer", ""], "answer: the text `` has no token; pass one token"),
        (&["--tokens", "1 2 3", "--answer", "4", "--against", "4"], "are the same; pass two tokens"),
        (&["--tokens", "1 2 3", "--corrupt", "1 2"], "has 2 tokens, but the text has 3"),
        (
            &["--tokens", "1 2 3", "--corrupt", "1 2"],
            "which --align shows side by side: `1` `2` and `1` `2` `3`",
        ),
        (&["--tokens", "1 2 9", "--target", "9"], "0 to 2; write token:9 for the token `9`"),
        (&["--tokens", "1 2 3", "--align"], "--corrupt"),
        (&["--tokens", "1 2 3", "--corrupt", "1 2 3"], "equals the text up to the target at position 2"),
        (&["--prompts", "bad.jsonl"], "bad.jsonl:2:6: is not a prompt: unknown field `txt`"),
        (&["--prompts", "empty.jsonl"], "empty.jsonl: has no prompts"),
        (&["--prompts", "mixed.jsonl"], "1 of 2 prompts has a token to compare with"),
        (&["--prompts", "nowhere.jsonl"], "nowhere.jsonl"),
        (&["--tokens", &long, "--answer", "4"], "40 tokens is longer"),
        (&["--pattern", "repeat:1"], "write repeat, or repeat:N"),
        (&["--pattern", "repeat:99"], "--pattern: 99 different tokens are more than the vocabulary has"),
    ] {
        let output = program(dir.path()).args(["explain", "run"]).args(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn targets_name_tokens_of_digits() {
    let dir = counting_run();
    let found = |target: &str| explained(&dir, &["--tokens", "3 1 3 5 7 9 11 13", "--target", target]);
    let (by_position, by_token) = (found("3"), found("token:3"));
    assert_eq!(by_position["inputs"], serde_json::json!([3, 1, 3, 5]));
    assert_eq!(by_token["inputs"], serde_json::json!([3, 1, 3]));
    let question = |found: &Value| found["sentences"][0].as_str().unwrap().to_string();
    let note = "(The target 3 is a position; token:3 is the token `3`, at position 2.)";
    assert!(question(&by_position).ends_with(note) && !question(&by_token).contains("(The"), "{by_position}");
    let line = r#"{"text": "3 1 3 5 7 9 11 13", "target": "3", "answer": "7"}"#;
    fs::write(dir.path().join("prompts.jsonl"), line).unwrap();
    assert!(question(&explained(&dir, &["--prompts", "prompts.jsonl"])).ends_with(note));
}

#[test]
fn texts_of_different_lengths_are_shown_side_by_side() {
    let dir = counting_run();
    let align = ["explain", "run", "--tokens", "2 4 6 8", "--corrupt", "2 5 1 6 8", "--align"];
    let printed = stdout_of(dir.path(), &align);
    let expected = [
        "The text has 4 tokens, the corrupted text 5; rows with * differ.",
        "  position  text  position  corrupted",
        "         0  `2`          0  `2`",
        "*        1  `4`          1  `5`",
        "*                        2  `1`",
        "         2  `6`          3  `6`",
        "         3  `8`          4  `8`",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    assert!(!dir.path().join("run/explain").exists(), "nothing is explained");
}

#[test]
fn the_smallest_circuit_is_proven_on_request() {
    let dir = counting_run();
    let question =
        ["--tokens", "2 4 6 8 10 12", "--answer", "14", "--against", "13", "--corrupt", "1 3 5 7 9 11"];
    let greedy = explained(&dir, &question);
    let certified = explained(&dir, &[&question[..], &["--certify"]].concat());
    assert!(
        greedy.get("smaller_sets").is_none() && certified["smaller_sets"].as_u64().unwrap() > 0,
        "{certified}"
    );
    let count = |found: &Value| found["components"].as_array().unwrap().len();
    assert!(count(&certified) <= count(&greedy), "{certified}");
    let sentences = certified["sentences"].as_array().unwrap();
    assert!(
        sentences.iter().any(|it| it.as_str().unwrap().starts_with("No smaller circuit exists")),
        "{sentences:?}"
    );
}
