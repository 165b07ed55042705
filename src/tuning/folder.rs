//! The folder of a study.

use std::path::{Path, PathBuf};

use crate::config::{Config, Difference};
use crate::error::{Error, Result};
use crate::training::{Lock, RunFolder};

/// The folder of a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyFolder(RunFolder);

impl StudyFolder {
    /// The study in `folder`, whatever that holds.
    pub(super) fn at(folder: RunFolder) -> Self {
        Self(folder)
    }

    /// Locks the folder for this process.
    ///
    /// # Errors
    /// If a living process has it.
    pub fn lock(&self) -> Result<Lock> {
        self.0.lock()
    }

    /// The study at `path`.
    ///
    /// # Errors
    /// If there is no folder, or one that no study made.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let folder = Self(RunFolder::at(path));
        let shown = folder.path().display();
        if folder.path().is_file() {
            return Err(Error::Input(format!("`{shown}` is a file: name the folder of a study")));
        }
        if !folder.path().is_dir() {
            return Err(Error::Input(format!("there is no study `{shown}`: `tune --run {shown}` makes one")));
        }
        if !folder.0.config().is_file() || !folder.trials().is_dir() {
            return Err(Error::Input(format!(
                "`{shown}` is not the folder of a study: it lacks config.toml or trials/"
            )));
        }
        Ok(folder)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Its name, which titles its pictures.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// `config.toml`: every key as used, with the search.
    pub fn config(&self) -> PathBuf {
        self.0.config()
    }

    /// `trials/`: a run folder for each run.
    pub fn trials(&self) -> PathBuf {
        self.path().join("trials")
    }

    /// `trials/000.failed`, beside the folder of a run that could not be trained: why, in a line.
    pub(super) fn failure(run: &RunFolder) -> PathBuf {
        run.path().with_extension("failed")
    }

    /// `study.csv`: a row a trial.
    pub fn table(&self) -> PathBuf {
        self.path().join("study.csv")
    }

    /// `best.toml`: the best setting, for `train`.
    pub fn best(&self) -> PathBuf {
        self.path().join("best.toml")
    }

    /// `overfit_check.json`: what the check before the first trial found; `baseline.json` in a study of old.
    pub fn overfit_check(&self) -> PathBuf {
        let old = self.path().join("baseline.json");
        if old.exists() { old } else { self.path().join("overfit_check.json") }
    }

    /// `plots/`: the pictures.
    pub fn plots(&self) -> PathBuf {
        self.0.plots()
    }

    /// `report.html`: the page to explore.
    pub fn report(&self) -> PathBuf {
        self.0.report()
    }

    /// Checks that a study is resumed with the config that it was made with.
    ///
    /// # Errors
    /// [`Error::Key`] for the first key that differs.
    pub fn check_resumes(&self, config: &Config) -> Result<()> {
        let made_with = Config::load(Some(&self.config()), &[])?;
        let sections = ["run", "data", "model", "training", "analysis", "tune"];
        match config.difference(&made_with, &sections) {
            None => Ok(()),
            Some(difference) => Err(difference.refused(
                &format!("the study `{}` was made with", self.path().display()),
                "leave that out to go on with it, or begin another with --run DIR",
            )),
        }
    }

    /// A run in the place of a trial must be that trial's.
    ///
    /// # Errors
    /// If it has another config than `expected`.
    pub(super) fn check_trial(run: &RunFolder, expected: &Config) -> Result<()> {
        let made_with = Config::load(Some(&run.config()), &[])?;
        match made_with.difference(expected, &["run", "data", "model", "training"]) {
            None => Ok(()),
            Some(Difference { key, here, there }) => Err(Error::Input(format!(
                "`{}` stands where the study has a trial of `{key}` = {there}, but has {here}: restore it, or remove \
                 its folder to train it again",
                run.path().display()
            ))),
        }
    }
}
