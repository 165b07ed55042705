//! The parts of a step, each timed by itself in memory alone: from them is predicted what more workers would take.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::tensor::backend::AutodiffBackend;
use burn::{module::Module, optim::Optimizer as _, prelude::Backend, train::TrainStep};
use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics};

use super::gradients::{self, Exchange, together};
use super::launch::check_precision;
use super::loader::train_steps;
use super::optimizer::Optimizer;
use super::reduce::{Requests, StepInfo};
use super::side_by_side::{self, at_once};
use super::start::first_trainee;
use super::step::{StepBatches, Trainee};
use crate::backend::{self, Device, Job, compute};
use crate::config::{Config, TrainingConfig};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::kernels::{allocator, sums};
use crate::ops;
use crate::role::ParamRoles;
use crate::workers::{Shards, Workers};

/// Seconds of the parts of a step, and what goes between workers in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepParts {
    /// The gradients of some shards, by how many shards a step is cut into and how many of them are computed at once.
    pub shards: BTreeMap<usize, BTreeMap<usize, f64>>,
    /// The sum of the gradients of two shards.
    pub addition: f64,
    /// Gradients into the row of numbers that workers add up, and out of it.
    pub copies: f64,
    /// The optimizer's update of all weights.
    pub update: f64,
    /// The sum of two such rows.
    pub row_addition: f64,
    /// Bytes of a row.
    pub bytes: usize,
    /// The sum over the workers that timed it, if there were several.
    pub exchange: Option<TimedExchange>,
}

impl StepParts {
    /// The shorter time of each part, of two timings of the same step.
    #[must_use]
    pub fn fastest(mut self, other: Self) -> Self {
        for (cut, groups) in &mut self.shards {
            for (at_once, seconds) in groups {
                let again = other.shards.get(cut).and_then(|groups| groups.get(at_once));
                *seconds = again.copied().unwrap_or(*seconds).min(*seconds);
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

/// A sum over several workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedExchange {
    /// How many they were.
    pub workers: usize,
    /// Seconds of the sum of all gradients.
    pub seconds: f64,
    /// Seconds of one message of the sum of a single number.
    pub latency: f64,
}

/// Rounds that compile what must be, and make room.
const UNTIMED: usize = 2;
/// Rounds that are timed, and the seconds that suffice for them.
const ROUNDS: (usize, usize) = (7, 60);
const ENOUGH: f64 = 6.0;
/// Sums of a single number in a row, of which one is too short to be timed.
const TINY_SUMS: u32 = 8;

/// Times the parts of a step of `config` on `on`, where a step is cut into each number of shards in `cuts`: medians over
/// rounds, in which all `workers` do the same at the same time.
///
/// # Errors
/// On all of them, if the model cannot be made, the memory does not hold it, or the device does not know its precision.
pub fn time_parts(
    config: &Config,
    dataset: &Dataset,
    on: &Device,
    cuts: &[usize],
    workers: &Workers,
) -> Result<StepParts> {
    workers.agree(
        config.model.check().map_err(Error::from).and_then(|()| check_precision(&config.training, on)),
    )?;
    backend::run(on, Timing { config, dataset, on, cuts, workers })
}

/// The arguments of [`time_parts`].
struct Timing<'a> {
    config: &'a Config,
    dataset: &'a Dataset,
    on: &'a Device,
    cuts: &'a [usize],
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
    /// Times rounds on each worker, and returns the parts that the first worker computes of them.
    fn time_on_all_workers<B: AutodiffBackend>(&self, device: &B::Device) -> Result<StepParts> {
        let mut step = TimedStep::<B>::new(self, device)?;
        let timed = step.time_rounds()?;
        let bytes = step.exchange.buffer.len() * size_of::<f32>();
        let of_all = self.workers.to_first(timed)?;
        let groups = step.groups.iter().map(|(cut, shards)| (*cut, shards.len())).collect::<Vec<_>>();
        let parts = self.workers.is_first().then(|| parts(&groups, bytes, &of_all));
        let parts = self.workers.from_first(parts)?;
        parts.ok_or_else(|| Error::Failed("worker 0 has timed nothing".into()))
    }

    /// Returns for each cut its first shard alone, and as many shards as are computed at once.
    fn groups_of_shards<B: AutodiffBackend>(
        &self,
        trainee: &Trainee<B>,
        device: &B::Device,
    ) -> Vec<(usize, Vec<StepBatches<B>>)> {
        let mut groups = Vec::new();
        for &cut in self.cuts {
            let most = at_once::<B>(cut, together(trainee));
            for own in [1].into_iter().chain((most > 1).then_some(most)) {
                let shards = Shards { count: cut, own: 0..own };
                let mut steps = train_steps::<B>(self.config, self.dataset, 0..1, shards, device);
                let mut shards = steps.next().expect("a run has a step");
                shards.iter_mut().for_each(|shard| shard.measured = false);
                groups.push((cut, shards));
            }
        }
        groups
    }
}

/// A step whose parts are timed, on one worker.
struct TimedStep<'a, B: AutodiffBackend> {
    learning_rate: f64,
    trainee: Trainee<B>,
    optimizer: Optimizer<B>,
    /// Shards that are computed at once, by how many shards their step is cut into.
    groups: Vec<(usize, Vec<StepBatches<B>>)>,
    exchange: Exchange,
    workers: &'a Workers,
    device: &'a B::Device,
}

impl<'a, B: AutodiffBackend> TimedStep<'a, B> {
    fn new(timing: &Timing<'a>, device: &'a B::Device) -> Result<Self> {
        let Timing { config, dataset, on, workers, .. } = *timing;
        let trainee = workers.agree(first_trainee::<B>(config, dataset, on, device))?;
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

    /// Times as many rounds as the first worker has time for, and returns the seconds of the parts in each.
    fn time_rounds(&mut self) -> Result<Vec<Vec<f64>>> {
        for _ in 0..UNTIMED {
            self.time_round()?;
        }
        let begun = Instant::now();
        let mut timed = vec![self.time_round()?];
        let suffice = (ENOUGH / begun.elapsed().as_secs_f64()) as usize;
        for _ in 1..self.workers.from_first(suffice.clamp(ROUNDS.0, ROUNDS.1))? {
            timed.push(self.time_round()?);
        }
        Ok(timed)
    }

    /// Times the parts once, and returns their seconds: of each group of shards, then of the others in the order of
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
        let alone = Workers::alone();
        let info = StepInfo { step: 0, tokens: shard.tokens, is_measured: false };
        let (learned, _) =
            clock.time(|| exchange.sum(&alone, trainee, Some(learned), info, Requests::default()))?;
        let other = exchange.buffer.clone();
        clock.time(|| {
            sums::add(&mut exchange.buffer, &other);
            Ok(())
        })?;
        clock.time(|| workers.sum(&mut exchange.buffer, &mut exchange.scratch, sums::add))?;
        clock.time(|| (0..TINY_SUMS).try_for_each(|_| tiny_sum(workers)))?;
        let rate = self.learning_rate;
        *trainee = clock.time(|| Ok(optimizer.step(rate, trainee.clone(), learned.grads)))?;
        Ok(clock.seconds)
    }
}

fn tiny_sum(workers: &Workers) -> Result<()> {
    workers.sum(&mut [0.0f32], &mut Vec::new(), sums::add)
}

/// Times one piece of work after another, each begun by all workers at once.
struct Clock<'a, B: Backend> {
    workers: &'a Workers,
    device: &'a B::Device,
    seconds: Vec<f64>,
}

impl<B: Backend> Clock<'_, B> {
    fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.wait_for_device()?;
        tiny_sum(self.workers)?;
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

/// What each worker has timed in each round: `groups` of shards, by the number of parts of their step and their own,
/// then the other parts in their order.
fn parts(groups: &[(usize, usize)], bytes: usize, of_all: &[Vec<Vec<f64>>]) -> StepParts {
    let of_round = |part: usize, among: fn(f64, f64) -> f64| {
        let among_workers =
            |round: usize| of_all.iter().map(|rounds| rounds[round][part]).reduce(among).unwrap_or(0.0);
        Data::new((0..of_all[0].len()).map(among_workers).collect::<Vec<_>>()).median()
    };
    // The others wait for the slowest. A sum ends together for all, and began with the last that came to it.
    let (slowest, last) = (|part| of_round(part, f64::max), |part| of_round(part, f64::min));
    let [addition, copies, row_addition, exchange, tiny, update] =
        std::array::from_fn(|part| groups.len() + part);
    let workers = of_all.len();
    let messages = 2.0 * workers.ilog2() as f64;
    let mut shards = BTreeMap::<_, BTreeMap<_, _>>::new();
    for (part, &(cut, at_once)) in groups.iter().enumerate() {
        shards.entry(cut).or_default().insert(at_once, slowest(part));
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
            seconds: last(exchange),
            latency: last(tiny) / f64::from(TINY_SUMS) / messages,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_worker_counts_and_the_median_round() {
        let round = |shard: f64, sum: f64| vec![shard, 2.0, 3.0, 6.0, sum, 32.0, 5.0];
        let first = vec![round(1.0, 4.0), round(9.0, 40.0), round(1.5, 4.5)];
        let second = vec![round(2.0, 5.0), round(1.0, 41.0), round(1.0, 3.5)];
        let parts = parts(&[(4, 1)], 100, &[first, second]);
        assert_eq!(parts.shards, BTreeMap::from([(4, BTreeMap::from([(1, 2.0)]))]));
        assert_eq!((parts.addition, parts.copies, parts.row_addition, parts.update), (2.0, 3.0, 6.0, 5.0));
        assert_eq!(parts.exchange, Some(TimedExchange { workers: 2, seconds: 4.0, latency: 2.0 }));
    }
}
