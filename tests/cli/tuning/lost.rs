//! Studies whose trials all diverge, lack their config, or are links.

use std::fs;

use super::{place, refusal, rows, succeeds, tune, with};
use crate::text;

#[test]
fn a_study_whose_trials_all_diverge_fails() {
    let place = place();
    let sets = [
        "tune.method=grid",
        "tune.search={ \"training.learning_rate\" = [1e30, 1e32] }",
        "training.max_gradient_norm=0",
        "training.warmup=0",
        "training.optimizer=sgd",
    ];
    let output = tune(place.path(), &with(&["study.toml", "--run", "study"], &sets));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().any(|line| line.starts_with("error: every trial diverged")), "{said}");
    assert!(!place.path().join("study/best.toml").exists());
    assert!(rows(&place.path().join("study")).iter().all(|row| row["ended"] == "diverged"));
}

#[test]
fn a_trial_without_its_config_is_named() {
    let place = place();
    succeeds(place.path(), &["study.toml", "--run", "study"]);
    let study = place.path().join("study");
    let before = rows(&study);
    fs::remove_file(study.join("trials/001/config.toml")).unwrap();
    let said = refusal(place.path(), &["--resume", "study"]);
    assert!(said.contains("the trial `study/trials/001` lacks its config.toml: restore it"), "{said}");
    // Follows the advice of the error.
    fs::remove_dir_all(study.join("trials/001")).unwrap();
    succeeds(place.path(), &["--resume", "study"]);
    assert_eq!(rows(&study), before);
}

#[cfg(unix)]
#[test]
fn a_resumed_study_writes_through_no_link() {
    use std::os::unix::fs::symlink;
    let place = place();
    succeeds(place.path(), &["study.toml", "--run", "study"]);
    let (study, mine) = (place.path().join("study"), place.path().join("mine"));
    for name in ["lock", "trials/.alive", "config.toml"] {
        let (own, aside) = (study.join(name), place.path().join("aside"));
        fs::rename(&own, &aside).unwrap();
        fs::copy(&aside, &mine).unwrap();
        fs::write(&mine, [&fs::read(&aside).unwrap()[..], b"# mine"].concat()).unwrap();
        let held = fs::read(&mine).unwrap();
        symlink(&mine, &own).unwrap();
        let said = refusal(place.path(), &["--resume", "study"]);
        assert!(said.contains(&format!("study/{name}: is a link")), "{said}");
        assert_eq!(fs::read(&mine).unwrap(), held);
        fs::remove_file(&own).unwrap();
        fs::rename(&aside, &own).unwrap();
    }
    for (name, problem) in
        [("trials/001", "is not a folder, where the study has a trial"), ("trials", "is a link")]
    {
        let (own, aside) = (study.join(name), place.path().join("aside"));
        fs::rename(&own, &aside).unwrap();
        symlink(&aside, &own).unwrap();
        let said = refusal(place.path(), &["--resume", "study"]);
        assert!(said.contains(name) && said.contains(problem), "{said}");
        fs::remove_file(&own).unwrap();
        fs::rename(&aside, &own).unwrap();
    }
}
