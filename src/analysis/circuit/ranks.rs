//! The ranks of known tokens among the model's predictions, as evidence that it predicts anything.
//!
//! Any weights have a most likely token, and large ones are certain of it. An answer that was read off the model is
//! therefore no evidence of what the model has learned. The other tokens of the prompts were not read off it. With random
//! weights, the rank of a token among all `V` is uniformly distributed, whatever the size of the weights. With
//! `x = -ln((rank - 1/2) / V)`, averaged over the occurrences of each of `n` tokens, Chernoff's bound gives
//!
//! ```text
//! P(x_1 + ... + x_n >= s) <= min_t exp(-t s) M(t)^n,    M(t) = mean over all ranks of exp(t x)
//! ```

use std::collections::BTreeMap;

use burn::tensor::backend::Backend;

use super::bench::Bench;
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::data::Role;
use crate::evaluation::DeviceBatch;
use crate::hooks::NoHooks;
use crate::numbers::fixed;

/// The maximum probability that random weights rank the known tokens as high as the model.
const MAX_PROBABILITY: f64 = 1e-4;
/// The maximum number of known sequences, and of tokens in each, that the model predicts.
const MAX_SEQUENCES: usize = 8;
const MAX_TOKENS: usize = 512;
/// The number of halvings of the interval that contains the best exponent of the bound.
const HALVINGS: usize = 60;

/// The ranks of known tokens.
#[derive(Default)]
pub(super) struct Ranks {
    /// For each token, the sum over its occurrences of `x`, and their number.
    by_token: BTreeMap<u32, (f64, f64)>,
}

impl Ranks {
    /// Adds the rank of the `next` token among the `logits` after the `current` one; of equal logits, it is in the middle. A
    /// repeated token does not count: with shared embeddings, random weights predict the current token, too.
    fn add(&mut self, [current, next]: [u32; 2], logits: &[f32]) {
        let own = logits[next as usize];
        if current == next || !own.is_finite() {
            return;
        }
        let larger = logits.iter().filter(|logit| **logit > own).count();
        let equal = logits.iter().filter(|logit| **logit == own).count();
        let (sum, count) = self.by_token.entry(next).or_default();
        *sum += surprise(larger as f64 + 0.5 * equal as f64, logits.len());
        *count += 1.0;
    }

    /// Returns a bound of the probability that random weights over `vocab` tokens rank these as high.
    fn probability(&self, vocab: usize) -> f64 {
        let (sum, count) =
            self.by_token.values().fold((0.0, 0.0), |(sum, count), (of_token, occurrences)| {
                (sum + of_token / occurrences, count + 1.0)
            });
        let all: Vec<f64> = (0..vocab).map(|rank| surprise(rank as f64 + 0.5, vocab)).collect();
        let largest = all[0];
        // Scaled by the largest term, so that it is finite for large exponents.
        let log_bound = |exponent: f64| {
            let mean = all.iter().map(|x| (exponent * (x - largest)).exp()).sum::<f64>() / vocab as f64;
            count * mean.ln() + exponent * (count * largest - sum)
        };
        // The logarithm of the bound is convex. Beyond this exponent, only the first rank counts.
        let [mut low, mut high] = [0.0, 50.0];
        for _ in 0..HALVINGS {
            let [first, second] = [low + (high - low) / 3.0, high - (high - low) / 3.0];
            if log_bound(first) < log_bound(second) { high = second } else { low = first }
        }
        log_bound(low).exp().min(1.0)
    }
}

/// Returns `-ln` of the share of the vocabulary that ranks before a token, which itself counts half.
fn surprise(before: f64, vocab: usize) -> f64 {
    -(before / vocab as f64).ln()
}

/// Returns the reason why a prediction is no evidence, if random weights rank known tokens as high with this probability.
fn refusal(probability: f64, has_known: bool) -> Option<String> {
    let (sequences, remedy) = match has_known {
        true => (" and of the stored validation sequences", "train the model longer"),
        false => ("", "ask about a longer text, or about several prompts"),
    };
    (probability > MAX_PROBABILITY).then(|| {
        format!(
            "the answer is the model's prediction, and random weights predict a token with certainty, too, if they are large; \
             they also rank the other tokens of the text{sequences} as high as this model, with a probability of up to {}, \
             where at most {MAX_PROBABILITY} is allowed to rule out chance; {remedy}",
            if probability < 0.01 { format!("{probability:.1e}") } else { fixed(probability, 2) }
        )
    })
}

impl<B: Backend> Bench<'_, B> {
    /// Returns the reason why answers that the model predicts are no evidence, if random weights rank the other tokens of the
    /// prompts and the targets of the `known` sequences as high as the model. `None` if the model predicts other answers.
    pub fn read_off(&self, prompts: &[Sample], known: &[Sample]) -> Result<Option<String>> {
        if !self.predicts_all() {
            return Ok(None);
        }
        let ([_, _, vocab], device) = (self.full.logits.dims(), self.batch.targets.device());
        let mut ranks = Ranks::default();
        for (row, Sample { inputs, documents, .. }) in prompts.iter().enumerate() {
            let logits = floats(self.full.logits.clone().narrow(0, row, 1));
            let is_inside = |at: usize| documents.as_ref().is_none_or(|it| it[at] == it[at + 1]);
            for (at, next) in inputs.windows(2).enumerate().filter(|(at, _)| is_inside(*at)) {
                ranks.add([next[0], next[1]], &logits[at * vocab..][..vocab]);
            }
        }
        for sample in known.iter().take(MAX_SEQUENCES) {
            let sample = [sample.clone().truncated(MAX_TOKENS)];
            let inputs = DeviceBatch::new(&Sample::batch_of(&sample), &device).inputs;
            let stream = self.model.hidden_states(inputs, &[], None, &mut NoHooks)?;
            let logits = floats(self.model.logits(stream));
            let [Sample { inputs, targets, roles, .. }] = &sample;
            let targets = inputs.iter().zip(targets).zip(roles).enumerate();
            for (at, ((&input, &target), _)) in targets.filter(|(_, (_, role))| **role != Role::Padding) {
                ranks.add([input, target], &logits[at * vocab..][..vocab]);
            }
        }
        Ok(refusal(ranks.probability(vocab), !known.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bound for tokens of these ranks, from 0.
    fn probability(ranks: &[usize], vocab: usize) -> f64 {
        let mut found = Ranks::default();
        for (token, &rank) in ranks.iter().enumerate() {
            // The logits descend from the token of rank 0.
            let logits: Vec<f32> =
                (0..vocab).map(|at| -(((at + rank + vocab - token) % vocab) as f32)).collect();
            found.add([vocab as u32, token as u32], &logits);
        }
        found.probability(vocab)
    }

    #[test]
    fn high_ranks_of_several_tokens_rule_out_chance() {
        // The probability that four tokens of seven have the first rank.
        assert!((probability(&[0; 4], 7) / 7f64.powi(-4) - 1.0).abs() < 1e-3);
        assert!(probability(&[4, 11, 0, 2], 50_000) < 1e-10);
        assert!(probability(&[9, 0, 14, 3, 11], 20) > 0.1);
        assert_eq!(probability(&[], 20), 1.0);
        assert_eq!(probability(&[19; 5], 20), 1.0);
    }

    #[test]
    fn the_bound_holds_for_random_ranks() {
        let exceeds = |seed: u64| {
            let random = crate::kernels::random::random(seed, 6);
            let ranks: Vec<usize> = random.iter().map(|it| ((it * 0.5 + 0.5) * 29.999) as usize).collect();
            probability(&ranks, 30) < 0.05
        };
        let count = (0..2_000).filter(|seed| exceeds(*seed)).count();
        assert!((1..100).contains(&count), "{count} of 2,000");
    }

    #[test]
    fn repeated_occurrences_and_current_tokens_are_no_further_evidence() {
        let mut ranks = Ranks::default();
        let logits = [3.0, 1.0, 2.0];
        (0..50).for_each(|_| ranks.add([1, 0], &logits));
        ranks.add([2, 2], &logits);
        assert_eq!(ranks.by_token.len(), 1);
        assert!((ranks.probability(3) - 1.0 / 3.0).abs() < 1e-3);
    }
}
