//! `runs` and `compare`: several runs side by side.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use crate::{page::browse, program, small_run, stdout_of, summary, text};

#[test]
fn compare_averages_seeds_and_tests_for_significance() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    for rate in ["0.01", "0.00001"] {
        for seed in 1..=3 {
            let sets = [format!("training.learning_rate={rate}"), format!("run.seed={seed}")];
            let more = ["training.min_learning_rate=0", "training.steps=300", "training.validate_every=50"];
            let more = more.into_iter().chain(["data.train_samples=4096"]);
            let sets: Vec<&str> = sets.iter().map(String::as_str).chain(more).collect();
            small_run(folder, &sets, &format!("runs/{rate}-{seed}"));
        }
    }
    let json = stdout_of(folder, &["compare", "runs", "--out", "side", "--json"]);
    let found: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["keys"], serde_json::json!(["training.learning_rate"]));
    assert_eq!(found["measure"], "above_floor");
    let settings = found["settings"].as_array().unwrap();
    assert_eq!(settings.len(), 2);
    assert_eq!(settings[0]["values"]["training.learning_rate"], "0.01");
    let gaps = (1..=3).map(|seed| {
        let summary = summary(&folder.join(format!("runs/0.01-{seed}")));
        summary["best_valid_loss"].as_f64().unwrap() - summary["floor"].as_f64().unwrap()
    });
    let mean = gaps.sum::<f64>() / 3.0;
    assert!((settings[0]["above_floor"]["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
    assert!(settings[1]["p_corrected"].as_f64().unwrap() < 0.05);
    let sentences = found["sentences"].to_string();
    assert!(
        sentences.contains("training.learning_rate = 0.00001 compared with")
            && sentences.contains(": more than the noise")
    );
    assert_eq!(found["runs"].as_array().unwrap().len(), 6);

    for file in ["side/losses.png", "side/heads.png", "side/report.html"] {
        assert!(folder.join(file).is_file(), "{file}");
    }
    fs::write(folder.join("expected.json"), &json).unwrap();
    browse("compare.mjs", &[folder.join("side"), folder.join("expected.json")]);

    // A damaged run is skipped with a warning; the others are compared.
    fs::write(folder.join("runs/0.01-1/metrics.csv"), "step\n").unwrap();
    let output = program(folder).args(["compare", "runs"]).output().unwrap();
    assert!(output.status.success());
    let warned = text(&output.stderr);
    assert!(
        warned.starts_with("warning: skipped: ") && warned.contains("0.01-1/metrics.csv: has changed"),
        "{warned}"
    );
    assert!(text(&output.stdout).starts_with("5 runs, 2 settings: they differ in training.learning_rate\n"));

    assert_refuses_to_compare(folder);
}

fn assert_refuses_to_compare(folder: &Path) {
    for (arguments, expected) in [
        (&["runs/0.01-2", "runs/0.01-2"][..], "is passed twice"),
        (&["runs/0.01-2"], "pass two or more"),
        (&["runs/0.01-2", "nothing"], "cannot list `nothing`"),
        (&["runs", "--by", "model.hed"], "no run has this key; the runs differ in training.learning_rate"),
        (&["runs", "--out", "runs"], "was not made by `compare`"),
    ] {
        let output = program(folder).arg("compare").args(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(
            stderr.lines().filter(|line| line.starts_with("error: ")).count() == 1
                && stderr.contains(expected),
            "{stderr}"
        );
    }
}

#[test]
fn comparisons_of_different_runs_print_short_lines() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "one");
    let other =
        ["training.steps=3", "model.layers=1", "model.norm=post", "model.bias=false", "data.task=sort"];
    let more =
        ["training.optimizer=sgd", "training.schedule=linear", "data.vocab=8", "model.activation=relu"];
    small_run(dir.path(), &[&other[..], &more].concat(), "two");
    let output = program(dir.path()).args(["compare", "one", "two"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.lines().all(|line| line.chars().count() <= 160), "{stdout}");
    assert!(stdout.contains("model.activation") && stdout.contains("setting 2"), "{stdout}");
}

#[test]
fn duplicate_runs_count_once() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=2"], "one");
    small_run(folder, &["training.steps=2"], "again");
    small_run(folder, &["training.steps=2", "run.seed=7"], "other");
    let output = program(folder).args(["compare", "one", "again", "other", "--json"]).output().unwrap();
    let comparison: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(comparison["settings"][0]["runs"], 2, "{comparison}");
    let sentence = comparison["sentences"].as_array().unwrap().last().unwrap().as_str().unwrap();
    assert!(sentence.contains("again is not counted"), "{comparison}");
}

#[test]
fn edited_configs_are_warned_about() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    for seed in ["1", "2"] {
        small_run(folder, &["training.steps=3", &format!("run.seed={seed}")], seed);
    }
    let commands: [&[&str]; 3] = [&["runs", "1", "2"], &["compare", "1", "2"], &["report", "1"]];
    let warnings = |command: &[&str]| {
        let output = program(folder).args(command).output().unwrap();
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{command:?}: {printed}");
        printed.matches("has changed since the run ended").count()
    };
    commands.iter().for_each(|command| assert_eq!(warnings(command), 0, "{command:?}"));
    let config = folder.join("1/config.toml");
    let edited = fs::read_to_string(&config).unwrap().replacen("learning_rate = ", "learning_rate = 1", 1);
    fs::write(&config, edited).unwrap();
    commands.iter().for_each(|command| assert_eq!(warnings(command), 1, "{command:?}"));
    let listed: Value = serde_json::from_str(&stdout_of(folder, &["runs", "1", "2", "--json"])).unwrap();
    assert_eq!([0, 1].map(|run| listed[run]["config_changed"].clone()), [true, false].map(Value::from));
}

/// Trains a small run on a text, up to step `until` if it is given.
fn train_on_text(folder: &Path, path: &str, sets: &[&str], run: &str, until: Option<&str>) {
    let mut command = program(folder);
    command.args(["train", "--run", run, "--data", path, "--length", "8", "--layers", "1", "--quiet"]);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    command.args(["--set", "training.steps=6", "--set", "analysis.circuit=false"]);
    command.args(until.into_iter().flat_map(|step| ["--until", step]));
    assert!(command.status().unwrap().success(), "{run}");
}

#[test]
fn compare_ignores_moved_data_and_unfinished_runs() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let words = "to be or not to be, that is the question. ".repeat(30);
    fs::write(folder.join("a.txt"), &words).unwrap();
    fs::create_dir(folder.join("moved")).unwrap();
    fs::write(folder.join("moved/a.txt"), &words).unwrap();
    let train = |path, sets: &[_], run, until| train_on_text(folder, path, sets, run, until);
    train("a.txt", &[], "one", None);
    train("moved/a.txt", &["training.learning_rate=0.01", "run.seed=1"], "two", None);
    train("a.txt", &["training.learning_rate=0.02"], "paused", Some("3"));
    let compared = |runs: &[&str]| {
        let output = program(folder).arg("compare").args(runs).arg("--json").output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let comparison = compared(&["one", "two", "paused"]);
    assert_eq!(comparison["keys"], serde_json::json!(["training.learning_rate"]), "{comparison}");
    let sentences = comparison["sentences"].to_string();
    assert!(
        sentences.contains("1 of 1 run is excluded, because it diverged, did not end or was never validated"),
        "{comparison}"
    );
    let pictures = ["compare", "one", "two", "paused", "--out", "side", "--format", "svg"];
    stdout_of(folder, &pictures);
    let svg = fs::read_to_string(folder.join("side/losses.svg")).unwrap();
    assert_eq!(svg.matches("excluded: paused").count(), 1, "the row without a result names its reason");

    // Losses on different data are not averaged.
    fs::write(folder.join("b.txt"), words.to_uppercase() + "another text").unwrap();
    train("b.txt", &["model.heads=2"], "elsewhere", None);
    let output =
        program(folder).args(["compare", "one", "elsewhere", "--by", "model.heads"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(
        output.status.code() == Some(2)
            && stderr.contains("the means of their losses by model.heads are not comparable"),
        "{stderr}"
    );
}

#[test]
fn runs_whose_keys_changed_on_resume_differ() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    fs::write(folder.join("a.txt"), "to be or not to be, that is the question. ".repeat(30)).unwrap();
    train_on_text(folder, "a.txt", &[], "one", None);
    train_on_text(folder, "a.txt", &["training.learning_rate=0.02"], "paused", Some("3"));
    // A paused run cannot be resumed with another seed.
    let config = folder.join("paused/config.toml");
    let original = fs::read_to_string(&config).unwrap();
    fs::write(&config, original.replacen("seed = 0", "seed = 7", 1)).unwrap();
    let output = program(folder).args(["train", "--resume", "paused"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && stderr.contains("has a different `run.seed` or [model]"),
        "{stderr}"
    );
    fs::write(&config, &original).unwrap();
    // The checkpoint records changes in the config and on the command line.
    fs::write(&config, original.replacen("batch_size = 32", "batch_size = 16", 1)).unwrap();
    let resume = ["train", "--resume", "paused", "--learning-rate", "0.03", "--quiet"];
    assert!(program(folder).args(resume).status().unwrap().success());
    let compared = |runs: &[&str]| -> Value {
        serde_json::from_str(&stdout_of(folder, &[&["compare", "--json"], runs].concat())).unwrap()
    };
    let sentences = compared(&["one", "paused"])["sentences"].to_string();
    let change = "paused was resumed after step 3 with training.batch_size = 16 (was 32), training.learning_rate = \
                  0.03 (was 0.02)";
    assert!(sentences.contains(change), "{sentences}");
    // An uninterrupted run with the last keys is another setting.
    let last = ["training.batch_size=16", "training.learning_rate=0.03"];
    train_on_text(folder, "a.txt", &last, "whole", None);
    for runs in [["whole", "paused"], ["paused", "whole"]] {
        assert_eq!(compared(&runs)["keys"], serde_json::json!(["resumed"]));
    }
}

#[test]
fn runs_from_other_weights_at_the_same_path_differ() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=9"], "first");
    small_run(folder, &["training.steps=9", "run.seed=1"], "second");
    let start = |from: &str, run: &str| {
        fs::rename(folder.join(from), folder.join("start")).unwrap();
        let command = ["train", "--from", "start", "--steps", "5", "--run", run];
        assert!(program(folder).args(command).output().unwrap().status.success());
        fs::rename(folder.join("start"), folder.join(from)).unwrap();
    };
    start("first", "one");
    start("second", "two");
    let copied = ["train", "--from", "first", "--steps", "5", "--run", "copy"];
    assert!(program(folder).args(copied).output().unwrap().status.success());
    let compared = |runs: [&str; 2]| -> Value {
        serde_json::from_str(&stdout_of(folder, &[&["compare", "--json"], &runs[..]].concat())).unwrap()
    };
    assert_eq!(compared(["one", "two"])["keys"], serde_json::json!(["run.from.contents"]));
    assert_eq!(compared(["one", "copy"])["keys"], serde_json::json!([]));
}

#[test]
fn finished_runs_count_rather_than_paused_ones() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let train = |run: &str, more: &[&str]| {
        let mut command = program(folder);
        command
            .args(["train", "--steps", "20", "--batch-size", "8", "--d-model", "16", "--run", run])
            .args(["--set", "analysis.circuit=false"])
            .args(more);
        assert!(command.output().unwrap().status.success(), "{run}");
    };
    train("paused", &["--until", "5"]);
    train("finished", &[]);
    train("other", &["--learning-rate", "1e-4"]);
    let compared = |runs: [&str; 3]| -> Value {
        serde_json::from_str(&stdout_of(folder, &[&["compare", "--json"], &runs[..]].concat())).unwrap()
    };
    let [one, two] = [["paused", "finished", "other"], ["finished", "paused", "other"]].map(compared);
    assert_eq!(one["settings"], two["settings"]);
    assert!(one["sentences"].to_string().contains("paused is not counted"), "{one}");
    // A folder without runs is reported.
    fs::create_dir(folder.join("empty")).unwrap();
    let listed = program(folder).args(["runs", "finished", "empty"]).output().unwrap();
    assert!(text(&listed.stderr).contains("empty: contains no runs"), "{}", text(&listed.stderr));
}
