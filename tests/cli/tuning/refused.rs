//! Refused studies, which leave no files behind.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{STUDY, refusal, rows, study_dir, succeeds, trains, tune, with};
use crate::{program, text};

/// Asserts that a study is refused in one line containing all `parts`, and that nothing is written.
fn refuses(dir: &Path, arguments: &[&str], parts: &[&str]) {
    let before = fs::read_dir(dir).unwrap().count();
    let stderr = refusal_of(dir, arguments);
    for part in parts {
        assert!(stderr.contains(part), "{arguments:?}: expected {part:?} in {stderr}");
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), before, "{arguments:?} leaves files behind");
}

#[test]
fn invalid_study_keys_leave_nothing() {
    let dir = study_dir();
    let cases: [(&[&str], &[&str]); 13] = [
        (
            &["tune.search.model.dropout={ min = 0.0, max = 0.5, scale = \"log\" }"],
            &["--set:", "logarithmic"],
        ),
        (&["tune.search.model.dropout={ min = 0.5, max = 0.1 }"], &["is empty", "above `min` = 0.5"]),
        (&["tune.search.training.steps=[1, 2]"], &["`tune.steps`"]),
        (&["tune.search.model.d_model=[17, 25]"], &["no combination", "must divide"]),
        (&["tune.trails=3"], &["`tune.trails` = 3", "did you mean `tune.trials`?"]),
        (&["tune.method=annealing"], &["annealing", "halving"]),
        (&["tune.trials=0"], &["`tune.trials` = 0 must be in [1, "]),
        (&["tune.method=recipe"], &["`tune.method`", "has its own search space"]),
        (&["tune.rungs=9"], &["`tune.rungs` = 9 is too many for trials of 180 steps", "`tune.eta` = 3"]),
        (&["tune.eta=1000000000000"], &["`tune.eta`", "in [2, 10000]"]),
        (&["tune.steps=1000000000001"], &["`tune.steps`", "at most"]),
        (&["run.seed=9223372036854775807", "tune.seeds=2"], &["`tune.seeds` = 2", "`run.seed`"]),
        (
            &["tune.search.model.dropout={ min = 1e30, max = 1e-30 }"],
            &["`max` = 1e-30 must be above `min` = 1e30"],
        ),
    ];
    for (sets, parts) in cases {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        refuses(dir.path(), &["study.toml"].into_iter().chain(sets).collect::<Vec<_>>(), parts);
    }
}

#[test]
fn invalid_study_files_and_options_leave_nothing() {
    let dir = study_dir();
    fs::write(dir.path().join("typo.toml"), "[tune.search]\n\"model.hed\" = [2]\n").unwrap();
    fs::write(dir.path().join("empty.toml"), "[tune.search]\n\n\"model.heads\" = []\n").unwrap();
    fs::create_dir(dir.path().join("folder")).unwrap();
    fs::write(dir.path().join("bare.toml"), "[tune.search]\nheads = [2]\n").unwrap();
    fs::write(dir.path().join("above.toml"), "[tune]\nlearning_rate = [1e-3]\n").unwrap();
    let cases: [(&[&str], &[&str]); 14] = [
        (&["bare.toml"], &["bare.toml:2: `tune.search.heads`", "did you mean `model.heads`?"]),
        (
            &["above.toml"],
            &[
                "above.toml:2: `tune.learning_rate`",
                "belongs in [tune.search]; write \"training.learning_rate\" = [1e-3] there",
            ],
        ),
        (
            &["study.toml", "--find-rate", "--run", "folder"],
            &["`folder` already exists; pass another folder"],
        ),
        (
            &["study.toml", "--learning-rate", "0.003", "--dry-run"],
            &[
                "--learning-rate: `training.learning_rate` = 0.003 is set, but [tune.search] also has this key",
            ],
        ),
        (&["typo.toml"], &["typo.toml:2: `tune.search.model.hed`", "did you mean `model.heads`?"]),
        (&["empty.toml"], &["empty.toml:3: `tune.search.model.heads` = [] is empty"]),
        (&["study.toml", "--run", "folder"], &["`folder` already exists"]),
        (&["study.toml", "--run", "folder", "--dry-run"], &["`folder` already exists"]),
        (&["study.toml", "--jobs", "0"], &["--jobs", "--help"]),
        (&["study.toml", "--dry-run", "--json"], &["--json", "--dry-run", "cannot be used"]),
        (&["--resume", "nowhere"], &["`nowhere`: no such study"]),
        (&["--resume", "study.toml"], &["`study.toml` is a file", "folder of a study"]),
        (&["--resume", "folder"], &["`folder` is not a study folder"]),
        (&["missing.toml"], &["`missing.toml`: no such config file"]),
    ];
    for (arguments, parts) in cases {
        refuses(dir.path(), arguments, parts);
    }
}

/// Same as [`refusal`], for arguments that may include --progress.
fn refusal_of(folder: &Path, arguments: &[&str]) -> String {
    if !arguments.contains(&"--progress") {
        return refusal(folder, arguments);
    }
    let output = program(folder).args(["tune", "--backend", "ndarray"]).args(arguments).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
    stderr
}

#[test]
fn resuming_a_mismatched_study_changes_nothing() {
    let dir = study_dir();
    let short = ["tune.trials=2", "training.steps=20"];
    succeeds(dir.path(), &with(&["study.toml", "--run", "study"], &short));
    let study = dir.path().join("study");
    let before = fs::read(study.join("study.csv")).unwrap();
    let stderr = refusal(dir.path(), &["study.toml", "--resume", "study"]);
    assert!(
        stderr.contains("`training.steps` = 180 differs from 20 in the config of the study")
            && stderr.contains("--run DIR"),
        "{stderr}"
    );
    let stderr = refusal(dir.path(), &["--resume", "study", "--set", "tune.trials=3"]);
    assert!(stderr.contains("`tune.trials` = 3 differs from 2 in the config of the study"), "{stderr}");
    let config = study.join("trials/000/config.toml");
    let written = fs::read_to_string(&config).unwrap();
    fs::write(&config, written.replace("batch_size = 16", "batch_size = 8")).unwrap();
    let stderr = refusal(dir.path(), &["--resume", "study"]);
    assert!(
        stderr.contains("`study/trials/000`")
            && stderr.contains("`training.batch_size` = 8, but the study requires 16"),
        "{stderr}"
    );
    assert_eq!(fs::read(study.join("study.csv")).unwrap(), before);
}

#[test]
fn failed_overfit_check_stops_the_study() {
    let dir = study_dir();
    let sets = ["tune.overfit_check=true", "tune.search.training.learning_rate=[10.0]"];
    let stderr = refusal(dir.path(), &with(&["study.toml", "--run", "study"], &sets));
    assert!(stderr.contains("`training.learning_rate`") && stderr.contains("too high"), "{stderr}");
    assert!(stderr.contains("of trial 000 (") && stderr.contains("learning_rate 10.0"), "{stderr}");
    assert!(!dir.path().join("study").exists());
    // A learning rate that no trial uses is not checked.
    let config = dir.path().join("study.toml");
    let too_high =
        fs::read_to_string(&config).unwrap().replace("learning_rate = 3e-3", "learning_rate = 10.0");
    fs::write(config, too_high).unwrap();
    let sets = ["tune.overfit_check=true", "tune.trials=2", "tune.method=random"];
    let arguments = with(&["study.toml", "--run", "study", "--set", "training.steps=20"], &sets);
    assert!(succeeds(dir.path(), &arguments).contains("memorised"));
}

#[test]
fn oversized_model_fails_only_its_trial() {
    let dir = study_dir();
    let sets = [
        "tune.overfit_check=true",
        "tune.method=grid",
        "tune.search.training.learning_rate=[3e-3]",
        "tune.search.model.d_model=[65536, 16]",
        "tune.search.model.heads=[2]",
        "training.steps=20",
        "model.layers=8",
    ];
    let stdout = succeeds(dir.path(), &with(&["study.toml", "--run", "study"], &sets));
    assert!(stdout.contains("memorised"), "{stdout}");
    let ended = rows(&dir.path().join("study")).into_iter().map(|row| row["ended"].clone());
    assert_eq!(ended.collect::<Vec<_>>(), ["failed", "completed"]);
}

#[test]
fn dry_run_warns_about_data_and_memory() {
    let dir = study_dir();
    let sets = [
        "tune.method=grid",
        "tune.search.training.learning_rate=[3e-3]",
        "tune.search.model.d_model=[65536]",
        "tune.search.model.heads=[2]",
        "tune.search.training.batch_size=[16]",
        "model.layers=64",
        "data.valid_samples=8",
    ];
    let output = tune(dir.path(), &with(&["study.toml", "--dry-run"], &sets));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && stdout.contains("  trials   1, each of "), "{stdout}{stderr}");
    let warnings = stderr.lines().collect::<Vec<_>>();
    let (data_warning, memory_warning) = (warnings.first().unwrap(), warnings.last().unwrap());
    assert!(data_warning.starts_with("warning: validation has "), "{stderr}");
    let too_large =
        "warning: 1 of 1 trial cannot be trained on this machine; the first: `model.d_model` = 65536 with ";
    assert!(memory_warning.starts_with(too_large), "{stderr}");

    let stderr = refusal(dir.path(), &with(&["study.toml", "--run", "study"], &sets));
    assert!(stderr.contains("`model.d_model` = 65536 with 64 layers"), "{stderr}");
    assert!(!dir.path().join("study").exists());
}

/// Writes a study of the learning rate, `tuned.toml`, and a run that a derived run can start from.
fn with_start_weights() -> TempDir {
    let dir = study_dir();
    trains(dir.path(), "study.toml", "start");
    let (before, _) = STUDY.split_once("[tune.search]").unwrap();
    let study = format!("{before}[tune.search]\n\"training.learning_rate\" = [1e-3, 3e-3]\n");
    fs::write(dir.path().join("tuned.toml"), study).unwrap();
    dir
}

#[test]
fn a_study_does_not_resume_from_other_start_weights() {
    let dir = with_start_weights();
    succeeds(
        dir.path(),
        &with(&["tuned.toml", "--run", "study"], &["run.from=start", "tune.overfit_check=false"]),
    );
    let longer = ["train", "--resume", "start", "--set", "training.steps=400"];
    let resumed = program(dir.path()).args(longer).output().unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let stderr = refusal_of(dir.path(), &["--resume", "study"]);
    assert!(
        stderr.contains("have changed since the study started; restore them, or start another study"),
        "{stderr}"
    );
}

#[test]
fn start_weights_of_another_shape_are_refused_before_writing() {
    let dir = with_start_weights();
    let sets = ["run.from=start", "model.d_model=24"];
    let stderr = refusal(dir.path(), &with(&["tuned.toml", "--run", "study"], &sets));
    assert!(stderr.contains("start/model.safetensors"), "{stderr}");
    assert!(!dir.path().join("study").exists());
}

#[test]
fn missing_start_weights_are_refused_before_writing() {
    let dir = study_dir();
    trains(dir.path(), "study.toml", "start");
    fs::remove_file(dir.path().join("start/model.safetensors")).unwrap();
    let (before, _) = STUDY.split_once("[tune.search]").unwrap();
    let study = format!("{before}[tune.search]\n\"training.learning_rate\" = [1e-3, 3e-3]\n");
    fs::write(dir.path().join("tuned.toml"), study).unwrap();
    let sets = ["run.from=start", "tune.overfit_check=true"];
    let stderr = refusal(dir.path(), &with(&["tuned.toml", "--run", "study"], &sets));
    assert!(stderr.contains("start` does not have a model.safetensors"), "{stderr}");
    assert!(!dir.path().join("study").exists());
}
