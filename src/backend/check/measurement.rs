//! The small decoder by which backends are compared, and what one makes of it.

use std::path::Path;
use std::time::Instant;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{TensorMetadata, TensorPrimitive};

use super::{Part, largest};
use crate::config::TrainingConfig;
use crate::data::{Batch, Role};
use crate::error::Result;
use crate::evaluation::DeviceBatch;
use crate::model::{Model, ModelConfig, Sizes, loss};
use crate::ops::{self, Moments, Parameter, Rule, Update};
use crate::weights::native::{self, Tensors};

const VOCAB: usize = 31;
const TIME: usize = 29;
const ROWS: usize = 5;
const LEARNING_RATE: f64 = 1e-2;
const TIMED_STEPS: usize = 10;

/// What a backend makes of the small decoder.
#[derive(Clone)]
pub(super) struct Measurement {
    pub logits: TensorData,
    pub loss: TensorData,
    pub gradients: Tensors,
    /// What two steps of the optimizer add to the weights, with the reference's gradients.
    pub updates: Tensors,
}

impl Measurement {
    /// Measures from the weights `start`; `expected` are the reference's gradients, unless this is it.
    pub fn new<B: ops::AutodiffBackend>(
        start: &Tensors,
        expected: Option<&Tensors>,
        device: &B::Device,
    ) -> Result<Self> {
        let model = decoder_of::<B>(start, device)?;
        // The way of inference, and the way of training.
        let inputs = DeviceBatch::<B::InnerBackend>::new(&batch(), device).inputs;
        let logits = model.valid().forward(inputs)?.into_data();
        let (loss, parameters) = differentiate(&model, device)?;
        // A gradient that is missing differs from any other in its shape.
        let missing = || TensorData::new(Vec::<f32>::new(), [0]);
        let values = parameters.into_iter().zip(start).map(|((_, gradient), (_, weights))| {
            let gradient = gradient.map(|gradient| {
                let flat = TensorPrimitive::Float(flat::<B::InnerBackend>(gradient));
                let data = Tensor::<B::InnerBackend, 1>::from_primitive(flat).into_data();
                TensorData::new(data.iter::<f32>().collect(), weights.shape.clone())
            });
            gradient.unwrap_or_else(missing)
        });
        let gradients = native::names(&model).into_iter().zip(values).collect::<Tensors>();
        let updates = updates::<B::InnerBackend>(start, expected.unwrap_or(&gradients), device);
        Ok(Self { logits, loss: loss.into_data(), gradients, updates })
    }

    /// Each quantity beside that of the reference.
    pub fn beside(&self, expected: &Self) -> Vec<Part> {
        let mut parts = vec![
            Part::of("logits", &self.logits, &expected.logits, 0.0),
            Part::of("loss", &self.loss, &expected.loss, 0.0),
        ];
        // A gradient that is zero but for rounding is measured by the others.
        let least = expected.gradients.iter().map(|(_, data)| largest(data)).fold(0.0, f64::max) * 1e-3;
        for ((name, found), (_, expected)) in self.gradients.iter().zip(&expected.gradients) {
            parts.push(Part::of(&format!("gradient of {name}"), found, expected, least));
        }
        for ((name, found), (_, expected)) in self.updates.iter().zip(&expected.updates) {
            parts.push(Part::of(&format!("optimizer step of {name}"), found, expected, 0.0));
        }
        parts
    }
}

/// What two steps add to the weights `start`, along `gradients` and half of the way against them: so that both
/// moments, and their corrections, count.
fn updates<B: ops::HostAccess>(start: &Tensors, gradients: &Tensors, device: &B::Device) -> Tensors {
    let tensor = |data: &TensorData| B::float_from_data(data.clone(), device);
    let mut state: Vec<_> = start.iter().map(|(_, weights)| (tensor(weights), None)).collect();
    for (step, scale) in [(1, 1.0), (2, -0.5)] {
        let parameters = state.into_iter().zip(gradients).map(|((weights, moments), (_, gradient))| {
            let scaled = gradient.iter::<f32>().map(|value| value * scale).collect();
            let gradient = tensor(&TensorData::new(scaled, gradient.shape.clone()));
            parameter(weights, gradient, moments)
        });
        let (updated, _) = update(step).apply::<B>(parameters.collect(), device);
        state = updated.into_iter().map(|updated| (updated.weights, Some(updated.moments))).collect();
    }
    let added = |((name, before), (after, _)): (&(String, TensorData), (FloatTensor<B>, _))| {
        let after = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(flat::<B>(after))).into_data();
        let added = after.iter::<f32>().zip(before.iter::<f32>()).map(|(after, before)| after - before);
        (name.clone(), TensorData::new(added.collect(), before.shape.clone()))
    };
    start.iter().zip(state).map(added).collect()
}

fn flat<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let length = tensor.shape().num_elements();
    B::float_reshape(tensor, [length].into())
}

/// An update of the usual settings, but for a decay of the weights that shows beside a step.
fn update(step: usize) -> Update {
    let TrainingConfig { beta1, beta2, epsilon, max_gradient_norm, .. } = TrainingConfig::default();
    let rule = Rule::Adam { beta1, beta2, epsilon };
    Update { rule, learning_rate: LEARNING_RATE, step, max_norm: Some(max_gradient_norm) }
}

fn parameter<B: Backend>(
    weights: FloatTensor<B>,
    gradient: FloatTensor<B>,
    moments: Option<Moments<B>>,
) -> Parameter<B> {
    let weight_decay = if weights.shape().num_dims() >= 2 { 0.5 } else { 0.0 };
    Parameter { weights, gradient, moments, weight_decay }
}

/// Parameters in visiting order with their gradients; none for one that is missing.
type Gradients<B> = Vec<(FloatTensor<B>, Option<FloatTensor<B>>)>;

/// The mean loss of a model, and its gradients.
type Differentiated<B> = (Tensor<B, 1>, Gradients<B>);

fn differentiate<B: ops::AutodiffBackend>(
    model: &Model<B>,
    device: &B::Device,
) -> Result<Differentiated<B::InnerBackend>> {
    struct Gather<B: ops::AutodiffBackend> {
        gradients: GradientsParams,
        found: Gradients<B::InnerBackend>,
    }
    impl<B: ops::AutodiffBackend> ModuleVisitor<B> for Gather<B> {
        fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
            let gradient = self.gradients.remove::<B::InnerBackend, D>(parameter.id);
            let weights = parameter.val().inner().into_primitive().tensor();
            self.found.push((weights, gradient.map(|gradient| gradient.into_primitive().tensor())));
        }
    }

    let batch = DeviceBatch::<B>::new(&batch(), device);
    let logits = model.forward(batch.inputs)?;
    let loss = loss::cross_entropy(logits, batch.targets, batch.hidden, 0.0)? * (1.0 / batch.tokens as f64);
    let gradients = GradientsParams::from_grads(loss.clone().backward(), model);
    let mut gather = Gather::<B> { gradients, found: Vec::new() };
    model.visit(&mut gather);
    Ok((loss.inner(), gather.found))
}

/// Milliseconds of a training step, once its kernels are compiled.
pub(super) fn milliseconds<B: ops::AutodiffBackend>(start: &Tensors, device: &B::Device) -> Result<f64> {
    let model = decoder_of::<B>(start, device)?;
    let mut moments = vec![None; start.len()];
    let mut train = |steps: usize| -> Result<()> {
        for step in 1..=steps {
            let (loss, parameters) = differentiate(&model, device)?;
            let due =
                parameters.into_iter().zip(&mut moments).filter_map(|((weights, gradient), moments)| {
                    gradient.map(|gradient| parameter(weights, gradient, moments.take()))
                });
            let (updated, _) = update(step).apply::<B::InnerBackend>(due.collect(), device);
            moments = updated.into_iter().map(|updated| Some(updated.moments)).collect();
            if step == steps {
                // Waits for the device, whose work is done in order.
                let last = moments.last().cloned().flatten().map(|moments| moments.first.into_data());
                drop((loss.into_data(), last));
            }
        }
        Ok(())
    };
    train(3)?;
    let begun = Instant::now();
    train(TIMED_STEPS)?;
    Ok(begun.elapsed().as_secs_f64() * 1e3 / TIMED_STEPS as f64)
}

pub(super) fn decoder<B: ops::Backend>(device: &B::Device) -> Result<Model<B>> {
    let config = ModelConfig { d_model: 24, heads: 3, layers: 2, ..ModelConfig::default() };
    config.init(Sizes { vocab: VOCAB, context: TIME, source_context: None }, device)
}

fn decoder_of<B: ops::Backend>(start: &Tensors, device: &B::Device) -> Result<Model<B>> {
    native::apply(decoder::<B>(device)?, start.clone(), Path::new("the check"))
}

/// Sequences that count in steps of their own, with padding at the end of the last.
fn batch() -> Batch {
    let token = |row: usize, time: usize| ((row + time * (row + 2)) % VOCAB) as u32;
    let tokens =
        |ahead: usize| (0..ROWS * TIME).map(|place| token(place / TIME, place % TIME + ahead)).collect();
    let mut roles = vec![Role::Undetermined; ROWS * TIME];
    roles[ROWS * TIME - 7..].fill(Role::Padding);
    Batch { rows: ROWS, time: TIME, inputs: tokens(0), targets: tokens(1), roles, source: None }
}
