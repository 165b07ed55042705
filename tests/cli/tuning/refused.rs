//! Refusals of studies, after which no files are left.

use std::{fs, path::Path};

use super::{STUDY, place, refusal, rows, succeeds, trains, tune, with};
use crate::{program, text};

/// Asserts that a study is refused in one line containing all `parts`, and that nothing is written.
fn refuses(place: &Path, arguments: &[&str], parts: &[&str]) {
    let before = fs::read_dir(place).unwrap().count();
    let said = refusal_of(place, arguments);
    for part in parts {
        assert!(said.contains(part), "{arguments:?} should say {part:?}: {said}");
    }
    assert_eq!(fs::read_dir(place).unwrap().count(), before, "{arguments:?} leaves nothing");
}

#[test]
fn invalid_study_keys_leave_nothing() {
    let place = place();
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
        (&["tune.trials=0"], &["`tune.trials` = 0 must be from 1 to"]),
        (&["tune.method=recipe"], &["`tune.method`", "search of its own"]),
        (&["tune.rungs=9"], &["`tune.rungs` = 9 is too many for trials of 180 steps", "`tune.eta` = 3"]),
        (&["tune.eta=1000000000000"], &["`tune.eta`", "from 2 to 10000"]),
        (&["tune.steps=1000000000001"], &["`tune.steps`", "at most"]),
        (&["run.seed=9223372036854775807", "tune.seeds=2"], &["`tune.seeds` = 2", "`run.seed`"]),
        (
            &["tune.search.model.dropout={ min = 1e30, max = 1e-30 }"],
            &["`max` = 1e-30 must be above `min` = 1e30"],
        ),
    ];
    for (sets, parts) in cases {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        refuses(place.path(), &["study.toml"].into_iter().chain(sets).collect::<Vec<_>>(), parts);
    }
}

#[test]
fn invalid_study_files_and_options_leave_nothing() {
    let place = place();
    fs::write(place.path().join("typo.toml"), "[tune.search]\n\"model.hed\" = [2]\n").unwrap();
    fs::write(place.path().join("empty.toml"), "[tune.search]\n\n\"model.heads\" = []\n").unwrap();
    fs::create_dir(place.path().join("folder")).unwrap();
    fs::write(place.path().join("bare.toml"), "[tune.search]\nheads = [2]\n").unwrap();
    fs::write(place.path().join("above.toml"), "[tune]\nlearning_rate = [1e-3]\n").unwrap();
    let cases: [(&[&str], &[&str]); 14] = [
        (&["bare.toml"], &["bare.toml:2: `tune.search.heads`", "did you mean `model.heads`?"]),
        (
            &["above.toml"],
            &[
                "above.toml:2: `tune.learning_rate`",
                "below [tune.search]: \"training.learning_rate\" = [1e-3]",
            ],
        ),
        (&["study.toml", "--find-rate", "--run", "folder"], &["`folder` exists already: name another"]),
        (
            &["study.toml", "--learning-rate", "0.003", "--dry-run"],
            &["--learning-rate: `training.learning_rate` = 0.003 is set, and [tune.search] has it"],
        ),
        (&["typo.toml"], &["typo.toml:2: `tune.search.model.hed`", "did you mean `model.heads`?"]),
        (&["empty.toml"], &["empty.toml:3: `tune.search.model.heads` = [] is empty"]),
        (&["study.toml", "--run", "folder"], &["`folder` exists already"]),
        (&["study.toml", "--run", "folder", "--dry-run"], &["`folder` exists already"]),
        (&["study.toml", "--jobs", "0"], &["--jobs", "--help"]),
        (&["study.toml", "--dry-run", "--json"], &["--json", "--dry-run", "cannot be used"]),
        (&["--resume", "nowhere"], &["no study `nowhere`"]),
        (&["--resume", "study.toml"], &["`study.toml` is a file", "folder of a study"]),
        (&["--resume", "folder"], &["`folder` is not the folder of a study"]),
        (&["missing.toml"], &["no config file `missing.toml`"]),
    ];
    for (arguments, parts) in cases {
        refuses(place.path(), arguments, parts);
    }
}

/// Same as [`refusal`], for arguments that may include --progress.
fn refusal_of(folder: &Path, arguments: &[&str]) -> String {
    if !arguments.contains(&"--progress") {
        return refusal(folder, arguments);
    }
    let output = program(folder).args(["tune", "--backend", "ndarray"]).args(arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
    said
}

#[test]
fn resuming_a_mismatched_study_changes_nothing() {
    let place = place();
    let short = ["tune.trials=2", "training.steps=20"];
    succeeds(place.path(), &with(&["study.toml", "--run", "study"], &short));
    let study = place.path().join("study");
    let before = fs::read(study.join("study.csv")).unwrap();
    let said = refusal(place.path(), &["study.toml", "--resume", "study"]);
    assert!(said.contains("`training.steps` = 180 differs from 20,") && said.contains("--run DIR"), "{said}");
    let said = refusal(place.path(), &["--resume", "study", "--set", "tune.trials=3"]);
    assert!(said.contains("`tune.trials` = 3 differs from 2,"), "{said}");
    let config = study.join("trials/000/config.toml");
    let written = fs::read_to_string(&config).unwrap();
    fs::write(&config, written.replace("batch_size = 16", "batch_size = 8")).unwrap();
    let said = refusal(place.path(), &["--resume", "study"]);
    assert!(said.contains("`study/trials/000`") && said.contains("`training.batch_size` = 16"), "{said}");
    assert_eq!(fs::read(study.join("study.csv")).unwrap(), before);
}

#[test]
fn failed_overfit_check_stops_the_study() {
    let place = place();
    let sets = ["tune.overfit_check=true", "tune.search.training.learning_rate=[10.0]"];
    let said = refusal(place.path(), &with(&["study.toml", "--run", "study"], &sets));
    assert!(said.contains("`training.learning_rate`") && said.contains("too high"), "{said}");
    assert!(said.contains("of trial 000 (") && said.contains("learning_rate 10.0"), "{said}");
    assert!(!place.path().join("study").exists());
    // A learning rate that no trial uses is not checked.
    let config = place.path().join("study.toml");
    let too_high =
        fs::read_to_string(&config).unwrap().replace("learning_rate = 3e-3", "learning_rate = 10.0");
    fs::write(config, too_high).unwrap();
    let sets = ["tune.overfit_check=true", "tune.trials=2", "tune.method=random"];
    let arguments = with(&["study.toml", "--run", "study", "--set", "training.steps=20"], &sets);
    assert!(succeeds(place.path(), &arguments).contains("memorised"));
}

#[test]
fn oversized_model_fails_only_its_trial() {
    let place = place();
    let sets = [
        "tune.overfit_check=true",
        "tune.method=grid",
        "tune.search.training.learning_rate=[3e-3]",
        "tune.search.model.d_model=[65536, 16]",
        "tune.search.model.heads=[2]",
        "training.steps=20",
        "model.layers=64",
    ];
    let said = succeeds(place.path(), &with(&["study.toml", "--run", "study"], &sets));
    assert!(said.contains("memorised"), "{said}");
    let ended = rows(&place.path().join("study")).into_iter().map(|row| row["ended"].clone());
    assert_eq!(ended.collect::<Vec<_>>(), ["failed", "completed"]);
}

#[test]
fn dry_run_warns_about_data_and_memory() {
    let place = place();
    let sets = [
        "tune.method=grid",
        "tune.search.training.learning_rate=[3e-3]",
        "tune.search.model.d_model=[65536]",
        "tune.search.model.heads=[2]",
        "tune.search.training.batch_size=[16]",
        "model.layers=64",
        "data.valid_samples=8",
    ];
    let output = tune(place.path(), &with(&["study.toml", "--dry-run"], &sets));
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && printed.contains("  trials   1, each of "), "{printed}{said}");
    let warnings = said.lines().collect::<Vec<_>>();
    let (of_data, of_memory) = (warnings.first().unwrap(), warnings.last().unwrap());
    assert!(of_data.starts_with("warning: validation has "), "{said}");
    let too_large =
        "warning: 1 of 1 trial cannot be trained here, as the first of them: `model.d_model` = 65536 with ";
    assert!(of_memory.starts_with(too_large), "{said}");

    let said = refusal(place.path(), &with(&["study.toml", "--run", "study"], &sets));
    assert!(said.contains("`model.d_model` = 65536 with 64 layers"), "{said}");
    assert!(!place.path().join("study").exists());
}

#[test]
fn missing_start_weights_are_refused_before_writing() {
    let place = place();
    trains(place.path(), "study.toml", "start");
    fs::remove_file(place.path().join("start/model.safetensors")).unwrap();
    let (before, _) = STUDY.split_once("[tune.search]").unwrap();
    let study = format!("{before}[tune.search]\n\"training.learning_rate\" = [1e-3, 3e-3]\n");
    fs::write(place.path().join("tuned.toml"), study).unwrap();
    let sets = ["run.from=start", "tune.overfit_check=true"];
    let said = refusal(place.path(), &with(&["tuned.toml", "--run", "study"], &sets));
    assert!(said.contains("start` has no model.safetensors"), "{said}");
    assert!(!place.path().join("study").exists());
}
