//! Paths that are not UTF-8, models without data, settings with long names.
#![cfg(target_os = "linux")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::generate::json;
use crate::{SMALL, program, small_run, text};

/// Runs the program and parses its JSON output.
fn printed(folder: &Path, arguments: &[&OsStr]) -> Value {
    let output = program(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn json_names_paths_that_are_not_utf8() {
    let dir = TempDir::new().unwrap();
    let odd: &OsStr = OsStr::from_bytes(b"r\xe9sum\xe9");
    let sets = SMALL.iter().chain(&["training.steps=3"]);
    let sets: Vec<OsString> = sets.flat_map(|set| ["--set".into(), set.into()]).collect();
    let with = |words: &[&str], last: &[&OsStr]| -> Vec<OsString> {
        words.iter().map(OsString::from).chain(last.iter().map(OsString::from)).collect()
    };
    let all = |words: &[&str], last: &[&OsStr]| {
        let arguments = with(words, last);
        printed(dir.path(), &arguments.iter().map(OsString::as_os_str).collect::<Vec<_>>())
    };
    let shown = "r\u{fffd}sum\u{fffd}";
    let train = [&with(&["train", "--backend", "ndarray", "--json", "--run"], &[odd])[..], &sets].concat();
    let trained = printed(dir.path(), &train.iter().map(OsString::as_os_str).collect::<Vec<_>>());
    assert_eq!(trained["run"], shown);
    assert!(trained["pictures"][0].as_str().unwrap().starts_with(shown), "{trained}");
    small_run(dir.path(), &["training.steps=3"], "plain");

    let listed = all(&["runs", ".", "--json"], &[]);
    assert_eq!(listed[1]["path"], format!("./{shown}"));
    let compared = all(&["compare", "--json", "plain"], &[odd]);
    assert_eq!(compared["runs"].as_array().unwrap().len(), 2);
    for command in ["evaluate", "plot", "report"] {
        all(&[command, "--json"], &[odd]);
    }
    let plotted = all(&["plot", "plain", "--json", "--out"], &[OsStr::from_bytes(b"p\xe9")]);
    assert!(plotted["pictures"][0].as_str().unwrap().starts_with("p\u{fffd}/"), "{plotted}");
    let output = program(dir.path()).args(["evaluate", "plain", "--data"]).arg(odd).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("the path is not UTF-8; rename the file"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn an_imported_model_is_listed_with_its_origin() {
    let dir = TempDir::new().unwrap();
    let family = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama");
    fs::create_dir(dir.path().join("llama")).unwrap();
    for entry in fs::read_dir(&family).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, dir.path().join("llama").join(path.file_name().unwrap())).unwrap();
    }
    let weights = "llama/model.safetensors";
    assert!(program(dir.path()).args(["import", weights, "--run", "all/run"]).status().unwrap().success());
    let listed = json(dir.path(), &["runs", "all", "--json"]);
    let run = &listed[0];
    assert_eq!((&run["ended"], &run["data"]), (&Value::from("imported"), &Value::Null));
    assert_eq!((&run["imported_from"], &run["parameters"]), (&Value::from(weights), &Value::from(6384)));
    let stdout = text(&program(dir.path()).args(["runs", "all"]).output().unwrap().stdout);
    assert!(stdout.contains("from llama/model.safetensors") && stdout.contains("6,384"), "{stdout}");
    assert!(!stdout.contains("repeat"), "{stdout}");
}

#[test]
fn long_settings_fit_the_comparison_table() {
    let dir = TempDir::new().unwrap();
    for (name, sets) in [
        ("one", &["data.task=sort", "data.period=auto", "model.position=alibi", "model.layers=1"][..]),
        (
            "two",
            &["model.d_model=24", "training.batch_size=4", "training.learning_rate=0.01", "training.steps=4"],
        ),
    ] {
        small_run(dir.path(), &[&["training.steps=3"], sets].concat(), name);
    }
    let compared = json(dir.path(), &["compare", "one", "two", "--json"]);
    assert!(compared["settings"][0]["values"].as_object().unwrap().len() > 5, "{compared}");
    let stdout = text(&program(dir.path()).args(["compare", "one", "two"]).output().unwrap().stdout);
    let table: Vec<_> = stdout.lines().filter(|line| line.contains(" = ")).collect();
    assert!(!table.is_empty(), "{stdout}");
    assert!(table.iter().all(|line| line.chars().count() < 160), "{stdout}");
}

#[test]
fn training_reports_the_family_of_its_model() {
    let dir = TempDir::new().unwrap();
    let run = |arguments: &[&str]| text(&program(dir.path()).args(arguments).output().unwrap().stdout);
    let stdout = run(&["train", "--dry-run", "--backend", "ndarray"]);
    let needs = "not to transformers; the closest family, gpt2, needs `model.position` = \"learned\"";
    assert!(stdout.contains(&format!("  export      {needs}\n")), "{stdout}");
    let stdout = run(&["train", "--dry-run", "--backend", "ndarray", "--set", "model.position=learned"]);
    assert!(stdout.contains("  export      to transformers as gpt2\n"), "{stdout}");
    let sets = SMALL.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>();
    let stdout = run(&[&["train", "--backend", "ndarray", "--set", "training.steps=3"][..], &sets].concat());
    assert!(stdout.ends_with("  export    to transformers as gpt2\n"), "{stdout}");
}
