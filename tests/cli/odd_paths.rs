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
    let place = TempDir::new().unwrap();
    let odd: &OsStr = OsStr::from_bytes(b"r\xe9sum\xe9");
    let sets = SMALL.iter().chain(&["training.steps=3", "analysis.circuit=false"]);
    let sets: Vec<OsString> = sets.flat_map(|set| ["--set".into(), set.into()]).collect();
    let with = |words: &[&str], last: &[&OsStr]| -> Vec<OsString> {
        words.iter().map(OsString::from).chain(last.iter().map(OsString::from)).collect()
    };
    let all = |words: &[&str], last: &[&OsStr]| {
        let arguments = with(words, last);
        printed(place.path(), &arguments.iter().map(OsString::as_os_str).collect::<Vec<_>>())
    };
    let shown = "r\u{fffd}sum\u{fffd}";
    let train = [&with(&["train", "--backend", "ndarray", "--json", "--run"], &[odd])[..], &sets].concat();
    let trained = printed(place.path(), &train.iter().map(OsString::as_os_str).collect::<Vec<_>>());
    assert_eq!(trained["run"], shown);
    assert!(trained["pictures"][0].as_str().unwrap().starts_with(shown), "{trained}");
    small_run(place.path(), &["training.steps=3"], "plain");

    let listed = all(&["runs", ".", "--json"], &[]);
    assert_eq!(listed[1]["path"], format!("./{shown}"));
    let compared = all(&["compare", "--json", "plain"], &[odd]);
    assert_eq!(compared["runs"].as_array().unwrap().len(), 2);
    for command in ["evaluate", "plot", "report"] {
        all(&[command, "--json"], &[odd]);
    }
    let made = all(&["plot", "plain", "--json", "--out"], &[OsStr::from_bytes(b"p\xe9")]);
    assert!(made["pictures"][0].as_str().unwrap().starts_with("p\u{fffd}/"), "{made}");
    let output = program(place.path()).args(["evaluate", "plain", "--data"]).arg(odd).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("the path is not UTF-8: rename the file"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn an_imported_model_is_listed_with_its_origin() {
    let place = TempDir::new().unwrap();
    let family = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama");
    fs::create_dir(place.path().join("llama")).unwrap();
    for entry in fs::read_dir(&family).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, place.path().join("llama").join(path.file_name().unwrap())).unwrap();
    }
    let weights = "llama/model.safetensors";
    assert!(program(place.path()).args(["import", weights, "--run", "all/run"]).status().unwrap().success());
    let listed = json(place.path(), &["runs", "all", "--json"]);
    let run = &listed[0];
    assert_eq!((&run["ended"], &run["data"]), (&Value::from("imported"), &Value::Null));
    assert_eq!((&run["imported_from"], &run["parameters"]), (&Value::from(weights), &Value::from(6384)));
    let said = text(&program(place.path()).args(["runs", "all"]).output().unwrap().stdout);
    assert!(said.contains("from llama/model.safetensors") && said.contains("6,384"), "{said}");
    assert!(!said.contains("repeat"), "{said}");
}

#[test]
fn long_settings_fit_the_comparison_table() {
    let place = TempDir::new().unwrap();
    for (name, sets) in [
        ("one", &["data.task=sort", "data.period=auto", "model.position=alibi", "model.layers=1"][..]),
        (
            "two",
            &["model.d_model=24", "training.batch_size=4", "training.learning_rate=0.01", "training.steps=4"],
        ),
    ] {
        small_run(place.path(), &[&["training.steps=3"], sets].concat(), name);
    }
    let compared = json(place.path(), &["compare", "one", "two", "--json"]);
    assert!(compared["settings"][0]["values"].as_object().unwrap().len() > 5, "{compared}");
    let said = text(&program(place.path()).args(["compare", "one", "two"]).output().unwrap().stdout);
    let table: Vec<_> = said.lines().filter(|line| line.contains(" = ")).collect();
    assert!(!table.is_empty(), "{said}");
    assert!(table.iter().all(|line| line.chars().count() < 160), "{said}");
}

#[test]
fn training_says_which_families_its_model_fits() {
    let place = TempDir::new().unwrap();
    let run = |arguments: &[&str]| text(&program(place.path()).args(arguments).output().unwrap().stdout);
    let said = run(&["train", "--dry-run", "--backend", "ndarray"]);
    let needs = "to transformers as no family; the nearest, gpt2, needs `model.position` = \"learned\"";
    assert!(said.contains(&format!("  export      {needs}\n")), "{said}");
    let said = run(&["train", "--dry-run", "--backend", "ndarray", "--set", "model.position=learned"]);
    assert!(said.contains("  export      to transformers as gpt2\n"), "{said}");
    let sets = SMALL.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>();
    let said = run(&[&["train", "--backend", "ndarray", "--set", "training.steps=3"][..], &sets].concat());
    assert!(said.ends_with("  export    to transformers as gpt2\n"), "{said}");
}
