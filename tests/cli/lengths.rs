//! Evaluation beyond the trained length.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{small_run, text};

/// Asserts that a command fails with exit code 2 and a one-line error, and returns the error.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
    stderr
}

fn of_protocol<'a>(evaluated: &'a Value, protocol: &str) -> Vec<&'a Value> {
    evaluated["lengths"].as_array().unwrap().iter().filter(|at| at["protocol"] == protocol).collect()
}

#[test]
fn tasks_report_loss_and_floor_per_length() {
    let dir = TempDir::new().unwrap();
    let folder = small_run(dir.path(), &["training.steps=9", "model.position=alibi"], "run");
    let before: Vec<_> =
        walkdir::WalkDir::new(&folder).into_iter().map(|entry| entry.unwrap().into_path()).collect();
    let evaluated = json(dir.path(), &["evaluate", "run", "--length", "8,12,96", "--out", "made", "--json"]);
    let [windows, sliding] = ["windows", "sliding"].map(|protocol| of_protocol(&evaluated, protocol));
    for (all, strides) in [(&windows, [8, 12, 96]), (&sliding, [1, 1, 12])] {
        assert_eq!(all.iter().map(|at| at["length"].as_u64().unwrap()).collect::<Vec<_>>(), [8, 12, 96]);
        assert_eq!(all.iter().map(|at| at["stride"].as_u64().unwrap()).collect::<Vec<_>>(), strides);
        for (at, stride) in all.iter().zip(strides) {
            assert_eq!(at["tokens"], 32 * stride);
            let [loss, floor, gap] = ["loss", "floor", "gap"].map(|key| at[key].as_f64().unwrap());
            assert!((loss - floor - gap).abs() < 1e-12, "{at}");
        }
    }
    // At the trained length the windows equal the validation set.
    let near = |a: &Value, b: &Value| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-6;
    assert!(near(&windows[1]["loss"], &evaluated["loss"]) && near(&windows[1]["floor"], &evaluated["floor"]));
    let last = evaluated["loss_by_position"].as_array().unwrap().last().unwrap();
    assert!(near(&sliding[1]["loss"], last), "{last} {}", sliding[1]);
    // Motifs of 7 or 8 tokens repeat, so nearly all of a long sequence is determined.
    assert!(windows[2]["floor"].as_f64() < windows[1]["floor"].as_f64());
    assert!(near(&sliding[2]["floor"], &Value::from(0.0)));
    assert!(fs::metadata(dir.path().join("made/lengths.png")).unwrap().len() > 1_000);
    let after: Vec<_> =
        walkdir::WalkDir::new(&folder).into_iter().map(|entry| entry.unwrap().into_path()).collect();
    assert_eq!(before, after, "the run folder is unchanged");
}

#[test]
fn texts_are_evaluated_in_windows_per_length() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("words.txt"), "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let text = ["data.source=text", "data.path=words.txt", "model.position=rotary", "training.steps=9"];
    small_run(dir.path(), &text, "run");
    let evaluated = json(dir.path(), &["evaluate", "run", "--length", "12,64", "--json"]);
    let [windows, sliding] = ["windows", "sliding"].map(|protocol| of_protocol(&evaluated, protocol));
    assert!((windows[0]["loss"].as_f64().unwrap() - evaluated["loss"].as_f64().unwrap()).abs() < 1e-6);
    assert_eq!(windows[1]["tokens"], evaluated["tokens"]);
    assert_eq!((&windows[0]["floor"], &windows[0]["gap"]), (&Value::Null, &Value::Null));
    // All targets except those before the last eighth of the first window.
    let targets = evaluated["tokens"].as_u64().unwrap();
    assert_ne!(targets % 8, 0, "the last window starts less than an eighth after the previous one");
    assert_eq!(sliding[1]["tokens"].as_u64().unwrap(), targets - 64 + 8);
    let stderr = refused(dir.path(), &["evaluate", "run", "--length", "64,1024"]);
    assert!(stderr.contains("--length 1024: the split has only 167 targets"), "{stderr}");
    fs::write(dir.path().join("lines.csv"), "1,2,3\n4,5,6\n".repeat(40)).unwrap();
    small_run(dir.path(), &["data.path=lines.csv", "data.vocab=auto", "training.steps=1"], "lines");
    let stderr = refused(dir.path(), &["evaluate", "lines", "--length", "2"]);
    assert!(stderr.contains("--length 2: each sequence of this file has its own length"), "{stderr}");
}

#[test]
fn learned_positions_that_training_never_reads_are_reported() {
    let dir = TempDir::new().unwrap();
    for (position, lengths, is_reported) in
        [("learned", "[7, 9]", true), ("learned", "[7, 12]", false), ("rotary", "[7, 9]", false)]
    {
        let (position, lengths) = (format!("model.position={position}"), format!("data.lengths={lengths}"));
        let planned = run(
            dir.path(),
            &["train", "--dry-run", "--set", &position, "--set", &lengths, "--set", "data.length=12"],
        );
        let warned = text(&planned.stderr);
        let problem = "training reads at most 9 positions, but validation 12";
        assert_eq!(warned.contains(problem), is_reported, "{position} {lengths}: {warned}");
    }
}

#[test]
fn invalid_lengths_are_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=1"], "run");
    for (lengths, part) in [
        ("1", "--length 1: must be at least 2"),
        ("12,8", "--length 8: lengths must be unique and in ascending order"),
        ("8,8", "--length 8: lengths must be unique"),
        ("12,13", "--length 13: the model has learned positions, which end at 12"),
        ("4", "--length 4: `data.period` = [7, 8] must end at or below"),
        ("many", "'many'"),
    ] {
        let stderr = refused(dir.path(), &["evaluate", "run", "--length", lengths]);
        assert!(stderr.contains(part), "{stderr}");
    }
    assert!(refused(dir.path(), &["evaluate", "run", "--out", "made"]).contains("--length"));
    let stderr = refused(dir.path(), &["evaluate", "run", "--length", "12", "--out", "run"]);
    assert!(stderr.contains("was not made by `evaluate`"), "{stderr}");
    small_run(dir.path(), &["training.steps=1", "model.position=alibi"], "free");
    let stderr = refused(dir.path(), &["evaluate", "free", "--length", "12,99999999999"]);
    assert!(
        stderr.contains("--length 99999999999: `data.length` = 99999999999 must be in [1, 1048576]"),
        "{stderr}"
    );
    let many = ["--set", "data.valid_samples=100000000", "--length", "12,1048576"];
    let stderr = refused(dir.path(), &[&["evaluate", "free"][..], &many].concat());
    assert!(stderr.contains("need about") || stderr.contains("data.valid_samples"), "{stderr}");
    let sort = ["data.task=sort", "model.position=alibi", "training.steps=1"];
    small_run(dir.path(), &sort, "sort");
    let stderr = refused(dir.path(), &["evaluate", "sort", "--length", "12,25"]);
    assert!(
        stderr.contains("--length 25: the longest sequences of `sort` that fit have 24 targets; use 24"),
        "{stderr}"
    );
    small_run(dir.path(), &[&sort[..], &["model.architecture=encoder_decoder"]].concat(), "pairs");
    let stderr = refused(dir.path(), &["evaluate", "pairs", "--length", "12"]);
    assert!(stderr.contains("an encoder-decoder"), "{stderr}");
    let random = ["model.position=random_sinusoidal", "model.largest_position=40", "training.steps=1"];
    small_run(dir.path(), &random, "random");
    json(dir.path(), &["evaluate", "random", "--length", "40", "--json"]);
    let stderr = refused(dir.path(), &["evaluate", "random", "--length", "41"]);
    assert!(stderr.contains("random_sinusoidal positions, which end at 40"), "{stderr}");
}
