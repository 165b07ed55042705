//! The splits of the data, with their vocabulary and entropy floor.

use std::sync::Arc;

use super::excerpt::{and_more, excerpt};
use super::reading::{ArrayReading, TableReading, TextReading};
use super::sequences::{Rows, Sequences};
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result, ensure};

/// The training and validation data of a run.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The vocabulary of the ids; its size is the vocabulary size of the model.
    pub vocabulary: Vocabulary,
    /// The training set.
    pub train: Sequences,
    /// The validation set.
    pub valid: Sequences,
    /// The entropy floor (the loss of the optimal predictor), if known.
    pub floor: Option<Floor>,
    /// The floor at each position of the validation set; empty if unknown.
    pub floor_by_position: Vec<f64>,
    /// The format of a table, and the guesses made when it was read.
    pub table: Option<Arc<TableReading>>,
    /// The files of a text, and warnings about them.
    pub text: Option<Arc<TextReading>>,
    /// The format of an array.
    pub array: Option<Arc<ArrayReading>>,
}

impl Dataset {
    /// Creates a dataset from the caller's own sequences of ids.
    ///
    /// # Errors
    /// Returns [`Error::Input`] if a set is empty, a sequence has fewer than two ids, or an id is not in the
    /// vocabulary.
    pub fn from_sequences(vocabulary: Vocabulary, train: &[Vec<u32>], valid: &[Vec<u32>]) -> Result<Self> {
        let rows = |name: &str, sequences: &[Vec<u32>]| -> Result<Sequences> {
            ensure(!sequences.is_empty(), Error::Input, || {
                format!("the {name} set is empty; add sequences")
            })?;
            let mut rows = Rows::default();
            for (sequence, number) in sequences.iter().zip(1..) {
                let location = || format!("sequence {number} of the {name} set");
                ensure(sequence.len() > 1, Error::Input, || {
                    format!("{} has fewer than two ids; extend or remove it", location())
                })?;
                vocabulary
                    .check(sequence)
                    .map_err(|error| Error::Input(format!("{}: {error}", location())))?;
                rows.push(sequence);
            }
            Ok(Sequences::rows(rows))
        };
        let sets = (rows("training", train)?, rows("validation", valid)?);
        Ok(Self::without_floor(vocabulary, sets))
    }

    /// Creates a dataset from the training and validation sets, without an entropy floor.
    pub(super) fn without_floor(vocabulary: Vocabulary, (train, valid): (Sequences, Sequences)) -> Self {
        let (floor, floor_by_position, table, text, array) = (None, Vec::new(), None, None, None);
        Self { vocabulary, train, valid, floor, floor_by_position, table, text, array }
    }

    /// Returns the number of positions that a model needs: the longest input of both sets, including sources.
    pub fn context(&self) -> usize {
        let longest = |set: &Sequences| set.longest().max(set.source_time().unwrap_or(0));
        longest(&self.train).max(longest(&self.valid))
    }

    /// Iterates over the warnings from reading a file, each with a remedy or the key that overrides a guess.
    pub fn guesses(&self) -> impl Iterator<Item = &String> {
        let of_table = self.table.iter().flat_map(|table| &table.guesses);
        of_table.chain(self.text.iter().flat_map(|text| &text.warnings))
    }

    /// Warns if the validation set, which was read from another file, shares groups of rows with the training set.
    pub(super) fn warn_of_divided_groups(&mut self, valid: &Self) {
        let (Some(table), Some(other)) = (&mut self.table, &valid.table) else { return };
        let table = Arc::make_mut(table);
        let (Some(groups), Some(others)) = (&table.groups, &other.groups) else { return };
        let both = groups.intersection(others);
        let count = both.clone().count();
        if let Some(first) = both.min() {
            table.guesses.push(format!(
                "the group `{}`{} {} rows in both `data.path` and `data.valid_path`, so training and validation share it; \
                 move all rows of a group to one file",
                excerpt(first),
                and_more(count - 1, "group"),
                if count == 1 { "has" } else { "have" }
            ));
        }
    }

    /// Adds the warnings from reading another dataset that these warnings do not contain.
    pub(super) fn add_guesses(&mut self, other: &Self) {
        let new: Vec<String> =
            other.guesses().filter(|guess| !self.guesses().any(|own| own == *guess)).cloned().collect();
        match (&mut self.table, &mut self.text) {
            (Some(table), _) => Arc::make_mut(table).guesses.extend(new),
            (None, Some(text)) => Arc::make_mut(text).warnings.extend(new),
            (None, None) => {}
        }
    }

    /// Returns a hash of all ids of both sets. A resumed run compares it with the hash at its start to detect changed
    /// data.
    pub fn fingerprint(&self) -> u64 {
        self.valid.hash(self.train.hash(self.vocabulary.size() as u64))
    }
}

/// The mean loss of the optimal predictor over all counted targets, in nats per token.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Floor {
    /// The expected loss over the sequences of the task.
    pub expected: f64,
    /// The standard error of `expected`; `None` if that is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
    /// The loss on the sequences of the validation set; compare the validation loss of a run with it.
    pub valid: f64,
}
