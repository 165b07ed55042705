//! Runs that start from another run: the vocabulary of that run, and the training data of all earlier runs.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{SMALL, small_run, stdout_of, text};

/// Returns the standard error of a command that succeeds.
fn warnings(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    stderr
}

/// Returns a folder with a text, and the run `base` on its byte pairs.
fn with_base() -> TempDir {
    let dir = TempDir::new().unwrap();
    let words = "to be or not to be, that is the question. ".repeat(40);
    fs::write(dir.path().join("book.txt"), words).unwrap();
    let sets = ["data.path=book.txt", "data.tokens=bpe", "data.vocab=300", "training.steps=2"];
    small_run(dir.path(), &sets, "base");
    dir
}

#[test]
fn overridden_vocabulary_keys_are_reported() {
    let dir = with_base();
    let folder = dir.path();
    let from = ["train", "--from", "base", "--dry-run"];
    let unset = warnings(folder, &from);
    assert!(!unset.contains("`data.vocab`") && !unset.contains("`data.tokens`"), "{unset}");
    let set = [&from[..], &["--set", "data.tokens=characters", "--vocab", "400"]].concat();
    let set = warnings(folder, &set);
    for value in ["`data.tokens` = \"characters\"", "`data.vocab` = 400"] {
        let expected = "has no effect with --from: the vocabulary of `base` is used; omit it";
        assert!(set.contains(&format!("warning: {value} {expected}\n")), "{value}: {set}");
    }
    let sets = [&SMALL[..], &["run.from=base", "data.path=book.txt", "data.tokens=characters"]].concat();
    let sets = sets.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>();
    let by_key = warnings(folder, &[&["train", "--dry-run"], &sets[..]].concat());
    assert!(by_key.contains("`data.tokens` = \"characters\" has no effect with `run.from`: "), "{by_key}");

    let rows = (0..200).map(|row| format!("{},{},{}\n", row % 7, row % 5, row % 3)).collect::<String>();
    fs::write(folder.join("rows.csv"), rows).unwrap();
    small_run(folder, &["data.path=rows.csv", "data.vocab=auto", "training.steps=2"], "numbers");
    let set = ["train", "--from", "numbers", "--dry-run", "--set", "data.values=symbols", "--vocab", "30"];
    let set = warnings(folder, &set);
    for value in ["`data.values` = \"symbols\"", "`data.vocab` = 30"] {
        assert!(set.contains(&format!("{value} has no effect with --from: ")), "{value}: {set}");
    }
}

#[test]
fn new_runs_keep_the_vocabulary_keys() {
    let dir = with_base();
    let folder = dir.path();
    let own = "[data]\npath = \"book.txt\"\nlength = 12\ntokens = \"characters\"\n[training]\nsteps = 2\n";
    fs::write(folder.join("own.toml"), own).unwrap();
    let from = ["--from", "base", "--steps", "2", "--backend", "ndarray", "--run"];
    warnings(folder, &[&["train"], &from[..], &["plain", "--set", "data.tokens=characters"]].concat());
    let stderr = warnings(folder, &[&["train", "own.toml"], &from[..], &["tuned"]].concat());
    let expected = "own.toml:4: `data.tokens` = \"characters\" has no effect with --from: ";
    assert!(stderr.contains(expected), "{stderr}");
    let data = |run: &str| {
        let config = fs::read_to_string(folder.join(run).join("config.toml")).unwrap();
        let config: toml::Table = config.parse().unwrap();
        ["tokens", "vocab", "values"].map(|key| config["data"][key].clone())
    };
    assert_eq!([data("plain"), data("tuned")], [data("base"), data("base")]);
    let compared = json(folder, &["compare", "base", "plain", "--json"]);
    let keys = compared["keys"].as_array().unwrap();
    assert!(!keys.iter().any(|key| key.as_str().unwrap().starts_with("data.")), "{compared}");
}

#[test]
fn inherited_vocabularies_are_not_called_too_small() {
    let dir = with_base();
    let warning = "byte pair encoding found only";
    let built = stdout_of(dir.path(), &["data", "--data", "book.txt", "--tokens", "bpe", "--vocab", "300"]);
    assert!(built.contains(warning), "{built}");
    for more in [&["--vocab", "400"][..], &[]] {
        let inherited = warnings(dir.path(), &[&["train", "--from", "base", "--dry-run"], more].concat());
        assert!(!inherited.contains(warning), "{inherited}");
    }
}

#[test]
fn training_data_of_earlier_runs_is_considered() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let row = |row: usize| format!("{},{},{}\n", row % 7, row / 7 % 7, row / 49 % 7);
    for (name, rows) in [("old.csv", 0..200), ("new.csv", 200..340), ("seen.csv", 0..150)] {
        fs::write(folder.join(name), rows.map(row).collect::<String>()).unwrap();
    }
    let sets = ["data.path=old.csv", "data.split=tail", "data.vocab=7", "training.steps=2"];
    small_run(folder, &sets, "first");
    let train = |from: &str, data: &str, name: &str| {
        let start = ["train", "--from", from, "--data", data, "--run", name, "--backend", "ndarray"];
        warnings(folder, &[&start[..], &["--set", "data.split=tail"]].concat())
    };
    let second = train("first", "new.csv", "second");
    assert!(!second.contains("validation sequences were in"), "{second}");
    let third = train("second", "seen.csv", "third");
    let expected = "15 of 15 validation sequences were in the training set of the run that this run starts from or a \
                    run before it";
    assert!(third.contains(expected), "{third}");
    for (arguments, part) in [
        (&["evaluate", "second", "--data", "seen.csv"][..], "was trained on 150 of the 150 sequences"),
        (
            &["evaluate", "third"],
            "the run or a run that it starts from was trained on 15 of the 15 sequences",
        ),
    ] {
        let stderr = warnings(folder, arguments);
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    fs::remove_dir_all(folder.join("first")).unwrap();
    let stderr = warnings(folder, &["evaluate", "second", "--data", "seen.csv"]);
    assert!(!stderr.contains("was trained on") && stderr.contains("first` is missing, so"), "{stderr}");
    fs::remove_file(folder.join("new.csv")).unwrap();
    let stderr = warnings(folder, &["evaluate", "second", "--data", "seen.csv"]);
    assert!(stderr.contains("new.csv` is missing and the run"), "{stderr}");
}
