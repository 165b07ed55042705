//! The gain of a model over simple baselines, and its significance test.
//!
//! Without a significant gain, an ablation measures noise: even with random weights, some components lower the loss on
//! any input.

use std::collections::BTreeMap;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bench::Bench;
use crate::analysis::Sample;
use crate::data::{Role, Sequences};
use crate::error::{Error, Result};
use crate::numbers::fixed;

/// The minimum gain over each baseline, in nats.
const MIN_GAIN: f64 = 0.05;
/// The maximum probability that the required gain arises by chance.
const SIGNIFICANCE_LEVEL: f64 = 0.01;
/// The minimum number of sequences for a standard error between sequences.
const MIN_SEQUENCE_GROUPS: usize = 8;
/// The maximum number of training targets that the unigram baseline counts.
const MAX_COUNTED_TARGETS: usize = 1 << 22;

/// A predictor that a model must beat to be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Every token of the vocabulary is equally likely.
    Uniform,
    /// Each token is as likely as its frequency in the training set or, if the set is unknown, in the preceding input.
    Unigram,
    /// The model with all heads and feed-forward layers mean-ablated.
    MeanAblated,
}

impl Baseline {
    /// Returns the baseline's name as used in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Uniform => "the uniform distribution",
            Baseline::Unigram => "the unigram baseline",
            Baseline::MeanAblated => "the model with all components mean-ablated",
        }
    }
}

/// The losses of a model and of its best baseline, in nats per token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gain {
    /// The model's loss.
    pub loss: f64,
    /// The loss of the best baseline.
    pub baseline: f64,
    /// The best baseline.
    pub baseline_of: Baseline,
    /// The loss of the model with all components mean-ablated.
    pub mean_ablated: f64,
    /// The reason why there is no circuit, if the gain may be due to chance.
    pub no_circuit: Option<String>,
}

impl Gain {
    /// Compares a model with its baselines on the targets of `samples`. `unigram` holds the losses of the training
    /// set's unigram baseline on these targets; `None` if the training set is unknown.
    pub fn new<B: Backend>(bench: &Bench<B>, samples: &[Sample], unigram: Option<Vec<f64>>) -> Result<Self> {
        let [_, _, vocab] = bench.full.logits.dims();
        let model_losses = bench.losses(bench.full.logits.clone(), samples);
        let mean_ablated = mean(&bench.losses(bench.all_ablated()?, samples));
        let uniform = vec![(vocab as f64).ln(); model_losses.len()];
        let unigram = unigram.unwrap_or_else(|| adaptive_unigram(samples, vocab));
        let loss = mean(&model_losses);
        if !loss.is_finite() {
            return Err(Error::not_finite());
        }
        let means = [
            (Baseline::Uniform, mean(&uniform)),
            (Baseline::Unigram, mean(&unigram)),
            (Baseline::MeanAblated, mean_ablated),
        ];
        let best = means.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are three baselines");
        let groups = groups(samples);
        let gains = |losses: &[f64]| -> Vec<f64> {
            losses.iter().zip(&model_losses).map(|(baseline, loss)| baseline - loss).collect()
        };
        // The mean-ablated baseline is an ablation of the same model, so a gain over it is not due to chance, but may
        // be negligible.
        let required = [
            min_significant_gain(&gains(&uniform), &groups),
            min_significant_gain(&gains(&unigram), &groups),
            Some(MIN_GAIN),
        ];
        let no_circuit = means.into_iter().zip(required).find_map(|((kind, baseline), required)| {
            let Some(required) = required else {
                return Some(
                    "all targets are the same token, so a constant prediction is correct; pass a sequence \
                     with different tokens"
                        .to_string(),
                );
            };
            let is_enough = baseline - loss >= required;
            (!is_enough).then(|| {
                format!(
                    "the loss is {} nats for the model and {} nats for {}, but a gain of {} nats is needed to \
                     rule out chance; train the model longer, or explain it on more tokens",
                    fixed(loss, 3),
                    fixed(baseline, 3),
                    kind.name(),
                    fixed(required, 3)
                )
            })
        });
        Ok(Self { loss, baseline: best.1, baseline_of: best.0, mean_ablated, no_circuit })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the non-padding targets, in order, each with the index of its sample.
fn unpadded_targets(samples: &[Sample]) -> impl Iterator<Item = (usize, u32)> {
    let targets = |(number, sample): (usize, &Sample)| {
        let targets = sample.targets.clone().into_iter().zip(sample.roles.clone());
        targets.filter(|(_, role)| *role != Role::Padding).map(move |(target, _)| (number, target))
    };
    samples.iter().enumerate().flat_map(targets)
}

/// Returns a group for each target such that gains of different groups are independent. The group is the sequence or,
/// if there are few sequences, the target token, because equal targets of one sequence have similar predictions.
fn groups(samples: &[Sample]) -> Vec<usize> {
    let by_sequence = samples.len() >= MIN_SEQUENCE_GROUPS;
    let group = |(sample, target): (usize, u32)| if by_sequence { sample } else { target as usize };
    unpadded_targets(samples).map(group).collect()
}

/// Returns the smallest mean of `gains` that is significant, given the standard errors between groups and between
/// targets. Returns `None` if all targets are in one group.
fn min_significant_gain(gains: &[f64], groups: &[usize]) -> Option<f64> {
    let (mean, count) = (mean(gains), gains.len() as f64);
    let mut sums = BTreeMap::<usize, f64>::new();
    for (gain, &group) in gains.iter().zip(groups) {
        *sums.entry(group).or_default() += gain - mean;
    }
    let group_count = sums.len() as f64;
    if group_count < 2.0 {
        return None;
    }
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let between = group_count / (group_count - 1.0) * squares(&mut sums.values().copied());
    // Deviations that cancel out within groups still leave the uncertainty between targets.
    let within = count / (count - 1.0) * squares(&mut gains.iter().map(|gain| gain - mean));
    let error = |squares: f64, degrees: f64| {
        let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
        Some(distribution.inverse_cdf(1.0 - SIGNIFICANCE_LEVEL) * squares.sqrt() / count)
    };
    Some(error(between, group_count - 1.0)?.max(error(within, count - 1.0)?).max(MIN_GAIN))
}

/// Returns the loss of the unigram baseline on each target of `samples`. The baseline counts the targets of the
/// training set, over `vocab` tokens, with add-one smoothing.
pub fn unigram(train: &Sequences, samples: &[Sample], vocab: usize) -> Vec<f64> {
    let mut counts = vec![1.0; vocab];
    // The first batches of a large set are enough.
    let batches = MAX_COUNTED_TARGETS / (64 * train.time()).max(1) + 1;
    for batch in train.batches(64).take(batches) {
        for (&target, role) in batch.targets.iter().zip(&batch.roles) {
            counts[target as usize] += f64::from(*role != Role::Padding);
        }
    }
    let all = counts.iter().sum::<f64>();
    unpadded_targets(samples).map(|(_, target)| (all / counts[target as usize]).ln()).collect()
}

/// Returns the losses of an adaptive unigram baseline, which counts the tokens of each sample up to the target.
fn adaptive_unigram(samples: &[Sample], vocab: usize) -> Vec<f64> {
    let losses = |sample: &Sample| {
        let mut counts = BTreeMap::<u32, f64>::new();
        let mut losses = Vec::new();
        for (position, (input, target)) in sample.inputs.iter().zip(&sample.targets).enumerate() {
            *counts.entry(*input).or_default() += 1.0;
            let count = 1.0 + counts.get(target).copied().unwrap_or(0.0);
            if sample.roles[position] != Role::Padding {
                losses.push(((position + 1 + vocab) as f64 / count).ln());
            }
        }
        losses
    };
    samples.iter().flat_map(losses).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_or_uneven_targets_need_a_larger_gain() {
        let even = [1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.0];
        let groups: Vec<usize> = (0..8).collect();
        let steady = min_significant_gain(&even, &groups).unwrap();
        assert!((0.05..0.2).contains(&steady), "{steady}");
        let wild: Vec<f64> = even.iter().zip(0..).map(|(gain, at)| gain * f64::from(at % 2) * 2.0).collect();
        assert!(min_significant_gain(&wild, &groups).unwrap() > 1.0, "half of the targets gain nothing");
        let few = min_significant_gain(&even[..3], &groups[..3]).unwrap();
        assert!(few > 3.0 * steady, "three targets are weak evidence: {few}");
        assert_eq!(min_significant_gain(&even, &[4; 8]), None, "a single group lacks a standard error");
    }

    #[test]
    fn equal_targets_count_as_one_group() {
        let gains = [2.0, 2.0, 2.0, 2.0, -1.0, -1.0, -1.0, -1.0];
        let apart: Vec<usize> = (0..8).collect();
        let together = [1, 1, 1, 1, 2, 2, 2, 2];
        assert!(min_significant_gain(&gains, &together) > min_significant_gain(&gains, &apart));
    }

    #[test]
    fn adaptive_unigram_counts_earlier_tokens() {
        let sample = Sample {
            inputs: vec![3, 3, 5],
            targets: vec![3, 5, 1],
            roles: vec![Role::Unknown, Role::Unknown, Role::Padding],
            source: None,
            documents: None,
        };
        let expected = [(8.0f64 / 2.0).ln(), (9.0f64 / 1.0).ln()];
        assert_eq!(adaptive_unigram(&[sample], 7), expected);
    }
}
