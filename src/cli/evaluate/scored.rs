//! The part of a run's data, or of another file, that `evaluate` scores.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::super::input::OpenedRun;
use crate::config::Config;
use crate::data::{DataConfig, Dataset, Source, Vocabulary, load_whole};
use crate::error::{Error, Result};
use crate::training::{Split, data_fingerprint, dataset_of};

/// The part of the data that is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Scored {
    /// The validation set.
    Valid,
    /// The training set.
    Train,
    /// All of a file.
    Whole,
}

impl Scored {
    /// The set of a [`Dataset`] that holds the part: of a whole file both do.
    pub fn split(self) -> Split {
        match self {
            Self::Valid | Self::Whole => Split::Valid,
            Self::Train => Split::Train,
        }
    }
}

impl fmt::Display for Scored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Valid => "the validation set",
            Self::Train => "the training set",
            Self::Whole => "the whole file",
        })
    }
}

/// The data that is scored.
pub struct Selected {
    /// Which part of it.
    pub scored: Scored,
    /// Its sets.
    pub dataset: Dataset,
    /// All targets of the file; none of sequences that are drawn.
    pub targets_in_file: Option<usize>,
}

/// Reads the data of a run that was `made_with` a config, which the command line may have changed. Without a `split`
/// it is the validation set of the data that the run learned from, and the whole of any other file.
///
/// # Errors
/// If the data cannot be read by the run's vocabulary.
pub fn select(split: Option<Scored>, run: &OpenedRun, made_with: &Config) -> Result<Selected> {
    let OpenedRun { folder, config, .. } = run;
    let is_file = config.data.source() != Source::Sequences;
    let is_own =
        !is_file || config.data.path == made_with.data.path && config.data.source == made_with.data.source;
    let (scored, dataset) = match split {
        Some(Scored::Whole) => (Scored::Whole, None),
        Some(split) => (split, Some(dataset_of(config, folder)?)),
        None if is_own || is_copy(run, made_with) => (Scored::Valid, Some(dataset_of(config, folder)?)),
        None => (Scored::Whole, None),
    };
    let dataset = match dataset {
        Some(dataset) => dataset,
        None => load_whole(&config.data, config.run.seed, &Vocabulary::read(folder.vocabulary())?)?,
    };
    let targets_in_file = is_file.then(|| targets(scored, &dataset));
    Ok(Selected { scored, dataset, targets_in_file })
}

/// Whether the file is a copy of the one that the run learned from, which is not held out whatever its path.
fn is_copy(OpenedRun { folder, config, .. }: &OpenedRun, made_with: &Config) -> bool {
    let path = config.data.path.clone();
    // A pipe can be read but once.
    if made_with.data.source() == Source::Sequences || !path.is_file() && !path.is_dir() {
        return false;
    }
    let as_the_run = Config { data: DataConfig { path, ..made_with.data.clone() }, ..made_with.clone() };
    let read = dataset_of(&as_the_run, folder);
    read.is_ok_and(|dataset| data_fingerprint(folder) == Some(dataset.fingerprint()))
}

/// All targets of the file that a dataset was read from.
fn targets(scored: Scored, Dataset { train, valid, .. }: &Dataset) -> usize {
    match scored {
        Scored::Whole => valid.targets(),
        // The first token of the second part of a stream is the target of none of its windows.
        Scored::Valid | Scored::Train => {
            train.targets() + valid.targets() + usize::from(valid.stream().is_some())
        }
    }
}

/// A file as the key of a config that names it.
///
/// # Errors
/// If its path is not UTF-8.
pub fn as_key(file: &Path) -> Result<String> {
    let path = file.to_str().ok_or_else(|| {
        Error::Input(format!("--data {}: the path is not UTF-8: rename the file", file.display()))
    })?;
    Ok(format!("data.path={}", toml::Value::from(path)))
}
