//! What a run under way consists of: its settings, how far it has got, and what it writes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use burn::prelude::*;
use burn::tensor::backend::DeviceOps;
use burn::train::LearningComponentsMarker;

use super::checkpoint::State;
use super::checkpoint_writer::CheckpointWriter;
use super::history::History;
use super::optimizer::Optimizer;
use super::pace::Pace;
use super::run_folder::RunFolder;
use super::schedule::Scheduler;
use super::step::{StepOutput, Trainee};
use crate::analysis::HeadHistory;
use crate::backend::{Device, DeviceWatch};
use crate::config::Config;
use crate::data::Sequences;
use crate::error::Error;
use crate::ops;
use crate::terminal::{Progress, ProgressKind, RunStatus};
use crate::weights::native::Description;

/// How a run is watched and stopped.
#[derive(Debug, Clone)]
pub struct Control {
    /// How progress is shown.
    pub progress: ProgressKind,
    /// Set to a signal's number, stops the run after the step under way; 0: go on.
    pub signal: Arc<AtomicUsize>,
    /// What computes.
    pub device: Device,
    /// The step after which the run pauses, though its schedule spans more: a rung of a study. None: it goes on
    /// to its end.
    pub until: Option<usize>,
}

/// The parts that Burn's learner puts together.
pub type Parts<B> = LearningComponentsMarker<B, Scheduler, Trainee<B>, Optimizer<B>>;

/// A run under way: everything but the model.
pub struct Run<B: ops::AutodiffBackend> {
    /// What does not change.
    pub settings: Settings,
    /// How far it has got.
    pub course: Course<B::InnerBackend>,
    /// What it writes, and what it listens to.
    pub outputs: Outputs,
    /// The learner's optimizer, by its shared handle.
    pub optimizer: Optimizer<B>,
}

/// What does not change while a run lasts.
pub struct Settings {
    /// The run's config.
    pub config: Config,
    /// The model's config and sizes, which go with its weights.
    pub description: Description,
    /// The model's parameters in visiting order.
    pub parameter_names: Vec<String>,
    /// The sequences on which heads are scored.
    pub valid: Sequences,
    /// Steps per epoch.
    pub steps_per_epoch: usize,
    /// Steps of the whole run.
    pub total: usize,
    /// The step after which it pauses.
    pub until: Option<usize>,
}

/// How far a run has got.
pub struct Course<B: Backend> {
    /// What a checkpoint keeps.
    pub state: State,
    /// The rows of `metrics.csv`.
    pub history: History,
    /// The scores of heads along the run.
    pub heads: HeadHistory,
    /// What steps left on the device that was not read yet.
    pub unread: Vec<Unread<B>>,
    /// The last training loss that was read.
    pub train_loss: Option<f64>,
    /// When this part of the run began, and what the state counted then.
    pub pace: Pace,
}

/// What a run writes, and what it listens to.
pub struct Outputs {
    /// Where it is written down.
    pub folder: RunFolder,
    /// What tells that the device has failed, before anything that it computed is written down.
    pub watch: DeviceWatch,
    /// Writes its checkpoints.
    pub writer: CheckpointWriter,
    /// The step of the last checkpoint.
    pub saved: usize,
    /// What a person sees.
    pub progress: Progress,
    /// The signal that asks for the end; 0: none.
    pub signal: Arc<AtomicUsize>,
}

/// What a step left on the device: read when somebody asks.
pub struct Unread<B: Backend> {
    pub output: StepOutput<B>,
    pub gradient_norm: Tensor<B, 1>,
}

impl<B: Backend> Course<B> {
    /// A run as its checkpoint and its tables know it.
    pub fn new(state: State, history: History, heads: HeadHistory) -> Self {
        Self { pace: Pace::from(&state), state, history, heads, unread: Vec::new(), train_loss: None }
    }
}

impl Outputs {
    /// The outputs of a run that goes on from the step `first` of `total` steps.
    pub fn new(
        folder: RunFolder,
        control: &Control,
        device: &impl DeviceOps,
        (first, total): (usize, usize),
        floor: Option<f64>,
    ) -> Self {
        Self {
            folder,
            watch: DeviceWatch::begin(&control.device, device),
            writer: CheckpointWriter::default(),
            saved: first,
            progress: Progress::new(control.progress, first, total, floor),
            signal: control.signal.clone(),
        }
    }
}

impl Settings {
    pub fn epoch(&self, step: usize) -> usize {
        step.div_ceil(self.steps_per_epoch).max(1)
    }

    pub fn validates_at(&self, step: usize) -> bool {
        let every = match self.config.training.validate_every {
            0 => self.steps_per_epoch,
            steps => steps,
        };
        step.is_multiple_of(every) || self.config.training.validate_at.contains(&step) || step == self.total
    }
}

impl<B: ops::AutodiffBackend> Run<B> {
    /// Whether all steps are done.
    pub fn is_last(&self) -> bool {
        self.course.state.step == self.settings.total
    }

    /// The error of a run in which `what` is no longer finite at `step`.
    pub fn diverged(&self, step: usize, what: String) -> Error {
        Error::Diverged { step, what, kept: self.outputs.folder.model() }
    }

    /// What a person sees of the run.
    pub fn status(&self, learning_rate: f64) -> RunStatus {
        let Course { state, pace, train_loss, .. } = &self.course;
        RunStatus {
            step: state.step,
            total: self.settings.total,
            epoch: self.settings.epoch(state.step),
            train_loss: *train_loss,
            learning_rate,
            tokens_per_second: pace.tokens_per_second(state),
            seconds_left: pace.seconds_per_step(state) * (self.settings.total - state.step) as f64,
        }
    }
}
