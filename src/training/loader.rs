//! The batches of a run's steps, as pure functions of (seed, step). A run that resumes at step k therefore sees the
//! same batches as an uninterrupted run.

use std::ops::Range;

use burn::prelude::*;

use super::step::StepBatches;
use crate::config::{Config, TrainingConfig};
use crate::data::{Dataset, Loader};
use crate::evaluation::DeviceBatch;
use crate::workers::Shards;

/// Returns the batches of this worker's shards for each of `steps`, counted from 0, created on demand. The accuracy is
/// measured at steps that [are logged](TrainingConfig::logs).
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
    // A step never crosses the end of an epoch, so the last step of an epoch may accumulate fewer batches.
    let steps_per_epoch = loader.batches().div_ceil(accumulate);
    let (device, end) = (device.clone(), steps.end);
    steps.map(move |step| {
        let (epoch, first) = (step / steps_per_epoch, step % steps_per_epoch * accumulate);
        let is_measured = training.logs(step + 1, end, steps_per_epoch);
        let empty = |shard| StepBatches { step, shard, batches: Vec::new(), tokens: 0, is_measured };
        let mut parts = shards.own.clone().map(empty).collect::<Vec<_>>();
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
