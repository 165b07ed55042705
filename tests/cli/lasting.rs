//! The duration of runs: the predictions of a dry run, the steps of validations, checkpoints and early stopping, and
//! the effects of resuming with other keys.

use std::fs;

use tempfile::TempDir;

use crate::{SMALL, program, resume, rows, small_run, summary, text, train, without_data_warnings};

fn epochs(run: &std::path::Path) -> Vec<usize> {
    rows(run).iter().map(|row| row.split(',').nth(1).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_dry_run_counts_tokens_of_shorter_sequences() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=3", "data.length=48", "model.position=rotary"], "start");
    let dry = |length: &str| {
        let mut command = program(dir.path());
        command.args(["train", "--backend", "ndarray", "--from", "start", "--dry-run", "--set", length]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let stdout = dry("data.length=16");
    assert!(stdout.contains("of up to 128 tokens: at most 384 tokens in total"), "{stdout}");
    let operations = |stdout: &str| {
        let (before, _) = stdout.split_once(" GFLOP").unwrap();
        before.rsplit('(').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(operations(&stdout) < operations(&dry("data.length=48")), "{stdout}");
}

#[test]
fn resuming_after_cosine_decay_reports_rising_rate() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=24"], "run");
    let resumed = resume(dir.path(), "run").args(["--set", "training.steps=48"]).output().unwrap();
    let stderr = without_data_warnings(&resumed.stderr);
    assert!(
        resumed.status.success() && stderr.contains("notice: at step 24, the learning rate rises from 1."),
        "{stderr}"
    );
    assert!(stderr.contains("because of training.steps = 48 (was 24); to keep the rate"), "{stderr}");
    assert!(
        stderr.contains("use --set training.schedule=constant --set training.learning_rate=1."),
        "{stderr}"
    );
}

#[test]
fn jump_of_the_rate_is_reported_at_the_resumed_step() {
    let dir = TempDir::new().unwrap();
    let sets = ["--set", "training.log_every=1000"];
    let paused = small_run_until(dir.path(), &["training.steps=40", "training.log_every=1000"], 37);
    let output =
        resume(dir.path(), "run").args(["--steps", "400", "--until", "38"]).args(sets).output().unwrap();
    let stderr = without_data_warnings(&output.stderr);
    let (_, rates) = stderr
        .split_once("notice: at step 37, the learning rate rises from ")
        .unwrap_or_else(|| panic!("{stderr}"));
    let mut rates = rates.split([' ', ',']).filter_map(|word| word.parse::<f64>().ok());
    let (before, now) = (rates.next().unwrap(), rates.next().unwrap());
    assert!(now > 2.0 * before, "no row was logged near the end of the decay: {stderr}");
    assert!(paused.join("metrics.csv").is_file());
    let output = resume(dir.path(), "run")
        .args(["--set", "training.learning_rate=0.1", "--until", "39"])
        .output()
        .unwrap();
    let stderr = without_data_warnings(&output.stderr);
    assert!(stderr.contains("because of training.learning_rate = 0.1 (was "), "{stderr}");
    // Other changes are not a cause.
    let output = resume(dir.path(), "run")
        .args(["--steps", "2000", "--set", "training.optimizer=sgd", "--until", "40"])
        .output()
        .unwrap();
    let stderr = without_data_warnings(&output.stderr);
    assert!(stderr.contains("because of training.steps = 2000 (was 400); to keep"), "{stderr}");
}

/// Trains a small run up to a step.
fn small_run_until(folder: &std::path::Path, sets: &[&str], until: usize) -> std::path::PathBuf {
    let sets = [&super::SMALL[..], sets].concat();
    let output = super::train(folder, &sets, &["--run", "run", "--until", &until.to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder.join("run")
}

#[test]
fn advice_to_keep_the_rate_keeps_it() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=24"], "run");
    // The warm-up is a fraction of the longer run, so it has not ended at step 24.
    let notice = |more: &[&str]| {
        let mut command = resume(dir.path(), "run");
        let output = command.args(["--steps", "2000", "--until", "26"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        without_data_warnings(&output.stderr)
    };
    let run = dir.path().join("run");
    let copy = |from: &str, to: &str| {
        let status = std::process::Command::new("cp").args(["-r", from, to]).current_dir(dir.path()).status();
        assert!(status.unwrap().success());
    };
    copy("run", "kept");
    let stderr = notice(&[]);
    let (_, advice) = stderr.split_once("to keep the rate, use ").unwrap();
    let advice: Vec<&str> = advice.lines().next().unwrap().split(' ').collect();
    assert!(advice.contains(&"training.warmup=0"), "{advice:?}");
    std::fs::remove_dir_all(&run).unwrap();
    copy("kept", "run");
    let stderr = notice(&advice);
    assert!(!stderr.contains("the learning rate"), "{stderr}");
}

#[test]
fn epochs_never_decrease_when_batches_shrink() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=48"], "run");
    let sets = ["--set", "training.steps=60", "--set", "training.batch_size=4"];
    let resumed = resume(dir.path(), "run").args(sets).output().unwrap();
    let stderr = without_data_warnings(&resumed.stderr);
    assert!(resumed.status.success(), "{stderr}");
    assert!(
        stderr.contains("notice: an epoch now takes 24 steps, so step 48 would be in epoch 2 instead of 4"),
        "{stderr}"
    );
    let epochs = epochs(&run);
    assert!(epochs.is_sorted() && epochs.last() == Some(&4), "{epochs:?}");
}

#[test]
fn another_epoch_length_in_the_first_epoch_logs_a_notice() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=10"], "run");
    let sets = ["--set", "training.steps=12", "--set", "training.batch_size=4"];
    let resumed = resume(dir.path(), "run").args(sets).output().unwrap();
    let stderr = without_data_warnings(&resumed.stderr);
    let notice =
        "notice: an epoch now takes 24 steps instead of 12, so compare rows before and after step 10";
    assert!(resumed.status.success() && stderr.contains(notice), "{stderr}");
}

#[test]
fn patience_counts_rarely_logged_training_losses() {
    let dir = TempDir::new().unwrap();
    let sets = ["training.monitor=train_loss", "training.patience=2", "training.min_delta=100"];
    let more = ["training.log_every=1000", "training.steps=240"];
    let run = small_run(dir.path(), &[&sets[..], &more].concat(), "run");
    let ended = summary(&run);
    assert_eq!((&ended["ended"], &ended["steps"]), (&"early_stopped".into(), &36.into()));
    let is_measured = |row: &String| !row.contains("NaN");
    assert!(rows(&run).iter().all(is_measured), "{:?}", rows(&run));
}

#[test]
fn epochs_of_one_step_are_validated_every_ten() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["data.train_samples=8", "training.steps=25"], "run");
    let valid = rows(&run).into_iter().filter(|row| row.contains(",valid,"));
    let steps = valid.map(|row| row.split(',').next().unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(steps, ["10", "20", "25"]);
}

#[test]
fn resume_regenerates_removed_weights() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=24"], "run");
    let own = fs::read(run.join("model.safetensors")).unwrap();
    let mut damaged = own.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(run.join("model.safetensors"), damaged).unwrap();
    let refused = program(dir.path()).args(["plot", "run"]).output().unwrap();
    assert!(text(&refused.stderr).contains("remove it and let train --resume restore it"));
    fs::remove_file(run.join("model.safetensors")).unwrap();
    let resumed = resume(dir.path(), "run").output().unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert!(fs::read(run.join("model.safetensors")).unwrap() == own);
    assert!(program(dir.path()).args(["plot", "run"]).output().unwrap().status.success());
    let refused = resume(dir.path(), "run").output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "the run is complete again");
}

#[test]
fn implausible_schedules_are_warned_about() {
    let dir = TempDir::new().unwrap();
    for (set, part) in [
        ("training.warmup=3", "training.warmup = 3 takes the entire run of 3 steps"),
        ("training.learning_rate=1e-4", "--set training.min_learning_rate=1e-5"),
    ] {
        let sets = [&SMALL[..], &["training.steps=3", set]].concat();
        let output = train(dir.path(), &sets, &["--dry-run"]);
        assert!(output.status.success() && text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
}
