//! Pairs of a key and a value, then keys: *associative recall*.
//!
//! Keys are the lower half of the vocabulary, values the upper half. The first half of a sample consists of pairs of
//! distinct keys and random values. The second half repeats random keys of these pairs, each followed by its value.
//! With 8 integers:
//!
//! ```text
//! 2 7  0 5  3 5    0 5  3 5  0 5  2
//!   ?  ? ?  ? ?    ? ↑  ? ↑  ? ↑  ?      the value of a repeated key is known from its pair
//! ```
//!
//! **Mechanism of a solved model:** as in [`repeat`](super::repeat), a head of the first layer stores the key at the
//! position of its value. A head of the second layer attends to the position with the current key. Unlike in `repeat`,
//! the position does not help, because the order of the repeated keys is random (Arora et al. 2023, "Zoology").
//!
//! **Floor:** with `K` keys, `V` values, `n` pairs and `q` repeated keys, three kinds of targets are random: the keys
//! of the pairs after the first one, the values of the pairs, and the repeated keys. Each pair leaves one key fewer for
//! the next. The floor is `Σ_{i=1}^{n-1} ln(K - i) + n ln V + q ln n` nats per sample. The last repeated key may lack a
//! position for its value. All samples have the same floor, so the expected floor equals the floor on every set.

use rand::{RngExt, seq::index};

use super::FixedProbabilities;
use crate::data::{config::DataConfig, vocabulary::Vocabulary};
use crate::error::{Error, Result};

/// Creates the task `recall`: one pair for each key, as many as fit in half of the `data.length + 1` tokens.
///
/// # Errors
/// Returns an error if the length is too short for a pair and a question.
pub(super) fn task(config: &DataConfig) -> Result<FixedProbabilities> {
    if config.length < 3 {
        let problem = "must be at least 3: a pair, a key, its value";
        return Err(Error::key("data.length", config.length, problem));
    }
    let (vocab, keys) = (config.symbols(), config.symbols() / 2);
    let pairs = keys.min((config.length + 1) / 4);
    let probability = |position: usize| {
        let is_key = position.is_multiple_of(2);
        let choices = match position / 2 {
            pair if pair < pairs && is_key => keys - pair,
            pair if pair < pairs => vocab - keys,
            _ if is_key => pairs,
            _ => 1,
        };
        1.0 / choices as f64
    };
    let probabilities = (1..=config.length).map(probability).collect();
    Ok(FixedProbabilities::new(
        Vocabulary::integers(vocab, &[]),
        probabilities,
        move |random, sample| {
            let (first, questions) = sample.split_at_mut(2 * pairs);
            let chosen = index::sample(random, keys, pairs);
            for (pair, key) in first.chunks_exact_mut(2).zip(chosen) {
                pair[0] = key as u32;
                pair[1] = random.random_range(keys as u32..vocab as u32);
            }
            for question in questions.chunks_mut(2) {
                let pair = 2 * random.random_range(0..pairs as u32) as usize;
                question.copy_from_slice(&first[pair..pair + question.len()]);
            }
        },
        move |sample| {
            // In all tokens before the last question, swap its key with a key that has another value. The answer
            // becomes that value.
            let last = (sample.len() / 2 - 1) * 2;
            let (key, value) = (sample[last], sample[last + 1]);
            let other = sample.chunks_exact(2).find(|pair| pair[1] != value)?.to_vec();
            for pair in sample[..last].chunks_exact_mut(2) {
                match pair[0] {
                    it if it == key => pair[0] = other[0],
                    it if it == other[0] => pair[0] = key,
                    _ => {}
                }
            }
            sample[last + 1] = other[1];
            Some(last)
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::Count;
    use crate::data::tasks::{SequenceTask, enumeration::assert_agrees};

    /// Returns all samples of two pairs with keys 0 .. keys, and their probabilities.
    fn two_pairs(keys: u32, vocab: u32, tokens: usize) -> Vec<(Vec<u32>, f64)> {
        let mut all = Vec::new();
        for (a, b) in (0..keys).flat_map(|a| (0..keys).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            for (x, y) in (keys..vocab).flat_map(|x| (keys..vocab).map(move |y| (x, y))) {
                let mut samples = vec![vec![a, x, b, y]];
                while samples[0].len() < tokens {
                    let ask = |sample: Vec<u32>| [[a, x], [b, y]].map(|pair| [&sample[..], &pair].concat());
                    samples = samples.into_iter().flat_map(ask).collect();
                }
                let values = f64::from((vocab - keys).pow(2));
                let p = 1.0 / (f64::from(keys * (keys - 1)) * values * samples.len() as f64);
                all.extend(samples.into_iter().map(|sample| (sample[..tokens].to_vec(), p)));
            }
        }
        all
    }

    #[test]
    fn floor_matches_enumeration_of_pairs_and_questions() {
        // First, three keys for two pairs and an odd length; then as many pairs as keys.
        for (vocab, length, keys) in [(7, 8, 3), (5, 9, 2), (5, 10, 2)] {
            let config = DataConfig { vocab: Count::Of(vocab as usize), length, ..DataConfig::default() };
            assert_agrees(&task(&config).unwrap(), &two_pairs(keys, vocab, length + 1));
        }
    }

    #[test]
    fn a_single_key_can_be_asked_for() {
        let config = DataConfig { vocab: Count::Of(2), length: 3, ..DataConfig::default() };
        assert_agrees(&task(&config).unwrap(), &[(vec![0, 1, 0, 1], 1.0)]);
        let error = task(&DataConfig { length: 2, ..config }).err().unwrap().to_string();
        assert_eq!(error, "`data.length` = 2 must be at least 3: a pair, a key, its value");
    }

    #[test]
    fn corruption_swaps_two_keys_before_the_last_question() {
        let config = DataConfig { vocab: Count::Of(8), length: 11, ..DataConfig::default() };
        let mut sample = [0, 4, 1, 5, 2, 6, 1, 5, 0, 4, 2, 6];
        assert_eq!(task(&config).unwrap().corrupt(&mut sample), Some(10));
        assert_eq!(sample, [2, 4, 1, 5, 0, 6, 1, 5, 2, 4, 2, 4]);
    }
}
