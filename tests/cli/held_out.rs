//! Held-out files, which `evaluate` scores completely, and warnings about changed data.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{program, small_run, text};

const WORDS: &str = "to be or not to be, that is the question. ";

/// Returns a run on `book.txt`, in a folder with a longer text, a short one, and a copy of the book.
fn trained_dir() -> TempDir {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, contents: &str| fs::write(dir.path().join(name), contents).unwrap();
    write("book.txt", &WORDS.repeat(40));
    write("copy.txt", &WORDS.repeat(40));
    write("heldout.txt", &"not to be that is or ".repeat(30)[..601]);
    write("tiny.txt", "to be");
    write("one.txt", "t");
    small_run(dir.path(), &["data.path=book.txt", "training.steps=5"], "run");
    dir
}

fn scored(folder: &Path, arguments: &[&str]) -> (String, u64, u64) {
    let result = json(folder, &[&["evaluate", "run", "--json"], arguments].concat());
    let count = |key: &str| result[key].as_u64().unwrap();
    (result["split"].as_str().unwrap().to_string(), count("tokens"), count("targets_in_file"))
}

#[test]
fn every_target_of_a_held_out_file_counts() {
    let dir = trained_dir();
    let folder = dir.path();
    let whole = ("whole".to_string(), 600, 600);
    assert_eq!(scored(folder, &["--data", "heldout.txt"]), whole);
    assert_eq!(scored(folder, &["--set", "data.path=heldout.txt"]), whole);
    assert_eq!(scored(folder, &["--data", "heldout.txt", "--set", "data.length=7"]), whole);
    assert_eq!(scored(folder, &["--data", "tiny.txt"]), ("whole".to_string(), 4, 4));
    assert_eq!(scored(folder, &["--data", "heldout.txt", "--split", "valid"]).0, "valid");
    let output = run(folder, &["evaluate", "run", "--data", "heldout.txt"]);
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("run: 600 targets of 600 in `heldout.txt` (the whole file)\n"), "{stdout}");
    let output = run(folder, &["evaluate", "run", "--data", "tiny.txt", "--set", "data.values=symbols"]);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("`data.values` = \"symbols\" has no effect") && output.status.code() == Some(2),
        "{stderr}"
    );
    let output = run(folder, &["evaluate", "run", "--data", "one.txt"]);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("one.txt: has 1 token, so there is nothing to predict"), "{stderr}");
}

#[test]
fn settings_that_the_data_does_not_use_are_reported() {
    let dir = trained_dir();
    let read_as_text = ["evaluate", "run", "--data", "heldout.txt"];
    let output = run(dir.path(), &[&read_as_text[..], &["--set", "data.column=name"]].concat());
    let stderr = text(&output.stderr);
    let unused = "warning: `data.column` = \"name\" has no effect: it applies only to tables";
    assert!(output.status.success() && stderr.contains(unused), "{stderr}");
    assert!(!text(&run(dir.path(), &read_as_text).stderr).contains("has no effect"));
    let output = run(dir.path(), &["evaluate", "run", "--set", "data.bins=4"]);
    let stderr = text(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("`data.bins` = 4 has no effect"), "{stderr}");
}

#[test]
fn unknown_tokens_in_a_file_are_reported() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, contents: &str| fs::write(dir.path().join(name), contents).unwrap();
    let tokens = ["[UNK]", "to", "be", "or", "not", "that"].map(String::from).into_iter();
    let tokens = tokens.enumerate().map(|(id, token)| (token, id.into())).collect::<serde_json::Map<_, _>>();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "[UNK]"},
    });
    write("tokenizer.json", &tokenizer.to_string());
    write("english.txt", &"to be or not to be or that ".repeat(40));
    write("german.txt", &"sein oder nicht sein ".repeat(40));
    let sets = ["data.path=english.txt", "data.tokens=tokenizer.json", "training.steps=5"];
    small_run(dir.path(), &sets, "run");
    let stderr_of = |file: &str| text(&run(dir.path(), &["evaluate", "run", "--data", file]).stderr);
    assert!(!stderr_of("english.txt").contains("lacks tokens"));
    let german = stderr_of("german.txt");
    assert!(
        german.contains("160 of 160 tokens are `[UNK]`, because the tokenizer lacks tokens for parts of"),
        "{german}"
    );
}

#[test]
fn own_data_keeps_its_split_under_any_path() {
    let dir = trained_dir();
    let all = WORDS.len() as u64 * 40 - 1;
    let own = scored(dir.path(), &[]);
    assert_eq!((own.0.as_str(), own.2), ("valid", all));
    assert_eq!(scored(dir.path(), &["--data", "copy.txt"]), own);
    for other_length in [&["--set", "data.length=7"][..], &["--data", "copy.txt", "--set", "data.length=7"]] {
        assert_eq!(scored(dir.path(), other_length), own);
    }
    assert_eq!(scored(dir.path(), &["--split", "whole"]), ("whole".to_string(), all, all));
    let (_, train, _) = scored(dir.path(), &["--split", "train"]);
    assert_eq!(train + own.1 + 1, all, "the first token of the validation set is not a target");
    let stdout = text(&run(dir.path(), &["evaluate", "run"]).stdout);
    assert!(
        stdout.contains(&format!("{} targets of 1,679 in `", own.1))
            && stdout.contains("book.txt` (the validation set)"),
        "{stdout}"
    );
}

#[test]
fn every_row_of_a_held_out_table_counts() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("lines.csv"), "1,2,3\n4,5,6\n".repeat(40)).unwrap();
    fs::write(dir.path().join("one.csv"), "4,5,6\n").unwrap();
    small_run(dir.path(), &["data.path=lines.csv", "data.vocab=auto", "training.steps=1"], "run");
    assert_eq!(scored(dir.path(), &["--data", "one.csv"]), ("whole".to_string(), 2, 2));
    let train = scored(dir.path(), &["--split", "train"]);
    assert_eq!((train.1, train.2), (144, 160));
}

#[test]
fn columns_of_another_table_follow_their_names() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, contents: String| fs::write(dir.path().join(name), contents).unwrap();
    let rows = |row: fn(usize) -> String| (0..80).map(row).collect::<String>();
    write("abc.csv", "a,b,c\n".to_string() + &rows(|row| format!("{},{},{}\n", row % 3, row % 5, row % 7)));
    write(
        "cab.csv",
        "c,x,a,b\n".to_string() + &rows(|row| format!("{},9,{},{}\n", row % 7, row % 3, row % 5)),
    );
    write("ab.csv", "a,b\n".to_string() + &rows(|row| format!("{},{}\n", row % 3, row % 5)));
    write("bare.csv", rows(|row| format!("{},{},{}\n", row % 3, row % 5, row % 7)));
    small_run(dir.path(), &["data.path=abc.csv", "data.vocab=auto", "training.steps=1"], "run");
    let loss =
        |more: &[&str]| json(dir.path(), &[&["evaluate", "run", "--json"], more].concat())["loss"].clone();
    assert_eq!(loss(&["--data", "cab.csv"]), loss(&[]));
    let stderr = text(&run(dir.path(), &["evaluate", "run", "--data", "ab.csv"]).stderr);
    assert!(stderr.contains("ab.csv:1: lacks 1 column (c) of the training data, and has a, b;"), "{stderr}");
    let stderr = text(&run(dir.path(), &["train", "--from", "run", "--data", "ab.csv", "--dry-run"]).stderr);
    assert!(stderr.contains("ab.csv:1: lacks 1 column (c)"), "{stderr}");
    let stderr =
        text(&run(dir.path(), &["evaluate", "run", "--data", "bare.csv", "--split", "whole"]).stderr);
    assert!(
        stderr.contains("does not have a header, so its columns are read in the order of the run: a, b, c")
    );
}

#[test]
fn evaluating_on_training_sequences_is_warned_about() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let row = |row: usize| format!("{},{},{}\n", row % 7, row / 7 % 7, row / 49 % 7);
    let rows = |range: std::ops::Range<usize>| range.map(row).collect::<String>();
    fs::write(folder.join("all.csv"), rows(0..200)).unwrap();
    fs::write(folder.join("seen.csv"), rows(0..150)).unwrap();
    fs::write(folder.join("new.csv"), rows(200..300)).unwrap();
    let sets = ["data.path=all.csv", "data.split=tail", "data.vocab=7", "training.steps=3"];
    small_run(folder, &sets, "run");
    let run = |arguments: &[&str]| {
        let output = program(folder).args(arguments).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let leaks = |arguments: &[&str], part: &str| {
        let (code, stderr) = run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
        stderr.contains(part)
    };
    let part = "the run was trained on";
    let half = ["evaluate", "run", "--set", "data.valid_fraction=0.5"];
    assert!(leaks(&half, "trained on 80 of the 100 sequences"));
    assert!(leaks(&["evaluate", "run", "--data", "seen.csv"], "trained on 150 of the 150 sequences"));
    let first_part = ["evaluate", "run", "--data", "seen.csv", "--split", "train"];
    assert!(leaks(&first_part, "trained on 135 of the 135 sequences"));
    assert!(!leaks(&["evaluate", "run"], part) && !leaks(&["evaluate", "run", "--data", "new.csv"], part));
    let from = ["train", "--from", "run", "--run", "new", "--set", "data.valid_fraction=0.5", "--steps", "2"];
    assert!(leaks(&from, "80 of 100 validation sequences were in the training set of the run"));

    let config = "[data]\npath = \"all.csv\"\n[model]\ndropout = 0.3\n";
    fs::write(folder.join("ft.toml"), config).unwrap();
    let (_, stderr) = run(&["train", "ft.toml", "--from", "run", "--dry-run"]);
    assert!(
        stderr.contains("`model.dropout` = 0.3 in `ft.toml` has no effect: the model comes from `run`"),
        "{stderr}"
    );
    let (_, stderr) = run(&["train", "--from", "run", "--set", "model.activation=relu", "--dry-run"]);
    assert!(
        stderr.contains("`model.activation` = \"relu\", but the weights of `run` were trained with"),
        "{stderr}"
    );

    // Other contents under the same name count as another setting, and `explain` refuses them.
    fs::write(folder.join("all.csv"), rows(100..300)).unwrap();
    let (code, stderr) = run(&["explain", "run"]);
    assert!(
        code == Some(2) && stderr.contains("the data has changed since the run `run` started"),
        "{stderr}"
    );
    small_run(folder, &[&sets[..], &["run.seed=1"]].concat(), "other");
    let output = program(folder).args(["compare", "run", "other", "--json"]).output().unwrap();
    let compared: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(compared["keys"], serde_json::json!(["data.contents"]), "{compared}");
}

#[test]
fn runs_with_other_validation_rows_are_not_compared() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let rows: String =
        (0..200).map(|row| format!("{},{},{}\n", row % 7, row / 7 % 7, row / 49 % 7)).collect();
    fs::write(folder.join("all.csv"), rows).unwrap();
    for seed in ["1", "4"] {
        let seeded = format!("data.seed={seed}");
        let sets = ["data.path=all.csv", "data.split=shuffle", "training.steps=3"];
        small_run(folder, &[&sets[..], &[&seeded]].concat(), seed);
    }
    let output = program(folder).args(["compare", "1", "4", "--json"]).output().unwrap();
    let compared: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(compared["keys"], serde_json::json!(["data.contents", "data.seed"]), "{compared}");
    assert!(compared["sentences"].to_string().contains("their losses are not compared"), "{compared}");
}

#[test]
fn changed_training_data_is_reported() {
    let dir = trained_dir();
    let folder = dir.path();
    let warnings = |arguments: &[&str]| text(&run(folder, arguments).stderr);
    let from = ["train", "--from", "run", "--steps", "2", "--run"];
    let seen = "were in the training set of the run";
    assert!(warnings(&[&from[..], &["seen", "--data", "copy.txt"]].concat()).contains(seen));
    let is_reported = |split| {
        let stderr = warnings(&["evaluate", "run", "--split", split]);
        stderr.contains("the data has changed since the run `run`")
    };
    let splits = ["valid", "train", "whole"];
    assert_eq!(splits.map(is_reported), [false; 3]);
    fs::write(folder.join("book.txt"), WORDS.repeat(41)).unwrap();
    assert_eq!(splits.map(is_reported), [true; 3]);
    let changed = "book.txt` has changed since the run";
    for (name, more) in [("other", &["--data", "copy.txt"][..]), ("same", &[])] {
        let stderr = warnings(&[&from[..], &[name], more].concat());
        assert!(stderr.contains(changed), "{name}: {stderr}");
    }
    assert!(warnings(&["evaluate", "run", "--data", "copy.txt"]).contains(changed));
}

#[test]
fn steps_after_the_last_validation_are_reported() {
    let dir = trained_dir();
    let arguments = ["train", "--from", "run", "--run", "late", "--steps", "900", "--max-minutes", "1e-9"];
    let stderr = text(&run(dir.path(), &arguments).stderr);
    assert!(stderr.contains("the time limit was reached 1 step after the last validation"), "{stderr}");
    assert!(stderr.contains("the weights of step 0"), "{stderr}");
}

#[test]
fn epochs_that_are_not_one_pass_are_reported() {
    let dir = trained_dir();
    let stderr_of = |batch: &str| {
        let data = ["train", "--data", "book.txt", "--length", "16", "--epochs", "2", "--dry-run"];
        text(&run(dir.path(), &[&data[..], &["--batch-size", batch]].concat()).stderr)
    };
    assert!(
        stderr_of("500").contains("an epoch of 1 step reads the training text 5."),
        "{}",
        stderr_of("500")
    );
    assert!(!stderr_of("10").contains("an epoch of"), "{}", stderr_of("10"));
}
