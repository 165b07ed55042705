//! The small decoders of the device health check, and the quantities measured on them.

use std::path::Path;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{TensorMetadata, TensorPrimitive, backend::AutodiffBackend, ops::FloatTensor};

use super::{CheckedPart, largest};
use crate::config::TrainingConfig;
use crate::data::{Batch, Role};
use crate::error::Result;
use crate::evaluation::DeviceBatch;
use crate::model::{Model, ModelConfig, Sizes, each_parameter, loss};
use crate::ops::{Activation, Adam, NormKind, Parameter, Rule, Update};
use crate::position::PositionScheme;
use crate::weights::native::{self, Tensors};

const VOCAB: usize = 31;
const TIME: usize = 29;
const ROWS: usize = 5;
const LEARNING_RATE: f64 = 1e-2;

/// The results of a backend on a small decoder.
#[derive(Clone)]
pub(super) struct Measurement {
    pub logits: TensorData,
    pub loss: TensorData,
    pub gradients: Tensors,
    /// The change of the weights by two optimizer steps with the reference's gradients.
    pub updates: Tensors,
}

impl Measurement {
    /// Measures a decoder with the weights `start`. `expected` are the gradients of the reference, or `None` for the
    /// reference itself.
    pub fn new<B: AutodiffBackend>(
        config: &ModelConfig,
        start: &Tensors,
        expected: Option<&Tensors>,
        device: &B::Device,
    ) -> Result<Self> {
        let model = native::apply(decoder::<B>(config, device)?, start.clone(), Path::new("the check"))?;
        // The inference forward pass comes first, then the training forward pass.
        let inputs = DeviceBatch::<B::InnerBackend>::new(&batch(), device).inputs;
        let logits = model.valid().forward(inputs)?.into_data();
        let (loss, gradients) = differentiate(&model, device)?;
        let gradients = native::names(&model).into_iter().zip(gradients).collect::<Tensors>();
        let updates = updates::<B::InnerBackend>(start, expected.unwrap_or(&gradients), device);
        Ok(Self { logits, loss, gradients, updates })
    }

    /// Compares each quantity with the reference.
    pub fn compare(&self, expected: &Self) -> Vec<CheckedPart> {
        let mut parts = vec![
            CheckedPart::of("logits", &self.logits, &expected.logits, 0.0),
            CheckedPart::of("loss", &self.loss, &expected.loss, 0.0),
        ];
        // A gradient that is zero except for rounding is compared on the scale of the others.
        let min_scale = expected.gradients.iter().map(|(_, data)| largest(data)).fold(0.0, f64::max) * 1e-3;
        for ((name, found), (_, expected)) in self.gradients.iter().zip(&expected.gradients) {
            parts.push(CheckedPart::of(&format!("gradient of {name}"), found, expected, min_scale));
        }
        for ((name, found), (_, expected)) in self.updates.iter().zip(&expected.updates) {
            parts.push(CheckedPart::of(&format!("optimizer step of {name}"), found, expected, 0.0));
        }
        parts
    }
}

/// Computes the change of the weights `start` by two steps: one along `gradients`, and one half as far in the opposite
/// direction. Both moments and their bias corrections then have an effect. The settings are the defaults, with a weight
/// decay large enough to affect the result.
fn updates<B: Backend>(start: &Tensors, gradients: &Tensors, device: &B::Device) -> Tensors {
    let TrainingConfig { beta1, beta2, epsilon, max_gradient_norm, .. } = TrainingConfig::default();
    let rule = Rule::Adam(Adam { beta1, beta2, epsilon });
    let tensor = |data: &TensorData| B::float_from_data(data.clone(), device);
    let mut state: Vec<_> = start.iter().map(|(_, weights)| (tensor(weights), None)).collect();
    for (step, scale) in [(1, 1.0), (2, -0.5)] {
        let parameters = state.into_iter().zip(gradients).map(|((weights, moments), (_, gradient))| {
            let scaled = gradient.iter::<f32>().map(|value| value * scale).collect();
            let gradient = tensor(&TensorData::new(scaled, gradient.shape.clone()));
            let weight_decay = if weights.shape().num_dims() >= 2 { 0.5 } else { 0.0 };
            Parameter { weights, gradient, moments, rule: rule.clone(), weight_decay }
        });
        let max_norm = Some(max_gradient_norm);
        let update = Update { learning_rate: LEARNING_RATE, step, max_norm };
        let (updated, _) = update.apply::<B>(parameters.collect(), device);
        state = updated.into_iter().map(|updated| (updated.weights, Some(updated.moments))).collect();
    }
    let added = |((name, before), (after, _)): (&(String, TensorData), (FloatTensor<B>, _))| {
        let after = B::float_reshape(after, [before.num_elements()].into());
        let after = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(after)).into_data();
        let added = after.iter::<f32>().zip(before.iter::<f32>()).map(|(after, before)| after - before);
        (name.clone(), TensorData::new(added.collect(), before.shape.clone()))
    };
    start.iter().zip(state).map(added).collect()
}

/// Returns the mean loss of a model, and the gradients of its parameters in visiting order.
fn differentiate<B: AutodiffBackend>(
    model: &Model<B>,
    device: &B::Device,
) -> Result<(TensorData, Vec<TensorData>)> {
    let batch = DeviceBatch::<B>::new(&batch(), device);
    let logits = model.forward(batch.inputs)?;
    let loss = loss::cross_entropy(logits, batch.targets, batch.hidden, 0.0)? * (1.0 / batch.tokens as f64);
    let (mut gradients, mut found) = (GradientsParams::from_grads(loss.backward(), model), Vec::new());
    each_parameter(model, |id, _| {
        // A missing gradient gets a shape that no other gradient has.
        let missing = || TensorData::new(Vec::<f32>::new(), [0]);
        let gradient = gradients.remove::<B::InnerBackend, 1>(id);
        found.push(gradient.map_or_else(missing, |gradient| gradient.into_data().convert::<f32>()));
    });
    Ok((loss.into_data(), found))
}

/// Returns a small GPT-2, and a small decoder with more recent components.
pub(super) fn configs() -> [ModelConfig; 2] {
    let gpt2 = ModelConfig { d_model: 24, heads: 3, layers: 2, ..ModelConfig::default() };
    let modern = ModelConfig {
        position: PositionScheme::Rotary,
        norm_kind: NormKind::Rms,
        activation: Activation::Swiglu,
        qk_norm: true,
        key_value_heads: 1,
        softcap: 10.0,
        bias: false,
        ..gpt2.clone()
    };
    [gpt2, modern]
}

pub(super) fn decoder<B: Backend>(config: &ModelConfig, device: &B::Device) -> Result<Model<B>> {
    Ok(config.init(Sizes { vocab: VOCAB, context: TIME, source_context: None }, device)?)
}

/// Returns sequences that count up in steps of different sizes, with padding at the end of the last one.
fn batch() -> Batch {
    let token = |row: usize, time: usize| ((row + time * (row + 2)) % VOCAB) as u32;
    let tokens = |ahead: usize| {
        (0..ROWS * TIME).map(|position| token(position / TIME, position % TIME + ahead)).collect()
    };
    let mut roles = vec![Role::Undetermined; ROWS * TIME];
    roles[ROWS * TIME - 7..].fill(Role::Padding);
    Batch {
        rows: ROWS,
        time: TIME,
        inputs: tokens(0),
        targets: tokens(1),
        roles,
        source: None,
        documents: None,
    }
}
