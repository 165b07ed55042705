//! Each token comes again after a gap that is always the same: `x_t = x_{t - gap}`.
//!
//! The first `data.gap` tokens are independent; then the sample repeats them in order for as long
//! as it lasts. A test of range: attention reaches any distance in one step, a recurrent
//! network must carry the token all the way. With a gap of 5:
//!
//! ```text
//! 7 1 4 4 9 7 1 4
//!   ? ? ? ? ↑ ↑ ↑      what stood 5 places back
//! ```
//!
//! By default the gap is three quarters of the length, so that a copy lies far behind and tokens
//! that are never asked for stand between.
//!
//! **Mechanism of a solved model:** one head that attends a fixed distance back, by positions
//! alone: its heatmap is one bright diagonal, `gap - 1` places below the main one.
//!
//! **Floor:** of `length` targets the first `gap - 1` are free, every other one is known:
//! `(gap - 1) ln vocab / length` nats in expectation and on every set.

use rand::RngExt;

use super::SequenceTask;
use crate::data::config::{Count, DataConfig};
use crate::data::seed::ChaCha8Rng;
use crate::data::vocabulary::Vocabulary;
use crate::error::{Error, Result};

/// The task `copy_gap`.
#[derive(Debug, Clone)]
pub struct CopyGap {
    vocab: usize,
    length: usize,
    gap: usize,
}

impl CopyGap {
    /// `data.length` targets below `data.vocab`, each token again after `data.gap`.
    ///
    /// # Errors
    /// When the gap is zero or longer than the sequence.
    pub fn new(config: &DataConfig) -> Result<Self> {
        let length = config.length;
        let gap = match config.gap {
            Count::Auto => (3 * length / 4).max(1),
            Count::Of(gap) if (1..=length).contains(&gap) => gap,
            Count::Of(gap) => {
                return Err(Error::key(
                    "data.gap",
                    gap,
                    format!("must be from 1 to `data.length` = {length}"),
                ));
            }
        };
        Ok(CopyGap { vocab: config.symbols(), length, gap })
    }
}

impl SequenceTask for CopyGap {
    fn vocabulary(&self) -> Vocabulary {
        Vocabulary::integers(self.vocab, &[])
    }

    fn tokens(&self) -> usize {
        self.length + 1
    }

    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]) {
        let (free, copies) = sample.split_at_mut(self.gap);
        free.fill_with(|| random.random_range(0..self.vocab as u32));
        for (copy, token) in copies.iter_mut().zip(free.iter().cycle()) {
            *copy = *token;
        }
    }

    fn probabilities(&self, _sample: &[u32], probabilities: &mut [f64]) {
        let (free, copies) = probabilities.split_at_mut(self.gap - 1);
        free.fill(1.0 / self.vocab as f64);
        copies.fill(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tasks::enumeration::{agrees, all_sequences};

    #[test]
    fn the_floor_agrees_with_all_beginnings_written_out() {
        for (gap, length) in [(1, 5), (2, 7), (5, 5), (5, 7)] {
            let config =
                DataConfig { vocab: Count::Of(3), gap: Count::Of(gap), length, ..DataConfig::default() };
            let all: Vec<_> = all_sequences(3, gap)
                .into_iter()
                .map(|start| ((0..=length).map(|t| start[t % gap]).collect(), 3f64.powi(-(gap as i32))))
                .collect();
            agrees(&CopyGap::new(&config).unwrap(), &all);
        }
    }

    #[test]
    fn a_gap_that_does_not_fit_is_refused() {
        let config = DataConfig { gap: Count::Of(33), ..DataConfig::default() };
        let error = CopyGap::new(&config).unwrap_err().to_string();
        assert_eq!(error, "`data.gap` = 33 must be from 1 to `data.length` = 32");
    }
}
