//! The folder of a study.

use std::path::{Path, PathBuf};

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

    /// Takes the folder for this process.
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

    /// `baseline.json`: what the check before the first trial found.
    pub fn baseline(&self) -> PathBuf {
        self.path().join("baseline.json")
    }

    /// `plots/`: the pictures.
    pub fn plots(&self) -> PathBuf {
        self.0.plots()
    }

    /// `report.html`: the page to explore.
    pub fn report(&self) -> PathBuf {
        self.0.report()
    }
}
