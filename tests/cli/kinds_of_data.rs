//! Training on the kinds of data in docs/data.md: event logs, numbers, short texts, pairs and conversations.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::page::browse;
use super::{program, stdout_of, text};

/// Trains for a few steps on `file` with the given keys.
fn trained(folder: &Path, file: &str, run: &str, sets: &[&str]) {
    let mut command = program(folder);
    command.args(["train", "--run", run, "--progress", "none", "--data", file, "--steps", "60"]);
    let small = [
        "model.layers=1",
        "model.d_model=32",
        "model.heads=2",
        "training.backend=ndarray",
        "training.batch_size=16",
        "analysis.circuit=false",
    ];
    for set in small.iter().chain(sets) {
        command.args(["--set", set]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{file} {sets:?}: {}", text(&output.stderr));
    for file in ["report.html", "plots/attention.png", "vocabulary.json"] {
        assert!(folder.join(run).join(file).is_file(), "{run}: {file}");
    }
}

/// Returns the samples that a run generates.
fn generated(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["generate"], arguments, &["--json"]].concat();
    let output: Value = serde_json::from_str(&stdout_of(folder, &arguments)).unwrap();
    output["samples"].as_array().unwrap().clone()
}

#[test]
fn names_are_trained_generated_and_scored() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let names: String = (0..200).map(|row| ["emma\n", "ava\n", "mia\n"][row % 3]).collect();
    fs::write(folder.join("names.txt"), &names).unwrap();
    fs::write(folder.join("held.csv"), "emma\nmia\n").unwrap();
    trained(folder, "names.txt", "names", &["data.source=table", "data.tokens=characters"]);
    // Without a prompt, a name starts after the end token of the previous one.
    let printed = stdout_of(folder, &["generate", "names", "--greedy"]);
    assert!(["emma", "ava", "mia"].contains(&printed.trim()), "{printed}");
    let prompted = stdout_of(folder, &["generate", "names", "--greedy", "--prompt", "em"]);
    assert_eq!(prompted, "emma\n");
    let score = stdout_of(folder, &["evaluate", "names", "--data", "held.csv", "--json"]);
    let score: Value = serde_json::from_str(&score).unwrap();
    assert_eq!(score["targets_in_file"], 9, "{score}");
}

#[test]
fn pairs_train_both_architectures() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let sums: String =
        (0..400).map(|row| format!("{}+{}\t{}\n", row % 2, row / 2 % 2, row % 2 + row / 2 % 2)).collect();
    fs::write(folder.join("sums.tsv"), format!("question\tanswer\n{sums}")).unwrap();
    let pairs = ["data.source_column=question", "data.target_column=answer", "training.learning_rate=1e-2"];
    trained(folder, "sums.tsv", "decoder", &pairs);
    let encoder = [&pairs[..], &["model.architecture=encoder_decoder"]].concat();
    trained(folder, "sums.tsv", "encoder", &encoder);
    fs::write(folder.join("held.tsv"), "question\tanswer\n1+1\t2\n0+1\t1\n").unwrap();
    for run in ["decoder", "encoder"] {
        let held_out = stdout_of(folder, &["evaluate", run, "--data", "held.tsv", "--json"]);
        let held_out: Value = serde_json::from_str(&held_out).unwrap();
        assert_eq!(held_out["tokens"], 4, "two answers and their end tokens: {held_out}");
        let samples = generated(folder, &[run, "--greedy", "--prompt", "1+1"]);
        assert_eq!(samples[0]["text"], "2", "{run}: {samples:?}");
        // An answer with its end token has the loss that `evaluate` prints.
        let scored: Vec<f64> = [("1+1", "2"), ("0+1", "1")]
            .iter()
            .map(|(source, answer)| {
                let scored =
                    stdout_of(folder, &["score", run, "--source", source, "--text", answer, "--json"]);
                let scored: Value = serde_json::from_str(&scored).unwrap();
                let scores = scored["log_probabilities"].as_array().unwrap();
                let scores: Vec<f64> = scores.iter().filter_map(Value::as_f64).collect();
                assert_eq!(scores.len(), 1, "{scored}");
                -scores[0]
            })
            .collect();
        let loss = held_out["loss"].as_f64().unwrap();
        assert!(scored.iter().sum::<f64>() < 4.0 * loss + 1e-6, "{scored:?} {loss}");
    }
    // The ids in the JSON are those that the model read, and give the same text again.
    let sample = &generated(folder, &["decoder", "--greedy", "--prompt", "1+1"])[0];
    let ids = sample["prompt"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(sample["prompt"].as_array().unwrap().len(), 5, "<end> 1 + 1 <sep>: {sample}");
    let again = &generated(folder, &["decoder", "--greedy", "--tokens", &ids])[0];
    assert_eq!(again["tokens"], sample["tokens"]);

    // Only targets of the answer count, in an explanation and on the page too.
    let pair = ["decoder", "--source", "1+1", "--text", "2"];
    let explained = stdout_of(folder, &[&["explain", "--json"], &pair[..]].concat());
    let explained: Value = serde_json::from_str(&explained).unwrap();
    let scored = stdout_of(folder, &[&["score", "--json"], &pair[..]].concat());
    let scored: Value = serde_json::from_str(&scored).unwrap();
    let loss = scored["loss"].as_f64().unwrap();
    assert!((explained["model"].as_f64().unwrap() - loss).abs() < 1e-5, "{explained}");
    let typed = program(folder).args(["score", "decoder", "--text", "1+1"]).output().unwrap();
    assert!(text(&typed.stderr).contains("pass what it answers with --source"), "{}", text(&typed.stderr));
    stdout_of(folder, &[&["inspect"], &pair[..], &["--out", "inspected"]].concat());
    browse("answers.mjs", &[folder.join("inspected/report.html"), loss.to_string().into()]);
}

#[test]
fn events_are_grouped_and_prompted_as_json() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let event = |case: usize, step: usize| {
        let activity = ["register request", "check ticket", "pay"][step];
        format!("{},2024-01-{:02} 09:00,{activity}\n", case, 1 + (case + step) % 28)
    };
    // The steps of each case are in reverse order.
    let log: String = (0..60)
        .flat_map(|case| (0..3).rev().map(move |step| event(case % 25 + 100 * (case / 25), step)))
        .collect();
    fs::write(folder.join("log.csv"), format!("case,time,activity\n{log}")).unwrap();
    let sets =
        ["data.group_by=case", "data.order_by=time", "data.column=activity", "training.learning_rate=1e-2"];
    trained(folder, "log.csv", "log", &sets);
    let samples =
        generated(folder, &["log", "--greedy", "--prompt", r#"["register request", "check ticket"]"#]);
    assert!(samples[0]["text"].as_str().unwrap().starts_with("pay"), "{samples:?}");
}

#[test]
fn numbers_are_prompted_and_generated_as_numbers() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let wave: String = (0..600).map(|time| format!("{:.3}\n", (f64::from(time) * 0.4).sin())).collect();
    fs::write(folder.join("wave.csv"), format!("level\n{wave}")).unwrap();
    let sets = ["data.column=level", "data.bins=8", "data.length=16"];
    trained(folder, "wave.csv", "wave", &sets);
    let printed =
        stdout_of(folder, &["generate", "wave", "--greedy", "--prompt", "0.1 0.5 0.8", "--max-new", "5"]);
    let numbers: Vec<f64> = printed.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 8, "{printed}");
    assert!(numbers.iter().all(|number| (-1.0..=1.0).contains(number)), "{printed}");
    let refused = program(folder).args(["generate", "wave", "--prompt", "0,1 0,5"]).output().unwrap();
    assert!(text(&refused.stderr).contains("write decimals with a point"), "{}", text(&refused.stderr));
    let far = program(folder).args(["score", "wave", "--text", "0.1 0.5 900"]).output().unwrap();
    assert!(text(&far.stderr).contains("1 of 3 numbers are far outside"), "{}", text(&far.stderr));
}

#[test]
fn conversations_are_trained_on_the_answers() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let chat: String = (0..100)
        .map(|row| {
            let question = ["a", "b"][row % 2];
            let answer = ["x", "y"][row % 2];
            format!(
                "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{question}\"}}, {{\"role\": \"assistant\", \
                 \"content\": \"{answer}\"}}]}}\n"
            )
        })
        .collect();
    fs::write(folder.join("chat.jsonl"), chat).unwrap();
    trained(folder, "chat.jsonl", "chat", &["training.learning_rate=1e-2"]);
    let answer = stdout_of(folder, &["generate", "chat", "--greedy", "--prompt", "a"]);
    assert_eq!(answer, "x\n", "only the answer is printed");
    // A turn of the user is scored like a source: its answer is what training has learned.
    let scored = stdout_of(folder, &["score", "chat", "--source", "a", "--text", "x", "--json"]);
    let scored: Value = serde_json::from_str(&scored).unwrap();
    assert!(scored["loss"].as_f64().unwrap() < 0.1, "{scored}");
    assert_eq!(scored["tokens"].as_array().unwrap().len(), 6, "<end> <user> a <end> <assistant> x: {scored}");
    let summary: Value =
        serde_json::from_slice(&fs::read(folder.join("chat/summary.json")).unwrap()).unwrap();
    // Only the answer and its end token count, and both are determined by the question.
    assert!(summary["best_valid_loss"].as_f64().unwrap() < 0.1, "{summary}");
}

#[test]
fn a_validation_file_replaces_the_split() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let rows = |offset: usize| {
        (0..50).map(|row| format!("{},{}\n", row % 5, (row + offset) % 5)).collect::<String>()
    };
    fs::create_dir(folder.join("parts")).unwrap();
    fs::write(folder.join("parts/a.csv"), rows(1)).unwrap();
    fs::write(folder.join("parts/b.csv"), rows(1)).unwrap();
    fs::write(folder.join("held.csv"), rows(2)).unwrap();
    let described = stdout_of(
        folder,
        &["data", "--json", "--set", "data.path=parts/*.csv", "--set", "data.valid_path=held.csv"],
    );
    let described: Value = serde_json::from_str(&described).unwrap();
    assert_eq!((&described["train"]["samples"], &described["valid"]["samples"]), (&100.into(), &50.into()));
    assert_eq!(described["table"]["files"], 2);
}

#[test]
fn lists_and_patterns_of_paths_replace_the_built_in_task() {
    let dir = TempDir::new().unwrap();
    let rows =
        |shift: usize| (0..40).map(|row| format!("{},{}\n", row % 4, (row + shift) % 4)).collect::<String>();
    fs::create_dir(dir.path().join("logs")).unwrap();
    for (name, shift) in [("a.csv", 1), ("b.csv", 2)] {
        fs::write(dir.path().join("logs").join(name), rows(shift)).unwrap();
    }
    let described = |path: &str| {
        let output = program(dir.path()).args(["data", "--json", "--set", path]).output().unwrap();
        assert!(output.status.success(), "{path}: {}", text(&output.stderr));
        let mut data: Value = serde_json::from_slice(&output.stdout).unwrap();
        data["name"].take();
        data
    };
    let list = described("data.path=[\"logs/a.csv\", \"logs/b.csv\"]");
    assert_eq!((&list["source"], &list["vocab"]), (&"table".into(), &4.into()));
    for path in ["data.path=logs/*", "data.path=logs/[ab].csv", "data.path=logs"] {
        assert_eq!(described(path), list, "{path}");
    }
}
