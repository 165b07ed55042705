//! The section `[data]` of a config, and what it loads.

mod choice;

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Dataset;
use super::ids::Ids;
use super::sequences::Sequences;
use super::tasks::{self, Task};
use super::vocabulary::Vocabulary;
use super::{table, text};
use crate::error::{Error, Result};

pub use self::choice::{Column, Count, Periods, Source, Tokens, Values};

/// The largest vocabulary and the longest sequence that a config may ask for: 2^20, four times
/// what the largest published models have.
pub(crate) const LARGEST: usize = 1 << 20;

/// The most ids that a drawn set may hold: 2^28, or 800 MB with their roles.
const MOST_IDS: usize = 1 << 28;

/// The section `[data]`: what a run trains and validates on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// Where sequences come from: `"sequences"`, unless a file is named; then as its name says, a table
    /// for csv, tsv, json, jsonl and ndjson, and else a text. Naming it on the command line overrides the
    /// source of a config that draws a task.
    pub source: Source,
    /// The seed of the sequences that a task draws. Left out: `run.seed`. Naming it keeps the data, and
    /// with it the validation set, where other seeds draw other weights and another order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The sequence task. `repeat` by default: the smallest task that attention solves and
    /// nothing simpler does, by heads that a picture shows.
    pub task: Task,
    /// Different symbols. `"auto"` for what suits the data: 16 for a task, few enough to learn in a
    /// minute and many enough that a chance match is rare (a task may add a separator); what a
    /// file has for characters and tables. Overriding the source on the command line brings it back to
    /// that.
    pub vocab: Count,
    /// Positions that a model sees at once: the targets of a sample, or the longest source for an
    /// encoder-decoder. 32 by default, which a small decoder reads in no time. `addition`, and tables of a
    /// sequence a line, have lengths of their own.
    pub length: usize,
    /// Sequences in the training set of a task: 8192 by default, more than a small decoder learns
    /// by heart in the few epochs of a run.
    pub train_samples: usize,
    /// Sequences in the validation set of a task: 512 by default, which at the default length are
    /// 16,384 targets, so that the mean loss is known to about 0.01 nats.
    pub valid_samples: usize,
    /// `repeat`: the shortest and the longest period. `"auto"` by default, a quarter and half of the
    /// length: every motif comes twice, and there are too many periods to learn a head for each.
    pub period: Periods,
    /// `markov`: how many tokens choose the distribution of the next. 1 by default, 2 needs
    /// attention.
    pub order: usize,
    /// `copy_gap`: after how many tokens a token comes again. `"auto"`: three quarters of the
    /// length.
    pub gap: Count,
    /// `addition`: digits of each number. 3 by default: a million sums, of which a training set
    /// shows few enough that adding must be learned.
    pub digits: usize,
    /// The user's own file: a text, a folder of texts, or a table. Empty by default: a task needs
    /// none.
    pub path: PathBuf,
    /// What the tokens of a text are: `"characters"`, which need nothing else; `"bpe"`, trained on
    /// the text, `data.vocab` of them (`"auto"`: 1024); or the path of a `tokenizer.json`.
    pub tokens: Tokens,
    /// The part of a file that is kept for validation, at its end. 0.1 by default, the custom.
    pub valid_fraction: f64,
    /// What the values of a table are: `"integers"`, ids that stand for themselves; `"symbols"`,
    /// names that get an id each; or `"auto"`, as the first value reads.
    pub values: Values,
    /// The column of a table that is one long sequence, cut into windows: its name, or its number
    /// from 1. Empty by default: each line is a sequence of its own.
    pub column: Column,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            source: Source::default(),
            seed: None,
            task: Task::default(),
            vocab: Count::Auto,
            length: 32,
            train_samples: 8192,
            valid_samples: 512,
            period: Periods::Auto,
            order: 1,
            gap: Count::Auto,
            digits: 3,
            path: PathBuf::new(),
            tokens: Tokens::Characters,
            valid_fraction: 0.1,
            values: Values::Auto,
            column: Column::None,
        }
    }
}

impl DataConfig {
    /// Checks what can be known without reading a file.
    ///
    /// # Errors
    /// Names the key whose value cannot be used.
    pub fn check(&self) -> Result<()> {
        if let Count::Of(vocab) = self.vocab {
            in_range("data.vocab", vocab, 2, LARGEST)?;
        }
        in_range("data.length", self.length, 1, LARGEST)?;
        match self.source {
            Source::Sequences => {
                let most = MOST_IDS / self.task.tokens(self)?;
                in_range("data.train_samples", self.train_samples, 1, most)?;
                in_range("data.valid_samples", self.valid_samples, 1, most)
            }
            Source::Text => {
                self.check_file()?;
                match (&self.tokens, self.vocab) {
                    (Tokens::Bpe, Count::Of(vocab)) if vocab <= text::BYTES => {
                        let problem = "must be above 256 with `data.tokens` = \"bpe\", whose first tokens are \
                                       the 256 bytes; try 1024, or \"auto\"";
                        Err(Error::key("data.vocab", vocab, problem))
                    }
                    (Tokens::Characters | Tokens::Bpe | Tokens::File(_), _) => Ok(()),
                }
            }
            Source::Table => {
                self.check_file()?;
                match self.column {
                    Column::Number(0) => {
                        Err(Error::key("data.column", 0, "must be 1 or above: columns count from 1"))
                    }
                    Column::None | Column::Number(_) | Column::Name(_) => Ok(()),
                }
            }
        }
    }

    /// Refuses to read where no file is named: weights that were imported do not say what they learned from,
    /// and serve without it.
    fn check_named(&self) -> Result<()> {
        if self.source != Source::Sequences && self.path.as_os_str().is_empty() {
            let problem = "names no file: give the path of your data, as --set data.path=book.txt";
            return Err(Error::key("data.path", "\"\"", problem));
        }
        Ok(())
    }

    /// Checks the keys that any file needs.
    fn check_file(&self) -> Result<()> {
        if !(self.valid_fraction > 0.0 && self.valid_fraction < 1.0) {
            let problem = "must be above 0 and below 1";
            return Err(Error::key("data.valid_fraction", self.valid_fraction, problem));
        }
        Ok(())
    }

    /// Reads or draws the sets. Those of a task come from different streams of `data.seed`, or else of the
    /// run's `seed`; a file is the same for every seed.
    ///
    /// # Errors
    /// As [`check`](Self::check), and where a file cannot be read or understood: names the place.
    pub fn load(&self, seed: u64) -> Result<Dataset> {
        self.check()?;
        self.check_named()?;
        match self.source {
            Source::Sequences => tasks::load(self, self.seed.unwrap_or(seed)),
            Source::Text => text::load(self, None),
            Source::Table => table::load(self, None),
        }
    }

    /// As [`load`](Self::load), for a run whose vocabulary is known: a file is read by that one, so
    /// that its ids are those of the weights.
    ///
    /// # Errors
    /// As [`load`](Self::load), and where the data does not fit the vocabulary.
    pub fn load_with(&self, seed: u64, vocabulary: &Vocabulary) -> Result<Dataset> {
        self.check()?;
        self.check_named()?;
        match self.source {
            Source::Sequences => same(tasks::load(self, self.seed.unwrap_or(seed))?, vocabulary),
            Source::Text => text::load(self, Some(vocabulary)),
            Source::Table => table::load(self, Some(vocabulary)),
        }
    }

    /// As [`load`](Self::load), for an encoder-decoder: a source, and an answer that starts with
    /// the end token and closes with it. Sources have 1 to `data.length` tokens.
    ///
    /// # Errors
    /// As [`check`](Self::check), and for data without sources and answers.
    pub fn load_pairs(&self, seed: u64) -> Result<Dataset> {
        self.check()?;
        match self.source {
            Source::Sequences => tasks::load_pairs(self, self.seed.unwrap_or(seed)),
            Source::Text | Source::Table => Err(Error::key(
                "data.source",
                self.source.name(),
                "has no source and answer for an encoder-decoder; take `data.source` = \"sequences\" with \
                 the task `reverse` or `sort`, or `model.architecture` = \"decoder\"",
            )),
        }
    }

    /// How many of `all` tokens or lines are for training: the first ones.
    pub(crate) fn train_part(&self, all: usize) -> usize {
        (all as f64 * (1.0 - self.valid_fraction)) as usize
    }

    /// A stream in windows of `length`, its last part for validation.
    pub(crate) fn cut_into_windows(&self, ids: Ids) -> Result<(Sequences, Sequences)> {
        let (all, length) = (ids.len(), self.length);
        let train = self.train_part(all);
        let problem = if train < length + 1 {
            format!(
                "has {train} tokens for training, fewer than a window of `data.length` = {length} and the \
                 token after it; lower `data.length`, or give more data"
            )
        } else if all - train < 2 {
            let fraction = self.valid_fraction;
            format!(
                "has {all} tokens, of which `data.valid_fraction` = {fraction} leaves {} for validation, and \
                 2 are needed; raise it, or give more data",
                all - train
            )
        } else {
            let ids = Arc::new(ids);
            let train_windows = Sequences::windows(ids.clone(), 0..train, length);
            return Ok((train_windows, Sequences::windows(ids, train..all, length)));
        };
        Err(Error::file(&self.path, None, None, problem))
    }

    /// The shortest and the longest period of a motif.
    pub(crate) fn periods(&self) -> [usize; 2] {
        match self.period {
            Periods::Auto => [self.length.div_ceil(4), self.length.div_ceil(2)],
            Periods::Of(periods) => periods,
        }
    }

    /// The symbols of a task, without separators.
    pub(crate) fn symbols(&self) -> usize {
        match self.vocab {
            Count::Auto => 16,
            Count::Of(vocab) => vocab,
        }
    }
}

/// A dataset whose vocabulary is the one that weights were trained on.
fn same(dataset: Dataset, vocabulary: &Vocabulary) -> Result<Dataset> {
    if dataset.vocabulary == *vocabulary {
        return Ok(dataset);
    }
    Err(Error::Input(format!(
        "the section [data] makes {}, and the weights were trained on {vocabulary}; give the config of the run",
        dataset.vocabulary
    )))
}

fn in_range(key: &str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::key(key, value, format!("must be from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_default_and_can_be_written_and_read_again() {
        let config = DataConfig::default();
        let written = toml::to_string(&config).unwrap();
        assert!(written.contains("vocab = \"auto\""), "{written}");
        assert_eq!(toml::from_str::<DataConfig>(&written).unwrap(), config);
        assert_eq!(toml::from_str::<DataConfig>("").unwrap(), config);
        let config = DataConfig { vocab: Count::Of(7), ..config };
        assert_eq!(toml::from_str::<DataConfig>("vocab = 7").unwrap(), config);
    }

    #[test]
    fn a_seed_of_its_own_keeps_the_data_whatever_the_seed_of_the_run() {
        let small = DataConfig { length: 7, train_samples: 5, valid_samples: 3, ..DataConfig::default() };
        let drawn = |config: &DataConfig, seed| config.load(seed).unwrap().fingerprint();
        let kept = DataConfig { seed: Some(11), ..small.clone() };
        assert_eq!(drawn(&kept, 2), drawn(&small, 11));
        assert_ne!(drawn(&small, 2), drawn(&small, 11));
        let vocabulary = small.load(0).unwrap().vocabulary;
        assert_eq!(kept.load_with(2, &vocabulary).unwrap().fingerprint(), drawn(&small, 11));
        let pairs = |config: &DataConfig, seed| {
            let config = DataConfig { task: Task::Reverse, ..config.clone() };
            config.load_pairs(seed).unwrap().fingerprint()
        };
        assert_eq!(pairs(&kept, 2), pairs(&small, 11));
    }

    #[test]
    fn a_value_of_the_wrong_type_says_what_is_expected() {
        for wrong in ["period = [1]", "period = [1, 2, 3]", "period = 4", "period = \"long\""] {
            let error = toml::from_str::<DataConfig>(wrong).unwrap_err().to_string();
            assert!(error.contains("as [8, 16], or \"auto\""), "{error}");
        }
        let config = DataConfig { period: Periods::Of([3, 5]), ..DataConfig::default() };
        assert_eq!(toml::from_str::<DataConfig>("period = [3, 5]").unwrap(), config);
        for wrong in ["vocab = \"many\"", "vocab = -3", "vocab = 1.5"] {
            let error = toml::from_str::<DataConfig>(wrong).unwrap_err().to_string();
            assert!(error.contains("expected an integer or \"auto\""), "{error}");
        }
    }

    #[test]
    fn sizes_that_no_task_can_have_are_named() {
        let default = DataConfig::default;
        let wrong = [
            (DataConfig { vocab: Count::Of(0), ..default() }, "`data.vocab` = 0 must be from 2 to 1048576"),
            (DataConfig { vocab: Count::Of(usize::MAX), ..default() }, "`data.vocab` = 18446744073709551615"),
            (DataConfig { length: 0, ..default() }, "`data.length` = 0 must be from 1"),
            (DataConfig { train_samples: 0, ..default() }, "`data.train_samples` = 0 must"),
            (DataConfig { valid_samples: usize::MAX, ..default() }, "`data.valid_samples` = 184"),
        ];
        for (config, message) in wrong {
            let error = config.check().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
            assert_eq!(config.load(0).unwrap_err().to_string(), error);
        }
    }
}
