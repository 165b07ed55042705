//! The small decoder by which backends are compared, and what one makes of it.

use std::path::Path;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer as _};
use burn::prelude::*;
use burn::train::TrainStep;

use super::{Part, largest};
use crate::config::TrainingConfig;
use crate::data::{Batch, Role};
use crate::error::Result;
use crate::model::{Model, ModelConfig, Sizes};
use crate::ops;
use crate::training::{DeviceBatch, Hyper, Optimizer, StepBatches, Trainee};
use crate::weights::native::{self, Tensors};

const VOCAB: usize = 31;
const TIME: usize = 29;
const ROWS: usize = 5;
pub(super) const LEARNING_RATE: f64 = 1e-2;

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
        let trainee = trainee::<B>(start, device)?;
        // The way of inference, and the way of training.
        let inputs = DeviceBatch::<B::InnerBackend>::new(&batch(), device).inputs;
        let logits = trainee.valid().model.forward(inputs)?.into_data();
        let mut output = trainee.step(step(device));
        let values = exchange(&trainee, &mut output.grads, None);
        let gradients = native::names(&trainee.model).into_iter().zip(values).collect::<Tensors>();
        let updates = updates(start, trainee, expected.unwrap_or(&gradients))?;
        Ok(Self { logits, loss: output.item.loss.into_data(), gradients, updates })
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
fn updates<B: ops::AutodiffBackend>(
    start: &Tensors,
    mut trainee: Trainee<B>,
    gradients: &Tensors,
) -> Result<Tensors> {
    let mut optimizer = optimizer::<B>();
    for scale in [1.0, -0.5] {
        let scaled = |data: &TensorData| {
            TensorData::new(data.iter::<f32>().map(|value| value * scale).collect(), data.shape.clone())
        };
        let scaled = gradients.iter().map(|(name, data)| (name.clone(), scaled(data))).collect();
        let mut given = GradientsParams::new();
        exchange(&trainee, &mut given, Some(&scaled));
        trainee = optimizer.step(LEARNING_RATE, trainee, given);
    }
    let stepped = native::collect(&trainee.valid().model)?;
    let added = |(before, after): (&TensorData, &TensorData)| {
        let added = after.iter::<f32>().zip(before.iter::<f32>()).map(|(after, before)| after - before);
        TensorData::new(added.collect(), after.shape.clone())
    };
    let both = start.iter().zip(&stepped);
    Ok(both.map(|((name, before), (_, after))| (name.clone(), added((before, after)))).collect())
}

/// The gradients of a trainee, in visiting order; with `new` ones, those take their place.
fn exchange<B: ops::AutodiffBackend>(
    trainee: &Trainee<B>,
    gradients: &mut GradientsParams,
    new: Option<&Tensors>,
) -> Vec<TensorData> {
    struct Exchange<'a> {
        gradients: &'a mut GradientsParams,
        new: Option<std::slice::Iter<'a, (String, TensorData)>>,
        found: Vec<TensorData>,
    }
    impl<B: ops::AutodiffBackend> ModuleVisitor<B> for Exchange<'_> {
        fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
            let device = parameter.val().device();
            // A gradient that is missing differs from any other in its shape.
            let found = self.gradients.remove::<B::InnerBackend, D>(parameter.id);
            self.found.push(
                found
                    .as_ref()
                    .map_or_else(|| TensorData::new(Vec::<f32>::new(), [0]), |found| found.to_data()),
            );
            let new = self.new.as_mut().and_then(Iterator::next);
            let new = new.map(|(_, data)| Tensor::from_data(data.clone(), &device));
            if let Some(gradient) = new.or(found) {
                self.gradients.register(parameter.id, gradient);
            }
        }
    }

    let mut exchange = Exchange { gradients, new: new.map(|new| new.iter()), found: Vec::new() };
    Module::<B>::visit(trainee, &mut exchange);
    exchange.found
}

/// With a decay of the weights that shows beside a step.
pub(super) fn optimizer<B: ops::AutodiffBackend>() -> Optimizer<B> {
    Optimizer::new(Hyper::from(&TrainingConfig { weight_decay: 0.5, ..TrainingConfig::default() }))
}

pub(super) fn decoder<B: ops::AutodiffBackend>(device: &B::Device) -> Result<Model<B>> {
    let config = ModelConfig { d_model: 24, heads: 3, layers: 2, ..ModelConfig::default() };
    config.init(Sizes { vocab: VOCAB, context: TIME, source_context: None }, device)
}

pub(super) fn trainee<B: ops::AutodiffBackend>(start: &Tensors, device: &B::Device) -> Result<Trainee<B>> {
    let model = native::apply(decoder::<B>(device)?, start.clone(), Path::new("the check"))?;
    Ok(Trainee { model, label_smoothing: 0.0 })
}

pub(super) fn step<B: ops::AutodiffBackend>(device: &B::Device) -> StepBatches<B> {
    StepBatches { step: 0, batches: vec![DeviceBatch::new(&batch(), device)], measured: false }
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
