//! Sampling of the next token from logits: filters, each a pure function on a slice, and a draw.
//!
//! The filters are applied in the order of this module. A removed token gets a logit of minus infinity, and thus a
//! probability of exactly zero.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// The choice of the next token.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct Sampling {
    /// Takes the most likely token at each step.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"])]
    pub greedy: bool,
    /// Divides the logits: values below 1 sharpen the distribution, 0 is greedy.
    #[arg(long, value_name = "T", default_value_t = 1.0, allow_negative_numbers = true)]
    pub temperature: f64,
    /// Draws only from the K most likely tokens; 0 draws from all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub top_k: usize,
    /// Draws only from the most likely tokens whose probabilities add up to at least P.
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    pub top_p: f64,
    /// Draws only from tokens that are at least P times as likely as the most likely token.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    pub min_p: f64,
    /// Penalises tokens that already occur in the prompt or the continuation; 1 disables the penalty.
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    pub repetition_penalty: f64,
}

impl Default for Sampling {
    /// Returns the settings that draw from the unmodified distribution of the model.
    fn default() -> Self {
        Self { greedy: false, ..Self::GREEDY }
    }
}

impl Sampling {
    /// Greedy decoding: the most likely token at each step.
    pub const GREEDY: Self =
        Self { greedy: true, temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0 };

    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// Returns an error with the option, its value and the valid range.
    pub fn check(&self) -> Result<()> {
        let Self { temperature, top_p, min_p, repetition_penalty: penalty, .. } = *self;
        let checks = [
            ("temperature", temperature, (0.0..).contains(&temperature), "must be finite and at least 0"),
            ("top-p", top_p, top_p > 0.0 && top_p <= 1.0, "must be in (0, 1]"),
            ("min-p", min_p, (0.0..=1.0).contains(&min_p), "must be in [0, 1]"),
            ("repetition-penalty", penalty, penalty > 0.0, "must be finite and positive; 1 disables it"),
        ];
        match checks.iter().find(|(_, value, is_valid, _)| !is_valid || value.is_infinite()) {
            None => Ok(()),
            Some((option, value, _, problem)) => Err(Error::Input(format!("--{option} {value} {problem}"))),
        }
    }

    /// Chooses the token that follows the tokens in `seen`. `uniform` is a random number from [0, 1), which greedy
    /// decoding ignores.
    pub fn choose(&self, logits: &[f32], seen: &[u32], uniform: f64) -> u32 {
        if !self.greedy && self.temperature > 0.0 {
            return draw(&self.probabilities(logits, seen), uniform);
        }
        let mut logits = logits.to_vec();
        penalize_repetition(&mut logits, seen, self.repetition_penalty);
        argmax(&logits)
    }

    /// Returns the probabilities from which the next token is drawn.
    pub fn probabilities(&self, logits: &[f32], seen: &[u32]) -> Vec<f64> {
        let mut logits = logits.to_vec();
        penalize_repetition(&mut logits, seen, self.repetition_penalty);
        scale(&mut logits, self.temperature);
        keep_top_k(&mut logits, self.top_k);
        keep_top_p(&mut logits, self.top_p);
        keep_min_p(&mut logits, self.min_p);
        softmax(&logits)
    }
}

/// Makes every token in `seen` less likely: divides a positive logit by the penalty and multiplies a negative one by
/// it. The penalty applies once, however often the token occurs (Keskar et al., 2019, arXiv 1909.05858).
pub fn penalize_repetition(logits: &mut [f32], seen: &[u32], penalty: f64) {
    if penalty == 1.0 {
        return;
    }
    for &token in seen.iter().collect::<BTreeSet<_>>() {
        if let Some(logit) = logits.get_mut(token as usize) {
            let value = f64::from(*logit);
            *logit = (if value > 0.0 { value / penalty } else { value * penalty }) as f32;
        }
    }
}

/// Divides the logits by a temperature above 0 (Ackley, Hinton and Sejnowski, 1985).
pub fn scale(logits: &mut [f32], temperature: f64) {
    if temperature != 1.0 {
        // Subtracting the maximum keeps the result finite at small temperatures.
        let largest = largest(logits);
        for logit in logits {
            *logit = ((f64::from(*logit) - largest) / temperature) as f32;
        }
    }
}

/// Keeps the `k` most likely tokens (Fan, Lewis and Dauphin, 2018, arXiv 1805.04833); ties favour smaller ids. 0 keeps
/// all.
pub fn keep_top_k(logits: &mut [f32], k: usize) {
    if k == 0 {
        return;
    }
    let kept: Vec<_> = top(logits, k).into_iter().map(|token| (token, logits[token as usize])).collect();
    logits.fill(f32::NEG_INFINITY);
    for (token, logit) in kept {
        logits[token as usize] = logit;
    }
}

/// Keeps the smallest set of most likely tokens whose total probability is at least `p`: nucleus sampling (Holtzman et
/// al., 2019, arXiv 1904.09751). 1 keeps all.
pub fn keep_top_p(logits: &mut [f32], p: f64) {
    if p >= 1.0 {
        return;
    }
    let probabilities = softmax(logits);
    let mut sum = 0.0;
    for token in top(logits, logits.len()) {
        // The most likely token is always kept, as the sum before it is 0.
        if sum >= p {
            logits[token as usize] = f32::NEG_INFINITY;
        }
        sum += probabilities[token as usize];
    }
}

/// Keeps the tokens that are at least `p` times as likely as the most likely token (Nguyen et al., 2024, arXiv
/// 2407.01082). 0 keeps all.
pub fn keep_min_p(logits: &mut [f32], p: f64) {
    if p <= 0.0 {
        return;
    }
    let min_logit = largest(logits) + p.ln();
    for logit in logits {
        if f64::from(*logit) < min_logit {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Returns the softmax of the logits.
pub fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = largest(logits);
    let mut probabilities: Vec<f64> = logits.iter().map(|&x| (f64::from(x) - largest).exp()).collect();
    let sum: f64 = probabilities.iter().sum();
    probabilities.iter_mut().for_each(|probability| *probability /= sum);
    probabilities
}

/// Returns the argmax of the logits; ties favour the smaller id.
pub fn argmax(logits: &[f32]) -> u32 {
    let largest = largest(logits);
    logits.iter().position(|&logit| f64::from(logit) == largest).unwrap_or(0) as u32
}

/// Returns the `count` most likely tokens in descending order of probability; ties favour smaller ids.
pub fn top(logits: &[f32], count: usize) -> Vec<u32> {
    let by_likelihood = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    if count < order.len() {
        order.select_nth_unstable_by(count, by_likelihood);
        order.truncate(count);
    }
    order.sort_unstable_by(by_likelihood);
    order
}

/// Draws a token by inverting the cumulative distribution at `uniform` from [0, 1).
pub fn draw(probabilities: &[f64], uniform: f64) -> u32 {
    let sum: f64 = probabilities.iter().sum();
    let mut remaining = uniform * sum;
    let mut last = 0;
    for (token, &probability) in probabilities.iter().enumerate() {
        if probability > 0.0 {
            if remaining < probability {
                return token as u32;
            }
            remaining -= probability;
            last = token;
        }
    }
    // After rounding errors, the last token with a positive probability is drawn.
    last as u32
}

fn largest(logits: &[f32]) -> f64 {
    f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max))
}

#[cfg(test)]
mod tests;
