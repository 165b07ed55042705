//! Timings of the parts of a step, each measured alone and in memory only. They predict the time of a step with more
//! workers.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::tensor::backend::AutodiffBackend;
use burn::{module::Module, optim::Optimizer as _, prelude::Backend, train::TrainStep};
use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics};

use super::control::Requests;
use super::gradients::{self, Exchange, shards_per_pass};
use super::launch::check_precision;
use super::loader::train_steps;
use super::optimizer::Optimizer;
use super::side_by_side::{self, at_once};
use super::start::initial_trainee;
use super::step::{StepBatches, StepInfo, Trainee};
use crate::backend::{self, Device, Job, compute};
use crate::config::{Config, TrainingConfig};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::kernels::{allocator, sums};
use crate::ops;
use crate::role::ParamRoles;
use crate::workers::{Shards, Workers};

/// The seconds of each part of a step, and the number of bytes that workers exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepParts {
    /// The gradients of a group of shards, by the number of shards per step and the size of the group.
    pub shards: BTreeMap<usize, BTreeMap<usize, f64>>,
    /// The sum of the gradients of two shards.
    pub addition: f64,
    /// The copies of the gradients into the all-reduce buffer and out of it.
    pub copies: f64,
    /// The optimizer's update of all weights.
    pub update: f64,
    /// The sum of two all-reduce buffers.
    pub row_addition: f64,
    /// The size of an all-reduce buffer in bytes.
    pub bytes: usize,
    /// The all-reduce over the workers, if there is more than one.
    pub exchange: Option<TimedExchange>,
}

impl StepParts {
    /// Returns the shorter time of each part of two timings of the same step.
    #[must_use]
    pub fn fastest(mut self, other: Self) -> Self {
        for (count, groups) in &mut self.shards {
            for (at_once, seconds) in groups {
                let repeated = other.shards.get(count).and_then(|groups| groups.get(at_once));
                *seconds = repeated.copied().unwrap_or(*seconds).min(*seconds);
            }
        }
        let exchange = self.exchange.zip(other.exchange).map(|(one, two)| TimedExchange {
            workers: one.workers,
            seconds: one.seconds.min(two.seconds),
            latency: one.latency.min(two.latency),
        });
        Self {
            addition: self.addition.min(other.addition),
            copies: self.copies.min(other.copies),
            update: self.update.min(other.update),
            row_addition: self.row_addition.min(other.row_addition),
            exchange,
            ..self
        }
    }
}

/// The timing of an all-reduce over several workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedExchange {
    /// The number of workers.
    pub workers: usize,
    /// The seconds of the all-reduce of all gradients.
    pub seconds: f64,
    /// The seconds per message when the workers all-reduce a single number.
    pub latency: f64,
}

/// The number of warm-up rounds, which compile kernels and allocate memory.
const WARMUP_ROUNDS: usize = 2;
/// The minimum and maximum number of timed rounds.
const MIN_ROUNDS: usize = 7;
const MAX_ROUNDS: usize = 60;
/// The target time of all timed rounds in seconds.
const TARGET_SECONDS: f64 = 6.0;
/// The number of consecutive all-reduces of a single number that are timed together, because one alone is too short.
const SMALL_REDUCES: u32 = 8;

/// Times the parts of a step of `config` on the device `on`, with the step split into each number of shards in
/// `shard_counts`. Returns medians over rounds, in which all `workers` do the same work at the same time.
///
/// # Errors
/// On every worker, if the model cannot be built or does not fit into memory, or if the device does not support the
/// precision.
pub fn time_parts(
    config: &Config,
    dataset: &Dataset,
    on: &Device,
    shard_counts: &[usize],
    workers: &Workers,
) -> Result<StepParts> {
    workers.agree(
        config.model.check().map_err(Error::from).and_then(|()| check_precision(&config.training, on)),
    )?;
    backend::run(on, Timing { config, dataset, on, shard_counts, workers })
}

/// The arguments of [`time_parts`].
struct Timing<'a> {
    config: &'a Config,
    dataset: &'a Dataset,
    on: &'a Device,
    shard_counts: &'a [usize],
    workers: &'a Workers,
}

impl Job for Timing<'_> {
    type Output = StepParts;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<StepParts> {
        let training = TrainingConfig {
            threads: self.config.training.threads.or(self.workers.threads()),
            ..self.config.training.clone()
        };
        compute(&training, || self.time_on_all_workers::<B>(&device))
    }
}

impl Timing<'_> {
    /// Times rounds on each worker. Returns the parts that worker 0 computes from all timings.
    fn time_on_all_workers<B: AutodiffBackend>(&self, device: &B::Device) -> Result<StepParts> {
        let mut step = TimedStep::<B>::new(self, device)?;
        let timed = step.time_rounds()?;
        let bytes = step.exchange.buffer.len() * size_of::<f32>();
        let timings = self.workers.gather_to_first(timed)?;
        let groups = step.groups.iter().map(|(count, shards)| (*count, shards.len())).collect::<Vec<_>>();
        let parts = self.workers.is_first().then(|| parts(&groups, bytes, &timings));
        let parts = self.workers.broadcast(parts)?;
        parts.ok_or_else(|| Error::Failed("worker 0 lacks timings".into()))
    }

    /// Returns two groups for each number of shards: a single shard, and as many shards as are computed at once.
    fn groups_of_shards<B: AutodiffBackend>(
        &self,
        trainee: &Trainee<B>,
        device: &B::Device,
    ) -> Vec<(usize, Vec<StepBatches<B>>)> {
        let mut groups = Vec::new();
        for &count in self.shard_counts {
            let largest = at_once::<B>(count, shards_per_pass(trainee));
            for own in [1].into_iter().chain((largest > 1).then_some(largest)) {
                let shards = Shards { count, own: 0..own };
                let mut steps = train_steps::<B>(self.config, self.dataset, 0..1, shards, device);
                let mut shards = steps.next().expect("a run has a step");
                shards.iter_mut().for_each(|shard| shard.is_measured = false);
                groups.push((count, shards));
            }
        }
        groups
    }
}

/// A step on one worker, with its timed parts.
struct TimedStep<'a, B: AutodiffBackend> {
    learning_rate: f64,
    trainee: Trainee<B>,
    optimizer: Optimizer<B>,
    /// Groups of shards that are computed at once, with the number of shards of their step.
    groups: Vec<(usize, Vec<StepBatches<B>>)>,
    exchange: Exchange,
    workers: &'a Workers,
    device: &'a B::Device,
}

impl<'a, B: AutodiffBackend> TimedStep<'a, B> {
    fn new(timing: &Timing<'a>, device: &'a B::Device) -> Result<Self> {
        let Timing { config, dataset, on, workers, .. } = *timing;
        let trainee = workers.agree(initial_trainee::<B>(config, dataset, on, device))?;
        let optimizer = Optimizer::new(&config.training, trainee.model.roles());
        ops::seed::<B>(device, config.run.seed);
        allocator::keep_freed_memory();
        Ok(Self {
            learning_rate: config.training.learning_rate,
            groups: timing.groups_of_shards(&trainee, device),
            trainee,
            optimizer,
            exchange: Exchange::default(),
            workers,
            device,
        })
    }

    /// Times as many rounds as fit into the target time of worker 0. Returns the seconds of each part in each round.
    fn time_rounds(&mut self) -> Result<Vec<Vec<f64>>> {
        for _ in 0..WARMUP_ROUNDS {
            self.time_round()?;
        }
        let begun = Instant::now();
        let mut timed = vec![self.time_round()?];
        let rounds = (TARGET_SECONDS / begun.elapsed().as_secs_f64()) as usize;
        for _ in 1..self.workers.broadcast(rounds.clamp(MIN_ROUNDS, MAX_ROUNDS))? {
            timed.push(self.time_round()?);
        }
        Ok(timed)
    }

    /// Times each part once, and returns the seconds: first the groups of shards, then the other parts in the order of
    /// [`parts`].
    fn time_round(&mut self) -> Result<Vec<f64>> {
        let workers = self.workers;
        let mut clock = Clock::<B> { workers, device: self.device, seconds: Vec::new() };
        let Self { trainee, optimizer, groups, exchange, device, .. } = self;
        let shard = &groups[0].1[0];
        let learned = trainee.step(shard.clone());
        for (_, shards) in groups.iter() {
            let models = shards.iter().map(|shard| (trainee.clone().fork(device), shard.clone()));
            let models = models.collect::<Vec<_>>();
            let learn = |(model, shard): (Trainee<B>, _)| model.step(shard);
            let learned = clock.time(|| Ok(side_by_side::map(models.len(), models, learn)))?;
            std::hint::black_box(learned);
        }
        let other = trainee.step(shard.clone());
        let learned = clock.time(|| Ok(gradients::sum(trainee, [learned, other]).expect("there are two")))?;
        let alone = Workers::single();
        let info = StepInfo { step: 0, tokens: shard.tokens, is_measured: false };
        let (learned, _) =
            clock.time(|| exchange.sum(&alone, trainee, Some(learned), info, Requests::default()))?;
        let other = exchange.buffer.clone();
        clock.time(|| {
            sums::add(&mut exchange.buffer, &other);
            Ok(())
        })?;
        clock.time(|| workers.all_reduce(&mut exchange.buffer, &mut exchange.scratch, sums::add))?;
        clock.time(|| (0..SMALL_REDUCES).try_for_each(|_| reduce_one_number(workers)))?;
        let rate = self.learning_rate;
        *trainee = clock.time(|| Ok(optimizer.step(rate, trainee.clone(), learned.grads)))?;
        Ok(clock.seconds)
    }
}

fn reduce_one_number(workers: &Workers) -> Result<()> {
    workers.all_reduce(&mut [0.0f32], &mut Vec::new(), sums::add)
}

/// A clock for consecutive pieces of work, which all workers start at the same time.
struct Clock<'a, B: Backend> {
    workers: &'a Workers,
    device: &'a B::Device,
    seconds: Vec<f64>,
}

impl<B: Backend> Clock<'_, B> {
    fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.wait_for_device()?;
        reduce_one_number(self.workers)?;
        let begun = Instant::now();
        let done = work()?;
        self.wait_for_device()?;
        self.seconds.push(begun.elapsed().as_secs_f64());
        Ok(done)
    }

    fn wait_for_device(&self) -> Result<()> {
        B::sync(self.device).map_err(|error| Error::Failed(format!("the device has failed: {error:?}")))
    }
}

/// Combines the timings of all workers and rounds. `groups` holds the shards per step and the size of each group. The
/// timings start with the groups, followed by the other parts in their order.
fn parts(groups: &[(usize, usize)], bytes: usize, timings: &[Vec<Vec<f64>>]) -> StepParts {
    let median_over_rounds = |part: usize, choose: fn(f64, f64) -> f64| {
        let over_workers =
            |round: usize| timings.iter().map(|rounds| rounds[round][part]).reduce(choose).unwrap_or(0.0);
        Data::new((0..timings[0].len()).map(over_workers).collect::<Vec<_>>()).median()
    };
    // All workers wait for the slowest one. An all-reduce begins when the last worker joins and ends on all workers at
    // the same time, so its shortest time counts.
    let slowest = |part| median_over_rounds(part, f64::max);
    let shortest = |part| median_over_rounds(part, f64::min);
    let [addition, copies, row_addition, exchange, small_reduces, update] =
        std::array::from_fn(|part| groups.len() + part);
    let workers = timings.len();
    let messages = 2.0 * f64::from(workers.ilog2());
    let mut shards = BTreeMap::<_, BTreeMap<_, _>>::new();
    for (part, &(count, at_once)) in groups.iter().enumerate() {
        shards.entry(count).or_default().insert(at_once, slowest(part));
    }
    StepParts {
        shards,
        addition: slowest(addition),
        copies: slowest(copies),
        row_addition: slowest(row_addition),
        update: slowest(update),
        bytes,
        exchange: (workers > 1).then(|| TimedExchange {
            workers,
            seconds: shortest(exchange),
            latency: shortest(small_reduces) / f64::from(SMALL_REDUCES) / messages,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_medians_of_the_slowest_worker() {
        let round = |shard: f64, sum: f64| vec![shard, 2.0, 3.0, 6.0, sum, 32.0, 5.0];
        let first = vec![round(1.0, 4.0), round(9.0, 40.0), round(1.5, 4.5)];
        let second = vec![round(2.0, 5.0), round(1.0, 41.0), round(1.0, 3.5)];
        let parts = parts(&[(4, 1)], 100, &[first, second]);
        assert_eq!(parts.shards, BTreeMap::from([(4, BTreeMap::from([(1, 2.0)]))]));
        assert_eq!((parts.addition, parts.copies, parts.row_addition, parts.update), (2.0, 3.0, 6.0, 5.0));
        assert_eq!(parts.exchange, Some(TimedExchange { workers: 2, seconds: 4.0, latency: 2.0 }));
    }
}
