//! Independent integers, each equally likely.
//!
//! There is nothing to learn. A validation loss below the floor therefore indicates an error, such as a mask that
//! reveals the future; a training loss below it is memorisation. With 10 integers:
//!
//! ```text
//! 7 0 3 3 9 1 …      each token may be any of the ten integers
//! ```
//!
//! **Mechanism of a solved model:** none; the model ignores its input and predicts equal probabilities.
//!
//! **Floor:** each target has the probability `1 / vocab`, independent of the tokens before it. The floor is
//! `ln vocab`, both expected and on every set.

use rand::RngExt;

use super::FixedProbabilities;
use crate::data::{config::DataConfig, vocabulary::Vocabulary};

/// Creates the task `random`: `data.length` targets below `data.vocab`.
pub(super) fn task(config: &DataConfig) -> FixedProbabilities {
    let vocab = config.symbols();
    let probabilities = vec![1.0 / vocab as f64; config.length];
    FixedProbabilities::new(
        Vocabulary::integers(vocab, &[]),
        probabilities,
        move |random, sample| {
            sample.fill_with(|| random.random_range(0..vocab as u32));
        },
        |_| None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::Count;
    use crate::data::tasks::enumeration::{all_sequences, assert_agrees};

    #[test]
    fn floor_matches_enumeration_of_sequences() {
        let config = DataConfig { vocab: Count::Of(3), length: 4, ..DataConfig::default() };
        let all = all_sequences(3, 5);
        let p = 1.0 / all.len() as f64;
        assert_agrees(&task(&config), &all.into_iter().map(|x| (x, p)).collect::<Vec<_>>());
    }
}
