//! The gain of a model over simple baselines, and its significance test.
//!
//! Without a significant gain, an ablation measures noise: even with random weights, some components lower the loss on
//! any input.

use std::collections::BTreeMap;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bench::{Bench, mean};
use super::question::Quantity;
use crate::analysis::Sample;
use crate::data::{Role, Sequences};
use crate::error::{Error, Result};
use crate::numbers::fixed;

/// The minimum gain over each baseline, in nats.
const MIN_GAIN: f64 = 0.05;
/// The maximum probability that the required gain arises by chance.
const SIGNIFICANCE_LEVEL: f64 = 0.01;
/// The maximum difference between a circuit and the model, up or down, as a share of the gain over the baseline.
pub(super) const TOLERANCE: f64 = 0.05;
/// The tail of the 95 % interval on either side.
const INTERVAL_TAIL: f64 = 0.025;
/// The minimum probability of a single answer to be explained, or else the minimum gain over each baseline in nats.
const MIN_PROBABILITY: f64 = 0.5;
const MIN_SINGLE_GAIN: f64 = 3.0;
/// The minimum difference between the model and the baseline for answers, in nats or logits.
const MIN_PREFERENCE: f64 = 0.5;
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
    /// The model on the corrupted sequences.
    Corrupted,
}

impl Baseline {
    /// Returns the baseline's name as used in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Uniform => "the uniform distribution",
            Baseline::Unigram => "the unigram baseline",
            Baseline::MeanAblated => "the model with all components mean-ablated",
            Baseline::Corrupted => "the model on the corrupted sequences",
        }
    }
}

/// The quantity of a model and of its best baseline.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gain {
    /// The model's quantity.
    pub model: f64,
    /// The quantity of the best baseline.
    pub baseline: f64,
    /// The best baseline.
    pub baseline_of: Baseline,
    /// The quantity of the model with all components ablated.
    pub all_ablated: f64,
    /// The reason why there is no circuit, if the gain may be due to chance.
    pub no_circuit: Option<String>,
    /// The gain over the unigram baseline at each target.
    over_unigram: Vec<f64>,
}

/// The loss of the model and of the baselines that know no more than frequencies, at each target.
struct TargetLosses {
    model: Vec<f64>,
    uniform: Vec<f64>,
    unigram: Vec<f64>,
}

impl TargetLosses {
    /// Returns the gain over a baseline at each target.
    fn gains(&self, baseline: &[f64]) -> Vec<f64> {
        baseline.iter().zip(&self.model).map(|(baseline, loss)| baseline - loss).collect()
    }
}

impl Gain {
    /// Compares a model with its baselines on the targets of `samples`. `unigram` holds the losses of the training
    /// set's unigram baseline on these targets; `None` if the training set is unknown.
    pub fn new<B: Backend>(bench: &Bench<B>, samples: &[Sample], unigram: Option<Vec<f64>>) -> Result<Self> {
        let [_, _, vocab] = bench.full.logits.dims();
        let model = bench.losses(bench.full.logits.clone());
        let losses = TargetLosses {
            uniform: vec![(vocab as f64).ln(); model.len()],
            unigram: unigram.unwrap_or_else(|| adaptive_unigram(samples, vocab)),
            model,
        };
        let full = mean(&bench.values(&bench.full));
        if !full.is_finite() || !mean(&losses.model).is_finite() {
            return Err(Error::not_finite());
        }
        let all_ablated = bench.all_ablated()?;
        let groups = groups(samples, bench.quantity);
        let over_unigram = losses.gains(&losses.unigram);
        if bench.quantity != Quantity::Loss {
            let (baseline_of, baseline) = match &bench.corrupted {
                Some(corrupted) => (Baseline::Corrupted, mean(&bench.values(corrupted))),
                None => (Baseline::MeanAblated, all_ablated),
            };
            let no_circuit = unlikely(&losses, &groups)
                .or_else(|| no_preference(bench.quantity, full, (baseline_of, baseline)))
                .or_else(|| without_components(bench.quantity, [full, baseline, all_ablated]));
            return Ok(Self { model: full, baseline, baseline_of, all_ablated, no_circuit, over_unigram });
        }
        let means = [
            (Baseline::Uniform, mean(&losses.uniform)),
            (Baseline::Unigram, mean(&losses.unigram)),
            (Baseline::MeanAblated, all_ablated),
        ];
        let best = means.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are three baselines");
        // The mean-ablated baseline is an ablation of the same model, so a gain over it is not due to chance, but may
        // be negligible.
        let required = [
            min_significant_gain(&losses.gains(&losses.uniform), &groups),
            min_significant_gain(&losses.gains(&losses.unigram), &groups),
            Some(MIN_GAIN),
        ];
        let no_circuit = means
            .into_iter()
            .zip(required)
            .find_map(|(baseline, required)| insufficient(full, baseline, required));
        Ok(Self { model: full, baseline: best.1, baseline_of: best.0, all_ablated, no_circuit, over_unigram })
    }
}

impl Gain {
    /// Returns the difference between the model and its baseline.
    pub fn size(&self) -> f64 {
        (self.baseline - self.model).abs()
    }

    /// Returns samples in which only the targets count that are predicted better than by the unigram baseline, by at
    /// least the standard error of that gain over the targets.
    pub fn select(&self, samples: &[Sample]) -> Vec<Sample> {
        let (mean, count) = (mean(&self.over_unigram), self.over_unigram.len() as f64);
        let squares: f64 = self.over_unigram.iter().map(|gain| (gain - mean).powi(2)).sum();
        let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
        let mut gains = self.over_unigram.iter();
        let mut selected = samples.to_vec();
        for role in selected.iter_mut().flat_map(|sample| &mut sample.roles) {
            if *role != Role::Padding && gains.next().is_some_and(|gain| *gain < error) {
                *role = Role::Padding;
            }
        }
        selected
    }
}

/// Returns the reason why a loss is not low enough to be explained, if it is not lower than a baseline by the `required`
/// gain. Without one, no gain is significant.
fn insufficient(full: f64, (kind, baseline): (Baseline, f64), required: Option<f64>) -> Option<String> {
    let Some(required) = required else {
        let reason = "all targets are one token, so a constant prediction is correct; pass a longer sequence with \
                      different tokens after the first";
        return Some(reason.to_string());
    };
    let remedy = match kind {
        Baseline::MeanAblated => {
            "for a circuit: the components matter little here, where each token or its position gives the next one; \
             explain a text whose next tokens depend on earlier ones"
        }
        // A perfect model gains the loss of the baseline.
        _ if required > baseline => {
            "to rule out chance, more than any model can gain here; explain it on more tokens"
        }
        _ => "to rule out chance; train the model longer, or explain it on more tokens",
    };
    (baseline - full < required).then(|| {
        format!(
            "the loss is {} nats for the model and {} nats for {}, but a gain of {} nats is needed {remedy}",
            fixed(full, 3),
            fixed(baseline, 3),
            kind.name(),
            fixed(required, 3)
        )
    })
}

/// Returns the reason why the model's prediction of the answers may be due to chance, if it may. A significant gain rules
/// it out, or answers that are likely on average: a few answers have no standard error.
fn unlikely(losses: &TargetLosses, groups: &[usize]) -> Option<String> {
    let baselines = [&losses.uniform, &losses.unigram];
    let are_likely = mean(&losses.model) <= -MIN_PROBABILITY.ln()
        || baselines.into_iter().all(|baseline| mean(&losses.gains(baseline)) >= MIN_SINGLE_GAIN);
    let is_significant = |baseline: &[f64]| {
        let gains = losses.gains(baseline);
        min_significant_gain(&gains, groups).is_some_and(|required| mean(&gains) >= required)
    };
    if are_likely || baselines.into_iter().all(|baseline| is_significant(baseline)) {
        return None;
    }
    let probability = |losses: &[f64]| match (-mean(losses)).exp() {
        small if small < 1e-3 => format!("{small:.1e}"),
        probability => fixed(probability, 3),
    };
    Some(format!(
        "the answer has a probability of {} for the model, {} for {} and {} for {}, so it may be due to chance; ask for an \
         answer that the model predicts with a probability of at least {MIN_PROBABILITY}, or on more prompts",
        probability(&losses.model),
        probability(&losses.uniform),
        Baseline::Uniform.name(),
        probability(&losses.unigram),
        Baseline::Unigram.name()
    ))
}

/// Returns the reason why the components do not explain the answer, if they do not.
fn no_preference(quantity: Quantity, model: f64, (kind, baseline): (Baseline, f64)) -> Option<String> {
    let (name, unit) = (quantity.name(), quantity.unit());
    if quantity == Quantity::LogitDifference && model <= 0.0 {
        return Some(format!(
            "the model prefers the other token: the {name} is {} {unit}; exchange the two answers",
            fixed(model, 3)
        ));
    }
    (model - baseline < MIN_PREFERENCE).then(|| {
        format!(
            "the {name} is {} {unit} for the model and {} {unit} for {}, but a difference of {MIN_PREFERENCE} {unit} is \
             needed; ask for an answer that depends on the components{}",
            fixed(model, 3),
            fixed(baseline, 3),
            kind.name(),
            if kind == Baseline::Corrupted { ", or corrupt the tokens that determine it" } else { "" }
        )
    })
}

/// Returns the reason why no component takes part in the answer, if the model without its components gives it too.
fn without_components(quantity: Quantity, [model, baseline, all_ablated]: [f64; 3]) -> Option<String> {
    ((all_ablated - model).abs() <= TOLERANCE * (model - baseline).abs()).then(|| {
        let (name, unit) = (quantity.name(), quantity.unit());
        let [model, all_ablated] = [model, all_ablated].map(|value| fixed(value, 3));
        format!(
            "the {name} is {model} {unit} for the model and {all_ablated} {unit} with all components ablated, so the \
             embedding alone gives the answer; ask about another position"
        )
    })
}

/// Returns the 95 % interval of the mean of `changes`, by Student's t-distribution; `None` for a single group.
pub(super) fn interval(changes: &[f64], groups: &[usize]) -> Option<[f64; 2]> {
    let (center, margin) = (mean(changes), margin(changes, groups, INTERVAL_TAIL)?);
    Some([center - margin, center + margin])
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
/// if there are few sequences, the target token, because equal targets of one sequence have similar predictions. An
/// answer is always grouped by its prompt.
pub(super) fn groups(samples: &[Sample], quantity: Quantity) -> Vec<usize> {
    let by_sequence = quantity != Quantity::Loss || samples.len() >= MIN_SEQUENCE_GROUPS;
    let group = |(sample, target): (usize, u32)| if by_sequence { sample } else { target as usize };
    unpadded_targets(samples).map(group).collect()
}

/// Returns the smallest mean of `gains` that is significant. Returns `None` if all targets are in one group.
fn min_significant_gain(gains: &[f64], groups: &[usize]) -> Option<f64> {
    Some(margin(gains, groups, SIGNIFICANCE_LEVEL)?.max(MIN_GAIN))
}

/// Returns how far the mean of `values` is from its expectation at most, except with the probability `tail` on either
/// side. Takes the larger of the standard errors between groups and between targets. Returns `None` if all targets are in
/// one group.
fn margin(values: &[f64], groups: &[usize], tail: f64) -> Option<f64> {
    let (mean, count) = (mean(values), values.len() as f64);
    let mut sums = BTreeMap::<usize, f64>::new();
    for (value, &group) in values.iter().zip(groups) {
        *sums.entry(group).or_default() += value - mean;
    }
    let group_count = sums.len() as f64;
    if group_count < 2.0 {
        return None;
    }
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let between = group_count / (group_count - 1.0) * squares(&mut sums.values().copied());
    // Deviations that cancel out within groups still leave the uncertainty between targets.
    let within = count / (count - 1.0) * squares(&mut values.iter().map(|value| value - mean));
    let error = |squares: f64, degrees: f64| {
        let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
        Some(distribution.inverse_cdf(1.0 - tail) * squares.sqrt() / count)
    };
    Some(error(between, group_count - 1.0)?.max(error(within, count - 1.0)?))
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
