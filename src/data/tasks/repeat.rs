//! A motif of random period, repeated to the end.
//!
//! Each sample draws a period `p` uniformly from `data.period`, and a motif of `p` independent integers. The motif is
//! repeated to the end of the sample. With a period of 3:
//!
//! ```text
//! 7 1 4 7 1 4 7 1 …
//!   ? ? ? ↑ ↑ ↑ ↑    known once the motif has begun to repeat
//! ```
//!
//! **Mechanism of a solved model:** *induction* (Olsson et al. 2022, "In-context learning and induction heads"). A head
//! of the first layer stores the previous token at each position. A head of the second layer attends to the position
//! after the earlier occurrence of the current token, and copies the token there. One layer cannot do both. In trained
//! models with distance biases (ALiBi) as the only position scheme, the first-layer head attends to a few previous
//! tokens, and mostly to the nearest.
//!
//! **Floor:** the optimal predictor weights all periods. Let `w_p` be its weight of period `p` after `n` tokens,
//! initially equal for all periods. Under period `p`, the next token is certainly `x_{n-p}` if `n >= p`, and any of the
//! `V` integers otherwise: `q_p(y) = [y = x_{n-p}]` or `1 / V`. Therefore
//!
//! ```text
//! P(y | x_0 … x_{n-1}) = Σ_p w_p q_p(y),      then   w_p ← w_p q_p(x_n) / P(x_n)
//! ```
//!
//! The expected floor is the mean of `-ln P` over periods and motifs. Motifs are sampled for each period until the
//! standard error is below 1e-4 nats. A few hundred motifs suffice, because almost all of the variance lies between
//! periods.
//!
//! **Determined** targets have a probability of at least 0.99 under the same weights. With 16 integers, one token that
//! recurs after a distance of 4 may be chance, but two successive ones hardly are.

use rand::RngExt;

use super::{SequenceTask, corrupt_period};
use crate::data::config::DataConfig;
use crate::data::seed::{ChaCha8Rng, Purpose, generator};
use crate::data::vocabulary::Vocabulary;
use crate::error::{Error, Result};

/// The standard error, in nats per token, at which the estimate of the expected floor stops.
const STANDARD_ERROR: f64 = 1e-4;

/// The task `repeat`.
#[derive(Debug, Clone)]
pub struct Repeat {
    vocab: usize,
    length: usize,
    shortest: usize,
    longest: usize,
}

impl Repeat {
    /// Creates the task: `data.length` targets below `data.vocab`, with periods from `data.period`.
    ///
    /// # Errors
    /// Returns an error if the periods are not in ascending order, are zero, or are longer than the sequence.
    pub fn new(config: &DataConfig) -> Result<Self> {
        let [shortest, longest] = config.periods();
        let (vocab, length) = (config.symbols(), config.length);
        let problem = if shortest == 0 {
            "must start at 1 or above".to_string()
        } else if shortest > longest {
            "must list the shortest period, then the longest".to_string()
        } else if longest > length {
            format!("must end at or below `data.length` = {length}")
        } else {
            return Ok(Repeat { vocab, length, shortest, longest });
        };
        Err(Error::key("data.period", format!("[{shortest}, {longest}]"), problem))
    }

    fn periods(&self) -> std::ops::RangeInclusive<usize> {
        self.shortest..=self.longest
    }

    /// Draws a sample with the given period.
    fn draw_with_period(&self, period: usize, random: &mut ChaCha8Rng, sample: &mut [u32]) {
        for position in 0..sample.len() {
            sample[position] = match position.checked_sub(period) {
                Some(earlier) => sample[earlier],
                None => random.random_range(0..self.vocab as u32),
            };
        }
    }
}

impl SequenceTask for Repeat {
    fn vocabulary(&self) -> Vocabulary {
        Vocabulary::integers(self.vocab, &[])
    }

    fn tokens(&self) -> usize {
        self.length + 1
    }

    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]) {
        let period = random.random_range(self.shortest as u32..=self.longest as u32) as usize;
        self.draw_with_period(period, random, sample);
    }

    fn probabilities(&self, sample: &[u32], probabilities: &mut [f64]) {
        let uniform = 1.0 / self.vocab as f64;
        // Periods above the position are equivalent: `longer` is their number, `weight` the weight of each.
        let (mut longer, mut weight) = (self.periods().count(), 1.0 / self.periods().count() as f64);
        // (period, weight) of the other periods that are consistent with the sample.
        let mut consistent: Vec<(usize, f64)> = Vec::new();
        for (position, probability) in (1..sample.len()).zip(probabilities) {
            if self.periods().contains(&position) {
                longer -= 1;
                consistent.push((position, weight));
            }
            consistent.retain(|(period, _)| sample[position - period] == sample[position]);
            weight *= uniform;
            let total = longer as f64 * weight + consistent.iter().map(|(_, weight)| weight).sum::<f64>();
            *probability = total;
            // Normalising at each step prevents an underflow of the weights.
            weight /= total;
            consistent.iter_mut().for_each(|(_, weight)| *weight /= total);
        }
    }

    fn corrupt(&self, sample: &mut [u32]) -> Option<usize> {
        let repeats = |&period: &usize| sample[period..].iter().zip(&*sample).all(|(a, b)| a == b);
        let period = self.periods().find(repeats)?;
        corrupt_period(sample, period, self.vocab)
    }

    fn expected_floor(&self) -> (f64, Option<f64>) {
        // The number of motifs drawn per period and round.
        const MOTIFS_PER_ROUND: usize = 16;
        // The minimum number of motifs over all periods.
        const MIN_SAMPLES: usize = 1 << 10;
        // The maximum number of tokens over all motifs, which takes about a second.
        const MAX_TOKENS: usize = 1 << 25;
        let max_samples = (MAX_TOKENS / self.tokens()).clamp(4 * MOTIFS_PER_ROUND, 1 << 20);
        let min_samples = MIN_SAMPLES.min(max_samples);
        let targets = self.length as f64;
        // If there are too many periods, use an evenly spaced, centred subset: the loss is nearly linear in the period.
        let count = self.periods().count();
        let stride = (count * MOTIFS_PER_ROUND).div_ceil(max_samples);
        let periods = || self.periods().skip((count - 1) % stride / 2).step_by(stride);
        let mut random = generator(0, Purpose::Expectation, [0, 0]);
        let (mut sample, mut probabilities) = (vec![0; self.tokens()], vec![0.0; self.length]);
        // For each period, the sum of the losses and the sum of their squares.
        let mut sums: Vec<(f64, f64)> = periods().map(|_| (0.0, 0.0)).collect();
        let strata = sums.len() as f64;
        let mut drawn = 0;
        loop {
            for (period, (sum, squares)) in periods().zip(&mut sums) {
                for _ in 0..MOTIFS_PER_ROUND {
                    self.draw_with_period(period, &mut random, &mut sample);
                    self.probabilities(&sample, &mut probabilities);
                    let loss = -probabilities.iter().map(|p| p.ln()).sum::<f64>() / targets;
                    *sum += loss;
                    *squares += loss * loss;
                }
            }
            drawn += MOTIFS_PER_ROUND;
            let count = drawn as f64;
            let mean = sums.iter().map(|(sum, _)| sum / count).sum::<f64>() / strata;
            let variance = |(sum, squares): &(f64, f64)| (squares / count - (sum / count).powi(2)).max(0.0);
            let error = (sums.iter().map(variance).sum::<f64>() / count).sqrt() / strata;
            let motifs = drawn * sums.len();
            if motifs >= max_samples || (motifs >= min_samples && error < STANDARD_ERROR) {
                return (mean, Some(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::{Count, Periods};
    use crate::data::tasks::enumeration::{all_sequences, assert_agrees};
    use crate::data::{Role, load};

    fn repeat(vocab: usize, length: usize, period: [usize; 2]) -> Repeat {
        let period = Periods::Of(period);
        Repeat::new(&DataConfig { vocab: Count::Of(vocab), length, period, ..DataConfig::default() }).unwrap()
    }

    #[test]
    fn floor_estimate_of_long_sequences_is_unbiased() {
        // The loss of each token of the motif is ln V, and the loss of all others is almost 0.
        let length = 1 << 16;
        let (floor, _) = repeat(16, length, [length / 4, length / 2]).expected_floor();
        assert!((floor - 0.375 * 16f64.ln()).abs() < 5e-4, "{floor}");
    }

    #[test]
    fn floor_matches_enumeration_of_motifs() {
        for (vocab, length, [shortest, longest]) in [(3, 7, [1, 4]), (2, 11, [3, 5]), (5, 3, [2, 3])] {
            let mut all = Vec::new();
            for period in shortest..=longest {
                let motifs = all_sequences(vocab, period);
                let p = 1.0 / (motifs.len() * (longest - shortest + 1)) as f64;
                let repeated =
                    |motif: &Vec<u32>| (0..=length).map(|position| motif[position % period]).collect();
                all.extend(motifs.iter().map(|motif| (repeated(motif), p)));
            }
            assert_agrees(&repeat(vocab as usize, length, [shortest, longest]), &all);
        }
    }

    #[test]
    fn sample_probability_averages_over_consistent_periods() {
        let task = repeat(2, 29, [2, 7]);
        let mut random = generator(0, Purpose::TrainingSet, [0, 0]);
        let (mut sample, mut probabilities) = (vec![0; 30], vec![0.0; 29]);
        for _ in 0..100 {
            task.draw(&mut random, &mut sample);
            task.probabilities(&sample, &mut probabilities);
            let sum: f64 = probabilities.iter().map(|p| -p.ln()).sum();
            let is_consistent =
                |period: &usize| (*period..30).all(|index| sample[index] == sample[index - period]);
            let consistent = (2..=7).filter(is_consistent).map(|period| 2f64.powi(-(period as i32)));
            let loss = -(consistent.sum::<f64>() / 6.0).ln() - 2f64.ln();
            assert!((loss - sum).abs() < 1e-9, "{loss}, not {sum}");
        }
    }

    #[test]
    fn standard_error_follows_the_variance_within_periods() {
        // The estimate ends after 1024 motifs, 512 of each period, because the losses of long samples hardly differ.
        let (task, length) = (repeat(2, 1000, [1, 2]), 1000);
        let variance = |period: usize| {
            let loss = |motif: Vec<u32>| {
                let sample: Vec<_> = (0..=length).map(|position| motif[position % period]).collect();
                let mut probabilities = vec![0.0; length];
                task.probabilities(&sample, &mut probabilities);
                -probabilities.iter().map(|p| p.ln()).sum::<f64>() / length as f64
            };
            let losses: Vec<f64> = all_sequences(2, period).into_iter().map(loss).collect();
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / losses.len() as f64
        };
        let expected = ((variance(1) + variance(2)) / 512.0).sqrt() / 2.0;
        let found = task.expected_floor().1.unwrap();
        assert!((found / expected - 1.0).abs() < 0.05, "{found}, not about {expected}");
    }

    #[test]
    fn long_periods_have_a_finite_floor() {
        let task = repeat(100_000, 4096, [1000, 1010]);
        let (floor, _) = task.expected_floor();
        let expected = 1004.0 * 100_000f64.ln() / 4096.0;
        assert!((floor - expected).abs() < 1e-2, "{floor}, not about {expected}");
    }

    #[test]
    fn expected_floor_matches_samples_for_distant_periods() {
        let config = DataConfig {
            vocab: Count::Of(256),
            length: 1_024,
            period: Periods::Of([256, 512]),
            train_samples: 1,
            valid_samples: 300,
            ..DataConfig::default()
        };
        let floor = load(&config, 0).unwrap().floor.unwrap();
        assert!((floor.expected - floor.valid).abs() < 0.03 * floor.valid, "{floor:?}");
    }

    #[test]
    fn tokens_are_determined_after_the_motif_repeats() {
        let period = Periods::Of([4, 8]);
        let config = DataConfig { period, train_samples: 1, valid_samples: 1000, ..DataConfig::default() };
        let dataset = load(&config, 0).unwrap();
        let batch = dataset.valid.batches(1000).next().unwrap();
        for row in 0..1000 {
            let roles = &batch.roles[row * 32..(row + 1) * 32];
            // At least the first four targets are undetermined. Two tokens after the longest period, nearly all are
            // determined.
            assert!(roles[..4].iter().all(|&role| role == Role::Undetermined));
            assert!(roles[14..].iter().all(|&role| role == Role::Determined));
        }
    }

    #[test]
    fn periods_that_no_sample_can_have_are_refused() {
        for (period, remedy) in
            [([0, 3], "must start at 1"), ([5, 3], "shortest"), ([3, 33], "`data.length` = 32")]
        {
            let period = Periods::Of(period);
            let error = Repeat::new(&DataConfig { period, ..DataConfig::default() }).unwrap_err().to_string();
            assert!(error.starts_with("`data.period` = [") && error.contains(remedy), "{error}");
        }
    }
}
