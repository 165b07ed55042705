//! Runs that were stopped or damaged resume to the same result, or are refused and left untouched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{SMALL, assert_same_result, program, resume, rows, small_run, summary, text, train};

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
fn resume_with(folder: &Path, sets: &[&str]) -> String {
    let mut command = resume(folder, "run");
    for set in sets {
        command.args(["--set", set]);
    }
    let ended = command.output().unwrap();
    let stderr = text(&ended.stderr);
    assert!(ended.status.success(), "{stderr}");
    stderr
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
    let dir = TempDir::new().unwrap();
    let uninterrupted = TempDir::new().unwrap();
    let uninterrupted = growing_run(uninterrupted.path(), "run", 200);
    let run = growing_run(dir.path(), "run", 120);
    assert_eq!(checkpoints(&run), ["0080", "0105", "0120"], "the last two checkpoints and the best one");
    cut_in_half(&weights_of(&run, "0120"));

    let stderr = resume_with(dir.path(), &["training.steps=200", "training.max_minutes=1e-9"]);
    assert!(stderr.contains("checkpoints/step-00000120/model.safetensors: is damaged"), "{stderr}");
    assert!(stderr.contains("resuming from run/checkpoints/step-00000105"), "{stderr}");
    assert!(stderr.contains("the time limit was reached 26 steps after the last validation"), "{stderr}");
    assert_eq!(
        checkpoints(&run),
        ["0080", "0105", "0106"],
        "the damaged checkpoint is replaced by the new one"
    );
    assert_eq!((&summary(&run)["steps"], &summary(&run)["best_step"]), (&106.into(), &80.into()));
    let model = || fs::read(run.join("model.safetensors")).unwrap();
    assert!(
        model() == fs::read(weights_of(&run, "0080")).unwrap(),
        "the best weights belong to the best step"
    );

    let stderr = resume_with(dir.path(), &["training.max_minutes=0"]);
    assert_eq!(stderr, "");
    assert_same_result(&run, &uninterrupted);

    for checkpoint in fs::read_dir(run.join("checkpoints")).unwrap() {
        fs::write(checkpoint.unwrap().path().join("state.json"), "{}").unwrap();
    }
    let refused = resume(dir.path(), "run").args(["--set", "training.steps=300"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("damaged"), "{}", text(&refused.stderr));
}

#[test]
fn damaged_best_weights_never_replace_good_ones() {
    let dir = TempDir::new().unwrap();
    let run = growing_run(dir.path(), "run", 120);
    let one_step = ["training.steps=200", "training.max_minutes=1e-9"];
    for _ in 0..2 {
        resume_with(dir.path(), &one_step);
    }
    assert_eq!(checkpoints(&run), ["0120", "0121", "0122"]);
    let good = fs::read(run.join("model.safetensors")).unwrap();
    cut_in_half(&weights_of(&run, "0120"));
    let stderr = resume_with(dir.path(), &one_step);
    assert!(
        stderr.contains("step-00000120/model.safetensors: is damaged") && stderr.contains("is kept"),
        "{stderr}"
    );
    assert!(fs::read(run.join("model.safetensors")).unwrap() == good);
    assert_eq!(summary(&run)["best_step"], 120);

    // If both files are damaged, the next validation selects new best weights.
    cut_in_half(&run.join("model.safetensors"));
    let stderr = resume_with(dir.path(), &one_step);
    assert!(
        stderr.contains("is damaged")
            && stderr.contains("the next validation selects the best weights again"),
        "{stderr}"
    );
    assert_eq!(summary(&run)["best_step"], 124, "without a best step, the time limit validates");
    assert!(fs::read(run.join("model.safetensors")).unwrap() == fs::read(weights_of(&run, "0124")).unwrap());
    resume_with(dir.path(), &["training.max_minutes=0"]);
    assert!(summary(&run)["best_step"].as_u64().unwrap() >= 160);
}

#[test]
fn time_limit_before_the_first_validation_validates() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=9", "training.max_minutes=1e-9"], "run");
    let holds = |step: &str| {
        assert_eq!((&summary(&run)["ended"], &summary(&run)["best_step"]), (&"time_limit".into(), &1.into()));
        fs::read(run.join("model.safetensors")).unwrap() == fs::read(weights_of(&run, step)).unwrap()
    };
    assert!(holds("0001") && !run.join("plots/gradients.png").exists() && run.join("report.html").exists());
    let stderr = resume_with(dir.path(), &[]);
    assert!(stderr.contains("the time limit was reached 1 step after the last validation"), "{stderr}");
    assert!(holds("0001"));
}

#[test]
fn time_limit_after_an_explosion_is_a_divergence() {
    let dir = TempDir::new().unwrap();
    let sets =
        ["training.steps=9", "training.learning_rate=10", "training.warmup=0", "training.validate_every=9"];
    let paused = train(dir.path(), &[&SMALL[..], &sets].concat(), &["--run", "run", "--until", "5"]);
    assert!(paused.status.success(), "{}", text(&paused.stderr));
    let mut resumed = resume(dir.path(), "run");
    let resumed = resumed.args(["--set", "training.max_minutes=1e-9"]).output().unwrap();
    assert_eq!(resumed.status.code(), Some(1), "{}", text(&resumed.stderr));
    let run = dir.path().join("run");
    assert_eq!((&summary(&run)["ended"], &summary(&run)["steps"]), (&"diverged".into(), &6.into()));
    assert!(fs::read(run.join("model.safetensors")).unwrap() == fs::read(weights_of(&run, "0000")).unwrap());
}

#[test]
fn pausing_removes_pictures_of_older_weights() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=9"], "run");
    fs::write(run.join("plots/own.png"), "a user's picture").unwrap();
    fs::write(run.join("plots/circuit.svg"), "").unwrap();
    let arguments = ["train", "--resume", "run", "--set", "training.steps=20", "--until", "12"];
    let paused = program(dir.path()).args(arguments).output().unwrap();
    assert!(paused.status.success(), "{}", text(&paused.stderr));
    let left: Vec<_> =
        fs::read_dir(run.join("plots")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["own.png"]);
}

#[test]
fn plot_failure_does_not_change_the_outcome() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=9", "training.max_minutes=1e-9"], "run");
    fs::remove_dir_all(run.join("plots")).unwrap();
    fs::write(run.join("plots"), "in the way").unwrap();
    let stderr = resume_with(dir.path(), &["training.max_minutes=0"]);
    assert!(stderr.starts_with("warning: the run is saved") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains("run/plots") && stderr.contains("`plot run`"), "{stderr}");
    assert_eq!(summary(&run)["ended"], "completed");
}

/// Reads every file below a folder.
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
    let stderr = text(&refused.stderr);
    assert_eq!((refused.status.code(), stderr.lines().count()), (Some(2), 1), "{sets:?}: {stderr}");
    assert!(parts.iter().all(|part| stderr.contains(part)), "{sets:?}: expected {parts:?} in {stderr}");
    let after = contents(&folder.join("run"));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after), "{sets:?}");
    assert!(before == after, "{sets:?} changed a file");
}

#[test]
fn runs_that_cannot_resume_stay_untouched() {
    let dir = TempDir::new().unwrap();
    let run = growing_run(dir.path(), "run", 60);
    let cases: [(&[&str], &str); 7] = [
        (&[], "is complete"),
        (&["model.d_model=32"], "`model.d_model` = 32"),
        (&["data.task=random"], "`data.task`"),
        (&["run.seed=7"], "`run.seed` = 7"),
        (
            &["training.steps=3"],
            "`training.steps` = 3 leaves nothing to do: the run `run` has completed 60 steps",
        ),
        (&["training.epochs=1"], "`training.epochs` = 1 leaves nothing to do"),
        (&["training.steps=80", "analysis.sequences=1"], "`analysis.sequences` = 1 differs from the "),
    ];
    for (sets, part) in cases {
        refuses(dir.path(), sets, &[part]);
    }
    // The last validation exhausts the patience, so the run is complete.
    let sets =
        ["training.steps=20", "training.validate_every=10", "training.patience=1", "training.min_delta=99"];
    small_run(dir.path(), &sets, "stale");
    let stderr = text(&resume(dir.path(), "stale").args(["--steps", "60"]).output().unwrap().stderr);
    assert!(stderr.contains("`stale` has stopped early after 1 validation without improvement"), "{stderr}");

    // Damage is found before anything is written, even if the config would change.
    let longer = ["training.steps=63", "training.learning_rate=1e-4"];
    for (file, damage) in [("head_scores.csv", "step,layer\n1,x\n"), ("metrics.csv", "step,epoch\n")] {
        let good = fs::read(run.join(file)).unwrap();
        fs::write(run.join(file), damage).unwrap();
        refuses(dir.path(), &longer, &[file]);
        fs::write(run.join(file), good).unwrap();
    }
    resume_with(dir.path(), &longer);
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(config.contains("steps = 63"), "the change is recorded");
    assert!(
        train(dir.path(), &SMALL, &["--run", "run"]).status.code() == Some(2),
        "the folder is in use by the run"
    );

    // A folder without any checkpoint.
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    fs::remove_file(run.join("lock")).unwrap();
    refuses(dir.path(), &["training.steps=99"], &["does not have a checkpoint to resume from"]);
}

#[test]
fn resuming_on_changed_data_is_refused() {
    let dir = TempDir::new().unwrap();
    let text_file = dir.path().join("words.txt");
    fs::write(&text_file, "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let sets = ["data.source=text", "data.path=words.txt", "training.max_minutes=1e-9"];
    small_run(dir.path(), &sets, "run");
    let evaluated = || program(dir.path()).args(["evaluate", "run"]).output().unwrap();
    assert_eq!(text(&evaluated().stderr), "");
    fs::write(&text_file, "to be or not to be, that is his question. ".repeat(40)).unwrap();
    refuses(dir.path(), &[], &["changed"]);
    let warned = evaluated();
    assert!(warned.status.success(), "evaluate only warns about changed data");
    let stderr = text(&warned.stderr);
    assert!(stderr.starts_with("warning: the data has changed") && stderr.lines().count() == 1, "{stderr}");
    fs::remove_file(&text_file).unwrap();
    refuses(dir.path(), &[], &["words.txt"]);
}

#[test]
fn resume_redraws_missing_plots() {
    let dir = TempDir::new().unwrap();
    for (name, set) in [("completed", "training.steps=24"), ("early", "training.patience=1")] {
        let run = small_run(dir.path(), &[set, "training.validate_every=2", "training.min_delta=10"], name);
        let (before, ended) = (rows(&run), summary(&run)["ended"].clone());
        fs::remove_file(run.join("report.html")).unwrap();
        fs::remove_dir_all(run.join("plots")).unwrap();
        let output = resume(dir.path(), name).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(run.join("report.html").exists() && run.join("plots/loss.png").exists());
        assert_eq!((rows(&run), &summary(&run)["ended"]), (before, &ended));
        // No steps remain.
        assert_eq!(resume(dir.path(), name).output().unwrap().status.code(), Some(2));
    }
}

#[test]
fn paused_runs_resume_to_the_same_result() {
    let dir = TempDir::new().unwrap();
    let uninterrupted = growing_run(dir.path(), "uninterrupted", 80);
    let keys = [&SMALL[..], &GROWING[..], &["training.steps=80"]].concat();
    let output = train(dir.path(), &keys, &["--run", "run", "--until", "33"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("paused; continue it with `train --resume`"));
    let run = dir.path().join("run");
    let paused = summary(&run);
    assert_eq!((paused["ended"].as_str(), paused["steps"].as_u64()), (Some("paused"), Some(33)));
    assert!(!run.join("report.html").exists(), "a paused run does not have a page yet");
    let refused = resume(dir.path(), "run").args(["--until", "33"]).output().unwrap();
    let stderr = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && stderr.contains("has already done 33 steps"), "{stderr}");
    resume_with(dir.path(), &[]);
    assert_same_result(&run, &uninterrupted);
}

#[test]
fn warnings_about_reading_stay_in_the_summary_of_a_resumed_run() {
    let dir = TempDir::new().unwrap();
    let rows = "# a comment\n".to_string() + &"1,2,3\n2,3,1\n3,1,2\n".repeat(40);
    fs::write(dir.path().join("rows.csv"), rows).unwrap();
    let keys = [&SMALL[..], &["data.path=rows.csv", "data.vocab=auto", "training.steps=6"]].concat();
    let output = train(dir.path(), &keys, &["--run", "run", "--until", "3"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = dir.path().join("run");
    let is_reported = || {
        let warnings = summary(&run)["warnings"].as_array().unwrap().clone();
        let of_comments =
            |warning: &&serde_json::Value| warning.to_string().contains("is skipped as a comment");
        warnings.iter().filter(of_comments).count()
    };
    assert_eq!(is_reported(), 1);
    resume_with(dir.path(), &[]);
    assert_eq!(is_reported(), 1);
}

#[test]
fn changed_optimizer_restarts_its_moments_with_a_notice() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.optimizer=sgd", "training.steps=12"], "run");
    let sets = ["--set", "training.optimizer=adamw", "--set", "training.steps=17"];
    let output = resume(dir.path(), "run").args(sets).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("starts without its moments"), "{}", text(&output.stderr));
    let state = fs::read(run.join("checkpoints/step-00000017/state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    // Adam's bias correction counts from the first update of its moments.
    assert_eq!(state["updates"], 5);
    let sets = ["--set", "training.optimizer=adam", "--set", "training.steps=19"];
    let output = resume(dir.path(), "run").args(sets).output().unwrap();
    assert!(
        !text(&output.stderr).contains("starts without its moments"),
        "Adam and AdamW share their moments"
    );
}
