//! The folder of a study. Its config, pictures and page have the same names as in the folder of a run.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use crate::config::{Config, Difference};
use crate::error::{Error, Result, ensure};
use crate::files::{create, exists, has_entry, open_own, open_own_to_write};
use crate::training::RunFolder;

/// Returns the folder of the study at `path`.
///
/// # Errors
/// If the folder does not exist, or is not the folder of a study.
pub fn study_folder(path: &Path) -> Result<RunFolder> {
    let (folder, shown) = (RunFolder::at(path), path.display());
    if exists(path)? {
        exists(&folder.config())?;
    }
    let problem = if path.is_file() {
        format!("`{shown}` is a file; pass the folder of a study")
    } else if !path.is_dir() {
        format!("`{shown}`: no such study; start one with `tune --run {shown}`")
    } else if !has_entry(&folder.config()) || !trials(&folder).is_dir() {
        format!(
            "`{shown}` is not a study folder: it lacks config.toml or trials/; pass the folder of a study"
        )
    } else {
        open_own(&folder.config())?;
        create(&trials(&folder))?;
        return Ok(folder);
    };
    Err(Error::Input(problem))
}

/// Returns the path of `overfit_check.json`, the result of the check before the first trial.
pub fn overfit_check(folder: &RunFolder) -> PathBuf {
    folder.path().join("overfit_check.json")
}

/// Returns the path of `best.toml`, the best setting as a config for `train`.
pub fn best(folder: &RunFolder) -> PathBuf {
    folder.path().join("best.toml")
}

/// Returns the path of `trials/`, which contains one folder per run.
pub(super) fn trials(folder: &RunFolder) -> PathBuf {
    folder.path().join("trials")
}

/// Returns the path of a file such as `trials/000.failed`, next to the folder of a run that could not be trained. It
/// holds the reason in one line.
pub(super) fn failure(run: &RunFolder) -> PathBuf {
    run.path().with_extension("failed")
}

/// The prefix of the names of lock files.
pub(super) const LOCK_PREFIX: &str = ".alive";

/// Locks a worker's file in the folder `trials`; the lock means that the worker has runs in progress.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn lock_alive(trials: &Path, worker: usize) -> Result<File> {
    let path =
        trials.join(if worker == 0 { LOCK_PREFIX.to_string() } else { format!("{LOCK_PREFIX}-{worker}") });
    let io = |error| Error::io("lock", &path, error);
    let alive = open_own_to_write(&path, File::options().create(true))?;
    if let Err(TryLockError::WouldBlock) = alive.try_lock() {
        log::info!("waiting for the runs of the killed study to end at their next rung");
        alive.lock().map_err(io)?;
    }
    Ok(alive)
}

/// Checks that the study in `folder` is resumed with its original config.
///
/// # Errors
/// [`Error::Key`] for the first key that differs.
pub fn check_resumes(folder: &RunFolder, config: &Config) -> Result<()> {
    let original = Config::load_own(&folder.config())?;
    match config.difference(&original, &["run", "data", "model", "training", "analysis", "tune"]) {
        None => Ok(()),
        Some(difference) => Err(difference.refused(
            &format!("the study `{}`", folder.path().display()),
            "omit it to resume the study, or start another with --run DIR",
        )),
    }
}

/// Checks that a run in the folder of a trial belongs to that trial.
pub(super) fn check_trial(run: &RunFolder, expected: &Config) -> Result<()> {
    let shown = run.path().display();
    let is_folder = run.path().symlink_metadata().is_ok_and(|data| data.is_dir());
    ensure(is_folder, Error::Input, || {
        format!(
            "`{shown}` is not a folder, but the study expects a trial there; remove it to train the trial again"
        )
    })?;
    ensure(has_entry(&run.config()), Error::Input, || {
        format!(
            "the trial `{shown}` lacks its config.toml; restore it, or remove the folder to train the trial again"
        )
    })?;
    let original = Config::load_own(&run.config())?;
    match original.difference(expected, &["run", "data", "model", "training"]) {
        None => Ok(()),
        Some(Difference { key, here, there }) => Err(Error::Input(format!(
            "the trial `{shown}` has `{key}` = {here}, but the study requires {there}; restore its config.toml, or \
             remove the folder to train the trial again"
        ))),
    }
}
