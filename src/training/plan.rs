//! The estimated cost of a run before it starts: parameters, tokens, memory, time.

use std::time::{Duration, Instant};

use burn::tensor::backend::AutodiffBackend;
use burn::{prelude::*, tensor::Distribution};
use burn_flex::Flex;

use super::launch::check_precision;
use super::schedule::Schedule;
use super::short_training::train_briefly;
use super::start::{check_schedule, dataset, sizes_of};
use super::warnings::warnings;
use crate::backend::{self, Device, Job, MemoryEstimate, rows};
use crate::config::Config;
use crate::data::Dataset;
use crate::error::Result;

/// The estimated cost of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The number of trained parameters.
    pub parameters: usize,
    /// The number of steps of the run.
    pub steps: usize,
    /// The number of steps per epoch.
    pub steps_per_epoch: usize,
    /// The number of targets of a full step, padding included.
    pub tokens_per_step: usize,
    /// The learning rate schedule.
    pub schedule: Schedule,
    /// The estimated memory.
    pub memory: MemoryEstimate,
    /// The estimated floating-point operations per step.
    pub operations_per_step: f64,
    /// The estimated seconds of all steps.
    pub seconds: f64,
    /// The number of steps of this model that were timed for the estimate. If a step is too slow to be timed, the
    /// number is 0, and the estimate uses the speed of matrix products.
    pub timed_steps: u32,
    /// Warnings about the data and the config keys.
    pub warnings: Vec<String>,
}

/// The expected seconds above which a step is not timed.
const MAX_TIMED_STEP_SECONDS: f64 = 0.5;

impl Plan {
    /// Plans a run of `config` on a device. The speed of the device is measured briefly.
    ///
    /// # Errors
    /// Returns an error if the data cannot be read, the model cannot be created, or the device does not support the
    /// precision.
    pub fn new(config: &Config, on: &Device) -> Result<Self> {
        check_precision(&config.training, on)?;
        let dataset = dataset(config)?;
        let sizes = sizes_of(config, &dataset)?;
        let (model, training) = (&config.model, &config.training);
        let parameters = model.parameters::<Flex>(sizes);
        let batches = dataset.train.len().div_ceil(training.batch_size);
        let steps = training.total_steps(batches);
        check_schedule(config, &dataset)?;

        // Sequences may be shorter than the context of the initial weights.
        let length = dataset.train.lengths().map_or(dataset.train.time(), |[_, longest]| longest);
        let time = length + dataset.train.source_time().unwrap_or(0);
        let (layers, width) =
            (model.blocks(), model.heads * model.head_width() * (1 + usize::from(model.differential)));
        let positions = (rows(training, &dataset) * time) as f64;
        // Kaplan et al. (2020), section 2.1: six operations per parameter and token, plus the operations of attention.
        let operations_per_token = 6.0 * parameters as f64 + 12.0 * (layers * width * time) as f64;
        let operations_per_step = operations_per_token * positions * training.accumulate as f64;
        let memory = MemoryEstimate::of(config, &dataset, on);
        let too_large = memory.check(config, sizes, on).err();
        let rough = operations_per_step / backend::run(on, OperationsPerSecond)?;
        let (seconds_per_step, timed_steps) = match rough < MAX_TIMED_STEP_SECONDS && too_large.is_none() {
            true => timed_step(config, &dataset, on)?,
            false => (rough, 0),
        };
        let mut warnings = warnings(config, &dataset, steps, on);
        warnings.extend(too_large.map(|problem| problem.to_string()));
        Ok(Self {
            parameters,
            steps,
            steps_per_epoch: training.steps_per_epoch(batches),
            tokens_per_step: training.batch_size * training.accumulate * length,
            schedule: Schedule::new(training, steps),
            memory,
            operations_per_step,
            seconds: seconds_per_step * steps as f64,
            timed_steps,
            warnings,
        })
    }
}

/// Returns the mean seconds per step of the run's own model, and the number of timed steps.
fn timed_step(config: &Config, dataset: &Dataset, on: &Device) -> Result<(f64, u32)> {
    /// The maximum number of timed steps, and their maximum total time.
    const MAX_TIMED: (usize, Duration) = (20, Duration::from_millis(500));
    let (mut start, mut timed, mut passed) = (Instant::now(), 0, Duration::ZERO);
    let rate = |step, _| {
        match step {
            // The first step allocates memory and compiles kernels.
            0 | 1 => start = Instant::now(),
            _ => (timed, passed) = (step - 1, start.elapsed()),
        }
        (timed < MAX_TIMED.0 && passed <= MAX_TIMED.1).then_some(config.training.learning_rate)
    };
    train_briefly(config, dataset, on, None, rate)?;
    Ok((passed.as_secs_f64() / timed as f64, timed as u32))
}

/// A job that measures how fast a device multiplies matrices.
struct OperationsPerSecond;

impl Job for OperationsPerSecond {
    type Output = f64;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<f64> {
        const SIZE: usize = 384;
        let matrix = Tensor::<B::InnerBackend, 2>::random([SIZE, SIZE], Distribution::Default, &device);
        let multiply = || matrix.clone().matmul(matrix.clone()).slice([0..1, 0..1]).into_data();
        Ok(2.0 * (SIZE as f64).powi(3) / fastest_of(20, || drop(multiply())))
    }
}

/// Returns the seconds of the fastest of several rounds of work. Slower rounds were delayed by other processes.
fn fastest_of(rounds: usize, mut work: impl FnMut()) -> f64 {
    let seconds = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..rounds).map(seconds).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rounds_do_not_change_the_estimate() {
        let mut round = 0;
        let seconds = fastest_of(4, || {
            round += 1;
            std::thread::sleep(Duration::from_millis(if round == 3 { 1 } else { 200 }));
        });
        assert!((0.001..0.2).contains(&seconds), "{seconds}");
    }
}
