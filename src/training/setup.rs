//! The parts of a run that stay fixed: its config, data and length.

use super::control::Control;
use super::run_folder::RunFolder;
use super::schedule::Schedule;
use super::state::RunState;
use super::warnings::warnings;
use crate::config::Config;
use crate::data::Dataset;
use crate::error::Error;
use crate::weights::native::Description;

/// The fixed part of a run.
#[derive(Debug)]
pub struct Setup {
    /// The config.
    pub config: Config,
    /// The device, the workers, the progress display and the stop signal.
    pub control: Control,
    /// The run folder.
    pub folder: RunFolder,
    /// The training and the validation set.
    pub dataset: Dataset,
    /// The model's config and sizes, which belong to its weights.
    pub description: Description,
    /// The number of steps per epoch.
    pub steps_per_epoch: usize,
    /// The number of steps of the run.
    pub total: usize,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// Warnings about data and keys.
    pub warnings: Vec<String>,
}

impl Setup {
    /// Returns the setup of a run in `folder`, whose weights have this `description`.
    pub fn new(
        config: &Config,
        control: &Control,
        folder: RunFolder,
        dataset: Dataset,
        description: Description,
    ) -> Self {
        let training = &config.training;
        let batches = dataset.train.len().div_ceil(training.batch_size);
        let total = training.total_steps(batches);
        Self {
            config: config.clone(),
            control: control.clone(),
            folder,
            description,
            steps_per_epoch: training.steps_per_epoch(batches),
            total,
            schedule: Schedule::new(training, total),
            warnings: warnings(config, &dataset, total, &control.device),
            dataset,
        }
    }

    /// Returns true if a validation follows this step.
    pub fn validates_at(&self, step: usize) -> bool {
        self.config.training.validates_at(step, self.total, self.steps_per_epoch)
    }

    /// Returns the epoch of the last step, counted from 1. The count never decreases, even if a run resumes with longer
    /// epochs.
    pub fn epoch(&self, state: &RunState) -> usize {
        let before = state.rows.last().map_or(1, |row| row.epoch);
        state.step.div_ceil(self.steps_per_epoch).max(before)
    }

    /// Returns the learning rate of the last step, or of the first step before any is done.
    pub fn learning_rate(&self, state: &RunState) -> f64 {
        self.schedule.at(state.step.saturating_sub(1))
    }

    /// Returns the error of a run that diverged at `step`, with `what` as the reason. The description of the kept
    /// weights is added when the run ends.
    pub fn diverged(&self, step: usize, what: String) -> Error {
        let (kept, weights, advice) =
            (self.folder.model(), String::new(), self.config.training.divergence_advice());
        Error::Diverged { step, what, advice, kept, weights }
    }
}
