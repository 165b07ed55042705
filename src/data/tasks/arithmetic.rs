//! Counting with a random step per sequence: `x_t = x_0 + t · step mod vocab`.
//!
//! The first two tokens determine the step (from 1 to `vocab - 1`, each equally likely), and all later tokens follow
//! from it. With 10 integers and a step of 3:
//!
//! ```text
//! 4 7 0 3 6 9 2 …
//!   ? ↑ ↑ ↑ ↑ ↑      the second token determines the step
//! ```
//!
//! **Mechanism of a solved model:** a head attends to the previous token, and a feed-forward layer adds the difference
//! of the two tokens to the current one, as `2 x_t - x_{t-1}`. Small models learn modular addition as a rotation, with
//! sines and cosines of the tokens as embeddings (Nanda et al. 2023, "Progress measures for grokking via mechanistic
//! interpretability"). With learned positions, measured small decoders also fetch earlier tokens by position: any of
//! them determines the step.
//!
//! **Floor:** the first target is one of `vocab - 1` integers, and all others are determined. The floor is
//! `ln(vocab - 1) / length`, both expected and on every set.

use rand::RngExt;

use super::FixedProbabilities;
use crate::data::{config::DataConfig, vocabulary::Vocabulary};

/// Creates the task `arithmetic`: `data.length` targets below `data.vocab`.
pub(super) fn task(config: &DataConfig) -> FixedProbabilities {
    let vocab = config.symbols();
    let mut probabilities = vec![1.0; config.length];
    probabilities[0] = 1.0 / (vocab as f64 - 1.0);
    FixedProbabilities::new(
        Vocabulary::integers(vocab, &[]),
        probabilities,
        move |random, sample| {
            let mut x = random.random_range(0..vocab as u32);
            let step = random.random_range(1..vocab as u32);
            for token in sample {
                *token = x;
                x = (x + step) % vocab as u32;
            }
        },
        move |sample| {
            // Count with another step, so that the current token stays the same.
            let (vocab, current) = (vocab as i64, sample.len() as i64 - 2);
            let token = i64::from(*sample.get(current as usize)?);
            let step = (i64::from(sample[1]) - i64::from(sample[0])).rem_euclid(vocab);
            let new_step = step % (vocab - 1) + 1;
            for (position, x) in (0..).zip(sample.iter_mut()) {
                *x = (token + (position - current) * new_step).rem_euclid(vocab) as u32;
            }
            (current > 0 && new_step != step).then_some(current as usize)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::Count;
    use crate::data::tasks::{SequenceTask, enumeration::assert_agrees};

    #[test]
    fn floor_matches_enumeration_of_starts_and_steps() {
        for (vocab, length) in [(5, 7), (2, 3), (3, 1)] {
            let config = DataConfig { vocab: Count::Of(vocab as usize), length, ..DataConfig::default() };
            let mut all = Vec::new();
            for start in 0..vocab {
                for step in 1..vocab {
                    let sample = (0..=length as u32).map(|t| (start + t * step) % vocab).collect();
                    all.push((sample, 1.0 / f64::from(vocab * (vocab - 1))));
                }
            }
            assert_agrees(&task(&config), &all);
        }
    }

    #[test]
    fn corruption_counts_with_the_next_step_through_the_current_token() {
        let config =
            |vocab: usize, length| DataConfig { vocab: Count::Of(vocab), length, ..DataConfig::default() };
        let corrupted = |vocab, mut sample: Vec<u32>| {
            let target = task(&config(vocab, sample.len() - 1)).corrupt(&mut sample);
            (target, sample)
        };
        assert_eq!(corrupted(5, vec![3, 0, 2, 4, 1]), (Some(3), vec![0, 3, 1, 4, 2]));
        assert_eq!(corrupted(5, vec![0, 4, 3]), (Some(1), vec![3, 4, 0]));
        // With two symbols there is one step, and a single token does not determine the next one.
        assert_eq!(corrupted(2, vec![0, 1, 0, 1]).0, None);
        assert_eq!(corrupted(5, vec![3, 0]).0, None);
    }
}
