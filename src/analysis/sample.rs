//! Validation sequences stored with a run, so that its pictures can be regenerated from the folder alone.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data::{Batch, Role, Sequences, Source, SourceBatch};
use crate::error::{Error, Result};
use crate::files::read_json;

/// The maximum number of attention weights held at the same time: 64 MB, plus 64 MB for each picture that shows all of
/// them.
pub const MAX_HELD_WEIGHTS: usize = 1 << 24;

/// One sequence: the model's inputs and the true targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The input tokens.
    pub inputs: Vec<u32>,
    /// The true next tokens.
    pub targets: Vec<u32>,
    /// The role of each target, which states whether it can be predicted.
    pub roles: Vec<Role>,
    /// The encoder's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Vec<u32>>,
}

impl Sample {
    /// Returns the first `count` sequences of a set, without their padding.
    pub fn first(set: &Sequences, count: usize) -> Vec<Self> {
        let sample = |batch: Batch| {
            let end = batch.roles.iter().rposition(|&role| role != Role::Padding).map_or(0, |last| last + 1);
            let source = batch.source.as_ref().map(|source| source.tokens[..source.lengths[0]].to_vec());
            let [inputs, targets] = [&batch.inputs, &batch.targets].map(|tokens| tokens[..end].to_vec());
            Self { inputs, targets, roles: batch.roles[..end].to_vec(), source }
        };
        set.batches(1).take(count).map(sample).collect()
    }

    /// Returns the length of the longest sequence whose attention weights, over all `heads`, are at most
    /// [`MAX_HELD_WEIGHTS`]. The number of weights grows with the square of the length.
    pub fn max_length(heads: usize) -> usize {
        (MAX_HELD_WEIGHTS / heads.max(1)).isqrt().max(1)
    }

    /// Truncates the sample to at most `max_length` tokens. The source is kept.
    #[must_use]
    pub fn truncated(mut self, max_length: usize) -> Self {
        self.inputs.truncate(max_length);
        self.targets.truncate(max_length);
        self.roles.truncate(max_length);
        self
    }

    /// Collates samples into one batch; shorter samples are padded.
    pub fn batch_of(samples: &[Self]) -> Batch {
        let time = samples.iter().map(|sample| sample.inputs.len()).max().unwrap_or(0);
        let sources: Vec<_> = samples.iter().filter_map(|sample| sample.source.as_deref()).collect();
        let source_time = sources.iter().map(|source| source.len()).max();
        Batch {
            rows: samples.len(),
            time,
            inputs: padded(samples.iter().map(|sample| sample.inputs.iter().copied()), time, 0),
            targets: padded(samples.iter().map(|sample| sample.targets.iter().copied()), time, 0),
            roles: padded(samples.iter().map(|sample| sample.roles.iter().copied()), time, Role::Padding),
            source: source_time.map(|time| SourceBatch {
                time,
                tokens: padded(sources.iter().map(|source| source.iter().copied()), time, 0),
                lengths: sources.iter().map(|source| source.len()).collect(),
            }),
        }
    }

    /// Reads the samples in the file at `path`. They are from `source` and have a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if it contains an invalid sample or a token outside the
    /// vocabulary.
    pub fn read(path: &Path, vocab: usize, source: Source) -> Result<Vec<Self>> {
        let mut samples: Vec<Self> = read_json(path, "validation sequences of the run")?;
        for role in samples.iter_mut().flat_map(|sample| &mut sample.roles) {
            *role = role.of(source);
        }
        let Some(index) = samples.iter().position(|sample| !sample.is_valid(vocab)) else {
            return Ok(samples);
        };
        let problem = format!(
            "sample {index} is not valid: `inputs`, `targets` and `roles` must have the same length of at least \
             1, and tokens must be below {vocab}"
        );
        Err(Error::file(path, problem))
    }

    fn is_valid(&self, vocab: usize) -> bool {
        let Self { inputs, targets, roles, source } = self;
        let mut tokens = inputs.iter().chain(targets).chain(source.iter().flatten());
        !inputs.is_empty()
            && [targets.len(), roles.len()] == [inputs.len(); 2]
            && tokens.all(|&token| (token as usize) < vocab)
    }
}

/// Concatenates rows, each padded to `time`.
fn padded<T: Copy>(rows: impl Iterator<Item = impl Iterator<Item = T>>, time: usize, filler: T) -> Vec<T> {
    rows.flat_map(|row| row.chain(std::iter::repeat(filler)).take(time)).collect()
}
