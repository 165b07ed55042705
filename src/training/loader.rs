//! The batches of a run's steps: pure functions of (seed, step), so a run that starts at step k sees what the
//! undisturbed run saw there.

use std::ops::Range;

use burn::prelude::*;

use super::step::StepBatches;
use crate::config::{Config, TrainingConfig};
use crate::data::{Batch, Dataset, Loader, Order};
use crate::evaluation::DeviceBatch;

/// Some steps of a run of `config`, counted from 0, each made when it is asked for. Every `training.log_every`th, and the
/// last, has its accuracy measured.
pub fn train_steps<B: Backend>(
    config: &Config,
    dataset: &Dataset,
    steps: Range<usize>,
    device: &B::Device,
) -> impl Iterator<Item = StepBatches<B>> + use<B> {
    let TrainingConfig { batch_size, accumulate, log_every, .. } = config.training;
    let loader = Loader::new(dataset.train.clone(), batch_size, config.run.seed, Order::Shuffled);
    // An epoch ends with a step, as it does where one batch is as large as those that are accumulated.
    let steps_per_epoch = loader.batches().div_ceil(accumulate);
    let (device, end) = (device.clone(), steps.end);
    let mut buffer = Batch::default();
    steps.map(move |step| {
        let (epoch, first) = (step / steps_per_epoch, step % steps_per_epoch * accumulate);
        let indices = (first..first + accumulate).filter(|&index| loader.holds(index));
        let batches = indices.map(|index| {
            loader.batch(epoch, index, &mut buffer);
            DeviceBatch::new(&buffer, &device)
        });
        let batches = batches.collect();
        let measured = (step + 1).is_multiple_of(log_every) || step + 1 == end;
        StepBatches { step, batches, measured }
    })
}
