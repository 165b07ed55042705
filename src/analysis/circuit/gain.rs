//! The gain of a model over simple baselines, and its significance test.
//!
//! Without a significant gain, an ablation measures noise: even with random weights, some components lower the loss on
//! any input.

use std::collections::BTreeMap;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bench::{Bench, mean};
use super::question::{Quantity, Question};
use super::unigram::{adaptive_unigram, unpadded_targets};
use crate::analysis::Sample;
use crate::data::Role;
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
pub(super) const MIN_SEQUENCE_GROUPS: usize = 8;

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
    /// The gain over the uniform distribution and over the unigram baseline at each target.
    over: [Vec<f64>; 2],
    /// The group of each target.
    groups: Vec<usize>,
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
    pub fn new<B: Backend>(
        bench: &Bench<B>,
        (samples, question): (&[Sample], &Question),
        unigram: Option<Vec<f64>>,
    ) -> Result<Self> {
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
        let over = [&losses.uniform, &losses.unigram].map(|baseline| losses.gains(baseline));
        if bench.quantity != Quantity::Loss {
            let (baseline_of, baseline) = match &bench.corrupted {
                Some(corrupted) => (Baseline::Corrupted, mean(&bench.values(corrupted))),
                None => (Baseline::MeanAblated, all_ablated),
            };
            // A named answer may have been read off the prediction.
            let selected_of = bench.predicts_all().then_some(vocab);
            let no_circuit = unlikely(&losses, &groups, (selected_of, question.is_predicted))
                .or_else(|| no_preference(bench.quantity, full, (baseline_of, baseline)))
                .or_else(|| without_components(bench.quantity, [full, baseline, all_ablated]));
            return Ok(Self { model: full, baseline, baseline_of, all_ablated, no_circuit, over, groups });
        }
        let means = [
            (Baseline::Uniform, mean(&losses.uniform)),
            (Baseline::Unigram, mean(&losses.unigram)),
            (Baseline::MeanAblated, all_ablated),
        ];
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
        let best = means.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let (baseline_of, baseline) = best.expect("there are three baselines");
        Ok(Self { model: full, baseline, baseline_of, all_ablated, no_circuit, over, groups })
    }
}

impl Gain {
    /// Returns the difference between the model and its baseline.
    pub fn size(&self) -> f64 {
        (self.baseline - self.model).abs()
    }

    /// Returns the reason why the gain is too small to be explained, however certain it is.
    pub fn too_small(&self) -> Option<String> {
        insufficient(self.model, (self.baseline_of, self.baseline), Some(MIN_GAIN))
    }

    /// Returns samples that count only the targets with a gain over the unigram baseline of at least its standard error.
    pub fn select(&self, samples: &[Sample]) -> Vec<Sample> {
        let mut is_selected = self.selection().into_iter();
        let mut selected = samples.to_vec();
        for role in selected.iter_mut().flat_map(|sample| &mut sample.roles) {
            if *role != Role::Padding && is_selected.next() == Some(false) {
                *role = Role::Padding;
            }
        }
        selected
    }

    /// Returns for each target whether [`select`](Self::select) selects it.
    fn selection(&self) -> Vec<bool> {
        let [_, gains] = &self.over;
        let (mean, count) = (mean(gains), gains.len() as f64);
        let squares: f64 = gains.iter().map(|gain| (gain - mean).powi(2)).sum();
        let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
        gains.iter().map(|gain| *gain >= error).collect()
    }

    /// Returns true if the selected targets are evidence by themselves, although all targets together are not: they gain
    /// significantly more over each baseline than [`MIN_SINGLE_GAIN`], which their selection alone does not give.
    pub fn is_in_selection(&self) -> bool {
        let selection = self.selection();
        fn selected<T: Copy>(values: &[T], selection: &[bool]) -> Vec<T> {
            let kept = values.iter().zip(selection).filter(|(_, is_selected)| **is_selected);
            kept.map(|(value, _)| *value).collect()
        }
        let groups = selected(&self.groups, &selection);
        self.over.iter().map(|gains| selected(gains, &selection)).all(|gains| {
            let margin = margin(&gains, &groups, SIGNIFICANCE_LEVEL);
            margin.is_some_and(|margin| mean(&gains) - margin >= MIN_SINGLE_GAIN)
        })
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

/// Returns how much the logit of the most likely of `vocab` tokens exceeds the mean by its selection alone: the expected
/// maximum of as many standard normal numbers.
fn gain_by_selection(vocab: usize) -> f64 {
    (2.0 * (vocab as f64).ln()).sqrt()
}

/// Returns the reason why the model's prediction of the answers may be due to chance, if it may. A significant gain rules
/// it out, unless the answers were predicted, or answers that are likely on average: a few answers have no standard error.
/// Answers that are the most likely of `selected_of` tokens gain by this selection, also with random weights.
fn unlikely(
    losses: &TargetLosses,
    groups: &[usize],
    (selected_of, is_predicted): (Option<usize>, bool),
) -> Option<String> {
    let min_single_gain = MIN_SINGLE_GAIN + selected_of.map_or(0.0, gain_by_selection);
    let baselines = [&losses.uniform, &losses.unigram];
    let are_likely = mean(&losses.model) <= -MIN_PROBABILITY.ln()
        || baselines.into_iter().all(|baseline| mean(&losses.gains(baseline)) >= min_single_gain);
    let is_significant = |baseline: &[f64]| {
        let gains = losses.gains(baseline);
        min_significant_gain(&gains, groups).is_some_and(|required| mean(&gains) >= required)
    };
    if are_likely || !is_predicted && baselines.into_iter().all(|baseline| is_significant(baseline)) {
        return None;
    }
    let probability = |losses: &[f64]| match (-mean(losses)).exp() {
        small if small < 1e-3 => format!("{small:.1e}"),
        probability => fixed(probability, 3),
    };
    Some(format!(
        "the answer has a probability of {} for the model, {} for {} and {} for {}, so it may be due to chance; ask for an \
         answer that the model predicts with a probability of at least {MIN_PROBABILITY}{}",
        probability(&losses.model),
        probability(&losses.uniform),
        Baseline::Uniform.name(),
        probability(&losses.unigram),
        Baseline::Unigram.name(),
        if is_predicted { ", or name the answers of several prompts" } else { ", or on more prompts" }
    ))
}

/// Returns the reason why the components do not explain the answer, if they do not.
fn no_preference(quantity: Quantity, model: f64, (kind, baseline): (Baseline, f64)) -> Option<String> {
    let (name, unit) = (quantity.name(), quantity.unit());
    if quantity == Quantity::LogitDifference && model <= 0.0 {
        let remedy = match -model < MIN_PREFERENCE {
            true => format!(
                "a preference of {MIN_PREFERENCE} {unit} is needed; ask about answers that differ more"
            ),
            false => "exchange the two answers".to_string(),
        };
        return Some(format!(
            "the model prefers the other token: the {name} is {} {unit}; {remedy}",
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

#[cfg(test)]
mod tests;
