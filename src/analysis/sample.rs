//! Validation sequences stored with a run, so that its pictures can be regenerated from the folder alone.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data::{Batch, Documents, Role, Sequences, SourceBatch, Vocabulary, documents_of, several};
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
    /// The document of each input, if the sequence has several separate documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Vec<u32>>,
}

impl Sample {
    /// Returns the first `count` sequences of a set, without their padding.
    pub fn first(set: &Sequences, count: usize) -> Vec<Self> {
        let sample = |batch: Batch| {
            let end = batch.roles.iter().rposition(|&role| role != Role::Padding).map_or(1, |last| last + 1);
            let source = batch.source.as_ref().map(|source| source.tokens[..source.lengths[0]].to_vec());
            let [inputs, targets] = [&batch.inputs, &batch.targets].map(|tokens| tokens[..end].to_vec());
            let documents = batch.documents.and_then(|documents| several(documents[..end].to_vec()));
            Self { inputs, targets, roles: batch.roles[..end].to_vec(), source, documents }
        };
        set.batches(1).take(count).map(sample).collect()
    }

    /// Creates a sample of tokens, each of which is the target of the one before; the target of the last one is unknown.
    pub fn of_inputs(inputs: Vec<u32>) -> Self {
        let targets = inputs.iter().skip(1).copied().chain([0]).take(inputs.len()).collect();
        let mut roles = vec![Role::Unknown; inputs.len()];
        roles.last_mut().into_iter().for_each(|role| *role = Role::Padding);
        Self { inputs, targets, roles, source: None, documents: None }
    }

    /// Returns the length of the longest sequence whose attention weights, over all `heads`, are at most
    /// [`MAX_HELD_WEIGHTS`]. The number of weights grows with the square of the length.
    pub fn max_length(heads: usize) -> usize {
        (MAX_HELD_WEIGHTS / heads.max(1)).isqrt().max(1)
    }

    /// Splits the user's sample into its documents, if the run's data treats them as separate. A target that begins a
    /// document does not count.
    #[must_use]
    pub fn split_documents(mut self, documents: Documents, vocabulary: &Vocabulary) -> Self {
        self.documents = documents_of(documents, &self.inputs, vocabulary);
        let end = vocabulary.end().filter(|_| documents == Documents::Separate);
        let ends = self.inputs.iter().map(|&input| Some(input) == end);
        self.roles
            .iter_mut()
            .zip(ends)
            .filter(|(_, is_end)| *is_end)
            .for_each(|(role, _)| *role = Role::Padding);
        self
    }

    /// Truncates the sample to at most `max_length` tokens. The source is kept.
    #[must_use]
    pub fn truncated(mut self, max_length: usize) -> Self {
        self.inputs.truncate(max_length);
        self.targets.truncate(max_length);
        self.roles.truncate(max_length);
        self.documents = self.documents.and_then(|mut documents| {
            documents.truncate(max_length);
            several(documents)
        });
        self
    }

    /// Returns the inputs of each document, each with the position of its first input in the sequence.
    pub fn documents(&self) -> Vec<(usize, &[u32])> {
        let Some(documents) = &self.documents else { return vec![(0, &self.inputs)] };
        let mut start = 0;
        let inputs = |document: &[u32]| {
            let first = start;
            start += document.len();
            (first, &self.inputs[first..start])
        };
        documents.chunk_by(|a, b| a == b).map(inputs).collect()
    }

    /// Returns the inputs of the longest document, the first one if several have the same length.
    pub fn longest_document(&self) -> &[u32] {
        // The maximum is the last of equal elements.
        let documents = self.documents().into_iter().rev().map(|(_, inputs)| inputs);
        documents.max_by_key(|inputs| inputs.len()).unwrap_or(&self.inputs)
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
            documents: samples.iter().any(|sample| sample.documents.is_some()).then(|| {
                // Padding continues the last document.
                let row = |sample: &Self| {
                    let mut row = sample.documents.clone().unwrap_or_default();
                    row.resize(time, row.last().copied().unwrap_or(0));
                    row
                };
                samples.iter().flat_map(row).collect()
            }),
        }
    }

    /// Reads the samples in the file at `path`. They are from `source` and have a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if it contains an invalid sample or a token outside the
    /// vocabulary.
    pub fn read(path: &Path, vocab: usize) -> Result<Vec<Self>> {
        let samples: Vec<Self> = read_json(path, "validation sequences of the run")?;
        let Some(index) = samples.iter().position(|sample| !sample.is_valid(vocab)) else {
            return Ok(samples);
        };
        let problem = format!(
            "sample {index} is not valid: `inputs`, `targets`, `roles` and `documents` must have the same \
             length of at least 1, and tokens must be below {vocab}"
        );
        Err(Error::file(path, problem))
    }

    fn is_valid(&self, vocab: usize) -> bool {
        let Self { inputs, targets, roles, source, documents } = self;
        let mut tokens = inputs.iter().chain(targets).chain(source.iter().flatten());
        !inputs.is_empty()
            && [targets.len(), roles.len()] == [inputs.len(); 2]
            && documents.as_ref().is_none_or(|documents| documents.len() == inputs.len())
            && tokens.all(|&token| (token as usize) < vocab)
    }
}

/// Concatenates rows, each padded to `time`.
fn padded<T: Copy>(rows: impl Iterator<Item = impl Iterator<Item = T>>, time: usize, filler: T) -> Vec<T> {
    rows.flat_map(|row| row.chain(std::iter::repeat(filler)).take(time)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::vocabulary::END;
    use crate::data::{DataConfig, load};

    fn sample(inputs: &[u32]) -> Sample {
        let targets = inputs[1..].iter().copied().chain([0]).collect();
        let (inputs, roles) = (inputs.to_vec(), vec![Role::Unknown; inputs.len()]);
        Sample { inputs, targets, roles, source: None, documents: None }
    }

    #[test]
    fn documents_survive_batches_and_truncation() {
        let vocabulary = Vocabulary::integers(9, &[END]);
        let split = |inputs: &[u32]| sample(inputs).split_documents(Documents::Separate, &vocabulary);
        let (short, long) = (split(&[1, 2]), split(&[3, 9, 4, 5, 9, 6, 7]));
        assert_eq!(
            (&short.documents, long.documents()),
            (&None, vec![(0, &[3, 9][..]), (2, &[4, 5, 9]), (5, &[6, 7])])
        );
        assert_eq!(long.longest_document(), [4, 5, 9]);
        let hidden = long.roles.iter().map(|&role| role == Role::Padding).collect::<Vec<_>>();
        assert_eq!(hidden, [false, true, false, false, true, false, false]);
        let batch = Sample::batch_of(&[short.clone(), long.clone()]);
        assert_eq!(batch.documents.unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(Sample::batch_of(&[short]).documents, None);
        assert_eq!(long.clone().truncated(3).documents, Some(vec![0, 0, 1]));
        assert_eq!(long.clone().truncated(2).documents, None);
        assert!(long.is_valid(10) && !Sample { documents: Some(vec![0]), ..long }.is_valid(10));
    }

    #[test]
    fn first_samples_keep_their_documents() {
        let folder = tempfile::tempdir().unwrap();
        let text = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        text("a", &"abcabcabc\n".repeat(20));
        text("b", "ab\n");
        text("c", "bca\n");
        let config = DataConfig {
            source: Some(crate::data::Source::Text),
            path: folder.path().into(),
            documents: Documents::Separate,
            length: 9,
            valid_fraction: 0.07,
            ..DataConfig::default()
        };
        let dataset = load(&config, 0).unwrap();
        let samples = Sample::first(&dataset.valid, 9);
        let texts = |sample: &Sample| {
            sample
                .documents()
                .into_iter()
                .map(|(_, tokens)| dataset.vocabulary.decode(tokens))
                .collect::<Vec<_>>()
        };
        let found = samples.iter().map(texts).collect::<Vec<_>>();
        assert_eq!(found, [["cabcabc\n", "a"], ["b\n", "bca"]]);
    }
}
