//! The trainer: a loop over optimizer steps, driven by Burn's `Learner` and watched by observers.
//!
//! Losses and norms stay on the device until a row, a validation or a checkpoint needs them, so that no step waits for
//! the device.

use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{Learner, LearningComponentsMarker, TrainStep};

use super::checkpoint::State;
use super::gradients::{self, Learned};
use super::history::History;
use super::loader::train_steps;
use super::observers::{EarlyStopping, Observer, early_stopping};
use super::optimizer::Optimizer;
use super::reduce::{Reduce, Requests, StepInfo};
use super::schedule::Scheduler;
use super::setup::Setup;
use super::side_by_side;
use super::step::{StepBatches, StepOutput, Trainee};
use super::stopping::Ended;
use crate::backend::DeviceWatch;
use crate::error::Result;
use crate::kernels::allocator;
use crate::ops::{self, sum_in_order};
use crate::terminal::RunStatus;
use crate::workers::Shards;

/// The maximum number of steps whose losses stay on the device unread.
const MAX_UNREAD: usize = 256;

/// The state of a run in memory.
pub struct Trainer<B: AutodiffBackend> {
    /// The fixed part of the run.
    pub setup: Setup,
    /// The model, its optimizer and the device.
    pub learning: Learning<B>,
    /// The shards of a step, and their all-reduce over all processes.
    pub parallel: Parallel<B>,
    /// The part of the run that a checkpoint keeps.
    pub state: State,
    /// The start of this session of the run.
    pub clock: Clock,
    /// The rows of `metrics.csv`.
    pub history: History,
    /// The observers, in the order of their calls.
    pub observers: Vec<Box<dyn Observer>>,
    /// The outputs of steps that are still on the device.
    pub unread: Vec<StepOutput<B::InnerBackend>>,
    /// The last training loss that was read.
    pub train_loss: Option<f64>,
    /// The requests that the processes agreed on at the last step.
    pub requests: Requests,
    /// The checkpoint that is being written.
    pub saving: Saving,
}

/// The model, its optimizer and its device.
pub struct Learning<B: AutodiffBackend> {
    /// The model with its optimizer and schedule.
    pub learner: Learner<LearningComponentsMarker<B, Scheduler, Trainee<B>, Optimizer<B>>>,
    /// The learner's optimizer, through its shared handle.
    pub optimizer: Optimizer<B>,
    /// The names of the model's parameters in visiting order.
    pub parameter_names: Vec<String>,
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

/// The start of a session of a run. A resumed run has several sessions.
pub struct Clock {
    /// The time of the start.
    pub begun: Instant,
    /// The state at the start.
    pub before: State,
}

/// The last checkpoint.
pub struct Saving {
    /// The step of the checkpoint.
    pub step: usize,
    /// The thread that writes the checkpoint while training continues.
    pub writing: Option<JoinHandle<Result<()>>>,
}

/// The actions that follow a step.
#[derive(Debug, Clone, Copy)]
struct Due {
    logs: bool,
    validates: bool,
    saves: bool,
    stop: Option<Ended>,
    /// True if a signal cut the run short: the other actions are done when the run resumes.
    is_cut_short: bool,
}

impl Clock {
    /// Starts the clock at a state.
    pub fn start(state: &State) -> Self {
        Self { begun: Instant::now(), before: state.clone() }
    }

    /// Returns the seconds of the run until now, validations and checkpoints included.
    fn elapsed(&self) -> f64 {
        self.before.time.elapsed + self.begun.elapsed().as_secs_f64()
    }
}

impl<B: AutodiffBackend> Trainer<B> {
    /// Trains until the run ends or pauses.
    pub(super) fn steps(&mut self) -> Result<Ended> {
        if let Some(ended) = self.prepare()? {
            return Ok(ended);
        }
        allocator::keep_freed_memory();
        // The preparation of a batch counts as training time.
        let mut begun = Instant::now();
        for shards in self.data() {
            self.learning.learner.lr_step();
            let learned = self.learn(shards)?;
            self.learning.learner.optimizer_step(learned.grads);
            self.count(learned.item, begun);

            let mut due = self.due();
            if due.logs || due.validates || due.saves || self.must_read_losses() {
                self.read(due.logs)?;
            }
            self.observe_step();
            if !due.is_cut_short {
                self.observe_model()?;
            }
            let is_stale = due.validates && self.validate()?;
            if due.validates && !self.is_validated() {
                due.stop = self.should_stop();
            }
            if due.saves || is_stale || due.stop.is_some() {
                self.save()?;
            }
            match due.stop {
                _ if self.is_last() && self.is_validated() => return Ok(Ended::Completed),
                _ if is_stale => return Ok(Ended::EarlyStopped),
                Some(ended) => return Ok(ended),
                None => begun = Instant::now(),
            }
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
    fn due(&mut self) -> Due {
        let (step, is_last, stop) = (self.state.step, self.is_last(), self.should_stop());
        let Setup { config, total, steps_per_epoch, .. } = &self.setup;
        let logs = config.training.logs(step, *total, *steps_per_epoch);
        let is_cut_short = stop == Some(Ended::Interrupted) && !self.is_paused();
        // Without a validation, the weights of the end could be worse than those of the start.
        let is_first_validation = stop == Some(Ended::TimeLimit) && self.state.best.is_none();
        let validates = (self.setup.validates_at(step) || is_first_validation) && !is_cut_short;
        let is_checkpoint = match config.training.checkpoint_every {
            0 => validates,
            every => step.is_multiple_of(every),
        };
        Due { logs, validates, saves: is_checkpoint || is_last || stop.is_some(), stop, is_cut_short }
    }

    fn must_read_losses(&self) -> bool {
        self.requests.wants_loss || self.unread.len() >= MAX_UNREAD
    }

    /// Does the work that is due before the first step of this session. Returns the way in which the run ends if no
    /// step follows.
    fn prepare(&mut self) -> Result<Option<Ended>> {
        let stopping = self.state.part::<EarlyStopping>(early_stopping::NAME)?;
        if stopping.is_stale(&self.setup.config.training) {
            return Ok(Some(Ended::EarlyStopped));
        }
        if !self.is_last() && self.is_paused() {
            return Ok(Some(Ended::Paused));
        }
        self.observe_model()?;
        let is_stale = self.catch_up()?;
        match self.should_stop() {
            _ if is_stale && !self.is_last() => Ok(Some(Ended::EarlyStopped)),
            Some(Ended::Interrupted) => Ok(Some(Ended::Interrupted)),
            _ => Ok(None),
        }
    }

    /// Returns the gradients of a step, summed over the shards of all processes.
    fn learn(&mut self, shards: Vec<StepBatches<B>>) -> Result<Learned<B>> {
        let first = shards.first().expect("every worker has a shard");
        let info = StepInfo { step: first.step, tokens: first.tokens, is_measured: first.is_measured };
        let (is_late, mut wants_loss) = (self.is_late(), false);
        self.observers.iter_mut().for_each(|observer| wants_loss |= observer.wants_loss());
        let requests = Requests { signal: 0, is_late, wants_loss };
        let Self { learning: Learning { learner, device, .. }, parallel, setup, .. } = self;
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
        let (learned, requests) = parallel.reduce.gradients(&model, learned, info, requests)?;
        self.requests = requests;
        Ok(learned)
    }

    /// Returns true if the run has reached its time limit.
    fn is_late(&self) -> bool {
        let limit = self.setup.config.training.max_minutes * 60.0;
        limit > 0.0 && self.clock.elapsed() >= limit
    }

    /// Counts a step that began at `begun`.
    fn count(&mut self, mut output: StepOutput<B::InnerBackend>, begun: Instant) {
        let Self { state, clock, learning, .. } = self;
        state.step = output.step + 1;
        state.tokens += output.tokens as u64;
        let mut optimizer = learning.optimizer.state();
        state.updates = optimizer.step;
        output.gradient_norm = optimizer.gradient_norm.take();
        output.began = state.time.seconds;
        self.unread.push(output);
        state.time.seconds += begun.elapsed().as_secs_f64();
        state.time.elapsed = clock.elapsed();
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

    fn should_stop(&mut self) -> Option<Ended> {
        let control = &self.setup.control;
        if control.workers.count() == 1 && control.is_interrupted() {
            self.requests.signal = control.signal.load(Ordering::Relaxed);
        }
        if self.requests.signal != 0 {
            Some(Ended::Interrupted)
        } else if self.requests.is_late {
            Some(Ended::TimeLimit)
        } else if self.is_paused() {
            Some(Ended::Paused)
        } else {
            None
        }
    }

    /// Returns the epoch of the last step, counted from 1. The count never decreases, even if a run resumes with longer
    /// epochs.
    pub fn epoch(&self) -> usize {
        let before = self.history.rows.last().map_or(1, |row| row.epoch);
        self.state.step.div_ceil(self.setup.steps_per_epoch).max(before)
    }

    /// Returns the learning rate of the last step, or of the first step before any is done.
    pub fn learning_rate(&self) -> f64 {
        self.setup.schedule.at(self.state.step.saturating_sub(1))
    }

    /// Returns the numbers that the progress display shows.
    pub fn status(&self) -> RunStatus {
        let Self { state, clock: Clock { begun, before }, .. } = self;
        let seconds_per_step = begun.elapsed().as_secs_f64() / (state.step - before.step).max(1) as f64;
        RunStatus {
            step: state.step,
            epoch: self.epoch(),
            train_loss: self.train_loss,
            learning_rate: self.learning_rate(),
            tokens_per_second: (state.tokens - before.tokens) as f64
                / (state.time.seconds - before.time.seconds).max(1e-9),
            // Includes validations and checkpoints between steps.
            seconds_left: seconds_per_step * (self.setup.total - state.step) as f64,
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
