//! Plans of studies: what is skipped, counted and warned of, in a dry run and in the study itself.

use std::fs;

use super::{STUDY, place, rows, succeeds, tune, with};
use crate::text;

#[test]
fn skipped_combinations_are_counted_with_a_reason() {
    let place = place();
    let sets = [
        "tune.method=grid",
        "tune.search={ \"training.learning_rate\" = [1e-5, 1e-3] }",
        "training.min_learning_rate=5e-5",
        "training.steps=20",
    ];
    let skipped =
        "1 combination that the config rejects: `training.min_learning_rate` = 0.00005 must not exceed";
    let said = succeeds(place.path(), &with(&["study.toml", "--dry-run"], &sets));
    assert!(said.contains(&format!("  skipped  {skipped}")), "{said}");
    let output = tune(place.path(), &with(&["study.toml", "--run", "study"], &sets));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("notice: the study skips {skipped}")), "{said}");
    let [row] = &rows(&place.path().join("study"))[..] else { panic!("{said}") };
    assert_eq!(row["training.learning_rate"], "1e-3");
    let config = fs::read_to_string(place.path().join("study/trials/000/config.toml")).unwrap();
    assert!(config.contains("min_learning_rate = 0.00005"), "{config}");
}

#[test]
fn a_batch_beyond_the_budget_is_warned_of() {
    let place = place();
    let sets =
        ["tune.method=grid", "tune.search={ \"training.batch_size\" = [16, 512] }", "training.steps=10"];
    let dry = tune(place.path(), &with(&["study.toml", "--dry-run"], &sets));
    assert!(text(&dry.stdout).contains("in all   672 training sequences at most (672 if"), "{dry:?}");
    let real = tune(place.path(), &with(&["study.toml", "--run", "study"], &sets));
    for output in [dry, real] {
        let said = text(&output.stderr);
        let parts = ["warning: trials are compared after", "512 instead of 160", "`tune.steps` to 160"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let steps = rows(&place.path().join("study")).into_iter().map(|row| row["steps"].clone());
    assert_eq!(steps.collect::<Vec<_>>(), ["10", "1"]);
}

#[test]
fn halving_without_stops_is_reported() {
    let place = place();
    for arguments in [&["study.toml", "--dry-run"][..], &["study.toml", "--run", "study"]] {
        let output = tune(place.path(), &with(arguments, &["training.steps=20", "tune.trials=2"]));
        let said = text(&output.stderr);
        let parts = ["warning: halving stops no trial early", "`tune.steps` to 30", "`tune.rungs` = 2"];
        assert!(output.status.success() && parts.iter().all(|part| said.contains(part)), "{said}");
    }
}

#[test]
fn unused_trials_of_grids_are_reported() {
    let place = place();
    let plain = STUDY.replace("trials = 7\n", "").replace("halving", "grid");
    fs::write(place.path().join("grid.toml"), plain).unwrap();
    let search = ["tune.search={ \"model.heads\" = [2] }", "training.steps=20"];
    let warning = "warning: `tune.trials` = 7 has no effect";
    for (sets, expected) in [(&search[..], 0), (&[search[0], search[1], "tune.trials=7"], 2)] {
        let name = format!("study-{expected}");
        let runs = [&["grid.toml", "--dry-run"][..], &["grid.toml", "--run", &name]];
        let said = runs.map(|arguments| text(&tune(place.path(), &with(arguments, sets)).stderr));
        let warned = said.iter().filter(|said| said.contains("`tune.trials`")).count();
        let right = said.iter().filter(|said| said.contains(warning)).count();
        assert_eq!((warned, right), (expected, expected), "{said:?}");
    }
}
