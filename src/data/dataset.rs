//! Both splits of the data, and what is known of them.

use std::sync::Arc;

use super::sequences::{Rows, Sequences};
use super::{table::TableReading, vocabulary::Vocabulary};
use crate::error::{Error, Result, ensure};

/// What a run trains and validates on.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What the ids stand for; its size is the model's vocabulary.
    pub vocabulary: Vocabulary,
    /// The training set.
    pub train: Sequences,
    /// The validation set.
    pub valid: Sequences,
    /// The loss of the optimal predictor, where it is known.
    pub floor: Option<Floor>,
    /// The floor at each position, on the validation set; empty where it is not known.
    pub floor_by_position: Vec<f64>,
    /// How a table was read.
    pub table: Option<Arc<TableReading>>,
}

impl Dataset {
    /// A dataset of one's own sequences of ids, for training and for validation.
    ///
    /// # Errors
    /// [`Error::Input`] where a set is empty, a sequence has fewer than two ids, or an id is not in the vocabulary.
    pub fn from_sequences(vocabulary: Vocabulary, train: &[Vec<u32>], valid: &[Vec<u32>]) -> Result<Self> {
        let rows = |name: &str, sequences: &[Vec<u32>]| -> Result<Sequences> {
            ensure(!sequences.is_empty(), Error::Input, || {
                format!("the {name} set is empty: give it sequences")
            })?;
            let mut rows = Rows::default();
            for (sequence, number) in sequences.iter().zip(1..) {
                let of = || format!("sequence {number} of the {name} set");
                ensure(sequence.len() > 1, Error::Input, || format!("{} has fewer than two ids", of()))?;
                vocabulary.check(sequence).map_err(|error| Error::Input(format!("{}: {error}", of())))?;
                rows.push(sequence);
            }
            Ok(Sequences::rows(rows))
        };
        let sets = (rows("training", train)?, rows("validation", valid)?);
        Ok(Self::of_file(vocabulary, sets))
    }

    /// The sets of a file, of which no optimum is known: for training, and for validation.
    pub(super) fn of_file(vocabulary: Vocabulary, (train, valid): (Sequences, Sequences)) -> Self {
        Self { vocabulary, train, valid, floor: None, floor_by_position: Vec::new(), table: None }
    }

    /// The largest number of positions that a model needs: the longest input of both sets,
    /// sources included.
    pub fn context(&self) -> usize {
        let longest = |set: &Sequences| set.longest().max(set.source_time().unwrap_or(0));
        longest(&self.train).max(longest(&self.valid))
    }

    /// A number that changes with any id of either set: whether a run that is resumed still has
    /// the data that it began with.
    pub fn fingerprint(&self) -> u64 {
        self.valid.hash(self.train.hash(self.vocabulary.size() as u64))
    }
}

/// The mean loss of the optimal predictor over all counted targets, in nats per token.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Floor {
    /// In expectation over the sequences of the task.
    pub expected: f64,
    /// On the validation set at hand: what a run is compared with.
    pub valid: f64,
}
