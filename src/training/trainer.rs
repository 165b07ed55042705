//! The trainer: a loop over optimizer steps, driven by Burn's `Learner` and watched by observers.
//!
//! Losses and norms stay on the device until a row, a validation or a checkpoint needs them, so that no step waits for
//! the device.

use std::time::Instant;

use burn::module::Module;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{Learner, LearningComponentsMarker, TrainStep};

use super::control::{Requests, Stop};
use super::gradients::{self, Learned};
use super::intervene::frozen;
use super::loader::train_steps;
use super::observers::Observer;
use super::optimizer::Optimizer;
use super::reduce::Reduce;
use super::schedule::Scheduler;
use super::setup::Setup;
use super::side_by_side;
use super::state::RunState;
use super::step::{StepBatches, StepInfo, StepOutput, Trainee};
use super::stopping::Ended;
use crate::backend::DeviceWatch;
use crate::error::Result;
use crate::kernels::allocator;
use crate::ops::{self, sum_in_order};
use crate::workers::Shards;

/// The maximum number of steps whose losses stay on the device unread.
const MAX_UNREAD: usize = 256;

/// A run in memory.
pub struct Trainer<B: AutodiffBackend> {
    /// The config, the data, the schedule and the length of the run.
    pub setup: Setup,
    /// The model and its optimizer, on their device.
    pub learning: Learning<B>,
    /// The shards of a step, and their all-reduce over all processes.
    pub parallel: Parallel<B>,
    /// The steps, tokens and seconds until now, the best validation, and the rows of metrics.
    pub state: RunState,
    /// The observers, in the order of their calls.
    pub observers: Vec<Box<dyn Observer>>,
}

/// The model and its optimizer, on their device.
pub struct Learning<B: AutodiffBackend> {
    /// The model with its optimizer and schedule.
    pub learner: Learner<LearningComponentsMarker<B, Scheduler, Trainee<B>, Optimizer<B>>>,
    /// The learner's optimizer, through its shared handle.
    pub optimizer: Optimizer<B>,
    /// The outputs of steps that are not read from the device yet.
    pub unread: Vec<StepOutput<B::InnerBackend>>,
    /// The device.
    pub device: B::Device,
    /// The device health check, which reports failures before a result is trusted.
    pub watch: DeviceWatch,
}

/// The shards of a step.
pub struct Parallel<B: AutodiffBackend> {
    /// The shards of the step, and the range that this process computes.
    pub shards: Shards,
    /// The number of shards that this process computes at once.
    pub at_once: usize,
    /// The all-reduce over all processes.
    pub reduce: Box<dyn Reduce<B>>,
}

/// The actions that follow a step.
#[derive(Debug, Clone, Copy)]
struct Due {
    logs: bool,
    reads: bool,
    validates: bool,
    /// True if a signal cut the run short: the other actions are done when the run resumes.
    is_cut_short: bool,
}

impl<B: AutodiffBackend> Trainer<B> {
    /// Trains until the run ends or pauses.
    pub(super) fn steps(&mut self) -> Result<Ended> {
        let (session, elapsed) = (Instant::now(), self.state.time.elapsed);
        if let Some(ended) = self.prepare()? {
            return Ok(ended);
        }
        allocator::keep_freed_memory();
        // The preparation of a batch counts as training time.
        let mut begun = Instant::now();
        for shards in self.data() {
            self.learning.learner.lr_step();
            let (learned, requests) = self.learn(shards)?;
            self.freeze();
            self.learning.learner.optimizer_step(learned.grads);
            self.count(learned.item, begun);
            self.state.time.elapsed = elapsed + session.elapsed().as_secs_f64();
            self.state.stop = requests.stop;

            let due = self.due(requests.wants_loss);
            if due.reads {
                self.read(due.logs)?;
            }
            self.observe_step();
            if !due.is_cut_short {
                self.observe_model()?;
            }
            let is_stale = due.validates && self.validate()?;
            let ended = self.ended(is_stale);
            if self.wants_checkpoint() || self.is_last() || ended.is_some() {
                self.checkpoint()?;
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
            begun = Instant::now();
        }
        Ok(Ended::Completed)
    }

    /// Returns the batches of the remaining steps.
    fn data(&self) -> impl Iterator<Item = Vec<StepBatches<B>>> + use<B> {
        let Setup { config, dataset, total, .. } = &self.setup;
        let (left, shards) = (self.state.step..*total, self.parallel.shards.clone());
        train_steps::<B>(config, dataset, left, shards, &self.learning.device)
    }

    /// Returns the actions that are due after the last step.
    fn due(&mut self, wants_loss: bool) -> Due {
        let (step, stop) = (self.state.step, self.stop());
        let Setup { config, total, steps_per_epoch, .. } = &self.setup;
        let logs = config.training.logs(step, *total, *steps_per_epoch);
        let is_cut_short = stop == Some(Ended::Interrupted) && !self.is_paused();
        // Without a validation, the weights of the end could be worse than those of the start.
        let is_first_validation = stop == Some(Ended::TimeLimit) && self.state.best.is_none();
        let validates = (self.setup.validates_at(step) || is_first_validation) && !is_cut_short;
        let reads = wants_loss || logs || validates || self.learning.unread.len() >= MAX_UNREAD;
        Due { logs, reads, validates, is_cut_short }
    }

    /// Does the work that is due before the first step of this session. Returns the way in which the run ends if no
    /// step follows.
    fn prepare(&mut self) -> Result<Option<Ended>> {
        if let Some((ended, _)) = self.finished() {
            return Ok(Some(ended));
        }
        if !self.is_last() && self.is_paused() {
            return Ok(Some(Ended::Paused));
        }
        self.observe_model()?;
        let is_stale = self.catch_up()?;
        match self.stop() {
            _ if is_stale && !self.is_last() => Ok(Some(Ended::EarlyStopped)),
            Some(Ended::Interrupted) => Ok(Some(Ended::Interrupted)),
            _ => Ok(None),
        }
    }

    /// Returns the gradients of a step, summed over the shards of all processes.
    fn learn(&mut self, shards: Vec<StepBatches<B>>) -> Result<(Learned<B>, Requests)> {
        let first = shards.first().expect("every worker has a shard");
        let info = StepInfo { step: first.step, tokens: first.tokens, is_measured: first.is_measured };
        let Self { learning: Learning { learner, device, .. }, parallel, setup, observers, .. } = self;
        let (at_once, run_seed) = (parallel.at_once, setup.config.run.seed);
        let has_thread_generators = parallel.shards.count > 1 && ops::is_on_host::<B>();
        let seed = |shard: &StepBatches<B>| {
            // Dropout is a pure function of (seed, step, shard).
            let seed = noise_seed(run_seed, shard.step, shard.shard);
            match has_thread_generators {
                true => ops::seed_this_thread(seed),
                false => ops::seed::<B>(device, seed),
            }
        };
        let model = learner.model();
        let learn = |group: Vec<StepBatches<B>>| -> Vec<Learned<B>> {
            let group = group.into_iter().filter(|shard| !shard.batches.is_empty());
            if at_once == 1 {
                return group.map(|shard| (seed(&shard), learner.train_step(shard)).1).collect();
            }
            // Autodiff computes the gradients of models with shared parameters one after another.
            let group = group.map(|shard| (model.clone().fork(device), shard)).collect();
            side_by_side::map(at_once, group, |(model, shard)| (seed(&shard), model.step(shard)).1)
        };
        // Group as many shards as fit into memory next to the model. The sum does not depend on the grouping.
        let per_pass = gradients::shards_per_pass(&model);
        let mut shards = shards.into_iter();
        let sums = std::iter::from_fn(|| {
            let group = shards.by_ref().take(per_pass).collect::<Vec<_>>();
            (!group.is_empty()).then(|| gradients::sum(&model, learn(group)))
        });
        let learned =
            sum_in_order(sums, |left, right| gradients::sum(&model, [left, right]).expect("there are two"));
        let own = Requests { stop: setup.control.stop(), ..Requests::default() };
        let requests = observers.iter_mut().map(|observer| observer.request()).fold(own, Requests::and);
        parallel.reduce.gradients(&model, learned, info, requests)
    }

    /// Tells the optimizer which weights the next update must not change.
    fn freeze(&self) {
        let (interventions, heads) =
            (&self.setup.config.training.intervene, self.setup.description.model.heads);
        if interventions.is_empty() {
            return;
        }
        let frozen = frozen(interventions, self.state.step, (&self.learning.learner.model().model, heads));
        self.learning.optimizer.state().frozen = frozen;
    }

    /// Counts a step that began at `begun`.
    fn count(&mut self, mut output: StepOutput<B::InnerBackend>, begun: Instant) {
        let Self { state, learning, .. } = self;
        state.step = output.step + 1;
        state.tokens += output.tokens as u64;
        let mut optimizer = learning.optimizer.state();
        state.updates = optimizer.step;
        output.gradient_norm = optimizer.gradient_norm.take();
        output.began = state.time.seconds;
        drop(optimizer);
        learning.unread.push(output);
        state.time.seconds += begun.elapsed().as_secs_f64();
    }

    /// Returns true if all steps are done.
    pub fn is_last(&self) -> bool {
        self.state.step == self.setup.total
    }

    /// Returns true if the run has reached the step after which it pauses.
    pub(super) fn is_paused(&self) -> bool {
        self.setup.control.until.is_some_and(|step| self.state.step >= step)
    }

    /// Returns true if a signal has asked a run with a single worker to end before the next validation. A run that a
    /// study pauses still needs that validation.
    pub(super) fn is_cut_short(&self) -> bool {
        let control = &self.setup.control;
        control.workers.count() == 1 && control.is_interrupted() && !self.is_paused()
    }

    /// Returns the way in which the run ends before its last step, if it has to stop.
    fn stop(&mut self) -> Option<Ended> {
        let control = &self.setup.control;
        if control.workers.count() == 1 {
            self.state.stop = control.stop().or(self.state.stop);
        }
        match self.state.stop {
            Some(Stop::Signal(_)) => Some(Ended::Interrupted),
            Some(Stop::TimeLimit) => Some(Ended::TimeLimit),
            None => self.is_paused().then_some(Ended::Paused),
        }
    }

    /// Returns the way in which the run ends after this step, if it does.
    fn ended(&mut self, is_stale: bool) -> Option<Ended> {
        match self.stop() {
            _ if self.is_last() && self.state.is_validated() => Some(Ended::Completed),
            _ if is_stale => Some(Ended::EarlyStopped),
            ended => ended,
        }
    }
}

/// Returns the seed of the noise in a shard of a step. SplitMix64 mixes seed, step and shard, so that neighbouring
/// seeds are uncorrelated (Steele, Lea and Flood, 2014).
fn noise_seed(seed: u64, step: usize, shard: usize) -> u64 {
    let mix = |seed: u64, number: usize| {
        let mut mixed = seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let of_step = mix(seed, step);
    if shard == 0 { of_step } else { mix(of_step, shard) }
}
