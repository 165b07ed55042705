//! Plans of studies: skipped combinations, sequence counts and warnings, in a dry run and in the study itself.

use std::fs;

use super::{STUDY, rows, study_dir, succeeds, tune, with};
use crate::text;

#[test]
fn skipped_combinations_are_counted_with_a_reason() {
    let dir = study_dir();
    let sets = [
        "tune.method=grid",
        "tune.search={ \"training.learning_rate\" = [1e-5, 1e-3] }",
        "training.min_learning_rate=5e-5",
        "training.steps=20",
    ];
    let skipped =
        "1 combination that the config rejects: `training.min_learning_rate` = 0.00005 must not exceed";
    let stdout = succeeds(dir.path(), &with(&["study.toml", "--dry-run"], &sets));
    assert!(stdout.contains(&format!("  skipped  {skipped}")), "{stdout}");
    let output = tune(dir.path(), &with(&["study.toml", "--run", "study"], &sets));
    let stderr = text(&output.stderr);
    assert!(stderr.contains(&format!("notice: the study skips {skipped}")), "{stderr}");
    let [row] = &rows(&dir.path().join("study"))[..] else { panic!("{stderr}") };
    assert_eq!(row["training.learning_rate"], "1e-3");
    let config = fs::read_to_string(dir.path().join("study/trials/000/config.toml")).unwrap();
    assert!(config.contains("min_learning_rate = 0.00005"), "{config}");
}

#[test]
fn oversized_batches_are_warned_about() {
    let dir = study_dir();
    let sets =
        ["tune.method=grid", "tune.search={ \"training.batch_size\" = [16, 512] }", "training.steps=10"];
    let dry = tune(dir.path(), &with(&["study.toml", "--dry-run"], &sets));
    assert!(text(&dry.stdout).contains("total    672 training sequences at most (672 if"), "{dry:?}");
    let real = tune(dir.path(), &with(&["study.toml", "--run", "study"], &sets));
    for output in [dry, real] {
        let stderr = text(&output.stderr);
        let parts = ["warning: trials are compared after", "512 instead of 160", "`tune.steps` to 160"];
        assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    }
    let steps = rows(&dir.path().join("study")).into_iter().map(|row| row["steps"].clone());
    assert_eq!(steps.collect::<Vec<_>>(), ["10", "1"]);
}

#[test]
fn halving_without_stops_is_reported() {
    let dir = study_dir();
    for arguments in [&["study.toml", "--dry-run"][..], &["study.toml", "--run", "study"]] {
        let output = tune(dir.path(), &with(arguments, &["training.steps=20", "tune.trials=2"]));
        let stderr = text(&output.stderr);
        let parts = ["warning: halving stops no trial early", "`tune.steps` to 30", "`tune.rungs` = 2"];
        assert!(output.status.success() && parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    }
}

#[test]
fn unused_trials_of_grids_are_reported() {
    let dir = study_dir();
    let plain = STUDY.replace("trials = 7\n", "").replace("halving", "grid");
    fs::write(dir.path().join("grid.toml"), plain).unwrap();
    let search = ["tune.search={ \"model.heads\" = [2] }", "training.steps=20"];
    let warning = "warning: `tune.trials` = 7 has no effect";
    for (sets, expected) in [(&search[..], 0), (&[search[0], search[1], "tune.trials=7"], 2)] {
        let name = format!("study-{expected}");
        let runs = [&["grid.toml", "--dry-run"][..], &["grid.toml", "--run", &name]];
        let outputs = runs.map(|arguments| text(&tune(dir.path(), &with(arguments, sets)).stderr));
        let mentions = outputs.iter().filter(|stderr| stderr.contains("`tune.trials`")).count();
        let warnings = outputs.iter().filter(|stderr| stderr.contains(warning)).count();
        assert_eq!((mentions, warnings), (expected, expected), "{outputs:?}");
    }
}
