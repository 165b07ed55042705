//! Runs that were stopped or damaged resume to the same result, or are refused and left untouched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{SMALL, assert_same_end, program, resume, rows, small_run, summary, text, train};

/// A run that can be extended without changing its earlier steps, with dropout. Each validation improves on all
/// previous ones.
const GROWING: [&str; 9] = [
    "data.task=arithmetic",
    "training.learning_rate=1e-2",
    "training.schedule=constant",
    "training.warmup=10",
    "training.validate_every=40",
    "training.checkpoint_every=15",
    "training.accumulate=2",
    "model.dropout=0.2",
    "analysis.every=60",
];

fn growing_run(folder: &Path, name: &str, steps: usize) -> PathBuf {
    let steps = format!("training.steps={steps}");
    small_run(folder, &[&GROWING[..], &[&steps]].concat(), name)
}

/// Resumes `run` with some keys changed, and returns its standard error.
fn goes_on(folder: &Path, sets: &[&str]) -> String {
    let mut command = resume(folder, "run");
    for set in sets {
        command.args(["--set", set]);
    }
    let ended = command.output().unwrap();
    let said = text(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    said
}

fn checkpoints(run: &Path) -> Vec<String> {
    let entries = fs::read_dir(run.join("checkpoints")).unwrap();
    let mut names = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().trim_start_matches("step-0000").to_string())
        .collect::<Vec<_>>();
    names.sort();
    names
}

fn weights_of(run: &Path, step: &str) -> PathBuf {
    run.join(format!("checkpoints/step-0000{step}/model.safetensors"))
}

fn cut_in_half(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn resume_falls_back_from_a_damaged_checkpoint() {
    let place = TempDir::new().unwrap();
    let undisturbed = TempDir::new().unwrap();
    let undisturbed = growing_run(undisturbed.path(), "run", 200);
    let run = growing_run(place.path(), "run", 120);
    assert_eq!(checkpoints(&run), ["0080", "0105", "0120"], "the last two, and the best that each knows");
    cut_in_half(&weights_of(&run, "0120"));

    let said = goes_on(place.path(), &["training.steps=200", "training.max_minutes=1e-9"]);
    assert!(said.contains("checkpoints/step-00000120/model.safetensors: is damaged"), "{said}");
    assert!(said.contains("going on from run/checkpoints/step-00000105"), "{said}");
    assert!(said.contains("the time limit came 26 steps after the last validation"), "{said}");
    assert_eq!(checkpoints(&run), ["0080", "0105", "0106"], "the damaged one is gone, the new one is kept");
    assert_eq!((&summary(&run)["steps"], &summary(&run)["best_step"]), (&106.into(), &80.into()));
    let model = || fs::read(run.join("model.safetensors")).unwrap();
    assert!(
        model() == fs::read(weights_of(&run, "0080")).unwrap(),
        "the best weights are those of the best step"
    );

    let said = goes_on(place.path(), &["training.max_minutes=0"]);
    assert_eq!(said, "");
    assert_same_end(&run, &undisturbed);

    for checkpoint in fs::read_dir(run.join("checkpoints")).unwrap() {
        fs::write(checkpoint.unwrap().path().join("state.json"), "{}").unwrap();
    }
    let refused = resume(place.path(), "run").args(["--set", "training.steps=300"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("damaged"), "{}", text(&refused.stderr));
}

#[test]
fn damaged_best_weights_never_replace_good_ones() {
    let place = TempDir::new().unwrap();
    let run = growing_run(place.path(), "run", 120);
    let a_step = ["training.steps=200", "training.max_minutes=1e-9"];
    for _ in 0..2 {
        goes_on(place.path(), &a_step);
    }
    assert_eq!(checkpoints(&run), ["0120", "0121", "0122"]);
    let good = fs::read(run.join("model.safetensors")).unwrap();
    cut_in_half(&weights_of(&run, "0120"));
    let said = goes_on(place.path(), &a_step);
    assert!(
        said.contains("step-00000120/model.safetensors: is damaged") && said.contains("is kept"),
        "{said}"
    );
    assert!(fs::read(run.join("model.safetensors")).unwrap() == good);
    assert_eq!(summary(&run)["best_step"], 120);

    // Lost in both files: the next validation selects new best weights.
    cut_in_half(&run.join("model.safetensors"));
    let said = goes_on(place.path(), &a_step);
    assert!(said.contains("is damaged") && said.contains("the next validation decides"), "{said}");
    assert!(summary(&run)["best_step"].is_null());
    assert!(fs::read(run.join("model.safetensors")).unwrap() == fs::read(weights_of(&run, "0124")).unwrap());
    goes_on(place.path(), &["training.max_minutes=0"]);
    assert!(summary(&run)["best_step"].as_u64().unwrap() >= 160);
}

#[test]
fn runs_without_validation_keep_the_newest_weights() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=9", "training.max_minutes=1e-9"], "run");
    let has_newest = |step: &str| {
        assert_eq!(summary(&run)["ended"], "time_limit");
        fs::read(run.join("model.safetensors")).unwrap() == fs::read(weights_of(&run, step)).unwrap()
    };
    assert!(
        has_newest("0001") && !run.join("plots/gradients.png").exists() && run.join("report.html").exists()
    );
    goes_on(place.path(), &[]);
    assert!(has_newest("0002"));
}

#[test]
fn plot_failure_does_not_change_the_outcome() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=9", "training.max_minutes=1e-9"], "run");
    fs::remove_dir_all(run.join("plots")).unwrap();
    fs::write(run.join("plots"), "in the way").unwrap();
    let said = goes_on(place.path(), &["training.max_minutes=0"]);
    assert!(said.starts_with("warning: the run is saved") && said.lines().count() == 1, "{said}");
    assert!(said.contains("run/plots") && said.contains("`plot run`"), "{said}");
    assert_eq!(summary(&run)["ended"], "completed");
}

/// Every file of a folder, with its contents.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = walkdir::WalkDir::new(folder).into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.file_type().is_file()).map(walkdir::DirEntry::into_path);
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Asserts that resuming `run` is refused in one line, and that every file is unchanged.
fn refuses(folder: &Path, sets: &[&str], parts: &[&str]) {
    let before = contents(&folder.join("run"));
    let mut command = resume(folder, "run");
    for set in sets {
        command.args(["--set", set]);
    }
    let refused = command.output().unwrap();
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{sets:?}: {said}");
    assert!(parts.iter().all(|part| said.contains(part)), "{sets:?} should say {parts:?}: {said}");
    let after = contents(&folder.join("run"));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after), "{sets:?}");
    assert!(before == after, "{sets:?} changes no file");
}

#[test]
fn runs_that_cannot_resume_stay_untouched() {
    let place = TempDir::new().unwrap();
    let run = growing_run(place.path(), "run", 60);
    let cases: [(&[&str], &str); 6] = [
        (&[], "is complete"),
        (&["model.d_model=32"], "`model.d_model` = 32"),
        (&["data.task=random"], "`data.task`"),
        (&["run.seed=7"], "`run.seed` = 7"),
        (&["training.steps=3"], "`training.steps` = 3 leaves nothing to do: the run `run` has done 60 steps"),
        (&["training.epochs=1"], "`training.epochs` = 1 leaves nothing to do"),
    ];
    for (sets, part) in cases {
        refuses(place.path(), sets, &[part]);
    }
    // The patience ends in the last validation, so that the run is complete.
    let sets =
        ["training.steps=20", "training.validate_every=10", "training.patience=1", "training.min_delta=99"];
    small_run(place.path(), &sets, "stale");
    let said = text(&resume(place.path(), "stale").args(["--steps", "60"]).output().unwrap().stderr);
    assert!(said.contains("`stale` has stopped early after 1 validation without improvement"), "{said}");

    // Damage is found before anything is written, even if the config would change.
    let longer = ["training.steps=63", "training.learning_rate=1e-4"];
    for (file, damage) in [("head_scores.csv", "step,layer\n1,x\n"), ("metrics.csv", "step,epoch\n")] {
        let good = fs::read(run.join(file)).unwrap();
        fs::write(run.join(file), damage).unwrap();
        refuses(place.path(), &longer, &[file]);
        fs::write(run.join(file), good).unwrap();
    }
    goes_on(place.path(), &longer);
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(config.contains("steps = 63"), "the change is recorded");
    assert!(train(place.path(), &SMALL, &["--run", "run"]).status.code() == Some(2), "the folder is taken");

    // A folder without any checkpoint.
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    fs::remove_file(run.join("lock")).unwrap();
    refuses(place.path(), &["training.steps=99"], &["has no checkpoint to go on from"]);
}

#[test]
fn resuming_on_changed_data_is_refused() {
    let place = TempDir::new().unwrap();
    let text_file = place.path().join("words.txt");
    fs::write(&text_file, "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let sets = ["data.source=text", "data.path=words.txt", "training.max_minutes=1e-9"];
    small_run(place.path(), &sets, "run");
    let evaluated = || program(place.path()).args(["evaluate", "run"]).output().unwrap();
    assert_eq!(text(&evaluated().stderr), "");
    fs::write(&text_file, "to be or not to be, that is his question. ".repeat(40)).unwrap();
    refuses(place.path(), &[], &["changed"]);
    let warned = evaluated();
    assert!(warned.status.success(), "it can be read all the same");
    let said = text(&warned.stderr);
    assert!(said.starts_with("warning: the data has changed") && said.lines().count() == 1, "{said}");
    fs::remove_file(&text_file).unwrap();
    refuses(place.path(), &[], &["words.txt"]);
}

#[test]
fn resume_redraws_missing_plots() {
    let place = TempDir::new().unwrap();
    for (name, set) in [("whole", "training.steps=24"), ("early", "training.patience=1")] {
        let run = small_run(place.path(), &[set, "training.validate_every=2", "training.min_delta=10"], name);
        let (before, ended) = (rows(&run), summary(&run)["ended"].clone());
        fs::remove_file(run.join("report.html")).unwrap();
        fs::remove_dir_all(run.join("plots")).unwrap();
        let output = resume(place.path(), name).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(run.join("report.html").exists() && run.join("plots/loss.png").exists());
        assert_eq!((rows(&run), &summary(&run)["ended"]), (before, &ended));
        // No steps remain.
        assert_eq!(resume(place.path(), name).output().unwrap().status.code(), Some(2));
    }
}

#[test]
fn paused_runs_resume_to_the_same_end() {
    let place = TempDir::new().unwrap();
    let undisturbed = growing_run(place.path(), "undisturbed", 80);
    let keys = [&SMALL[..], &GROWING[..], &["training.steps=80"]].concat();
    let output = train(place.path(), &keys, &["--run", "run", "--until", "33"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("paused; `train --resume` continues it"));
    let run = place.path().join("run");
    let paused = summary(&run);
    assert_eq!((paused["ended"].as_str(), paused["steps"].as_u64()), (Some("paused"), Some(33)));
    assert!(!run.join("report.html").exists(), "it is drawn when it ends");
    let refused = resume(place.path(), "run").args(["--until", "33"]).output().unwrap();
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("has done 33 steps already"), "{said}");
    goes_on(place.path(), &[]);
    assert_same_end(&run, &undisturbed);
}

#[test]
fn another_optimizer_begins_anew_and_says_so() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.optimizer=sgd", "training.steps=12"], "run");
    let sets = ["--set", "training.optimizer=adamw", "--set", "training.steps=17"];
    let output = resume(place.path(), "run").args(sets).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("starts without its moments"), "{}", text(&output.stderr));
    let state = fs::read(run.join("checkpoints/step-00000017/state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    // Adam's bias correction counts from the first update of its moments.
    assert_eq!(state["updates"], 5);
    let sets = ["--set", "training.optimizer=adam", "--set", "training.steps=19"];
    let output = resume(place.path(), "run").args(sets).output().unwrap();
    assert!(!text(&output.stderr).contains("starts without its moments"), "Adam and AdamW remember the same");
}
