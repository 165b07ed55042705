//! A random walk: the previous `data.order` tokens determine the distribution of the next token.
//!
//! The transition matrix is drawn from the run's seed and shared by all sequences. For each context of `data.order`
//! tokens, it holds a distribution of the next token, drawn uniformly from all distributions (a flat Dirichlet). The
//! first `data.order` tokens are independent and uniform. For example, with 3 integers and order 1:
//!
//! ```text
//! after 0:  0.1 0.2 0.7
//! after 1:  0.5 0.4 0.1      1 0 2 0 2 0 1 …
//! after 2:  0.6 0.1 0.3
//! ```
//!
//! **Mechanism of a solved model:** a lookup table. With order 1, the embedding and the output layer hold it, and no
//! attention is needed. In trained models, the feed-forward layers contribute as well, and to a lesser degree heads
//! that attend to their own token, which is equivalent. With order 2, a head fetches the previous token, and a
//! feed-forward layer looks up the pair.
//!
//! **Floor:** the probability of a target `x_t` is an entry of the matrix if `t >= order`, and `1 / V` otherwise. The
//! expected loss of a target is the entropy of its row, averaged over the distribution `π_t` of contexts at its
//! position. This distribution is uniform at first, and the matrix advances it from position to position. The expected
//! floor, the mean over positions, is exact. It approaches the *entropy rate* of the chain as the length grows. Hardly
//! any target is determined.

use rand::RngExt;

use super::SequenceTask;
use crate::data::config::DataConfig;
use crate::data::seed::{ChaCha8Rng, Purpose, generator};
use crate::data::vocabulary::Vocabulary;
use crate::error::{Error, Result};

/// The maximum number of entries of a transition matrix: 2^22, or 32 MB.
const MAX_ENTRIES: usize = 1 << 22;

/// The task `markov`.
#[derive(Debug, Clone)]
pub struct Markov {
    vocab: usize,
    length: usize,
    order: usize,
    /// `[contexts, vocab]`: cumulative probabilities, so that a draw is a binary search. The last token of a context is
    /// the last digit of its row number.
    cumulative: Vec<f64>,
}

impl Markov {
    /// Creates the task and draws its matrix.
    ///
    /// # Errors
    /// Returns an error if the order is zero or above the length, or if the matrix is too large.
    pub fn new(config: &DataConfig, seed: u64) -> Result<Self> {
        let (vocab, order, length) = (config.symbols(), config.order, config.length);
        if order == 0 || order > length {
            let problem = format!("must be at least 1 and at most `data.length` = {length}");
            return Err(Error::key("data.order", order, problem));
        }
        let entries = u32::try_from(order).ok().and_then(|order| vocab.checked_pow(order + 1));
        let Some(entries @ ..=MAX_ENTRIES) = entries else {
            let problem = format!(
                "with `data.vocab` = {vocab} needs a matrix of more than {MAX_ENTRIES} entries; lower one of \
                 them"
            );
            return Err(Error::key("data.order", order, problem));
        };
        let mut random = generator(seed, Purpose::Task, [0, 0]);
        let mut cumulative = vec![0.0; entries];
        for row in cumulative.chunks_exact_mut(vocab) {
            // Exponential variates divided by their sum follow a flat Dirichlet distribution.
            row.fill_with(|| -(1.0 - random.random::<f64>()).ln());
            let total: f64 = row.iter().sum();
            let mut sum = 0.0;
            for entry in row.iter_mut() {
                sum += *entry / total;
                *entry = sum;
            }
            row[vocab - 1] = 1.0;
        }
        Ok(Markov { vocab, length, order, cumulative })
    }

    /// Returns the row of the matrix for a context of `order` tokens.
    fn row(&self, context: &[u32]) -> &[f64] {
        let row = context.iter().fold(0, |row, &token| row * self.vocab + token as usize);
        &self.cumulative[row * self.vocab..][..self.vocab]
    }
}

/// Returns the probability of a token in a cumulative row.
fn probability(row: &[f64], token: usize) -> f64 {
    row[token] - if token == 0 { 0.0 } else { row[token - 1] }
}

impl SequenceTask for Markov {
    fn vocabulary(&self) -> Vocabulary {
        Vocabulary::integers(self.vocab, &[])
    }

    fn tokens(&self) -> usize {
        self.length + 1
    }

    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]) {
        for position in 0..sample.len() {
            sample[position] = match position.checked_sub(self.order) {
                None => random.random_range(0..self.vocab as u32),
                Some(start) => {
                    let uniform: f64 = random.random();
                    self.row(&sample[start..position]).partition_point(|&sum| sum <= uniform) as u32
                }
            };
        }
    }

    fn probabilities(&self, sample: &[u32], probabilities: &mut [f64]) {
        for (position, p) in (1..sample.len()).zip(probabilities) {
            *p = match position.checked_sub(self.order) {
                None => 1.0 / self.vocab as f64,
                Some(start) => probability(self.row(&sample[start..position]), sample[position] as usize),
            };
        }
    }

    fn corrupt(&self, sample: &mut [u32]) -> Option<usize> {
        let most_likely = |context: &[u32]| {
            let row = self.row(context);
            let key = |&token: &usize| probability(row, token);
            (0..self.vocab).max_by(|a, b| key(a).total_cmp(&key(b))).unwrap_or(0) as u32
        };
        // Find the last target that is the argmax of its row, then change the oldest token of its context.
        let is_most_likely = |&next: &usize| most_likely(&sample[next - self.order..next]) == sample[next];
        let next = (self.order..sample.len()).rev().find(is_most_likely)?;
        let mut context = sample[next - self.order..next].to_vec();
        for other in 1..self.vocab as u32 {
            context[0] = (sample[next - self.order] + other) % self.vocab as u32;
            let answer = most_likely(&context);
            if answer != sample[next] {
                sample[next - self.order] = context[0];
                sample[next] = answer;
                return next.checked_sub(1);
            }
        }
        None
    }

    fn expected_floor(&self) -> (f64, Option<f64>) {
        let vocab = self.vocab;
        let rows = || self.cumulative.chunks_exact(vocab);
        let term = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
        let entropy = |row: &[f64]| (0..vocab).map(|token| term(probability(row, token))).sum::<f64>();
        let entropies: Vec<f64> = rows().map(entropy).collect();
        let contexts = entropies.len();
        // `current` is the distribution of contexts at a position, and `entropies` the expected loss after each
        // context.
        let mut current = vec![1.0 / contexts as f64; contexts];
        let mut next = vec![0.0; contexts];
        let mut total = (self.order as f64 - 1.0) * (vocab as f64).ln();
        for position in self.order..=self.length {
            let loss: f64 = current.iter().zip(&entropies).map(|(p, entropy)| p * entropy).sum();
            total += loss;
            next.fill(0.0);
            for (context, (row, p)) in rows().zip(&current).enumerate() {
                // The oldest token leaves the context, and the new token enters it.
                let shifted = context % (contexts / vocab) * vocab;
                for token in 0..vocab {
                    next[shifted + token] += p * probability(row, token);
                }
            }
            let change: f64 = current.iter().zip(&next).map(|(a, b)| (a - b).abs()).sum();
            std::mem::swap(&mut current, &mut next);
            if change < 1e-12 {
                // At equilibrium, all remaining targets have the same expected loss.
                total += loss * (self.length - position) as f64;
                break;
            }
        }
        (total / self.length as f64, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::Count;
    use crate::data::tasks::enumeration::{all_sequences, assert_agrees};

    fn config(vocab: usize, length: usize, order: usize) -> DataConfig {
        DataConfig { vocab: Count::Of(vocab), length, order, ..DataConfig::default() }
    }

    #[test]
    fn floor_matches_enumeration_of_walks() {
        for (vocab, length, order) in [(3, 5, 1), (2, 7, 2), (3, 3, 3)] {
            let markov = Markov::new(&config(vocab, length, order), 11).unwrap();
            let step = |walk: &[u32]| {
                let (context, next) = (&walk[..order], walk[order] as usize);
                let row = context.iter().fold(0, |row, &token| row * vocab + token as usize);
                let sum = |token| markov.cumulative[row * vocab + token];
                if next == 0 { sum(0) } else { sum(next) - sum(next - 1) }
            };
            let all: Vec<_> = all_sequences(vocab as u32, length + 1)
                .into_iter()
                .map(|walk| {
                    let steps: f64 = walk.windows(order + 1).map(step).product();
                    (walk, steps / vocab.pow(order as u32) as f64)
                })
                .collect();
            assert_agrees(&markov, &all);
        }
    }

    #[test]
    fn floor_of_long_walks_approaches_entropy_rate() {
        // The entropy rate follows from the stationary distribution, which 1000 steps approximate.
        let markov = Markov::new(&config(7, 100_000, 1), 3).unwrap();
        let mut current = [1.0 / 7.0; 7];
        for _ in 0..1000 {
            let mut next = [0.0; 7];
            for (from, p) in current.iter().enumerate() {
                for (to, next) in next.iter_mut().enumerate() {
                    *next += p * probability(markov.row(&[from as u32]), to);
                }
            }
            current = next;
        }
        let mut rate = 0.0;
        for (from, p) in current.iter().enumerate() {
            for to in 0..7 {
                let q = probability(markov.row(&[from as u32]), to);
                rate -= p * q * q.ln();
            }
        }
        assert!((markov.expected_floor().0 - rate).abs() < 1e-5);
    }

    #[test]
    fn corruption_exchanges_the_oldest_token_that_determines_the_last_likely_target() {
        for order in 1..=3 {
            let markov = Markov::new(&config(5, 12, order), 2).unwrap();
            let mut random = generator(7, Purpose::TrainingSet, [0, 0]);
            let likely = |context: &[u32]| {
                let of = |token: &u32| probability(markov.row(context), *token as usize);
                (0..5).max_by(|a, b| of(a).total_cmp(&of(b))).unwrap()
            };
            for _ in 0..50 {
                let mut clean = vec![0; markov.tokens()];
                markov.draw(&mut random, &mut clean);
                let last =
                    (order..clean.len()).rfind(|&next| likely(&clean[next - order..next]) == clean[next]);
                let others = last.into_iter().flat_map(|next| (1..5).map(move |other| (next, other)));
                let mut exchanged = others.map(|(next, other)| {
                    let mut sample = clean.clone();
                    sample[next - order] = (sample[next - order] + other) % 5;
                    sample[next] = likely(&sample[next - order..next]);
                    (next, sample)
                });
                let expected = exchanged.find(|(next, sample)| sample[*next] != clean[*next]);
                let mut corrupted = clean.clone();
                let target = markov.corrupt(&mut corrupted);
                assert_eq!(target, expected.as_ref().map(|(next, _)| next - 1));
                assert_eq!(corrupted, expected.map_or(clean, |(_, sample)| sample));
            }
        }
    }

    #[test]
    fn transition_matrix_is_seeded_and_row_stochastic() {
        let matrix = |seed| Markov::new(&config(5, 3, 2), seed).unwrap().cumulative;
        assert_eq!(matrix(1), matrix(1));
        assert_ne!(matrix(1), matrix(2));
        for row in matrix(1).chunks(5) {
            assert!(row[0] >= 0.0 && row.is_sorted() && row[4] == 1.0, "{row:?}");
        }
    }

    #[test]
    fn invalid_or_oversized_orders_are_rejected() {
        let refused = |config: DataConfig| Markov::new(&config, 0).unwrap_err().to_string();
        let range = "must be at least 1 and at most `data.length` = 8";
        assert_eq!(refused(config(16, 8, 0)), format!("`data.order` = 0 {range}"));
        assert_eq!(refused(config(16, 8, 9)), format!("`data.order` = 9 {range}"));
        assert!(refused(config(1000, 8, 2)).starts_with("`data.order` = 2 with `data.vocab` = 1000 needs"));
        assert!(refused(config(2, 100, 64)).starts_with("`data.order` = 64 with `data.vocab` = 2 needs"));
    }
}
