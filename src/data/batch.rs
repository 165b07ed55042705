//! What a step sees: inputs, targets, and the role of each target.

use std::ops::Range;

use super::config::Source;

/// What a target is to the loss and to the accuracy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Role {
    /// Fills the batch behind the end of a sequence; it is counted nowhere.
    Padding = 0,
    /// Is counted; even the optimal predictor can be surprised by it.
    Undetermined = 1,
    /// Is counted; the optimal predictor knows it (see [`tasks::DETERMINED`](super::tasks::DETERMINED)).
    Determined = 2,
    /// Is counted; whether the optimal predictor knows it cannot be said, because no rule of a task decides it. All
    /// targets of texts, of tables and of a user's inputs have this role.
    Unknown = 3,
}

impl Role {
    /// The role of a target from `source` as a file of an earlier version says it, which had
    /// [`Role::Undetermined`] for all targets of texts and tables.
    #[must_use]
    pub fn of(self, source: Source) -> Self {
        match (self, source) {
            (Role::Undetermined, Source::Text | Source::Table | Source::Memory) => Role::Unknown,
            (role, _) => role,
        }
    }
}

/// Some samples side by side, in row-major order `[rows, time]`.
///
/// `targets[i]` is the token that follows `inputs[..=i]` of the same row. Where the role is
/// [`Role::Padding`], input and target are 0, a valid id that stands for nothing; padding is
/// always at the end of a row, so causal attention keeps it from every counted position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Samples in the batch.
    pub rows: usize,
    /// Positions of the longest sample in the batch.
    pub time: usize,
    /// Tokens that the model reads, `[rows, time]`.
    pub inputs: Vec<u32>,
    /// Tokens that it has to predict, `[rows, time]`.
    pub targets: Vec<u32>,
    /// What each target counts as, `[rows, time]`.
    pub roles: Vec<Role>,
    /// The sequences to be answered, for encoder-decoder data.
    pub source: Option<SourceBatch>,
}

impl Batch {
    /// Some of its rows, as long as all are.
    pub fn part(&self, rows: Range<usize>) -> Self {
        fn of<T: Clone>(values: &[T], rows: &Range<usize>, time: usize) -> Vec<T> {
            values[rows.start * time..rows.end * time].to_vec()
        }
        Self {
            rows: rows.len(),
            time: self.time,
            inputs: of(&self.inputs, &rows, self.time),
            targets: of(&self.targets, &rows, self.time),
            roles: of(&self.roles, &rows, self.time),
            source: self.source.as_ref().map(|source| SourceBatch {
                time: source.time,
                tokens: of(&source.tokens, &rows, source.time),
                lengths: source.lengths[rows.clone()].to_vec(),
            }),
        }
    }

    /// Targets that count.
    pub fn counted(&self) -> usize {
        self.roles.iter().filter(|&&role| role != Role::Padding).count()
    }

    /// One in which every position is padding.
    pub(crate) fn padding(rows: usize, time: usize) -> Self {
        let [inputs, targets] = [vec![0; rows * time], vec![0; rows * time]];
        Self { rows, time, inputs, targets, roles: vec![Role::Padding; rows * time], source: None }
    }
}

/// The sources of a batch: what an encoder reads, `[rows, time]`, with as many rows as the
/// [`Batch`] that holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceBatch {
    /// Positions of the longest source in the batch.
    pub time: usize,
    /// Tokens, 0 where a shorter source has ended.
    pub tokens: Vec<u32>,
    /// Tokens of each source before its padding, which is hidden from attention, `[rows]`.
    pub lengths: Vec<usize>,
}
