//! Plans of studies: what is skipped, counted and warned of, in a dry run and in the study itself.

use std::fs;

use super::{place, rows, succeeds, tune, with};
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
