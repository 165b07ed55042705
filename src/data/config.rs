//! The section `[data]` of a config, and what it loads.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::Dataset;
use super::tasks::{self, Task};
use crate::error::{Error, Result};

/// The largest vocabulary and the longest sequence that a config may ask for: 2^20, four times
/// what the largest published models have.
const LARGEST: usize = 1 << 20;

/// The most ids that a drawn set may hold: 2^28, or 800 MB with their roles.
const MOST_IDS: usize = 1 << 28;

/// Where sequences come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A sequence task, drawn from the run's seed.
    #[default]
    Sequences,
}

/// The section `[data]`: what a run trains and validates on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// Where sequences come from: `"sequences"`, unless a file is named.
    pub source: Source,
    /// The sequence task. `repeat` by default: the smallest task that attention solves and
    /// nothing simpler does, by heads that a picture shows.
    pub task: Task,
    /// Different symbols of a task (a task may add a separator). `"auto"`: 16, few enough to learn
    /// in a minute and many enough that a chance match is rare.
    pub vocab: Count,
    /// Positions that a model sees at once: the targets of a sample. 32 by default: four times the
    /// longest default period, so that most of a `repeat` sample can be known.
    pub length: usize,
    /// Sequences in the training set of a task: 8192 by default, more than a small decoder learns
    /// by heart in the few epochs of a run.
    pub train_samples: usize,
    /// Sequences in the validation set of a task: 512 by default, which at the default length are
    /// 16,384 targets, so that the mean loss is known to about 0.01 nats.
    pub valid_samples: usize,
    /// `repeat`: the shortest and the longest period. [4, 8] by default: a model must find the
    /// period in the sample, and still sees it several times.
    pub period: [usize; 2],
    /// `markov`: how many tokens choose the distribution of the next. 1 by default, 2 needs
    /// attention.
    pub order: usize,
    /// `copy_gap`: after how many tokens a token comes again. `"auto"`: three quarters of the
    /// length.
    pub gap: Count,
    /// `addition`: digits of each number. 3 by default: a million sums, of which a training set
    /// shows few enough that adding must be learned.
    pub digits: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            source: Source::default(),
            task: Task::default(),
            vocab: Count::Auto,
            length: 32,
            train_samples: 8192,
            valid_samples: 512,
            period: [4, 8],
            order: 1,
            gap: Count::Auto,
            digits: 3,
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
                self.task.check(self)?;
                let longest = MOST_IDS / (self.length + 1);
                in_range("data.train_samples", self.train_samples, 1, longest)?;
                in_range("data.valid_samples", self.valid_samples, 1, longest)
            }
        }
    }

    /// Draws the sets of a task. Training and validation sets come from
    /// different streams of the run's `seed`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn load(&self, seed: u64) -> Result<Dataset> {
        self.check()?;
        match self.source {
            Source::Sequences => tasks::load(self, seed),
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
            Source::Sequences => tasks::load_pairs(self, seed),
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

fn in_range(key: &str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::key(key, value, format!("must be from {least} to {most}")))
}

/// A number, or `"auto"` for the one that suits the data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Count {
    /// Written `"auto"`.
    #[default]
    Auto,
    /// Written as an integer.
    Of(usize),
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Auto => f.write_str("auto"),
            Count::Of(count) => count.fmt(f),
        }
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Count::Auto => serializer.serialize_str("auto"),
            Count::Of(count) => serializer.serialize_u64(*count as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;

        impl Visitor<'_> for CountVisitor {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or \"auto\"")
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Count, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(count), &self);
                usize::try_from(count).map(Count::Of).map_err(wrong)
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Count, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Signed(count), &self);
                usize::try_from(count).map(Count::Of).map_err(wrong)
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Count, E> {
                if word == "auto" {
                    return Ok(Count::Auto);
                }
                Err(E::invalid_value(de::Unexpected::Str(word), &self))
            }
        }

        deserializer.deserialize_any(CountVisitor)
    }
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
    fn a_value_of_the_wrong_type_says_what_is_expected() {
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
