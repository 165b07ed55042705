//! Both splits of the data, and what is known of them.

use std::sync::Arc;

use super::{sequences::Sequences, table::TableReading, vocabulary::Vocabulary};

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
