//! Independent integers, each equally likely.
//!
//! Nothing to learn, so a loss below the floor on validation means that something is wrong, as a
//! mask that shows the future; a loss below it in training is memory. With 10 integers:
//!
//! ```text
//! 7 0 3 3 9 1 …      each could have been any of the ten
//! ```
//!
//! **Mechanism of a solved model:** none; it ignores its input and answers with equal
//! probabilities.
//!
//! **Floor:** each target has probability `1 / vocab` whatever came before, so the floor is
//! `ln vocab` in expectation and on every set.

use rand::RngExt;

use super::SequenceTask;
use crate::data::config::DataConfig;
use crate::data::seed::ChaCha8Rng;
use crate::data::vocabulary::Vocabulary;

/// The task `random`.
#[derive(Debug, Clone)]
pub struct Random {
    vocab: usize,
    length: usize,
}

impl Random {
    /// `data.length` targets below `data.vocab`.
    pub fn new(config: &DataConfig) -> Self {
        Random { vocab: config.symbols(), length: config.length }
    }
}

impl SequenceTask for Random {
    fn vocabulary(&self) -> Vocabulary {
        Vocabulary::integers(self.vocab, &[])
    }

    fn tokens(&self) -> usize {
        self.length + 1
    }

    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]) {
        sample.fill_with(|| random.random_range(0..self.vocab as u32));
    }

    fn probabilities(&self, _sample: &[u32], probabilities: &mut [f64]) {
        probabilities.fill(1.0 / self.vocab as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::Count;
    use crate::data::tasks::enumeration::{agrees, all_sequences};

    #[test]
    fn the_floor_agrees_with_all_sequences_written_out() {
        let config = DataConfig { vocab: Count::Of(3), length: 4, ..DataConfig::default() };
        let all = all_sequences(3, 5);
        let p = 1.0 / all.len() as f64;
        agrees(&Random::new(&config), &all.into_iter().map(|x| (x, p)).collect::<Vec<_>>());
    }
}
