//! The batches of a run's steps: pure functions of (seed, step), so a run that starts at step k sees what the
//! undisturbed run saw there.

use std::ops::Range;

use burn::prelude::*;

use super::step::StepBatches;
use crate::config::{Config, TrainingConfig};
use crate::data::{Dataset, Loader};
use crate::evaluation::DeviceBatch;
use crate::workers::Shards;

/// Some steps of a run of `config`, counted from 0, each made when it is asked for: what this worker's shards of it learn
/// from. The accuracy of steps that [are logged](TrainingConfig::logs) is measured.
pub fn train_steps<B: Backend>(
    config: &Config,
    dataset: &Dataset,
    steps: Range<usize>,
    shards: Shards,
    device: &B::Device,
) -> impl Iterator<Item = Vec<StepBatches<B>>> + use<B> {
    let training = config.training.clone();
    let TrainingConfig { batch_size, accumulate, .. } = training;
    let loader = Loader::new(dataset.train.clone(), batch_size, config.run.seed);
    // An epoch ends with a step, as it does where one batch is as large as those that are accumulated.
    let steps_per_epoch = loader.batches().div_ceil(accumulate);
    let (device, end) = (device.clone(), steps.end);
    steps.map(move |step| {
        let (epoch, first) = (step / steps_per_epoch, step % steps_per_epoch * accumulate);
        let measured = training.logs(step + 1, end, steps_per_epoch);
        let none = |shard| StepBatches { step, shard, batches: Vec::new(), tokens: 0, measured };
        let mut parts = shards.own.clone().map(none).collect::<Vec<_>>();
        let mut tokens = 0;
        for index in (first..first + accumulate).filter(|&index| loader.holds(index)) {
            let batch = loader.batch(epoch, index);
            tokens += batch.counted();
            for part in &mut parts {
                let rows = shards.rows(part.shard, batch.rows, batch_size);
                if rows.len() == batch.rows {
                    part.batches.push(DeviceBatch::new(&batch, &device));
                } else if !rows.is_empty() {
                    part.batches.push(DeviceBatch::new(&batch.part(rows), &device));
                }
            }
        }
        parts.iter_mut().for_each(|part| part.tokens = tokens);
        parts
    })
}
