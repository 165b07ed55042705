//! The fixed part of a run: its config, data and length.

use super::control::Control;
use super::run_folder::RunFolder;
use super::schedule::Schedule;
use super::start::warnings;
use crate::config::Config;
use crate::data::Dataset;
use crate::error::Error;
use crate::weights::native::Description;

/// The fixed part of a run.
#[derive(Debug)]
pub struct Setup {
    /// The config.
    pub config: Config,
    /// The device, the workers, and how the run is stopped from outside.
    pub control: Control,
    /// The run folder.
    pub folder: RunFolder,
    /// The training and the validation set.
    pub dataset: Dataset,
    /// The model's config and sizes, which go with its weights.
    pub description: Description,
    /// Steps per epoch.
    pub steps_per_epoch: usize,
    /// Steps of the whole run.
    pub total: usize,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// Warnings about data and keys.
    pub warnings: Vec<String>,
}

impl Setup {
    /// The setup of a run in `folder`, whose weights have a `description`.
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

    /// Returns whether a validation follows a step.
    pub fn validates(&self, step: usize) -> bool {
        self.config.training.validates(step, self.total, self.steps_per_epoch)
    }

    /// Returns the error of a run that diverged at `step` because of `what`. Whose weights are kept is known at its end.
    pub fn diverged(&self, step: usize, what: String) -> Error {
        let (kept, weights, advice) = (self.folder.model(), String::new(), self.config.training.calmer());
        Error::Diverged { step, what, advice, kept, weights }
    }
}
