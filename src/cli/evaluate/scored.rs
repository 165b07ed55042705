//! The part of a run's data, or of another file, that `evaluate` scores.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::super::input::OpenedRun;
use crate::config::Config;
use crate::data::{DataConfig, Dataset, Sequences, Source, Vocabulary, load_whole, load_whole_pairs};
use crate::error::{Error, Result};
use crate::model::Architecture;
use crate::training::{Split, data_fingerprint, dataset_of};

/// The part of the data that is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Scored {
    /// The validation set.
    Valid,
    /// The training set.
    Train,
    /// The whole file.
    Whole,
}

impl Scored {
    /// Returns the set of a [`Dataset`] that holds the part. For the whole file, both sets hold it.
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

/// The data to score.
pub struct ScoredTargets {
    /// The part that is scored.
    pub scored: Scored,
    /// The training and validation sets.
    pub dataset: Dataset,
    /// The number of targets in the file; `None` for generated sequences.
    pub targets_in_file: Option<usize>,
}

/// Loads the data to score. `made_with` is the config of the run without changes on the command line. The default
/// `split` is the validation set for the run's own data, and the whole file for any other file. `is_other_file` is true if
/// the command names a file.
///
/// # Errors
/// Returns an error if the run's vocabulary cannot read the data.
pub fn select(
    split: Option<Scored>,
    is_other_file: bool,
    run: &OpenedRun,
    made_with: &Config,
) -> Result<ScoredTargets> {
    let OpenedRun { folder, config, .. } = run;
    let is_file = config.data.source() != Source::Sequences;
    let has_valid_path = !made_with.data.valid_path.is_empty();
    let is_own =
        !is_file || config.data.path == made_with.data.path && config.data.source == made_with.data.source;
    let (scored, dataset) = match split {
        Some(Scored::Whole) => (Scored::Whole, None),
        Some(split) => (split, Some(dataset_of(config, folder)?)),
        // Without a path of another file, and unless the run has a validation file of its own.
        None if (is_own || is_copy(run, made_with)) && !(is_other_file && has_valid_path) => {
            (Scored::Valid, Some(dataset_of(config, folder)?))
        }
        None => (Scored::Whole, None),
    };
    let dataset = match dataset {
        Some(dataset) => dataset,
        None => {
            let load = match config.model.architecture {
                Architecture::EncoderDecoder => load_whole_pairs,
                Architecture::Decoder | Architecture::OneLayer => load_whole,
            };
            load(&config.data, config.run.seed, &Vocabulary::read(folder.vocabulary())?)?
        }
    };
    let targets_in_file = is_file.then(|| match (!config.data.valid_path.is_empty(), scored) {
        (true, Scored::Train) => all_targets(&dataset.train),
        (true, Scored::Valid) => all_targets(&dataset.valid),
        _ => targets(scored, &dataset),
    });
    Ok(ScoredTargets { scored, dataset, targets_in_file })
}

/// Returns true if the file is a copy of the run's data file. A copy is not held out, even under another path.
fn is_copy(OpenedRun { folder, config, .. }: &OpenedRun, made_with: &Config) -> bool {
    let path = config.data.path.clone();
    // A pipe can be read only once.
    if made_with.data.source() == Source::Sequences || !path.are_files() {
        return false;
    }
    let as_the_run = Config { data: DataConfig { path, ..made_with.data.clone() }, ..made_with.clone() };
    let read = dataset_of(&as_the_run, folder);
    read.is_ok_and(|dataset| data_fingerprint(folder) == Some(dataset.fingerprint()))
}

/// Counts all targets of the file that a set was read from.
fn all_targets(set: &Sequences) -> usize {
    set.targets_of_stream().unwrap_or_else(|| set.targets())
}

/// Counts all targets of the file that a dataset was read from.
fn targets(scored: Scored, Dataset { train, valid, .. }: &Dataset) -> usize {
    match scored {
        Scored::Whole => valid.targets(),
        // The first token after the cut of a stream is not a target of any window.
        Scored::Valid | Scored::Train => {
            valid.targets_of_stream().unwrap_or_else(|| train.targets() + valid.targets())
        }
    }
}

/// Formats a file, or a list of files as in a config, as an assignment to `data.path`.
///
/// # Errors
/// Returns an error if the path is not UTF-8.
pub fn as_key(file: &Path) -> Result<String> {
    let path = file.to_str().ok_or_else(|| {
        Error::Input(format!("--data {}: the path is not UTF-8; rename the file", file.display()))
    })?;
    Ok(format!("data.path={path}"))
}
