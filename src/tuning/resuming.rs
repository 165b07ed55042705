//! What must be as it was for a study to go on: its config, its runs' configs, and its data.

use super::folder::StudyFolder;
use crate::config::{Config, Difference};
use crate::error::{Error, Result};
use crate::training::{RunFolder, data_fingerprint};

/// A study goes on with the config that it was made with.
///
/// # Errors
/// [`Error::Key`] for the first key that differs.
pub fn check_resumes(config: &Config, made_with: &Config, folder: &StudyFolder) -> Result<()> {
    let sections = ["run", "data", "model", "training", "analysis", "tune"];
    match config.difference(made_with, &sections) {
        None => Ok(()),
        Some(difference) => Err(difference.refused(
            &format!("the study `{}` was made with", folder.path().display()),
            "leave that out to go on with it, or begin another with --run DIR",
        )),
    }
}

/// A run in the place of a trial must be that trial's.
pub fn check_made_with(folder: &RunFolder, expected: &Config) -> Result<()> {
    let made_with = Config::load(Some(&folder.config()), &[])?;
    match made_with.difference(expected, &["run", "data", "model", "training"]) {
        None => Ok(()),
        Some(Difference { key, here, there }) => Err(Error::Input(format!(
            "`{}` stands where the study has a trial of `{key}` = {there}, but has {here}: restore it, or remove its \
             folder to train it again",
            folder.path().display()
        ))),
    }
}

/// A run must have been trained on the `data` that there is now, as far as both are known: results are compared.
pub fn check_data(run: &RunFolder, data: Option<u64>) -> Result<()> {
    match (data_fingerprint(run), data) {
        (Some(there), Some(here)) if there != here => Err(data_has_changed()),
        _ => Ok(()),
    }
}

/// The trials of a study are compared on one validation set.
pub fn data_has_changed() -> Error {
    let problem = "the data has changed since the study began: restore what its trials were made with, or begin \
                   another study";
    Error::Input(problem.into())
}
