//! The unigram baseline: each token is as likely as its frequency.

use std::collections::BTreeMap;

use crate::analysis::Sample;
use crate::data::{Role, Sequences};

/// The maximum number of training targets that the unigram baseline counts.
const MAX_COUNTED_TARGETS: usize = 1 << 22;

/// Returns the non-padding targets, in order, each with the index of its sample.
pub(super) fn unpadded_targets(samples: &[Sample]) -> impl Iterator<Item = (usize, u32)> {
    let targets = |(number, sample): (usize, &Sample)| {
        let targets = sample.targets.clone().into_iter().zip(sample.roles.clone());
        targets.filter(|(_, role)| *role != Role::Padding).map(move |(target, _)| (number, target))
    };
    samples.iter().enumerate().flat_map(targets)
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
pub(super) fn adaptive_unigram(samples: &[Sample], vocab: usize) -> Vec<f64> {
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
