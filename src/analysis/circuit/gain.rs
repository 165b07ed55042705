//! The gain of a model over predictors that need no circuit, and the test that the gain is more than chance.
//!
//! Without such a gain an ablation measures noise: even with random weights some components lower the loss on any
//! input.

use std::collections::BTreeMap;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bench::Bench;
use crate::analysis::Sample;
use crate::data::{Role, Sequences};
use crate::error::{Error, Result};
use crate::numbers::fixed;

/// The minimum gain over each baseline that is worth explaining, in nats.
const LEAST_GAIN: f64 = 0.05;
/// The significance level: the probability that a gain as large as required arises by chance.
const CHANCE: f64 = 0.01;
/// The minimum number of sequences for computing the standard error between sequences.
const MANY_SEQUENCES: usize = 8;
/// The maximum number of training targets that the unigram baseline counts.
const MAX_COUNTED_TARGETS: usize = 1 << 22;

/// A predictor that a model must beat before its circuit is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Every token of the vocabulary is equally likely.
    Uniform,
    /// Tokens are predicted by their frequency: in the training set, or in the input so far if the training set is
    /// unknown.
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
    /// The reason why there is nothing to explain, if the gain may be due to chance.
    pub refusal: Option<String>,
}

impl Gain {
    /// Compares a model with its baselines on the targets of `samples`. `unigram` holds the losses of the training
    /// set's unigram baseline on these targets, if it is known.
    pub fn new<B: Backend>(bench: &Bench<B>, samples: &[Sample], unigram: Option<Vec<f64>>) -> Result<Self> {
        let [_, _, vocab] = bench.whole.logits.dims();
        let of_model = bench.losses(bench.whole.logits.clone(), samples);
        let mean_ablated = mean(&bench.losses(bench.all_ablated()?, samples));
        let uniform = vec![(vocab as f64).ln(); of_model.len()];
        let unigram = unigram.unwrap_or_else(|| adaptive_unigram(samples, vocab));
        let loss = mean(&of_model);
        if !loss.is_finite() {
            return Err(Error::not_finite());
        }
        let means = [
            (Baseline::Uniform, mean(&uniform)),
            (Baseline::Unigram, mean(&unigram)),
            (Baseline::MeanAblated, mean_ablated),
        ];
        let best = means.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are three");
        let groups = groups(samples);
        let gains = |losses: &[f64]| -> Vec<f64> {
            losses.iter().zip(&of_model).map(|(baseline, loss)| baseline - loss).collect()
        };
        // The mean-ablated model is the same model: a difference from it is not chance, but it may be negligible.
        let least =
            [least_gain(&gains(&uniform), &groups), least_gain(&gains(&unigram), &groups), Some(LEAST_GAIN)];
        let refusal = means.into_iter().zip(least).find_map(|((of, baseline), least)| {
            let Some(least) = least else {
                return Some(
                    "all targets are the same token, so that a constant prediction is right: give a sequence with \
                     different tokens"
                        .to_string(),
                );
            };
            let is_enough = baseline - loss >= least;
            (!is_enough).then(|| {
                format!(
                    "the loss of the model is {} nats and that of {} {}, where a gain of {} is needed to rule out \
                     chance: train the model longer, or explain it on more tokens",
                    fixed(loss, 3),
                    of.name(),
                    fixed(baseline, 3),
                    fixed(least, 3)
                )
            })
        });
        Ok(Self { loss, baseline: best.1, baseline_of: best.0, mean_ablated, refusal })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the targets that count, in order, each with the index of its sample.
fn counted(samples: &[Sample]) -> impl Iterator<Item = (usize, u32)> {
    let targets = |(number, sample): (usize, &Sample)| {
        let targets = sample.targets.clone().into_iter().zip(sample.roles.clone());
        targets.filter(|(_, role)| *role != Role::Padding).map(move |(target, _)| (number, target))
    };
    samples.iter().enumerate().flat_map(targets)
}

/// Returns a group for each target such that gains of different groups are independent. The group is the sequence; with
/// few sequences it is the token, since equal targets of one sequence have similar predictions.
fn groups(samples: &[Sample]) -> Vec<usize> {
    let is_many = samples.len() >= MANY_SEQUENCES;
    counted(samples).map(|(sample, target)| if is_many { sample } else { target as usize }).collect()
}

/// Returns the smallest mean of `gains` that is significant, from the standard error between groups. Returns `None` if
/// there is a single group.
fn least_gain(gains: &[f64], groups: &[usize]) -> Option<f64> {
    let (mean, count) = (mean(gains), gains.len() as f64);
    let mut sums = BTreeMap::<usize, f64>::new();
    for (gain, &group) in gains.iter().zip(groups) {
        *sums.entry(group).or_default() += gain - mean;
    }
    let among = sums.len() as f64;
    if among < 2.0 {
        return None;
    }
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let between = among / (among - 1.0) * squares(&mut sums.values().copied());
    // Groups whose deviations cancel out do not reduce the uncertainty over positions.
    let within = count / (count - 1.0) * squares(&mut gains.iter().map(|gain| gain - mean));
    let error = |squares: f64, degrees: f64| {
        let students = StudentsT::new(0.0, 1.0, degrees).ok()?;
        Some(students.inverse_cdf(1.0 - CHANCE) * squares.sqrt() / count)
    };
    Some(error(between, among - 1.0)?.max(error(within, count - 1.0)?).max(LEAST_GAIN))
}

/// Returns the loss of the unigram baseline on each target of `samples`. It counts the targets of the training set,
/// over `vocab` tokens, with add-one smoothing.
pub fn unigram(train: &Sequences, samples: &[Sample], vocab: usize) -> Vec<f64> {
    let mut counts = vec![1.0; vocab];
    // The beginning of a large set is sufficient.
    let batches = MAX_COUNTED_TARGETS / (64 * train.time()).max(1) + 1;
    for batch in train.batches(64).take(batches) {
        for (&target, role) in batch.targets.iter().zip(&batch.roles) {
            counts[target as usize] += f64::from(*role != Role::Padding);
        }
    }
    let all = counts.iter().sum::<f64>();
    counted(samples).map(|(_, target)| (all / counts[target as usize]).ln()).collect()
}

/// Returns the loss of an adaptive unigram baseline, which counts the tokens of each sample up to the target.
fn adaptive_unigram(samples: &[Sample], vocab: usize) -> Vec<f64> {
    let losses = |sample: &Sample| {
        let mut counts = BTreeMap::<u32, f64>::new();
        let mut losses = Vec::new();
        for (place, (input, target)) in sample.inputs.iter().zip(&sample.targets).enumerate() {
            *counts.entry(*input).or_default() += 1.0;
            let count = 1.0 + counts.get(target).copied().unwrap_or(0.0);
            if sample.roles[place] != Role::Padding {
                losses.push(((place + 1 + vocab) as f64 / count).ln());
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
        let steady = least_gain(&even, &groups).unwrap();
        assert!((0.05..0.2).contains(&steady), "{steady}");
        let wild: Vec<f64> = even.iter().zip(0..).map(|(gain, at)| gain * f64::from(at % 2) * 2.0).collect();
        assert!(least_gain(&wild, &groups).unwrap() > 1.0, "half of the targets gain nothing");
        let few = least_gain(&even[..3], &groups[..3]).unwrap();
        assert!(few > 3.0 * steady, "three targets say little: {few}");
        assert_eq!(least_gain(&even, &[4; 8]), None, "one token alone says nothing");
    }

    #[test]
    fn equal_targets_count_as_one_group() {
        let gains = [2.0, 2.0, 2.0, 2.0, -1.0, -1.0, -1.0, -1.0];
        let apart: Vec<usize> = (0..8).collect();
        let together = [1, 1, 1, 1, 2, 2, 2, 2];
        assert!(least_gain(&gains, &together) > least_gain(&gains, &apart));
    }

    #[test]
    fn an_adaptive_unigram_counts_what_came_before() {
        let sample = Sample {
            inputs: vec![3, 3, 5],
            targets: vec![3, 5, 1],
            roles: vec![Role::Unknown, Role::Unknown, Role::Padding],
            source: None,
        };
        let expected = [(8.0f64 / 2.0).ln(), (9.0f64 / 1.0).ln()];
        assert_eq!(adaptive_unigram(&[sample], 7), expected);
    }
}
