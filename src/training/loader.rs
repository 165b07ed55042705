//! The batches of a run: those of its steps, and those of a validation.
//!
//! Both are pure functions of (seed, step), so a run that starts at step k sees what the
//! undisturbed run saw there.

use std::ops::Range;

use burn::prelude::*;

use super::step::StepBatches;
use crate::config::Config;
use crate::data::{Batch, Dataset, Loader, Order};
use crate::evaluation::DeviceBatch;

/// Some steps of a run.
#[derive(Debug)]
pub struct TrainSteps<B: Backend> {
    /// Batches by epoch and index.
    loader: Loader,
    /// Batches whose gradients are averaged into one step.
    accumulate: usize,
    /// Every such step, and the last, has its accuracy measured.
    log_every: usize,
    /// Which steps, counted from 0.
    steps: Range<usize>,
    /// Where the batches go.
    device: B::Device,
}

impl<B: Backend> TrainSteps<B> {
    /// These steps of a run of `config`.
    pub fn new(config: &Config, dataset: &Dataset, steps: Range<usize>, device: &B::Device) -> Self {
        let training = &config.training;
        let (train, seed) = (dataset.train.clone(), config.run.seed);
        let loader = Loader::new(train, training.batch_size, seed, Order::Shuffled);
        let (accumulate, log_every) = (training.accumulate, training.log_every);
        Self { loader, accumulate, log_every, steps, device: device.clone() }
    }

    /// One step after another, each made when it is asked for.
    pub fn iter(&self) -> impl Iterator<Item = StepBatches<B>> {
        let mut buffer = Batch::default();
        self.steps.clone().map(move |step| self.step(step, &mut buffer))
    }

    fn step(&self, step: usize, buffer: &mut Batch) -> StepBatches<B> {
        // An epoch ends with a step, as it does where one batch is as large as these together.
        let steps_per_epoch = self.loader.batches().div_ceil(self.accumulate);
        let (epoch, first) = (step / steps_per_epoch, step % steps_per_epoch * self.accumulate);
        let indices = (first..first + self.accumulate).filter(|&index| self.loader.holds(index));
        let batches = indices.map(|index| {
            self.loader.batch(epoch, index, buffer);
            DeviceBatch::new(buffer, &self.device)
        });
        let batches = batches.collect();
        let measured = (step + 1).is_multiple_of(self.log_every) || step + 1 == self.steps.end;
        StepBatches { step, batches, measured }
    }
}
