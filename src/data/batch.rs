//! One training batch: inputs, targets, and the role of each target.

use std::ops::Range;

/// The role of a target in the loss and the accuracy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Role {
    /// Never counted: it fills the batch after the end of a sequence, or is not to be predicted, as the first token of a
    /// separate document.
    Padding = 0,
    /// Counted; even the optimal predictor cannot predict it with certainty.
    Undetermined = 1,
    /// Counted; the optimal predictor knows it (see [`tasks::DETERMINED`](super::tasks::DETERMINED)).
    Determined = 2,
    /// Counted; it is unknown whether the optimal predictor knows it. All targets of texts, tables and sequences from a
    /// program have this role.
    Unknown = 3,
}

/// A batch of samples, in row-major order `[rows, time]`.
///
/// `targets[i]` is the token that follows `inputs[..=i]` of the same row. A target with [`Role::Padding`] does not
/// count. After the end of a row, input and target are 0, which is a valid id but has no meaning there; causal
/// attention hides it from every counted position. Within a row, an uncounted target is the input of the next position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The number of samples in the batch.
    pub rows: usize,
    /// The number of positions of the longest sample in the batch.
    pub time: usize,
    /// The input tokens, `[rows, time]`.
    pub inputs: Vec<u32>,
    /// The tokens to predict, `[rows, time]`.
    pub targets: Vec<u32>,
    /// The role of each target, `[rows, time]`.
    pub roles: Vec<Role>,
    /// The source sequences, for encoder-decoder data.
    pub source: Option<SourceBatch>,
    /// The document of each input, `[rows, time]`, numbered from 0 in each row; `None` if every row is in a single
    /// document.
    pub documents: Option<Vec<u32>>,
}

impl Batch {
    /// Returns the given rows, still padded to the longest sample of the entire batch.
    pub fn part(&self, rows: Range<usize>) -> Self {
        fn slice<T: Clone>(values: &[T], rows: &Range<usize>, time: usize) -> Vec<T> {
            values[rows.start * time..rows.end * time].to_vec()
        }
        Self {
            rows: rows.len(),
            time: self.time,
            inputs: slice(&self.inputs, &rows, self.time),
            targets: slice(&self.targets, &rows, self.time),
            roles: slice(&self.roles, &rows, self.time),
            source: self.source.as_ref().map(|source| SourceBatch {
                time: source.time,
                tokens: slice(&source.tokens, &rows, source.time),
                lengths: source.lengths[rows.clone()].to_vec(),
            }),
            documents: self
                .documents
                .as_ref()
                .map(|documents| slice(documents, &rows, self.time))
                .filter(|documents| documents.iter().any(|&document| document > 0)),
        }
    }

    /// Returns the number of targets that count.
    pub fn counted(&self) -> usize {
        self.roles.iter().filter(|&&role| role != Role::Padding).count()
    }

    /// Creates a batch of padding only.
    pub(crate) fn padding(rows: usize, time: usize) -> Self {
        let [inputs, targets] = [vec![0; rows * time], vec![0; rows * time]];
        let roles = vec![Role::Padding; rows * time];
        Self { rows, time, inputs, targets, roles, source: None, documents: None }
    }
}

/// The sources of a batch: the inputs of an encoder, `[rows, time]`, with as many rows as the [`Batch`] that holds
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceBatch {
    /// The number of positions of the longest source in the batch.
    pub time: usize,
    /// The tokens, padded with 0 after the end of a shorter source.
    pub tokens: Vec<u32>,
    /// The length of each source without its padding, which is hidden from attention, `[rows]`.
    pub lengths: Vec<usize>,
}
