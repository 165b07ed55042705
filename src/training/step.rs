//! A single training step over one step's batches.
//!
//! A step averages the gradient over all counted targets of its batches, so four batches of 8 sequences give the same
//! update as one batch of 32.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{TensorPrimitive, backend::AutodiffBackend};
use burn::train::{InferenceStep, ItemLazy, TrainOutput, TrainStep};

use super::intervene::StepHooks;
use crate::config::{Intervention, TrainingConfig};
use crate::evaluation::DeviceBatch;
use crate::model::{Model, each_parameter, loss};
use crate::ops;

/// The batches of one shard of an optimizer step. A step that is not sharded has a single shard.
#[derive(Debug, Clone)]
pub struct StepBatches<B: Backend> {
    /// The step, counted from 0.
    pub step: usize,
    /// The index of the shard in the step.
    pub shard: usize,
    /// The batches whose gradients are averaged. A shard of a small batch may have none.
    pub batches: Vec<DeviceBatch<B>>,
    /// The number of counted targets of the step, over all shards; the shards average over it.
    pub tokens: usize,
    /// True if the accuracy is measured, which costs a pass over the logits.
    pub is_measured: bool,
}

impl<B: Backend> StepBatches<B> {
    /// Returns a step that is not sharded.
    pub fn unsharded(step: usize, batches: Vec<DeviceBatch<B>>, is_measured: bool) -> Self {
        let tokens = batches.iter().map(|batch| batch.tokens).sum();
        Self { step, shard: 0, batches, tokens, is_measured }
    }
}

/// A step whose gradients are summed over shards and workers.
#[derive(Debug, Clone, Copy)]
pub struct StepInfo {
    /// The index of the step, from 0.
    pub step: usize,
    /// The number of counted targets of the step, over all shards.
    pub tokens: usize,
    /// True if the accuracy is measured.
    pub is_measured: bool,
}

/// The measurements of a step, still on the device.
#[derive(Debug, Clone)]
pub struct StepOutput<B: Backend> {
    /// The step, counted from 0.
    pub step: usize,
    /// The mean loss over the counted targets in nats, `[1]`. For a shard, its part of the loss of the step.
    pub loss: Tensor<B, 1>,
    /// The same loss without label smoothing, if smoothing is on and the step is measured.
    pub plain: Option<Tensor<B, 1>>,
    /// The number of correct predictions among the counted targets, `[1]`, if measured.
    pub correct: Option<Tensor<B, 1>>,
    /// The number of counted targets of the step, over all shards.
    pub tokens: usize,
    /// The norm of all gradients before clipping, `[1]`, once the optimizer has computed it.
    pub gradient_norm: Option<Tensor<B, 1>>,
    /// The seconds of training before this step, once the run has counted it.
    pub began: f64,
}

impl<B: Backend> ItemLazy for StepOutput<B> {
    type ItemSync = Self;

    fn sync(self) -> Self {
        self
    }
}

/// A model with its training loss, as Burn's learner requires it.
#[derive(Module, Debug)]
pub struct Trainee<B: Backend> {
    /// The model.
    pub model: Model<B>,
    /// The weight of the uniform distribution in the target.
    label_smoothing: f64,
    #[module(skip)]
    interventions: Vec<Intervention>,
}

impl<B: Backend> Trainee<B> {
    /// Returns the model with the training loss of `config`.
    pub fn new(model: Model<B>, config: &TrainingConfig) -> Self {
        Self { model, label_smoothing: config.label_smoothing, interventions: config.intervene.clone() }
    }

    /// Returns true if the training loss is smoothed.
    pub(super) fn is_smoothed(&self) -> bool {
        self.label_smoothing > 0.0
    }
}

/// The reason why the model accepts every batch of the loader.
const FITS: &str = "the model is built for the sizes of its data";

impl<B: AutodiffBackend> Trainee<B> {
    /// Returns the gradients of `loss`. The backward pass scales the loss by `scale`, and then the gradients by its
    /// inverse.
    fn gradients(&self, loss: Tensor<B, 1>, scale: f64) -> GradientsParams {
        if scale == 1.0 {
            return GradientsParams::from_grads(loss.backward(), self);
        }
        let mut gradients = GradientsParams::from_grads((loss * scale).backward(), self);
        each_parameter(self, |id, _| {
            if let Some(gradient) = gradients.remove::<B::InnerBackend, 1>(id) {
                gradients.register(id, gradient / scale);
            }
        });
        gradients
    }

    /// Sums gradients of this model along a binary tree over their order, in the memory of the first one if possible.
    pub(super) fn sum(&self, mut parts: Vec<GradientsParams>) -> GradientsParams {
        let mut sums = GradientsParams::new();
        each_parameter(self, |id, _| {
            let found = parts.iter_mut().filter_map(|part| part.remove::<B::InnerBackend, 1>(id));
            let found = found.map(|gradient| gradient.into_primitive().tensor()).collect::<Vec<_>>();
            if !found.is_empty() {
                let sum = TensorPrimitive::Float(ops::sum::<B::InnerBackend>(found));
                sums.register(id, Tensor::<B::InnerBackend, 1>::from_primitive(sum));
            }
        });
        sums
    }
}

impl<B: AutodiffBackend> TrainStep for Trainee<B> {
    type Input = StepBatches<B>;
    type Output = StepOutput<B::InnerBackend>;

    fn step(&self, step: StepBatches<B>) -> TrainOutput<Self::Output> {
        let tokens = step.tokens;
        let share = 1.0 / tokens.max(1) as f64;
        let scale = ops::precision().loss_scale(tokens);
        let mut hooks = StepHooks::at(&self.interventions, step.step);
        let mut gradients: Option<GradientsParams> = None;
        let parts = step.batches.into_iter().map(|batch| {
            let logits = self.model.forward_hooked(batch.inputs, &mut hooks).expect(FITS);
            let measured = step.is_measured.then(|| {
                let hidden = batch.hidden.clone().map(Tensor::inner);
                measure(logits.clone().inner(), batch.targets.clone().inner(), hidden, self.is_smoothed())
            });
            let loss = loss::cross_entropy(logits, batch.targets, batch.hidden, self.label_smoothing);
            let loss = loss.expect(FITS) * share;
            let new = self.gradients(loss.clone(), scale);
            gradients = Some(match gradients.take() {
                Some(sum) => self.sum(vec![sum, new]),
                None => new,
            });
            (loss.inner(), measured)
        });
        let (losses, measured): (Vec<_>, Vec<_>) = parts.unzip();
        let loss =
            losses.into_iter().reduce(|sum, part| sum + part).expect("a shard that learns has a batch");
        let (correct, plain): (Vec<_>, Vec<_>) = measured.into_iter().flatten().unzip();
        let correct = correct.into_iter().reduce(|sum, part| sum + part);
        let plain = plain.into_iter().flatten().reduce(|sum, part| sum + part).map(|sum| sum * share);
        let (step, gradient_norm, began) = (step.step, None, 0.0);
        let item = StepOutput { step, loss, plain, correct, tokens, gradient_norm, began };
        TrainOutput { grads: gradients.unwrap_or_default(), item }
    }
}

/// Required by Burn's learner. A run validates over all its workers instead.
impl<B: Backend> InferenceStep for Trainee<B> {
    type Input = ();
    type Output = ();

    fn step(&self, _input: ()) {}
}

/// Returns the number of correct predictions among the counted targets, `[1]`, and, if `is_smoothed`, the summed
/// cross-entropy without smoothing, `[1]`.
fn measure<B: Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
    is_smoothed: bool,
) -> (Tensor<B, 1>, Option<Tensor<B, 1>>) {
    let scores = ops::token_scores(logits, targets.clone(), hidden.clone());
    let right = scores.argmax.equal(targets);
    let counted = match hidden {
        Some(hidden) => right.bool_and(hidden.bool_not()),
        None => right,
    };
    (counted.float().sum(), is_smoothed.then(|| scores.losses.sum()))
}

#[cfg(test)]
mod tests;
