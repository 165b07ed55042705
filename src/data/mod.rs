//! Datasets: synthetic tasks with a known optimal loss, and the user's own files.
//!
//! This module is independent of models and tensors. It takes a [`DataConfig`] and [returns](load) integers below the
//! size of a [`Vocabulary`]:
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | the section `[data]` and its checks |
//! | [`tasks`] | one file per sequence task, each with the loss of its optimal predictor |
//! | [`sequences`] | the token ids of one split, in rows or as a stream cut into windows |
//! | [`batch`] | one training batch: inputs, targets, and the role of each target |
//! | `reading` | summaries of how files were read |
//! | [`Dataset`] | both splits, their vocabulary and their entropy floor |
//! | [`loader`] | the order of an epoch, a pure function of (seed, epoch) |
//! | `text` | the user's texts, as characters or by a tokenizer |
//! | `table` | the user's tables, as one sequence per line or one column in windows |
//! | `arrays` | the user's arrays of token ids, which may be larger than memory |
//! | [`vocabulary`] | the meaning of each id |
//! | [`describe`] | a preview of the training data, to inspect before training |
//! | [`seed`] | random generators, each a pure function of (seed, purpose, position) |

mod arrays;
pub mod batch;
pub mod config;
mod damage;
mod dataset;
pub mod describe;
mod documents;
mod excerpt;
mod ids;
pub mod loader;
mod reading;
pub mod seed;
pub mod sequences;
mod table;
pub mod tasks;
mod text;
mod unused;
pub mod vocabulary;

pub use batch::{Batch, Role, SourceBatch};
pub use config::{
    Binning, Cache, Column, Count, DataConfig, Delimiter, Documents, Dtype, Header, LongRows, LossOn, Paths,
    Periods, RowSplit, Source, Task, Tokens, Values,
};
pub use dataset::{Dataset, Floor};
pub use describe::{DataDescription, EndOfText, leaked_samples, vocabulary_warnings, warnings};
pub(crate) use documents::{documents_of, several};
pub(crate) use excerpt::excerpt;
pub use loader::Loader;
pub use reading::{ArrayFormat, ArrayReading, TableFormat, TableReading, TextReading};
pub use sequences::Sequences;
pub use vocabulary::{Notation, Vocabulary};

use std::path::Path;

use crate::error::{Error, Result, ensure};

/// Checks a config as far as possible without reading a file.
///
/// # Errors
/// Returns an error that names the key with the unusable value.
pub fn check(config: &DataConfig) -> Result<()> {
    config.check()?;
    match config.source() {
        Source::Sequences => tasks::check(config),
        Source::Text | Source::Table | Source::Array | Source::Memory => Ok(()),
    }
}

/// Reads or draws both splits. A task draws them from separate random streams of `data.seed`, or of the run's `seed` if
/// `data.seed` is not set. A file gives the same splits for every seed of a run.
///
/// # Errors
/// Returns the errors of [`check`], and an error with the position in the file if a file cannot be read or parsed.
pub fn load(config: &DataConfig, seed: u64) -> Result<Dataset> {
    read_or_draw(config, seed, None)
}

/// Reads or draws both splits like [`load`], for a run with an existing vocabulary. A file is encoded with that
/// vocabulary, so that its ids match the weights.
///
/// # Errors
/// Returns the errors of [`load`], and an error if the data does not fit the vocabulary.
pub fn load_with(config: &DataConfig, seed: u64, vocabulary: &Vocabulary) -> Result<Dataset> {
    let dataset = read_or_draw(config, seed, Some(vocabulary))?;
    check_vocabulary(&dataset, vocabulary)?;
    Ok(dataset)
}

fn check_vocabulary(dataset: &Dataset, vocabulary: &Vocabulary) -> Result<()> {
    ensure(dataset.vocabulary == *vocabulary, Error::Input, || {
        format!(
            "the data has a vocabulary of {}, but the weights were trained on {vocabulary}; use the section \
             [data] of the run's config",
            dataset.vocabulary
        )
    })
}

/// Reads a file as one split with the vocabulary of a run, for example a file that was held out of training. Both
/// splits contain the entire file, which may be shorter than a window.
///
/// # Errors
/// Returns the errors of [`load_with`], and an error if `config` names no file.
pub fn load_whole(config: &DataConfig, seed: u64, vocabulary: &Vocabulary) -> Result<Dataset> {
    if config.source() == Source::Sequences {
        let problem = "does not read a file; set `data.path` to a file";
        return Err(Error::key("data.source", config.source(), problem));
    }
    check(config)?;
    let whole = DataConfig { valid_fraction: config::WHOLE_FILE, ..config.clone() };
    let dataset = read(&whole, seed, Some(vocabulary))?;
    check_vocabulary(&dataset, vocabulary)?;
    Ok(dataset)
}

/// Reads a table of pairs like [`load_whole`], for an encoder-decoder.
///
/// # Errors
/// Returns the errors of [`load_pairs_with`].
pub fn load_whole_pairs(config: &DataConfig, seed: u64, vocabulary: &Vocabulary) -> Result<Dataset> {
    check(config)?;
    let whole = DataConfig { valid_fraction: config::WHOLE_FILE, ..config.clone() };
    read_or_draw_pairs(&whole, seed, Some(vocabulary))
}

fn read_or_draw(config: &DataConfig, seed: u64, given: Option<&Vocabulary>) -> Result<Dataset> {
    check(config)?;
    read(config, seed, given)
}

/// Returns an error if a set lacks a target that counts in the loss.
fn check_targets(config: &DataConfig, dataset: Dataset) -> Result<Dataset> {
    let is_empty = |set: &Sequences| set.targets() == 0;
    let which = match (is_empty(&dataset.train), is_empty(&dataset.valid)) {
        (false, false) => return Ok(dataset),
        (true, true) => "",
        (true, false) => " in the training set",
        (false, true) => " in the validation set",
    };
    let remedy = match config.source() {
        Source::Text => "add text to the documents",
        _ => {
            "add answers, labels other than -100, or turns of the role `assistant`; or raise `data.length` if it cuts them"
        }
    };
    let problem = format!("has no target that counts in the loss{which}; {remedy}");
    Err(Error::file(config.path.first(), problem))
}

fn read(config: &DataConfig, seed: u64, given: Option<&Vocabulary>) -> Result<Dataset> {
    if config.source() == Source::Memory {
        let problem = "is not stored, because a program passed the data; pass a file, for example with --set \
                       data.source=table --set data.path=sequences.csv";
        return Err(Error::key("data.source", "\"memory\"", problem));
    }
    // Imported weights do not record their training data, and inference works without it.
    if config.source() != Source::Sequences && config.path.is_empty() {
        let problem =
            "does not name a file; set the path of your data, for example with --set data.path=book.txt";
        return Err(Error::key("data.path", "\"\"", problem));
    }
    let is_misread = |path: &&Path| path.to_string_lossy().contains(char::is_control) && !path.exists();
    if let Some(path) = config.path.iter().find(is_misread) {
        let problem = "does not exist and contains a control character: in double quotes \\t, \\n and the \
                       like are escapes; write the path in single quotes or with forward slashes";
        return Err(Error::key("data.path", path.display(), problem));
    }
    if !config.valid_path.is_empty() && !config.is_one_split() {
        return read_both(config, given, |config, given| read(config, seed, given));
    }
    let dataset = match config.source() {
        Source::Sequences => return tasks::load(config, config.seed.unwrap_or(seed)),
        Source::Text => text::load(config, given),
        Source::Table => table::load(config, given),
        Source::Array => arrays::load(config, given),
        Source::Memory => unreachable!("refused above"),
    };
    check_targets(config, dataset?)
}

/// Returns true if a chat template next to the tokenizer of `config` may have written its conversations. They then differ
/// from pairs of a source and an answer.
pub fn has_chat_template(config: &DataConfig) -> bool {
    config.source() == Source::Table && table::has_chat_template(config)
}

/// Reads `data.path` for training and `data.valid_path` for validation with `read`. Both share the vocabulary of the run
/// or of the training set.
fn read_both(
    config: &DataConfig,
    given: Option<&Vocabulary>,
    read: impl Fn(&DataConfig, Option<&Vocabulary>) -> Result<Dataset>,
) -> Result<Dataset> {
    let whole = DataConfig { valid_fraction: config::WHOLE_FILE, ..config.clone() };
    let train = read(&whole, given)?;
    let is_separate = config.text_documents() == Documents::Separate;
    if is_separate && train.train.document_lengths().len() < 2 {
        return Err(documents::single(&train.vocabulary));
    }
    let held_out = DataConfig { path: config.valid_path.clone(), ..whole };
    let valid = read(&held_out, Some(&train.vocabulary))?;
    if train.train.stream().is_some() != valid.valid.stream().is_some() {
        let kind =
            |set: &Sequences| if set.stream().is_some() { "one long sequence" } else { "several sequences" };
        let problem = format!(
            "is read as {}, but `data.path` as {}; use files of the same kind",
            kind(&valid.valid),
            kind(&train.train)
        );
        return Err(Error::key("data.valid_path", &config.valid_path, problem));
    }
    let mut both = Dataset { valid: valid.valid.clone(), ..train };
    both.add_guesses(&valid);
    both.warn_of_divided_groups(&valid);
    Ok(both)
}

/// Returns the data of `loaded`, which `config` and `seed` produced, in sequences of another length. A stream is cut
/// into other windows, and a task is drawn [again](DataConfig::at_length). The sequences are [shorter](Sequences::time)
/// if the stream is too short or the task cannot have this length.
///
/// # Errors
/// Returns the errors of [`check`], and an error if the sequences of a table each have their own length.
pub fn load_at_length(config: &DataConfig, seed: u64, loaded: &Dataset, length: usize) -> Result<Dataset> {
    if config.source() == Source::Sequences {
        return tasks::load(&config.at_length(length), config.seed.unwrap_or(seed));
    }
    let cut = |set: &Sequences| {
        let problem =
            "each sequence of this file has its own length, which cannot be changed; omit this length";
        set.in_windows_of(length).ok_or_else(|| Error::Input(problem.to_string()))
    };
    Ok(Dataset::without_floor(loaded.vocabulary.clone(), (cut(&loaded.train)?, cut(&loaded.valid)?)))
}

/// Draws both splits like [`load`], for an encoder-decoder. Each sample is a source and an answer that starts and ends
/// with the end token. Sources have 1 to `data.length` tokens.
///
/// # Errors
/// Returns the errors of [`check`], and an error for data without sources and answers.
pub fn load_pairs(config: &DataConfig, seed: u64) -> Result<Dataset> {
    load_pairs_with(config, seed, None)
}

/// Draws or reads pairs like [`load_pairs`]. A table is encoded with the `given` vocabulary of a run.
///
/// # Errors
/// Returns the errors of [`load_pairs`], and an error if the data does not fit the vocabulary.
pub fn load_pairs_with(config: &DataConfig, seed: u64, given: Option<&Vocabulary>) -> Result<Dataset> {
    check(config)?;
    read_or_draw_pairs(config, seed, given)
}

fn read_or_draw_pairs(config: &DataConfig, seed: u64, given: Option<&Vocabulary>) -> Result<Dataset> {
    if let Some(lengths) = config.lengths {
        let problem = "applies to decoders only, because the sources of an encoder-decoder have all lengths \
                       up to `data.length`; remove it";
        return Err(config.wrong_lengths(lengths, problem));
    }
    match config.source() {
        Source::Sequences => tasks::load_pairs(config, config.seed.unwrap_or(seed)),
        Source::Table if config.has_pairs() && !config.valid_path.is_empty() && !config.is_one_split() => {
            read_both(config, given, table::load_pairs)
        }
        Source::Table if config.has_pairs() => table::load_pairs(config, given),
        Source::Text | Source::Table | Source::Array | Source::Memory => Err(Error::key(
            "data.source",
            config.source(),
            "does not have a source and an answer for an encoder-decoder; set `data.source_column` and \
             `data.target_column` of a table, use the task `reverse` or `sort`, or set `model.architecture` = \
             \"decoder\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_seed_overrides_the_run_seed() {
        let small = DataConfig { length: 7, train_samples: 5, valid_samples: 3, ..DataConfig::default() };
        let drawn = |config: &DataConfig, seed| load(config, seed).unwrap().fingerprint();
        let seeded = DataConfig { seed: Some(11), ..small.clone() };
        assert_eq!(drawn(&seeded, 2), drawn(&small, 11));
        assert_ne!(drawn(&small, 2), drawn(&small, 11));
        let vocabulary = load(&small, 0).unwrap().vocabulary;
        assert_eq!(load_with(&seeded, 2, &vocabulary).unwrap().fingerprint(), drawn(&small, 11));
        let pairs = |config: &DataConfig, seed| {
            let config = DataConfig { task: Task::Reverse, ..config.clone() };
            load_pairs(&config, seed).unwrap().fingerprint()
        };
        assert_eq!(pairs(&seeded, 2), pairs(&small, 11));
    }

    #[test]
    fn errors_name_impossible_sizes() {
        let default = DataConfig::default;
        let wrong = [
            (DataConfig { vocab: Count::Of(0), ..default() }, "`data.vocab` = 0 must be in [2, 1048576]"),
            (DataConfig { vocab: Count::Of(usize::MAX), ..default() }, "`data.vocab` = 18446744073709551615"),
            (DataConfig { length: 0, ..default() }, "`data.length` = 0 must be in [1, "),
            (DataConfig { train_samples: 0, ..default() }, "`data.train_samples` = 0 must"),
            (DataConfig { valid_samples: usize::MAX, ..default() }, "`data.valid_samples` = 184"),
        ];
        for (config, message) in wrong {
            let error = check(&config).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
            assert_eq!(load(&config, 0).unwrap_err().to_string(), error);
        }
    }
}
