//! Deterministic evaluation of a model on a complete set, with equal weight for every counted target.
//!
//! Both the validation in `train` and the `evaluate` command use this module, so their results agree.

mod by_length;

pub use by_length::{AtLength, Protocol, at_length, sequences_at_length};

use burn::prelude::*;
use serde::{Deserialize, Serialize};

use crate::data::{Batch, Role};
use crate::hooks::{Hooks, NoHooks, Patch};
use crate::model::{Inputs, Model, Source};
use crate::ops;

/// The scores of a model over a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The mean loss over the counted targets, in nats.
    pub loss: f64,
    /// The fraction of the counted targets that are the argmax of the logits.
    pub accuracy: f64,
    /// The accuracy over the targets that the optimal predictor knows; `None` if there are none.
    pub determined_accuracy: Option<f64>,
    /// The mean loss over the targets that the optimal predictor knows, in nats.
    pub determined_loss: Option<f64>,
    /// The number of counted targets.
    pub tokens: u64,
    /// The number of counted targets that the optimal predictor knows.
    pub determined_tokens: u64,
    /// The mean loss at each position of the sequence, in nats; `None` where all targets are padding.
    pub loss_by_position: Vec<Option<f64>>,
}

/// A running mean.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean {
    sum: f64,
    /// The number of values. Its conversion to `f64` is exact up to 2^53.
    count: u64,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Returns the mean, or `None` if nothing was added.
    pub(crate) fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Sums of losses and correct predictions over the batches of a set.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The loss and accuracy over all counted targets.
    all: [Mean; 2],
    /// The loss and accuracy over the targets that the optimal predictor knows.
    determined: [Mean; 2],
    positions: Vec<Mean>,
}

impl Tally {
    /// Evaluates a model on some batches, with `hooks` in each pass.
    ///
    /// # Panics
    /// Panics if the model cannot read a batch; [`Model::check`] returns an error for it beforehand.
    pub fn of<B: Backend>(
        model: &Model<B>,
        hooks: &mut dyn Hooks<B>,
        batches: impl Iterator<Item = Batch>,
        device: &B::Device,
    ) -> Self {
        let mut tally = Self::default();
        for batch in batches {
            let (losses, most_likely) = scores(model, hooks, &batch, device);
            tally.add(&batch, &losses, &most_likely);
        }
        tally
    }

    /// Returns the tally over the batches of both tallies.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let time = self.positions.len().max(other.positions.len());
        let sums = self.numbers(time).into_iter().zip(other.numbers(time)).map(|(own, other)| own + other);
        Self::from_numbers(&sums.collect::<Vec<_>>())
    }

    /// Returns the sums and counts as numbers that can be added elementwise. The numbers of `time` positions come last.
    pub fn numbers(&self, time: usize) -> Vec<f64> {
        let padding = std::iter::repeat(&Mean { sum: -0.0, count: 0 });
        let positions = self.positions.iter().chain(padding).take(time);
        let means = self.all.iter().chain(&self.determined).chain(positions);
        means.flat_map(|mean| [mean.sum, mean.count as f64]).collect()
    }

    /// Restores a tally from its [numbers](Self::numbers).
    ///
    /// # Panics
    /// Panics if there are fewer numbers than a tally without positions has.
    pub fn from_numbers(numbers: &[f64]) -> Self {
        let means = numbers.chunks_exact(2).map(|pair| Mean { sum: pair[0], count: pair[1] as u64 });
        let means = means.collect::<Vec<_>>();
        Self { all: [means[0], means[1]], determined: [means[2], means[3]], positions: means[4..].to_vec() }
    }

    /// Adds a batch: the `losses` in nats and the argmax `predictions`, both `[rows, time]` in row-major order.
    pub fn add(&mut self, batch: &Batch, losses: &[f32], predictions: &[i64]) {
        if self.positions.len() < batch.time {
            self.positions.resize(batch.time, Mean::default());
        }
        for (index, role) in batch.roles.iter().enumerate().filter(|(_, role)| **role != Role::Padding) {
            let loss = f64::from(losses[index]);
            let is_correct = predictions[index] == i64::from(batch.targets[index]);
            let determined = (*role == Role::Determined).then_some(&mut self.determined);
            for [losses, accuracy] in [&mut self.all].into_iter().chain(determined) {
                losses.add(loss);
                accuracy.add(f64::from(is_correct));
            }
            self.positions[index % batch.time].add(loss);
        }
    }

    /// Returns the means. Loss and accuracy are NaN if no target was counted.
    pub fn evaluation(&self) -> Evaluation {
        let [[loss, accuracy], [determined_loss, determined_accuracy]] = [self.all, self.determined];
        Evaluation {
            loss: loss.value().unwrap_or(f64::NAN),
            accuracy: accuracy.value().unwrap_or(f64::NAN),
            determined_accuracy: determined_accuracy.value(),
            determined_loss: determined_loss.value(),
            tokens: loss.count,
            determined_tokens: determined_loss.count,
            loss_by_position: self.positions.iter().map(Mean::value).collect(),
        }
    }
}

/// One batch as tensors on a device.
#[derive(Debug, Clone)]
pub struct DeviceBatch<B: Backend> {
    /// The inputs of the model.
    pub inputs: Inputs<B>,
    /// The true next tokens, `[batch, time]`.
    pub targets: Tensor<B, 2, Int>,
    /// True where a target is padding and does not count, `[batch, time]`; `None` if all count.
    pub hidden: Option<Tensor<B, 2, Bool>>,
    /// The number of targets that count.
    pub tokens: usize,
}

impl<B: Backend> DeviceBatch<B> {
    /// Copies a batch to `device`.
    pub fn new(batch: &Batch, device: &B::Device) -> Self {
        let ids = |ids: &[u32], shape: [usize; 2]| {
            let ids = ids.iter().map(|&id| i64::from(id)).collect::<Vec<_>>();
            Tensor::<B, 2, Int>::from_data(TensorData::new(ids, shape), device)
        };
        let shape = [batch.rows, batch.time];
        let hidden = batch.roles.iter().map(|&role| role == Role::Padding).collect::<Vec<_>>();
        let tokens = hidden.iter().filter(|&&hidden| !hidden).count();
        let source = batch.source.as_ref().map(|source| Source {
            tokens: ids(&source.tokens, [batch.rows, source.time]),
            lengths: source.lengths.clone(),
        });
        let documents = batch
            .documents
            .as_ref()
            .map(|documents| documents.chunks(batch.time).map(<[u32]>::to_vec).collect());
        Self {
            inputs: Inputs { tokens: ids(&batch.inputs, shape), source, documents },
            targets: ids(&batch.targets, shape),
            hidden: (tokens < hidden.len())
                .then(|| Tensor::from_data(TensorData::new(hidden, shape), device)),
            tokens,
        }
    }
}

/// Scores a model on every batch of a set.
///
/// # Panics
/// Panics if the model cannot read a batch; [`Model::check`] returns an error for it beforehand.
pub fn evaluate<B: Backend>(
    model: &Model<B>,
    batches: impl Iterator<Item = Batch>,
    device: &B::Device,
) -> Evaluation {
    Tally::of(model, &mut NoHooks, batches, device).evaluation()
}

/// Returns the mean loss of a model on a batch, with activations replaced by a patch.
///
/// # Panics
/// Same as [`evaluate`].
pub fn patched_loss<B: Backend>(
    (model, patch): (&Model<B>, &Patch),
    batch: &Batch,
    device: &B::Device,
) -> f64 {
    let (losses, most_likely) = scores(model, &mut patch.hooks(0, &mut NoHooks), batch, device);
    let mut tally = Tally::default();
    tally.add(batch, &losses, &most_likely);
    tally.evaluation().loss
}

/// Returns the loss of each target in nats and the argmax token at its position, both `[rows, time]` in row-major
/// order.
fn scores<B: Backend>(
    model: &Model<B>,
    hooks: &mut dyn Hooks<B>,
    batch: &Batch,
    device: &B::Device,
) -> (Vec<f32>, Vec<i64>) {
    let DeviceBatch { inputs, targets, hidden, .. } = DeviceBatch::new(batch, device);
    let logits = model.forward_hooked(inputs, hooks).expect("the model fits the sizes of its data");
    let ops::TokenScores { losses, argmax } = ops::token_scores(logits, targets, hidden);
    (losses.into_data().iter().collect(), argmax.into_data().iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncounted_targets_do_not_change_scores() {
        use crate::data::sequences::{Rows, Sequences};
        use crate::model::{ModelConfig, Sizes};
        use Role::{Padding, Unknown};
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let device = Default::default();
        let model = ModelConfig::default().init::<burn_ndarray::NdArray>(sizes, &device).unwrap();
        let split = |roles: [Role; 6]| {
            let mut rows = Rows::default();
            rows.push_with_roles(&[3, 1, 4, 1, 5, 9, 2], roles.into_iter());
            Sequences::rows(rows)
        };
        let of = |roles| evaluate(&model, split(roles).batches(1), &device);
        let all = of([Unknown; 6]);
        let masked = of([Padding, Unknown, Padding, Unknown, Unknown, Padding]);
        let losses = [1, 3, 4].map(|position| all.loss_by_position[position].unwrap());
        assert!((masked.loss - losses.iter().sum::<f64>() / 3.0).abs() < 1e-9);
        assert_eq!(masked.tokens, 3);
        let expected = [None, Some(losses[0]), None, Some(losses[1]), Some(losses[2]), None];
        assert_eq!(masked.loss_by_position, expected);
    }

    #[test]
    fn padding_is_ignored_and_means_are_per_token() {
        use Role::{Determined, Padding, Undetermined};
        let batch = Batch {
            rows: 2,
            time: 3,
            inputs: vec![0; 6],
            targets: vec![1, 2, 3, 4, 0, 0],
            roles: vec![Undetermined, Determined, Determined, Undetermined, Padding, Padding],
            source: None,
            documents: None,
        };
        let mut tally = Tally::default();
        tally.add(&batch, &[1.0, 2.0, 3.0, 6.0, 99.0, 99.0], &[1, 2, 0, 0, 0, 0]);
        let evaluation = tally.evaluation();
        assert_eq!(evaluation.loss, 3.0);
        assert_eq!(evaluation.accuracy, 0.5);
        assert_eq!(evaluation.determined_accuracy, Some(0.5));
        assert_eq!(evaluation.determined_loss, Some(2.5));
        assert_eq!(evaluation.loss_by_position, [Some(3.5), Some(2.0), Some(3.0)]);
        assert_eq!((evaluation.tokens, evaluation.determined_tokens), (4, 2));
    }
}
