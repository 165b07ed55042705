//! Texts of separate documents: training, resuming, evaluation, scores and refusals.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::{assert_same_result, program, resume, stdout_of, summary, text, train};

/// The end token is 0, and the letters a to d are 1 to 4.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{"id": 0,
    "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
    "special": true}], "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"<|endoftext|>": 0, "a": 1, "b": 2, "c": 3, "d": 4}, "merges": []}}"#;

/// Writes a text of documents of 3 to 7 tokens with the end token, and its tokenizer.
fn documents(folder: &Path) {
    let document =
        |index: usize| "abcd".chars().cycle().skip(index * index % 7).take(2 + index % 5).collect();
    let all: Vec<String> = (0..400).map(document).collect();
    fs::write(folder.join("stories.txt"), all.join("<|endoftext|>")).unwrap();
    fs::write(folder.join("tokenizer.json"), TOKENIZER).unwrap();
}

const SEPARATE: [&str; 12] = [
    "data.path=stories.txt",
    "data.tokens=tokenizer.json",
    "data.documents=separate",
    "data.length=16",
    "model.d_model=16",
    "model.heads=2",
    "model.layers=1",
    "training.batch_size=4",
    "training.steps=12",
    "training.validate_every=4",
    "training.log_every=3",
    "analysis.sequences=8",
];

#[test]
fn separate_documents_train_resume_and_evaluate() {
    let dir = TempDir::new().unwrap();
    documents(dir.path());
    let sets = [&SEPARATE[..], &["model.position=learned", "data.lengths=[8, 20]", "training.accumulate=2"]]
        .concat();
    let trained = train(dir.path(), &sets, &["--run", "whole"]);
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let whole = dir.path().join("whole");
    let stopped = train(dir.path(), &sets, &["--run", "run", "--until", "7"]);
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    assert!(resume(dir.path(), "run").status().unwrap().success());
    assert_same_result(&dir.path().join("run"), &whole);
    // The kernels agree on the losses.
    let reference = [&sets[..], &["training.kernels=reference"]].concat();
    assert!(train(dir.path(), &reference, &["--run", "reference"]).status.success());
    let loss = |run: &Path| summary(run)["best_valid_loss"].as_f64().unwrap();
    assert!((loss(&whole) - loss(&dir.path().join("reference"))).abs() < 1e-4);
    // Every fifth or so target begins a document and does not count.
    let evaluated: Value =
        serde_json::from_str(&stdout_of(dir.path(), &["evaluate", "whole", "--json"])).unwrap();
    let described: Value = serde_json::from_str(&stdout_of(
        dir.path(),
        &[&["data", "--json"][..], &SEPARATE.map(|set| ["--set", set]).concat()].concat(),
    ))
    .unwrap();
    assert_eq!(described["documents"]["median_length"], 5);
    assert_eq!(evaluated["tokens"], described["valid"]["targets"]);
    assert!((evaluated["loss"].as_f64().unwrap() - loss(&whole)).abs() < 1e-5);
    // The stored samples keep their documents.
    let samples: Value = serde_json::from_slice(&fs::read(whole.join("samples.json")).unwrap()).unwrap();
    let numbers = samples[0]["documents"].as_array().unwrap();
    assert!(numbers.len() == 16 && numbers[0] == 0 && numbers[15] == 4, "{numbers:?}");
}

#[test]
fn scores_of_documents_equal_scores_alone() {
    let dir = TempDir::new().unwrap();
    documents(dir.path());
    assert!(train(dir.path(), &SEPARATE, &["--run", "run"]).status.success());
    let scores = |tokens: &str| -> Vec<Option<f64>> {
        let report = stdout_of(dir.path(), &["score", "run", "--tokens", tokens, "--json"]);
        let report: Value = serde_json::from_str(&report).unwrap();
        serde_json::from_value(report["log_probabilities"].clone()).unwrap()
    };
    let (packed, first, second) = (scores("1 2 3 0 4 1 2 0"), scores("1 2 3 0"), scores("4 1 2 0"));
    let close = |found: &[Option<f64>], expected: &[Option<f64>]| {
        let pairs = found.iter().zip(expected);
        found.len() == 3 && pairs.clone().all(|(a, b)| (a.unwrap() - b.unwrap()).abs() < 1e-5)
    };
    assert!(close(&packed[..3], &first) && close(&packed[4..], &second), "{packed:?} {first:?} {second:?}");
    assert_eq!(packed[3], None, "the first token of a document is not predicted");
    let inspected = stdout_of(dir.path(), &["inspect", "run", "--tokens", "1 2 3 0 4 1", "--json"]);
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    let row: Vec<f64> = serde_json::from_value(inspected["weights"][0][0][5].clone()).unwrap();
    assert!(row[..4] == [0.0; 4] && (row[4] + row[5] - 1.0).abs() < 1e-5, "{row:?}");
    let generated = |prompt: &str| {
        let arguments = ["generate", "run", "--tokens", prompt, "--greedy", "--max-new", "6", "--json"];
        let report: Value = serde_json::from_str(&stdout_of(dir.path(), &arguments)).unwrap();
        report["samples"][0]["tokens"].clone()
    };
    assert_eq!(generated("4 4 4 0 1 2"), generated("1 2"));
    let stderr = |arguments: &[&str]| {
        let output = program(dir.path()).args(["generate", "run"]).args(arguments).output().unwrap();
        (output.status.code(), text(&output.stderr).clone())
    };
    let (code, error) = stderr(&["--prompt", "ab<|endoftext|>"]);
    assert!(code == Some(2) && error.contains("remove `<|endoftext|>`, or add the beginning"), "{error}");
    let (code, notice) = stderr(&["--prompt", "ab", "--ignore-end"]);
    assert!(
        code == Some(0) && notice.contains("the first token after each `<|endoftext|>` is arbitrary"),
        "{notice}"
    );
}

#[test]
fn questions_and_interventions_read_separate_documents() {
    let dir = TempDir::new().unwrap();
    documents(dir.path());
    let sets = [&SEPARATE[..], &["model.position=rotary", "analysis.circuit=false"]].concat();
    assert!(train(dir.path(), &sets, &["--run", "run"]).status.success());
    let number = |arguments: &[&str], key: &str| {
        let report: Value = serde_json::from_str(&stdout_of(dir.path(), arguments)).unwrap();
        report[key].as_f64().unwrap_or_else(|| panic!("{arguments:?}: {report}"))
    };
    let model = |text: &str, more: &[&str]| {
        number(&[&["explain", "run", "--json", "--text", text], more].concat(), "model")
    };
    for more in [&["--target", "last"][..], &["--target", "last", "--answer", "b", "--against", "a"]] {
        let [alone, after] = [model("cda", more), model("abcd<|endoftext|>cda", more)];
        assert!((alone - after).abs() < 1e-4, "{alone} {after}");
    }
    let corrupt = ["--target", "last", "--answer", "b", "--corrupt", "abc<|endoftext|>dcda"];
    let refused = ["explain", "run", "--text", "abcd<|endoftext|>cda"];
    refuses(
        dir.path(),
        &[&refused[..], &corrupt].concat(),
        "corrupt: the corrupted text has its documents elsewhere",
    );
    let at_end = ["explain", "run", "--text", "abcd<|endoftext|>", "--target", "last", "--answer", "a"];
    refuses(dir.path(), &at_end, "ends a document");

    for (name, contents) in
        [("one", "cda\n"), ("two", "abcd<|endoftext|>cda\n"), ("split", "abcd<|endoftext|>\ncda\n")]
    {
        fs::write(dir.path().join(format!("{name}.txt")), contents).unwrap();
    }
    let loss =
        |more: &[&str]| number(&[&["score", "run", "--json", "--text", "abcda"], more].concat(), "loss");
    for [one, two] in [
        [&["--steer", "one.txt:resid_post.0*2"][..], &["--steer", "two.txt:resid_post.0*2"]],
        [&["--ablate", "0.*", "--mean-from", "split.txt"], &["--ablate", "0.*", "--mean-from", "two.txt"]],
    ] {
        let [one, two, plain] = [loss(one), loss(two), loss(&[])];
        assert!((one - two).abs() < 1e-5 && (one - plain).abs() > 1e-5, "{one} {two} {plain}");
    }

    // In a longer text, activations at a position depend on the window.
    let long = "abcd".repeat(5);
    let at = ["--at", "resid_post.0@last"];
    let score = ["score", "run", "--text", &long, "--patch-from", &long];
    refuses(dir.path(), &[&score[..], &at].concat(), "20 tokens is longer than the context of 16 tokens");
    let generate = ["generate", "run", "--prompt", "abcd", "--patch-from", "abcd", "--greedy"];
    refuses(dir.path(), &[&generate[..], &at].concat(), "pass --max-new 13");
    stdout_of(dir.path(), &[&generate[..], &at, &["--max-new", "13"]].concat());
    // Only the last document of a prompt is read.
    let prompt = "abcd".repeat(4) + "<|endoftext|>ab";
    let output =
        program(dir.path()).args(["generate", "run", "--max-new", "2", "--prompt", &prompt]).output();
    assert!(!text(&output.unwrap().stderr).contains("longer than the context"));
}

fn refuses(folder: &Path, arguments: &[&str], problem: &str) {
    let output = program(folder).args(arguments).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
    assert!(stderr.contains(problem), "{stderr}");
}

#[test]
fn texts_of_one_document_are_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("one.txt"), "abcd".repeat(400)).unwrap();
    let output = program(dir.path())
        .args(["data", "--set", "data.path=one.txt", "--set", "data.documents=separate"])
        .output();
    let output = output.unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("`data.documents` = \"separate\" needs several documents"), "{stderr}");
    assert!(stderr.contains("set `data.path` to a folder with a file per document"), "{stderr}");
}

#[test]
fn separate_documents_of_tasks_have_no_effect() {
    let dir = TempDir::new().unwrap();
    let page = stdout_of(dir.path(), &["data", "--set", "data.documents=separate"]);
    assert!(
        page.contains("`data.documents` = \"separate\" has no effect: it applies only to texts"),
        "{page}"
    );
}

#[test]
fn a_score_across_documents_is_not_explained() {
    let dir = TempDir::new().unwrap();
    documents(dir.path());
    assert!(train(dir.path(), &SEPARATE, &["--run", "run"]).status.success());
    let why = |asked: &str| {
        let arguments = ["inspect", "run", "--text", "ab<|endoftext|>cd", "--why", asked];
        program(dir.path()).args(arguments).output().unwrap()
    };
    assert!(why("0.1:4:3").status.success());
    let refused = why("0.1:4:1");
    assert_eq!(refused.status.code(), Some(2));
    let stderr = text(&refused.stderr);
    assert!(stderr.contains("is in another document than the query at position 4"), "{stderr}");
}

#[test]
fn a_validation_text_may_be_one_document_but_not_the_training_text() {
    let dir = TempDir::new().unwrap();
    documents(dir.path());
    fs::write(dir.path().join("one.txt"), "abcdabcdabcdabcdabcdabcdabcd").unwrap();
    let data = |path: &str, valid: &str| {
        let own = [format!("data.path={path}"), format!("data.valid_path={valid}")];
        let sets = SEPARATE[1..4].iter().copied().chain(own.iter().map(String::as_str));
        let sets: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
        program(dir.path()).args(["data", "--json"]).args(sets).output().unwrap()
    };
    let found = data("stories.txt", "one.txt");
    assert!(found.status.success(), "{}", text(&found.stderr));
    let described: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(described["documents"]["valid"], 1);
    let refused = data("one.txt", "stories.txt");
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("needs several documents, but the text is one file"), "{stderr}");
}
