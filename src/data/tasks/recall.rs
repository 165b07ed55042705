//! Pairs of a key and a value, then keys: *associative recall*.
//!
//! Keys are the lower half of the vocabulary, values the upper half. The first half of a sample
//! shows pairs of different keys, each with a random value; the second half asks for some of these
//! keys, each equally likely and possibly again, and answers with the value. With 8 integers:
//!
//! ```text
//! 2 7  0 5  3 5    0 5  3 5  0 5  2
//!   ?  ? ?  ? ?    ? ↑  ? ↑  ? ↑  ?      what follows a key is known once it has been shown
//! ```
//!
//! **Mechanism of a solved model:** as in [`repeat`](super::repeat), a head that tells each value
//! which key stood before it, and one that looks for the present key among them. Unlike there,
//! nothing but the key helps: the order of the questions is random (Arora et al. 2023, "Zoology").
//!
//! **Floor:** of `K` keys and `V` values, with `n` pairs, then `m` answered questions, the free
//! targets are the keys after the first one, of which a pair more leaves one fewer to choose from,
//! the values, and the keys asked for: `Σ_{i=1}^{n-1} ln(K - i) + n ln V + q ln n` nats, where
//! `q` is `m`, or `m + 1` where a last key has no room for its answer. It is the same for every
//! sample, in expectation and on every set.

use rand::{RngExt, seq::index};

use super::FixedProbabilities;
use crate::data::{config::DataConfig, vocabulary::Vocabulary};
use crate::error::{Error, Result};

/// The task `recall`: as many pairs as there are keys for, in at most half of `data.length + 1` tokens.
///
/// # Errors
/// When the length has no room for a pair and a question.
pub(super) fn task(config: &DataConfig) -> Result<FixedProbabilities> {
    if config.length < 3 {
        let problem = "must be 3 or above: a pair, a key, its value";
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
            let (shown, asked) = sample.split_at_mut(2 * pairs);
            let chosen = index::sample(random, keys, pairs);
            for (pair, key) in shown.chunks_exact_mut(2).zip(chosen) {
                pair[0] = key as u32;
                pair[1] = random.random_range(keys as u32..vocab as u32);
            }
            for question in asked.chunks_mut(2) {
                let pair = 2 * random.random_range(0..pairs as u32) as usize;
                question.copy_from_slice(&shown[pair..pair + question.len()]);
            }
        },
        move |sample| {
            // The key of the last answer changes places with another one, so that it has that one's value.
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
    use crate::data::{config::Count, tasks::enumeration::agrees};

    /// All samples of two pairs, the keys being 0 .. keys, and their probabilities.
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
    fn the_floor_agrees_with_all_pairs_and_questions_written_out() {
        // Three keys for two pairs, an odd end; and as many pairs as keys, an even one.
        for (vocab, length, keys) in [(7, 8, 3), (5, 9, 2), (5, 10, 2)] {
            let config = DataConfig { vocab: Count::Of(vocab as usize), length, ..DataConfig::default() };
            agrees(&task(&config).unwrap(), &two_pairs(keys, vocab, length + 1));
        }
    }

    #[test]
    fn a_single_key_can_be_asked_for() {
        let config = DataConfig { vocab: Count::Of(2), length: 3, ..DataConfig::default() };
        agrees(&task(&config).unwrap(), &[(vec![0, 1, 0, 1], 1.0)]);
        let error = task(&DataConfig { length: 2, ..config }).err().unwrap().to_string();
        assert_eq!(error, "`data.length` = 2 must be 3 or above: a pair, a key, its value");
    }
}
