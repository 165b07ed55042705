//! What a run under way consists of: its settings, how far it has got, and what it writes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use burn::prelude::*;
use burn::train::{Learner, LearningComponentsMarker};

use super::checkpoint::State;
use super::checkpoint_writer::CheckpointWriter;
use super::history::History;
use super::optimizer::Optimizer;
use super::run_folder::RunFolder;
use super::schedule::Scheduler;
use super::step::{StepOutput, Trainee};
use crate::analysis::HeadHistory;
use crate::backend::{Device, DeviceWatch};
use crate::config::Config;
use crate::data::{Loader, Sequences};
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

/// A run under way.
pub struct Run<B: ops::AutodiffBackend> {
    /// What does not change.
    pub settings: Settings,
    /// How far it has got.
    pub course: Course<B::InnerBackend>,
    /// What it writes, and what it listens to.
    pub outputs: Outputs,
    /// The model with its optimizer and schedule.
    pub learner: Learner<LearningComponentsMarker<B, Scheduler, Trainee<B>, Optimizer<B>>>,
    /// The learner's optimizer, by its shared handle.
    pub optimizer: Optimizer<B>,
    /// Burn's name for what computes.
    pub device: B::Device,
}

/// What does not change while a run lasts.
pub struct Settings {
    /// The run's config.
    pub config: Config,
    /// How it is watched and stopped.
    pub control: Control,
    /// The model's config and sizes, which go with its weights.
    pub description: Description,
    /// The model's parameters in visiting order.
    pub parameter_names: Vec<String>,
    /// The validation set, on which heads are scored too.
    pub valid: Sequences,
    /// Its batches.
    pub valid_loader: Loader,
    /// The lowest loss that is possible on it, in nats per token, where it is known.
    pub floor: Option<f64>,
    /// Steps per epoch.
    pub steps_per_epoch: usize,
    /// Steps of the whole run.
    pub total: usize,
    /// What a person should know of the run's data and keys.
    pub warnings: Vec<String>,
}

/// How far a run has got.
pub struct Course<B: Backend> {
    /// What a checkpoint keeps.
    pub state: State,
    /// The rows of `metrics.csv`.
    pub history: History,
    /// The scores of heads along the run.
    pub heads: HeadHistory,
    /// What steps left on the device that was not read yet: what they say, and the norm of their gradients.
    pub unread: Vec<(StepOutput<B>, Tensor<B, 1>)>,
    /// The last training loss that was read.
    pub train_loss: Option<f64>,
    /// When this part of the run began, and the state then: a resumed run has earlier parts.
    pub begun: (Instant, State),
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
}

impl Settings {
    /// The epoch that a step belongs to, counted from 1.
    pub fn epoch(&self, step: usize) -> usize {
        step.div_ceil(self.steps_per_epoch).max(1)
    }

    /// Whether a validation follows a step.
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
    pub fn status(&self) -> RunStatus {
        let Course { state, train_loss, begun: (begun, before), .. } = &self.course;
        let seconds_per_step = begun.elapsed().as_secs_f64() / (state.step - before.step).max(1) as f64;
        RunStatus {
            step: state.step,
            total: self.settings.total,
            epoch: self.settings.epoch(state.step),
            train_loss: *train_loss,
            learning_rate: self.learner.lr_current(),
            tokens_per_second: (state.tokens - before.tokens) as f64
                / (state.seconds - before.seconds).max(1e-9),
            // With all that happens between steps.
            seconds_left: seconds_per_step * (self.settings.total - state.step) as f64,
        }
    }
}
