//! One step: what the learner does with one step's batches.
//!
//! A step averages the gradient over every counted target of its batches, so that four batches of
//! 8 sequences move the weights exactly as one batch of 32 does.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{TensorPrimitive, backend::AutodiffBackend};
use burn::train::{InferenceStep, ItemLazy, TrainOutput, TrainStep};

use crate::config::TrainingConfig;
use crate::evaluation::DeviceBatch;
use crate::model::{Model, each_parameter, loss};
use crate::ops;

/// What one shard of an optimizer step learns from; a step that is not cut is one.
#[derive(Debug, Clone)]
pub struct StepBatches<B: Backend> {
    /// The step, counted from 0.
    pub step: usize,
    /// Its number among the shards of the step.
    pub shard: usize,
    /// The batches whose gradients are averaged. A shard of a small batch may have none.
    pub batches: Vec<DeviceBatch<B>>,
    /// Counted targets of the whole step, over which its shards average.
    pub tokens: usize,
    /// Whether the accuracy is wanted: it costs a pass over the logits.
    pub measured: bool,
}

impl<B: Backend> StepBatches<B> {
    /// A step that is not cut.
    pub fn whole(step: usize, batches: Vec<DeviceBatch<B>>, measured: bool) -> Self {
        let tokens = batches.iter().map(|batch| batch.tokens).sum();
        Self { step, shard: 0, batches, tokens, measured }
    }
}

/// What a step says about itself, still on the device.
#[derive(Debug, Clone)]
pub struct StepOutput<B: Backend> {
    /// The step, counted from 0.
    pub step: usize,
    /// The mean loss over the counted targets in nats, `[1]`; of a shard its part of that of the step.
    pub loss: Tensor<B, 1>,
    /// The same without label smoothing, where there is some and the step is measured.
    pub plain: Option<Tensor<B, 1>>,
    /// Right predictions among the counted targets, `[1]`, where they were asked for.
    pub correct: Option<Tensor<B, 1>>,
    /// Counted targets of the whole step.
    pub tokens: usize,
    /// The norm of all gradients before clipping, `[1]`, once the optimizer knows it.
    pub gradient_norm: Option<Tensor<B, 1>>,
    /// Seconds of training before it, once the run counts it.
    pub began: f64,
}

impl<B: Backend> ItemLazy for StepOutput<B> {
    type ItemSync = Self;

    fn sync(self) -> Self {
        self
    }
}

/// A model as Burn's learner sees it: with the loss that it is trained by.
#[derive(Module, Debug)]
pub struct Trainee<B: Backend> {
    /// The model.
    pub model: Model<B>,
    /// Weight of the uniform distribution in the target.
    label_smoothing: f64,
}

impl<B: Backend> Trainee<B> {
    /// A model with the loss that `config` trains it by.
    pub fn new(model: Model<B>, config: &TrainingConfig) -> Self {
        Self { model, label_smoothing: config.label_smoothing }
    }

    /// Returns whether the loss of training is smoothed.
    pub(super) fn is_smoothed(&self) -> bool {
        self.label_smoothing > 0.0
    }
}

/// Why a batch of the loader cannot be refused by the model.
const FITS: &str = "the model is built for the sizes of its data";

impl<B: AutodiffBackend> Trainee<B> {
    /// The gradients of `loss`, which on the way back is `scale` times as large.
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

    /// The sum of gradients of this model along the tree over their order, in the memory of the first where that can be.
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
        let mut gradients: Option<GradientsParams> = None;
        let parts = step.batches.into_iter().map(|batch| {
            let logits = self.model.forward(batch.inputs).expect(FITS);
            let measured = step.measured.then(|| {
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

/// Burn's learner asks for it; a run validates over all its workers.
impl<B: Backend> InferenceStep for Trainee<B> {
    type Input = ();
    type Output = ();

    fn step(&self, _input: ()) {}
}

/// Returns the number of right predictions among the targets that count, `[1]`, and of a loss that `is_smoothed` the
/// summed cross-entropy without smoothing, `[1]`.
fn measure<B: Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
    is_smoothed: bool,
) -> (Tensor<B, 1>, Option<Tensor<B, 1>>) {
    let scores = ops::token_scores(logits, targets.clone(), hidden.clone());
    let right = scores.likeliest.equal(targets);
    let counted = match hidden {
        Some(hidden) => right.bool_and(hidden.bool_not()),
        None => right,
    };
    (counted.float().sum(), is_smoothed.then(|| scores.losses.sum()))
}
