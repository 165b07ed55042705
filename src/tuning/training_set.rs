//! The numbers of training sequences in the steps and epochs of a trial.

use crate::config::Config;
use crate::data::{Dataset, Source};

/// The training set of the trials of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingSet {
    /// The number of rows or windows of a file; `None` for a generated set, whose size is the trial's own
    /// `data.train_samples`.
    pub samples: Option<usize>,
    /// True if the data is a stream of tokens, read in windows. Batches of windows are always full, so an epoch is
    /// rounded up to full batches.
    pub is_stream: bool,
}

/// The numbers of sequences in the steps and epochs of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// The number of sequences in a step; the last step of an epoch of rows may have fewer.
    pub sequences_per_step: usize,
    /// The number of steps in an epoch.
    pub steps_per_epoch: usize,
    /// The number of sequences in an epoch.
    epoch: usize,
}

impl TrainingSet {
    /// Returns the training set of `dataset`, which is the data of `config`.
    pub fn of(config: &Config, dataset: &Dataset) -> Self {
        let is_read = config.data.source() != Source::Sequences;
        let is_stream = is_read && dataset.train.window_starts().is_some();
        Self { samples: is_read.then(|| dataset.train.len()), is_stream }
    }

    /// Returns the number of sequences in the set for a run of `config`.
    fn samples(self, config: &Config) -> usize {
        self.samples.unwrap_or(config.data.train_samples).max(1)
    }

    /// Returns the number of steps of a run of `config` itself.
    pub fn full_steps(self, config: &Config) -> usize {
        config.training.total_steps(self.samples(config).div_ceil(config.training.batch_size))
    }

    /// Returns the pace of a run of `config`.
    pub fn pace(self, config: &Config) -> Pace {
        let (samples, is_stream) = (self.samples(config), self.is_stream);
        let full = config.training.batch_size.saturating_mul(config.training.accumulate).max(1);
        let sequences_per_step = if is_stream { full } else { full.min(samples) };
        let steps_per_epoch = samples.div_ceil(sequences_per_step);
        let epoch = if is_stream { steps_per_epoch.saturating_mul(full) } else { samples };
        Pace { sequences_per_step, steps_per_epoch, epoch }
    }
}

impl Pace {
    /// Returns the number of sequences in this many steps.
    pub fn sequences(self, steps: usize) -> usize {
        let begun = (steps % self.steps_per_epoch * self.sequences_per_step).min(self.epoch);
        (steps / self.steps_per_epoch).saturating_mul(self.epoch).saturating_add(begun)
    }

    /// Returns the largest number of steps with at most this many sequences.
    pub fn steps_within(self, sequences: usize) -> usize {
        sequences / self.epoch * self.steps_per_epoch + sequences % self.epoch / self.sequences_per_step
    }

    /// Returns the number of steps, at least one, whose number of sequences is closest to this one.
    pub fn steps_to(self, sequences: usize) -> usize {
        let before = self.steps_within(sequences);
        let below = sequences - self.sequences(before);
        let above = self.sequences(before + 1) - sequences;
        if below < above { before.max(1) } else { before + 1 }
    }
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::training::{dataset, train_steps};
    use crate::workers::Shards;

    fn config(sets: &[&str]) -> Config {
        let sets = sets.iter().map(ToString::to_string).collect::<Vec<_>>();
        Config::parse("", std::path::Path::new("config.toml"), &sets).unwrap()
    }

    fn rows(samples: usize) -> TrainingSet {
        TrainingSet { samples: Some(samples), is_stream: false }
    }

    #[test]
    fn partial_batches_count_their_sequences() {
        // An epoch of 65 sequences is five steps of 16 (the last one has one sequence), three of 32, or two of 64.
        let batches = |batch_size: usize| config(&[&format!("training.batch_size={batch_size}")]);
        let seen = |batch_size, steps| rows(65).pace(&batches(batch_size)).sequences(steps);
        assert_eq!([4, 5, 6, 10].map(|steps| seen(16, steps)), [64, 65, 81, 130]);
        assert_eq!([2, 3, 4].map(|steps| seen(32, steps)), [64, 65, 97]);
        assert_eq!([1, 2, 3].map(|steps| seen(64, steps)), [64, 65, 129]);
        assert_eq!([1, 7].map(|steps| seen(1_000, steps)), [65, 455], "no batch is larger than the set");
        let accumulated = config(&["training.batch_size=16", "training.accumulate=3"]);
        let seen = |steps| rows(65).pace(&accumulated).sequences(steps);
        assert_eq!([1, 2, 3].map(seen), [48, 65, 113]);
    }

    #[test]
    fn counted_sequences_match_the_training_steps() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text.txt");
        std::fs::write(&text, "to be or not to be, that is the question: ".repeat(17)).unwrap();
        let path = format!("data.path={:?}", text.to_str().unwrap());
        let streams = ["data.source=text", &path, "data.length=11"];
        let drawn = ["data.train_samples=57", "data.valid_samples=3"];
        for (base, is_stream) in [(&streams[..], true), (&drawn, false)] {
            for (batch_size, accumulate) in [(7, 1), (7, 3), (48, 1), (48, 2), (501, 1)] {
                let [batch_size, accumulate] = [
                    format!("training.batch_size={batch_size}"),
                    format!("training.accumulate={accumulate}"),
                ];
                let config = config(&[base, &[&batch_size, &accumulate]].concat());
                let dataset = dataset(&config).unwrap();
                let set = TrainingSet::of(&config, &dataset);
                assert_eq!(set.is_stream, is_stream);
                let batches = dataset.train.len().div_ceil(config.training.batch_size);
                let steps_per_epoch = config.training.steps_per_epoch(batches);
                assert_eq!(set.pace(&config).steps_per_epoch, steps_per_epoch);
                let steps = 0..2 * steps_per_epoch + 1;
                let one = Shards::one();
                let steps =
                    train_steps::<NdArray>(&config, &dataset, steps, one, &Default::default()).flatten();
                let mut seen = 0;
                for (step, batches) in steps.enumerate() {
                    assert_eq!(set.pace(&config).sequences(step), seen, "{config:?}");
                    seen += batches.batches.iter().map(|batch| batch.inputs.tokens.dims()[0]).sum::<usize>();
                    assert_eq!(set.pace(&config).steps_within(seen - 1), step);
                    assert_eq!(set.pace(&config).steps_within(seen), step + 1);
                }
            }
        }
    }

    #[test]
    fn pace_depends_on_a_trials_training_set() {
        let config = config(&["training.batch_size=48"]);
        let dataset = dataset(&config).unwrap();
        let set = TrainingSet::of(&config, &dataset);
        let mut trial = config;
        trial.data.train_samples = 57;
        assert_eq!([1, 2, 3].map(|steps| set.pace(&trial).sequences(steps)), [48, 57, 105]);
    }
}
