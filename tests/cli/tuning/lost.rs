//! Studies whose trials all diverge, and resumed studies with a missing config or with links.

use std::fs;

use super::{refusal, rows, study_dir, succeeds, tune, with};
use crate::text;

#[test]
fn a_study_whose_trials_all_diverge_fails() {
    let dir = study_dir();
    let sets = [
        "tune.method=grid",
        "tune.search={ \"training.learning_rate\" = [1e30, 1e32] }",
        "training.max_gradient_norm=0",
        "training.warmup=0",
        "training.optimizer=sgd",
    ];
    let output = tune(dir.path(), &with(&["study.toml", "--run", "study"], &sets));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.lines().any(|line| line.starts_with("error: every trial diverged")), "{stderr}");
    assert!(!dir.path().join("study/best.toml").exists());
    assert!(rows(&dir.path().join("study")).iter().all(|row| row["ended"] == "diverged"));
}

#[test]
fn a_trial_without_its_config_is_named() {
    let dir = study_dir();
    succeeds(dir.path(), &["study.toml", "--run", "study"]);
    let study = dir.path().join("study");
    let before = rows(&study);
    fs::remove_file(study.join("trials/001/config.toml")).unwrap();
    let stderr = refusal(dir.path(), &["--resume", "study"]);
    assert!(stderr.contains("the trial `study/trials/001` lacks its config.toml; restore it"), "{stderr}");
    // Follows the advice of the error.
    fs::remove_dir_all(study.join("trials/001")).unwrap();
    succeeds(dir.path(), &["--resume", "study"]);
    assert_eq!(rows(&study), before);
}

#[cfg(unix)]
#[test]
fn resumed_studies_never_write_through_links() {
    use std::os::unix::fs::symlink;
    let dir = study_dir();
    succeeds(dir.path(), &["study.toml", "--run", "study"]);
    let (study, mine) = (dir.path().join("study"), dir.path().join("mine"));
    for name in ["lock", "trials/.alive", "config.toml"] {
        let (own, aside) = (study.join(name), dir.path().join("aside"));
        fs::rename(&own, &aside).unwrap();
        fs::copy(&aside, &mine).unwrap();
        fs::write(&mine, [&fs::read(&aside).unwrap()[..], b"# mine"].concat()).unwrap();
        let contents = fs::read(&mine).unwrap();
        symlink(&mine, &own).unwrap();
        let stderr = refusal(dir.path(), &["--resume", "study"]);
        assert!(stderr.contains(&format!("study/{name}: is a link")), "{stderr}");
        assert_eq!(fs::read(&mine).unwrap(), contents);
        fs::remove_file(&own).unwrap();
        fs::rename(&aside, &own).unwrap();
    }
    for (name, problem) in
        [("trials/001", "is not a folder, but the study expects a trial there"), ("trials", "is a link")]
    {
        let (own, aside) = (study.join(name), dir.path().join("aside"));
        fs::rename(&own, &aside).unwrap();
        symlink(&aside, &own).unwrap();
        let stderr = refusal(dir.path(), &["--resume", "study"]);
        assert!(stderr.contains(name) && stderr.contains(problem), "{stderr}");
        fs::remove_file(&own).unwrap();
        fs::rename(&aside, &own).unwrap();
    }
}
