//! What a run will take, before it is started: parameters, tokens, memory, time.

use std::time::Instant;

use burn::prelude::*;
use burn::tensor::Distribution;

use super::device::Device;
use super::experiment::Experiment;
use super::memory::{Memory, rows};
use super::schedule::Schedule;
use crate::data::{Dataset, Loader, Order};
use crate::ops;

/// What a run will take.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Trained numbers.
    pub parameters: usize,
    /// Steps of the whole run.
    pub steps: usize,
    /// Steps an epoch.
    pub steps_per_epoch: f64,
    /// Targets of a full step, padding included.
    pub tokens_per_step: usize,
    /// The learning rate.
    pub schedule: Schedule,
    /// Bytes, by estimate.
    pub memory: Memory,
    /// Floating-point operations of a step, by estimate.
    pub operations_per_step: f64,
    /// Seconds of the run at the speed of this machine's matrix products: a lower bound.
    pub seconds: f64,
}

impl Plan {
    /// Plans a run on `device`, whose speed is measured for a moment.
    pub fn new<B: ops::Backend>(
        experiment: &Experiment,
        dataset: &Dataset,
        on: &Device,
        device: &B::Device,
    ) -> Self {
        let (model, training) = (&experiment.model, &experiment.training);
        let sizes = experiment.sizes(dataset);
        let parameters = model.parameters(sizes);
        let loader =
            Loader::new(dataset.train.clone(), training.batch_size, experiment.seed, Order::Shuffled);
        let steps = training.total_steps(loader.batches());

        let time = sizes.context + sizes.source_context.unwrap_or(0);
        let (layers, width) = (model.blocks(), model.d_model);
        let positions = (rows(training, dataset.train.len().max(dataset.valid.len())) * time) as f64;
        // Kaplan et al. (2020), section 2.1: six operations a parameter and token, and attention's own.
        let a_token = 6.0 * parameters as f64 + 12.0 * (layers * width * time) as f64;
        let tokens_per_step = training.batch_size * training.accumulate * sizes.context;
        let operations_per_step = a_token * positions * training.accumulate as f64;
        Self {
            parameters,
            steps,
            steps_per_epoch: loader.batches() as f64 / training.accumulate as f64,
            tokens_per_step,
            schedule: training.schedule(steps),
            memory: Memory::of(experiment, dataset, on),
            operations_per_step,
            seconds: operations_per_step * steps as f64 / operations_per_second::<B>(device),
        }
    }
}

/// How fast the device multiplies matrices.
fn operations_per_second<B: Backend>(device: &B::Device) -> f64 {
    const SIZE: usize = 384;
    let matrix = Tensor::<B, 2>::random([SIZE, SIZE], Distribution::Default, device);
    let multiply = || matrix.clone().matmul(matrix.clone()).slice([0..1, 0..1]).into_data();
    multiply();
    let (start, rounds) = (Instant::now(), 5);
    for _ in 0..rounds {
        multiply();
    }
    f64::from(rounds) * 2.0 * (SIZE as f64).powi(3) / start.elapsed().as_secs_f64()
}
