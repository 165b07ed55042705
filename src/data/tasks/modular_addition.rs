//! Two numbers and their sum modulo `n`.
//!
//! The tokens are the numbers below `n` = `data.vocab` and a sign. Only the sum is a target. With `n` = 113, 57 + 101 =
//! 158 is the sample
//!
//! ```text
//! 57 101 = 45
//!        ? ↑      the numbers determine the sum; nothing else is predicted
//! ```
//!
//! There are only `n²` samples. A run draws the training set from them without repetition, and the validation set from
//! the rest, so a model that only memorises its training set fails on the validation set. A small training set, weight
//! decay and many steps give *grokking*: the validation loss falls long after the training loss (Power et al., 2022, arXiv
//! 2201.02177).
//!
//! **Mechanism of a solved model:** the embedding represents the numbers `a` and `b` by the sine and cosine of `2 π k a / n`
//! for a few frequencies `k`. Attention and the feed-forward layer combine them to `cos(2 π k (a + b) / n)`, and the output
//! layer reads off the logit of `c` as a sum of `cos(2 π k (a + b - c) / n)` (Nanda et al., 2023, arXiv 2301.05217).
//!
//! **Floor:** zero, both expected and on every set.
//!
//! The task ignores `data.length`: a sample has four tokens.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::SequenceTask;
use crate::data::config::DataConfig;
use crate::data::seed::ChaCha8Rng;
use crate::data::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::numbers::thousands;

/// The index of the only counted target, the sum.
const SUM: usize = 2;

/// The maximum modulus, which has a million pairs.
const MAX_MODULUS: usize = 1024;

/// The task `modular_addition`.
pub struct ModularAddition {
    modulus: u32,
}

impl ModularAddition {
    /// Creates the task for the numbers below `data.vocab`.
    ///
    /// # Errors
    /// Returns an error if the modulus is below 2 or above 1024, or if the two sets need more samples than there are.
    pub(super) fn new(config: &DataConfig) -> Result<Self> {
        let modulus = config.symbols();
        let (all, train, valid) = (modulus * modulus, config.train_samples, config.valid_samples);
        Error::check_range("data.vocab", modulus, 2, MAX_MODULUS)?;
        let problem = format!(
            "and `data.valid_samples` = {valid} are together more than the {} pairs of numbers below `data.vocab` = \
             {modulus}",
            thousands(all as f64)
        );
        Error::check_key(train + valid <= all, "data.train_samples", train, problem)?;
        Ok(Self { modulus: modulus as u32 })
    }

    fn sample(&self, pair: u32) -> [u32; 4] {
        let (first, second) = (pair / self.modulus, pair % self.modulus);
        [first, second, self.modulus, (first + second) % self.modulus]
    }
}

impl SequenceTask for ModularAddition {
    fn vocabulary(&self) -> Vocabulary {
        Vocabulary::integers(self.modulus as usize, &["="])
    }

    fn tokens(&self) -> usize {
        4
    }

    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]) {
        sample.copy_from_slice(&self.sample(random.random_range(0..self.modulus.pow(2))));
    }

    fn shuffled(&self, random: &mut ChaCha8Rng) -> Option<Vec<Vec<u32>>> {
        let mut pairs: Vec<u32> = (0..self.modulus.pow(2)).collect();
        pairs.shuffle(random);
        Some(pairs.into_iter().map(|pair| self.sample(pair).to_vec()).collect())
    }

    fn counts(&self, target: usize) -> bool {
        target == SUM
    }

    fn probabilities(&self, _sample: &[u32], probabilities: &mut [f64]) {
        probabilities.copy_from_slice(&[1.0 / f64::from(self.modulus), 1.0, 1.0]);
    }

    fn expected_floor(&self) -> (f64, Option<f64>) {
        (0.0, None)
    }

    fn corrupt(&self, sample: &mut [u32]) -> Option<usize> {
        let (first, second) = ((sample[0] + 1) % self.modulus, sample[1]);
        sample.copy_from_slice(&self.sample(first * self.modulus + second));
        Some(SUM)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::data::batch::Role;
    use crate::data::config::{Count, Task};
    use crate::data::load;
    use crate::data::tasks::{build, check};

    fn config(modulus: usize, train_samples: usize, valid_samples: usize) -> DataConfig {
        let (task, vocab) = (Task::ModularAddition, Count::Of(modulus));
        DataConfig { task, vocab, train_samples, valid_samples, ..DataConfig::default() }
    }

    #[test]
    fn sets_divide_all_pairs() {
        let dataset = load(&config(7, 20, 29), 3).unwrap();
        let [train, valid] = [&dataset.train, &dataset.valid].map(|set| set.batches(49).next().unwrap());
        let mut pairs = HashSet::new();
        for batch in [&train, &valid] {
            assert_eq!(batch.time, 3);
            for row in 0..batch.rows {
                let (inputs, targets) = (&batch.inputs[3 * row..][..3], &batch.targets[3 * row..][..3]);
                assert_eq!(inputs[2], 7, "the sign");
                assert_eq!(targets[2], (inputs[0] + inputs[1]) % 7);
                assert_eq!(batch.roles[3 * row..][..3], [Role::Padding, Role::Padding, Role::Determined]);
                pairs.insert((inputs[0], inputs[1]));
            }
        }
        assert_eq!((train.rows, valid.rows, pairs.len()), (20, 29, 49));
        let floor = dataset.floor.unwrap();
        assert_eq!((floor.expected, floor.valid), (0.0, 0.0));
        assert_ne!(
            dataset.train.hash(0),
            load(&config(7, 20, 29), 4).unwrap().train.hash(0),
            "follows the seed"
        );
    }

    #[test]
    fn corruption_counts_the_first_number_up() {
        let task = build(&config(5, 1, 1), 0).unwrap();
        let mut sample = [4, 3, 5, 2];
        assert_eq!(task.corrupt(&mut sample), Some(SUM));
        assert_eq!(sample, [0, 3, 5, 3]);
    }

    #[test]
    fn sets_that_do_not_fit_are_refused() {
        let error = |config: DataConfig| check(&config).unwrap_err().to_string();
        assert!(check(&config(7, 20, 29)).is_ok());
        let expected = "`data.train_samples` = 20 and `data.valid_samples` = 30 are together more than the 49 pairs of \
                        numbers below `data.vocab` = 7";
        assert_eq!(error(config(7, 20, 30)), expected);
        assert!(error(config(1, 1, 0)).contains("`data.vocab` = 1 must be in [2, 1024]"));
        let lengths = DataConfig { lengths: Some([3, 4]), ..config(7, 20, 29) };
        assert!(error(lengths).contains("`data.lengths` = [3, 4] has no effect"));
    }
}
