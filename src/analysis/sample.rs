//! The few validation sequences that are kept with a run, so that its pictures can be made again
//! from the folder alone.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data::{Batch, Loader, Order, Role, Sequences, Source, SourceBatch};
use crate::error::{Error, Result};

/// The most attention weights that are looked at together: 64 MB of them, and as much again for each
/// picture that shows all.
pub const MOST_WEIGHTS: usize = 1 << 24;

/// One sequence: what the model reads, and what is true.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The input tokens.
    pub inputs: Vec<u32>,
    /// The true next tokens.
    pub targets: Vec<u32>,
    /// What can be known of each target.
    pub roles: Vec<Role>,
    /// What an encoder reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Vec<u32>>,
}

impl Sample {
    /// The first `count` sequences of a set, without their padding.
    pub fn first(set: &Sequences, count: usize) -> Vec<Self> {
        let loader = Loader::new(set.clone(), 1, 0, Order::InOrder);
        let mut batch = Batch::default();
        (0..count.min(loader.batches()))
            .map(|index| {
                loader.batch(0, index, &mut batch);
                let end =
                    batch.roles.iter().rposition(|&role| role != Role::Padding).map_or(0, |last| last + 1);
                let source = batch.source.as_ref().map(|source| {
                    let shown = source.tokens.iter().zip(&source.padding).filter(|&(_, &hidden)| !hidden);
                    shown.map(|(&token, _)| token).collect()
                });
                Self {
                    inputs: batch.inputs[..end].to_vec(),
                    targets: batch.targets[..end].to_vec(),
                    roles: batch.roles[..end].to_vec(),
                    source,
                }
            })
            .collect()
    }

    /// The longest sequence over which all attention weights of `maps` heads are at most [`MOST_WEIGHTS`]: a
    /// map grows as the square of the length.
    pub fn longest(maps: usize) -> usize {
        (MOST_WEIGHTS / maps.max(1)).isqrt().max(1)
    }

    /// The beginning of the sample, no longer than `longest`.
    #[must_use]
    pub fn beginning(mut self, longest: usize) -> Self {
        self.inputs.truncate(longest);
        self.targets.truncate(longest);
        self.roles.truncate(longest);
        self
    }

    /// The sample as a batch of one.
    pub fn batch(&self) -> Batch {
        Self::batch_of(std::slice::from_ref(self))
    }

    /// Samples as one batch, the shorter ones padded.
    pub fn batch_of(samples: &[Self]) -> Batch {
        let longest = |length: fn(&Self) -> usize| samples.iter().map(length).max().unwrap_or(0);
        let time = longest(|sample| sample.inputs.len());
        let mut batch = Batch::default();
        batch.clear(samples.len(), time);
        for (row, sample) in samples.iter().enumerate() {
            let places = row * time..row * time + sample.inputs.len();
            batch.inputs[places.clone()].copy_from_slice(&sample.inputs);
            batch.targets[places.clone()].copy_from_slice(&sample.targets);
            batch.roles[places].copy_from_slice(&sample.roles);
        }
        if samples.iter().any(|sample| sample.source.is_some()) {
            let time = longest(|sample| sample.source.as_ref().map_or(0, Vec::len));
            let mut source = SourceBatch::default();
            source.clear(samples.len(), time);
            for (row, tokens) in samples.iter().filter_map(|sample| sample.source.as_ref()).enumerate() {
                let places = row * time..row * time + tokens.len();
                source.tokens[places.clone()].copy_from_slice(tokens);
                source.padding[places].fill(false);
            }
            batch.source = Some(source);
        }
        batch
    }

    /// The samples in the file at `path`, which came from `source`, of a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// If the file cannot be read, or holds what no model with these tokens reads.
    pub fn read(path: &Path, vocab: usize, source: Source) -> Result<Vec<Self>> {
        let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
        let mut samples: Vec<Self> = serde_json::from_slice(&bytes).map_err(|error| {
            Error::file(path, Some(error.line()), Some(error.column()), format!("holds no samples: {error}"))
        })?;
        for role in samples.iter_mut().flat_map(|sample| &mut sample.roles) {
            *role = role.of(source);
        }
        match samples.iter().position(|sample| !sample.is_whole(vocab)) {
            None => Ok(samples),
            Some(index) => {
                let problem = format!(
                    "holds no sample at place {index}: inputs, targets and roles must be as many, at least one, \
                     and tokens below {vocab}"
                );
                Err(Error::file(path, None, None, problem))
            }
        }
    }

    fn is_whole(&self, vocab: usize) -> bool {
        let Self { inputs, targets, roles, source } = self;
        let tokens = inputs.iter().chain(targets).chain(source.iter().flatten());
        let lengths = [targets.len(), roles.len()];
        !inputs.is_empty()
            && lengths == [inputs.len(); 2]
            && tokens.into_iter().all(|&token| (token as usize) < vocab)
    }
}
