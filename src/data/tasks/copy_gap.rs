//! Each token is repeated after a constant gap: `x_t = x_{t - gap}`.
//!
//! The first `data.gap` tokens are independent, and the rest of the sample repeats them in order. The task tests
//! long-range dependencies: attention reaches any distance in one step, while a recurrent network must keep the token
//! in its state. With a gap of 5:
//!
//! ```text
//! 7 1 4 4 9 7 1 4
//!   ? ? ? ? ↑ ↑ ↑      the token 5 positions back
//! ```
//!
//! By default, the gap is three quarters of the length, so that many irrelevant tokens separate a token from its copy.
//!
//! **Mechanism of a solved model:** one head that attends to a fixed distance by position alone. Its heatmap is one
//! bright diagonal, `gap - 1` positions below the main one. In trained models with more heads than necessary, several
//! heads share the work.
//!
//! **Floor:** the first `gap - 1` of `length` targets are random, and all others are determined. The floor is
//! `(gap - 1) ln vocab / length` nats, both expected and on every set.

use rand::RngExt;

use super::{FixedProbabilities, corrupt_period};
use crate::data::{config::DataConfig, vocabulary::Vocabulary};
use crate::error::{Error, Result};

/// Creates the task `copy_gap`: `data.length` targets below `data.vocab`, each repeated after `data.gap` tokens.
///
/// # Errors
/// Returns an error if the gap is zero or longer than the sequence.
pub(super) fn task(config: &DataConfig) -> Result<FixedProbabilities> {
    let (vocab, length) = (config.symbols(), config.length);
    let gap = config.copied_gap();
    if !(1..=length).contains(&gap) {
        let problem = format!("must be at least 1 and at most `data.length` = {length}");
        return Err(Error::key("data.gap", gap, problem));
    }
    let mut probabilities = vec![1.0; length];
    probabilities[..gap - 1].fill(1.0 / vocab as f64);
    Ok(FixedProbabilities::new(
        Vocabulary::integers(vocab, &[]),
        probabilities,
        move |random, sample| {
            let (free, copies) = sample.split_at_mut(gap);
            free.fill_with(|| random.random_range(0..vocab as u32));
            for (copy, token) in copies.iter_mut().zip(free.iter().cycle()) {
                *copy = *token;
            }
        },
        move |sample| corrupt_period(sample, gap, vocab),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::Count;
    use crate::data::tasks::enumeration::{all_sequences, assert_agrees};

    #[test]
    fn floor_matches_enumeration_of_beginnings() {
        for (gap, length) in [(1, 5), (2, 7), (5, 5), (5, 7)] {
            let config =
                DataConfig { vocab: Count::Of(3), gap: Count::Of(gap), length, ..DataConfig::default() };
            let all: Vec<_> = all_sequences(3, gap)
                .into_iter()
                .map(|start| ((0..=length).map(|t| start[t % gap]).collect(), 3f64.powi(-(gap as i32))))
                .collect();
            assert_agrees(&task(&config).unwrap(), &all);
        }
    }

    #[test]
    fn a_gap_that_does_not_fit_is_refused() {
        let config = DataConfig { gap: Count::Of(33), ..DataConfig::default() };
        let error = task(&config).err().unwrap().to_string();
        assert_eq!(error, "`data.gap` = 33 must be at least 1 and at most `data.length` = 32");
    }
}
