//! Studies and the files that they write.

mod interrupted;
mod lost;
mod planned;
mod rate;
mod refused;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::{page::browse, program, text};

/// A small study: each run takes a fraction of a second.
const STUDY: &str = r#"
[data]
task = "sort"
vocab = 8
length = 15
train_samples = 512
valid_samples = 64

[model]
d_model = 16
heads = 2
layers = 1

[training]
steps = 180
batch_size = 16
learning_rate = 3e-3
validate_every = 10

[analysis]
every = 0
sequences = 8

[tune]
method = "halving"
trials = 7
overfit_check = false

[tune.search]
"training.learning_rate" = { min = 1e-4, max = 1e-1, scale = "log" }
"model.d_model" = [16, 24]
"model.heads" = [2, 3]
"#;

fn study_dir() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("study.toml"), STUDY).unwrap();
    dir
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = program(folder);
    command.args(["tune", "--backend", "ndarray", "--progress", "none"]).args(arguments);
    command
}

fn tune(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("cannot start the program")
}

fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = tune(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Trains a single config.
fn trains(folder: &Path, config: &str, run: &str) {
    let output = program(folder)
        .args(["train", config, "--run", run, "--backend", "ndarray", "--progress", "none"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Returns the errors in the output of a command, without notices and warnings.
fn errors(stderr: &str) -> Vec<&str> {
    stderr
        .lines()
        .filter(|line| !["notice: ", "warning: "].iter().any(|kind| line.starts_with(kind)))
        .collect()
}

/// Returns the single line of a refusal.
fn refusal(folder: &Path, arguments: &[&str]) -> String {
    let output = tune(folder, arguments);
    let stderr = text(&output.stderr);
    let lines = errors(&stderr);
    assert_eq!((output.status.code(), lines.len()), (Some(2), 1), "{arguments:?}: {stderr}");
    lines[0].to_string()
}

/// Combines arguments with keys to set.
fn with<'a>(arguments: &[&'a str], sets: &[&'a str]) -> Vec<&'a str> {
    arguments.iter().copied().chain(sets.iter().flat_map(|set| ["--set", set])).collect()
}

/// Returns the rows of a study's table by column, without the time columns.
fn rows(study: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(study.join("study.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let row = |row: csv::StringRecord| {
        let cells = header.iter().zip(row.iter()).filter(|(name, _)| !name.contains("seconds"));
        cells.map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    reader.records().map(|record| row(record.unwrap())).collect()
}

#[test]
fn study_writes_results_and_a_trainable_config() {
    let dir = study_dir();
    let stdout = succeeds(dir.path(), &["study.toml", "--run", "study"]);
    let study = dir.path().join("study");
    browse("study.mjs", std::slice::from_ref(&study));
    for file in [
        "config.toml",
        "study.csv",
        "best.toml",
        "report.html",
        "plots/trials.png",
        "plots/effects.png",
        "plots/learning_rate.png",
        "plots/cost.png",
    ] {
        assert!(study.join(file).metadata().is_ok_and(|data| data.len() > 0), "{file} is missing or empty");
    }
    let rows = rows(&study);
    assert_eq!(rows.len(), 7);
    for row in &rows {
        assert!(
            row["model.d_model"].parse::<usize>().unwrap() % row["model.heads"].parse::<usize>().unwrap()
                == 0
        );
        let (loss, floor, gap) = (&row["loss"], &row["floor"], &row["gap"]);
        let [loss, floor, gap] = [loss, floor, gap].map(|number| number.parse::<f64>().unwrap());
        assert!((loss - floor - gap).abs() < 1e-9);
    }
    let finished = rows.iter().filter(|row| row["ended"] == "completed").collect::<Vec<_>>();
    assert!(rows.iter().all(|row| ["completed", "pruned"].contains(&row["ended"].as_str())));
    assert!(finished.len() == 1 && finished[0]["steps"] == "180", "{rows:?}");
    assert!(
        stdout.lines().nth(1).unwrap().trim().starts_with(&format!("00{}", finished[0]["trial"])),
        "{stdout}"
    );

    // Training the best setting separately reproduces the result of its trial.
    let best = fs::read_to_string(study.join("best.toml")).unwrap();
    assert!(!best.contains("[tune"), "{best}");
    trains(dir.path(), "study/best.toml", "again");
    let loss = |run: PathBuf| {
        let summary = crate::summary(&run);
        summary["best_valid_loss"].as_f64().unwrap()
    };
    let trial = study.join("trials").join(format!("00{}", finished[0]["trial"]));
    assert_eq!(loss(dir.path().join("again")), loss(trial));

    let pruned = rows.iter().find(|row| row["ended"] == "pruned").unwrap();
    assert_continues_alone(dir.path(), pruned);
}

/// Trains a pruned trial alone: it reproduces the study's steps, and continues beyond them.
fn assert_continues_alone(dir: &Path, pruned: &BTreeMap<String, String>) {
    let config = format!("study/trials/00{}/config.toml", pruned["trial"]);
    trains(dir, &config, "alone");
    let steps = |rows: &[String]| {
        let valid = rows.iter().filter(|row| row.contains(",valid,"));
        valid.map(|row| row.split(',').next().unwrap().parse().unwrap()).collect::<Vec<usize>>()
    };
    let paused = crate::rows(&dir.join(&config).with_file_name(""));
    let alone = crate::rows(&dir.join("alone"));
    assert!(paused.len() > 2 && alone.len() > paused.len());
    let last = steps(&paused).last().copied();
    assert_eq!(
        last.map(|step| step.to_string()),
        Some(pruned["steps"].clone()),
        "every rung ends with a validation"
    );
    assert_eq!(paused, alone[..paused.len()]);
}

#[test]
fn rungs_compare_equal_sequence_counts_across_batch_sizes() {
    let dir = study_dir();
    let sets = [
        "tune.search.training.batch_size=[17, 23, 29, 31]",
        "tune.search.training.learning_rate=[3e-3]",
        "tune.search.model.d_model=[16]",
        "tune.search.model.heads=[2]",
        "tune.rungs=3",
        "training.validate_every=1",
    ];
    let arguments = with(&["study.toml", "--run", "study"], &sets);
    succeeds(dir.path(), &arguments);
    let study = dir.path().join("study");
    let pruned = rows(&study).into_iter().filter(|row| row["ended"] == "pruned").collect::<Vec<_>>();
    let mut shares = Vec::new();
    for row in &pruned {
        let number = |key: &str| row[key].parse::<usize>().unwrap();
        let run = study.join("trials").join(format!("00{}", row["trial"]));
        let mut validations = crate::rows(&run).into_iter().filter(|row| row.contains(",valid,"));
        let last = validations.next_back().unwrap();
        assert!(last.starts_with(&format!("{},", row["steps"])), "every rung ends with a validation: {last}");
        // The last batch of an epoch is smaller.
        let (steps, batch_size) = (number("steps"), number("training.batch_size"));
        let epoch_steps = 512_usize.div_ceil(batch_size);
        let seen = steps / epoch_steps * 512 + steps % epoch_steps * batch_size;
        shares.push(seen as f64 / (180.0 * 16.0 / 9.0));
        let alone = dir.path().join(format!("alone-{}", row["trial"]));
        trains(dir.path(), run.join("config.toml").to_str().unwrap(), alone.to_str().unwrap());
        let seen = crate::rows(&run);
        assert_eq!(crate::rows(&alone)[..seen.len()], seen);
    }
    assert!(
        shares.len() >= 2
            && shares.iter().all(|share| (share.log(3.0) - share.log(3.0).round()).abs() < 0.06),
        "{shares:?}"
    );
}

#[test]
fn results_are_independent_of_jobs_and_average_seeds() {
    let dir = study_dir();
    let arguments =
        |name, jobs| with(&["study.toml", "--run", name, "--jobs", jobs], &["tune.seeds=2", "tune.trials=3"]);
    succeeds(dir.path(), &arguments("one", "1"));
    succeeds(dir.path(), &arguments("three", "3"));
    let one = rows(&dir.path().join("one"));
    assert_eq!(one, rows(&dir.path().join("three")));
    assert_eq!(one.len(), 3);
    let loss = |seed: usize| {
        let run = dir.path().join(format!("one/trials/000-seed-{seed}"));
        let summary = crate::summary(&run);
        assert_eq!(summary["seed"], seed);
        (summary["best_valid_loss"].as_f64().unwrap(), summary["floor"].as_f64().unwrap())
    };
    let ([a, b], [floor, other]) = ([loss(0).0, loss(1).0], [loss(0).1, loss(1).1]);
    assert!(a != b && floor == other, "the seeds share a validation set: {floor} and {other}");
    // Training a seed alone reproduces its run.
    let config = "one/trials/000-seed-1/config.toml";
    trains(dir.path(), config, "alone");
    let seen = crate::rows(&dir.path().join("one/trials/000-seed-1"));
    assert_eq!(crate::rows(&dir.path().join("alone"))[..seen.len()], seen);
    let loss = |seed: usize| loss(seed).0;
    let (mean, spread) = ((loss(0) + loss(1)) / 2.0, (loss(0) - loss(1)).abs() / 2f64.sqrt());
    assert!((one[0]["loss"].parse::<f64>().unwrap() - mean).abs() < 1e-12);
    assert!((one[0]["loss_spread"].parse::<f64>().unwrap() - spread).abs() < 1e-12);

    // The list of runs contains the mean loss of the best trial, not the loss of its best seed.
    let best = one.iter().filter(|row| row["ended"] == "completed");
    let best = best.map(|row| row["loss"].parse::<f64>().unwrap()).min_by(f64::total_cmp).unwrap();
    let list = |more: &[&str]| {
        let output = program(dir.path()).args(["runs", "one", "alone"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let listed: serde_json::Value = serde_json::from_str(&list(&["--sort", "loss", "--json"])).unwrap();
    let losses = [0, 1].map(|index| listed[index]["best_valid_loss"].as_f64().unwrap());
    assert!(losses.is_sorted() && losses.contains(&best), "{losses:?} {best}");
    let study = listed.as_array().unwrap().iter().find(|run| run["name"] == "one").unwrap();
    // The best trial has both the model and the loss.
    let best_config: toml::Table =
        std::fs::read_to_string(dir.path().join("one/best.toml")).unwrap().parse().unwrap();
    let [layers, width] = ["layers", "d_model"].map(|key| best_config["model"][key].to_string());
    assert_eq!(study["model"], format!("decoder, {layers} x {width}"));
    assert_eq!(
        (&study["trials"], &study["seeds"], &study["best_valid_loss"]),
        (&3.into(), &2.into(), &best.into())
    );
    let table = list(&[]);
    assert!(
        table.contains("study of 3 trials with 2 seeds each") && table.contains(&format!("{best:.4}")),
        "{table}"
    );
}

#[test]
fn diverged_trial_is_recorded_and_study_continues() {
    let dir = study_dir();
    let sets = [
        "training.optimizer=sgd",
        "training.max_gradient_norm=0",
        "training.min_learning_rate=0",
        "tune.search.training.learning_rate=[1e-2, 1e30]",
        "tune.search.model.d_model=[16]",
        "tune.search.model.heads=[2]",
        "tune.method=grid",
        "training.steps=40",
    ];
    let mut arguments = with(&["study.toml", "--run", "study"], &sets);
    let stdout = succeeds(dir.path(), &arguments);
    let rows = rows(&dir.path().join("study"));
    let ended = rows.iter().map(|row| (row["ended"].as_str(), row["loss"].is_empty())).collect::<Vec<_>>();
    assert_eq!(ended, [("completed", false), ("diverged", true)], "{stdout}");
    assert!(fs::read_to_string(dir.path().join("study/best.toml")).unwrap().contains("learning_rate = 0.01"));

    arguments[2] = "lost";
    let lost = with(&arguments, &["tune.search.training.learning_rate=[1e30]"]);
    let output = tune(dir.path(), &lost);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("every trial diverged") && stderr.contains("learning_rate"), "{stderr}");
    assert!(!dir.path().join("lost/best.toml").exists());
    // The error reports that a study is not a run.
    let output = program(dir.path()).args(["plot", "lost"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("`lost` is the folder of a study"), "{stderr}");
}

#[test]
fn untrainable_trial_is_recorded_and_study_continues() {
    let dir = study_dir();
    let sets = [
        "tune.search.training.learning_rate=[1e-2]",
        "tune.search.model.d_model=[16, 65536]",
        "tune.search.model.heads=[2]",
        "tune.method=grid",
        "training.steps=40",
    ];
    let mut arguments = with(&["study.toml", "--run", "study"], &sets);
    let stdout = succeeds(dir.path(), &arguments);
    assert!(stdout.contains("could not be trained") && stdout.contains("is free; use"), "{stdout}");
    let study = dir.path().join("study");
    let ended = || rows(&study).into_iter().map(|row| row["ended"].clone()).collect::<Vec<_>>();
    assert_eq!(ended(), ["completed", "failed"], "{stdout}");
    let reason = fs::read_to_string(study.join("trials/001.failed")).unwrap();
    assert!(reason.lines().count() == 1 && reason.contains("is free; use"), "{reason}");
    let before = fs::read(study.join("study.csv")).unwrap();
    succeeds(dir.path(), &["--resume", "study"]);
    assert_eq!(fs::read(study.join("study.csv")).unwrap(), before, "the failed trial is not tried again");

    arguments[2] = "lost";
    let lost = with(&arguments, &["tune.search.model.d_model=[65536]"]);
    // If no trial can be trained, the study is refused before anything is written.
    let stderr = refusal(dir.path(), &lost);
    assert!(
        stderr.starts_with("error: `model.d_model` = 65536") && stderr.contains("is free; use"),
        "{stderr}"
    );
    assert!(!dir.path().join("lost").exists());
    for (arguments, count) in [(&arguments, "1 of 2 trials"), (&lost, "1 of 1 trial ")] {
        let output =
            tune(dir.path(), &with(&[&arguments[..1], &arguments[3..], &["--dry-run"]].concat(), &[]));
        let stderr = text(&output.stderr);
        assert!(
            output.status.success() && stderr.contains(count) && stderr.contains("is free; use"),
            "{stderr}"
        );
    }
}

#[test]
fn recipe_keeps_the_best_of_each_stage() {
    let dir = study_dir();
    let (before, _) = STUDY.split_once("[tune]").unwrap();
    fs::write(dir.path().join("plain.toml"), before).unwrap();
    // Without a search space, the method is the recipe.
    let sets = ["tune.steps=20", "tune.overfit_check=false"];
    succeeds(dir.path(), &with(&["plain.toml", "--run", "study", "--jobs", "2"], &sets));
    let rows = rows(&dir.path().join("study"));
    let mut stages = rows.iter().map(|row| row["stage"].as_str()).collect::<Vec<_>>();
    stages.dedup();
    assert_eq!(stages, ["batch size", "learning rate", "heads and width", "dropout"]);
    let best = |stages: &[&str]| {
        let trials =
            rows.iter().filter(|row| stages.contains(&row["stage"].as_str()) && row["ended"] != "pruned");
        trials
            .min_by(|a, b| a["loss"].parse::<f64>().unwrap().total_cmp(&b["loss"].parse().unwrap()))
            .unwrap()
    };
    let batch = &best(&stages[..1])["training.batch_size"];
    assert!(
        rows.iter()
            .filter(|row| row["stage"] != "batch size")
            .all(|row| row["training.batch_size"] == *batch)
    );
    let config = fs::read_to_string(dir.path().join("study/best.toml")).unwrap();
    assert!(config.contains("patience = 0"), "best.toml keeps the original patience: {config}");
    let rate = &best(&stages[..2])["training.learning_rate"];
    assert!(
        rows.iter().filter(|row| row["stage"] == "dropout").all(|row| row["training.learning_rate"] == *rate)
    );
    let settings = rows.iter().map(|row| {
        ["training.batch_size", "training.learning_rate", "model.d_model", "model.heads", "model.dropout"]
            .map(|key| row[key].clone())
    });
    let mut settings = settings.collect::<Vec<_>>();
    settings.sort();
    settings.dedup();
    assert_eq!(settings.len(), rows.len(), "no setting is tried twice");
}
