//! Progress measures of modular addition: the loss with only the key frequencies of the logits, and without them.

use super::waves::Waves;

/// The logits of a model for the sum of every pair of residues.
#[derive(Debug, Clone, PartialEq)]
pub struct PairLogits {
    waves: Waves,
    /// `[n, n, vocab]`: the pair `(a, b)`, then the logit of each token.
    logits: Vec<f32>,
    /// `[n, vocab]`: the mean over the pairs of each sum modulo `n`.
    by_sum: Vec<f64>,
}

impl PairLogits {
    /// Takes the logits `[n, n, vocab]` of all pairs modulo `modulus`.
    pub fn new(modulus: usize, logits: Vec<f32>) -> Self {
        let vocab = logits.len() / (modulus * modulus);
        let mut by_sum = vec![0.0; modulus * vocab];
        for (pair, row) in logits.chunks(vocab).enumerate() {
            let sum = (pair / modulus + pair % modulus) % modulus;
            let means = &mut by_sum[sum * vocab..][..vocab];
            means.iter_mut().zip(row).for_each(|(mean, &logit)| *mean += f64::from(logit) / modulus as f64);
        }
        Self { waves: Waves::new(modulus), logits, by_sum }
    }

    fn vocab(&self) -> usize {
        self.by_sum.len() / self.waves.modulus()
    }

    /// Returns the share of each frequency in the variance of the logits that depends on the sum `a + b` alone.
    pub fn shares(&self) -> Vec<f64> {
        self.waves.shares(&self.by_sum)
    }

    /// Returns the restricted loss in nats: the mean over all pairs with only the mean of each logit and its waves
    /// `cos` and `sin` of `2 π k (a + b) / n` for the given frequencies `k`.
    pub fn restricted(&self, frequencies: &[usize]) -> f64 {
        let (modulus, vocab) = (self.waves.modulus(), self.vocab());
        let mut kept = self.waves.part(&self.by_sum, frequencies);
        for token in 0..vocab {
            let all = self.by_sum.iter().skip(token).step_by(vocab);
            let mean = all.sum::<f64>() / modulus as f64;
            kept.iter_mut().skip(token).step_by(vocab).for_each(|logit| *logit += mean);
        }
        // All pairs of a sum have the same logits.
        let losses = kept.chunks(vocab).enumerate().map(|(sum, row)| loss(row.iter().copied(), sum));
        losses.sum::<f64>() / modulus as f64
    }

    /// Returns the excluded loss in nats: the mean over some pairs, given as `a * n + b`, without the waves `cos` and
    /// `sin` of `2 π k (a + b) / n` for the given frequencies `k`. With no frequency, it is the loss of the model.
    pub fn excluded(&self, frequencies: &[usize], pairs: &[usize]) -> f64 {
        let (modulus, vocab) = (self.waves.modulus(), self.vocab());
        let removed = self.waves.part(&self.by_sum, frequencies);
        let of_pair = |&pair: &usize| {
            let sum = (pair / modulus + pair % modulus) % modulus;
            let (logits, removed) = (&self.logits[pair * vocab..], &removed[sum * vocab..][..vocab]);
            loss(logits.iter().zip(removed).map(|(&logit, removed)| f64::from(logit) - removed), sum)
        };
        pairs.iter().map(of_pair).sum::<f64>() / pairs.len() as f64
    }
}

/// Returns the cross-entropy of a target, in nats.
fn loss(logits: impl Iterator<Item = f64> + Clone, target: usize) -> f64 {
    let largest = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.clone().map(|logit| (logit - largest).exp()).sum();
    largest + sum.ln() - logits.clone().nth(target).expect("the target is a token")
}

/// Returns the key frequencies: those with the largest shares, until they hold `share` of the variance, in ascending
/// order.
pub fn key_frequencies(shares: &[f64], share: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&one, &other| shares[other].total_cmp(&shares[one]));
    let mut held = 0.0;
    let mut keys: Vec<usize> = order
        .into_iter()
        .take_while(|&index| {
            let is_needed = held < share;
            held += shares[index];
            is_needed
        })
        .map(|index| index + 1)
        .collect();
    keys.sort_unstable();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 11;

    /// Logits of the algorithm with two frequencies, and noise that depends on the pair.
    fn logits(noise: f64) -> PairLogits {
        let waves = Waves::new(N);
        let logit = |a: usize, b: usize, c: usize| -> f32 {
            let sum = |k| waves.at(k, a + b + (N - c) % N)[1];
            let pair = if (a * 7 + b * 3) % N == c { noise } else { 0.0 };
            (0.3 * c as f64 + 4.0 * sum(2) + 3.0 * sum(5) + pair) as f32
        };
        let all = (0..N * N).flat_map(|pair| (0..N).map(move |c| (pair / N, pair % N, c)));
        PairLogits::new(N, all.map(|(a, b, c)| logit(a, b, c)).collect())
    }

    #[test]
    fn key_frequencies_are_those_of_the_algorithm() {
        let shares = logits(0.0).shares();
        assert_eq!(key_frequencies(&shares, 0.95), [2, 5], "{shares:?}");
        assert_eq!(key_frequencies(&shares, 0.5), [2]);
        assert!(
            (shares[1] - 16.0 / 25.0).abs() < 1e-6 && (shares[4] - 9.0 / 25.0).abs() < 1e-6,
            "{shares:?}"
        );
        assert_eq!(key_frequencies(&[0.0; 5], 0.95).len(), 5);
    }

    #[test]
    fn excluding_the_key_frequencies_leaves_the_other_logits() {
        let pairs: Vec<usize> = (0..N * N).collect();
        let logits = logits(0.0);
        // Only 0.3 c remains.
        let sum: f64 = (0..N).map(|c| (0.3 * c as f64).exp()).sum();
        let expected = sum.ln() - 0.3 * (N - 1) as f64 / 2.0;
        let excluded = logits.excluded(&[2, 5], &pairs);
        assert!((excluded - expected).abs() < 1e-5, "{excluded}, not {expected}");
        assert!((logits.excluded(&[], &pairs) - logits.restricted(&[2, 5])).abs() < 1e-5);
        assert!(logits.restricted(&[3]) > 2.0, "the other frequencies predict nothing");
    }

    #[test]
    fn restriction_removes_what_depends_on_the_pair() {
        let (clean, noisy) = (logits(0.0), logits(20.0));
        let pairs: Vec<usize> = (0..N * N).collect();
        let difference = (clean.restricted(&[2, 5]) - noisy.restricted(&[2, 5])).abs();
        assert!(difference < 0.05, "{difference}");
        assert!(noisy.excluded(&[], &pairs) > clean.excluded(&[], &pairs) + 5.0);
    }
}
