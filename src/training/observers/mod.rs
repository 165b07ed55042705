//! Observers: recording, display and decisions between the steps of a run.
//!
//! An observer reads everything, but changes only its own files, its part of a checkpoint, and, by a [`Decision`] or
//! [`Requests`], the end of the run. To add one, write a file here and add it to the list in `default_observers`. A
//! program that uses the library passes its own observers to [`train`](super::train).
//!
//! The order of the list matters: early stopping decides before a lasting explosion is an error. Failures of the device
//! are not left to an observer, because a result is trusted only after the check: observers see trusted results.

mod checkpoints;
mod early_stopping;
mod explosion;
mod head_scores;
mod metrics_log;
mod progress;
mod snapshots;
mod tensorboard;
mod time_limit;
mod weight_copies;

pub use early_stopping::EarlyStopping;
pub use explosion::Explosion;
pub use weight_copies::weight_copies;

use std::path::PathBuf;

use serde_json::Value;

pub use super::control::{Requests, Stop};
use super::metrics::Row;
use super::setup::Setup;
use super::state::RunState;
use super::stopping::Ended;
use crate::analysis::{HeadScores, Sample, View};
use crate::error::Result;
use crate::evaluation::Evaluation;
use crate::weights::native::Tensors;

/// The moment between two steps at which observers are called.
pub struct Moment<'a> {
    /// The fixed part of the run: config, data, folder, length.
    pub setup: &'a Setup,
    /// The steps, tokens and seconds until now, the best validation, and the rows of metrics, the newest one last.
    pub state: &'a RunState,
    /// True if the run ends here, according to the observers before this one.
    pub is_ending: bool,
}

/// Access to the model at a moment, on any backend. Every result comes from a device that has passed its health check.
pub trait ModelAccess {
    /// Returns the scores of the heads over the first sequences of the validation set, `[layer][head]`.
    ///
    /// # Errors
    /// If the device fails.
    fn score_heads(&self, setup: &Setup) -> Result<Vec<Vec<HeadScores>>>;

    /// Evaluates the model on the first validation sequences, as many as heads are scored on.
    ///
    /// # Errors
    /// If the device fails.
    fn evaluate(&self, setup: &Setup) -> Result<Evaluation>;

    /// Returns the attention weights and the predictions for one sequence.
    ///
    /// # Errors
    /// If the device fails.
    fn view(&self, sample: &Sample) -> Result<View>;

    /// Returns the weights by the names of the parameters, on the host.
    ///
    /// # Errors
    /// If the device fails.
    fn weights(&self) -> Result<Tensors>;

    /// Returns the moments of the optimizer, `<parameter>.first` and `<parameter>.second`, on the host.
    ///
    /// # Errors
    /// If the device fails.
    fn moments(&self) -> Result<Tensors>;
}

/// The decision of an observer at a validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The run continues.
    Continue,
    /// The run continues, and this validation cannot be the best one.
    Distrust,
    /// The run stops early.
    Stop,
}

/// An observer of a run. Every method has a default that does nothing.
pub trait Observer: Send {
    /// Returns the path of the observer's file, to which the run appends, if there is one.
    fn file(&self) -> Option<PathBuf> {
        None
    }

    /// Truncates the file to the step from which the run continues. Only worker 0 calls this method.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn start(&mut self, moment: &Moment<'_>) -> Result<()> {
        let _ = moment;
        Ok(())
    }

    /// Returns how and why the run has ended already, according to the restored part. Asked before the first step.
    fn finished(&self, moment: &Moment<'_>) -> Option<(Ended, String)> {
        let _ = moment;
        None
    }

    /// Returns advice, instead of the usual one, for a run that diverges after it continued from the restored part.
    fn advice(&self, moment: &Moment<'_>) -> Option<String> {
        let _ = moment;
        None
    }

    /// Returns false if the current weights of a diverged run must not be kept.
    fn trusts_weights(&self) -> bool {
        true
    }

    /// Returns what the observer requests at each step. The requests of worker 0 count.
    fn request(&mut self) -> Requests {
        Requests::default()
    }

    /// Observes the loss of a training step once it has been read from the device.
    fn loss(&mut self, step: usize, loss: f64) {
        let _ = (step, loss);
    }

    /// Observes a new row, the last of `rows`.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn row(&mut self, rows: &[Row]) -> Result<()> {
        let _ = rows;
        Ok(())
    }

    /// Observes a step.
    fn step(&mut self, moment: &Moment<'_>) {
        let _ = moment;
    }

    /// Returns true if [`model`](Self::model) should be called after this step. It is called before the first step too.
    fn wants_model(&self, moment: &Moment<'_>) -> bool {
        let _ = moment;
        false
    }

    /// Observes the model after a step with a finite loss. Only worker 0 calls this method.
    ///
    /// # Errors
    /// If the device fails, or a file cannot be written.
    fn model(&mut self, moment: &Moment<'_>, model: &dyn ModelAccess) -> Result<()> {
        let _ = (moment, model);
        Ok(())
    }

    /// Observes a validation, the last row of the state.
    ///
    /// # Errors
    /// [`Error::Diverged`](crate::Error::Diverged) if the run must not continue.
    fn validation(&mut self, moment: &Moment<'_>) -> Result<Decision> {
        let _ = moment;
        Ok(Decision::Continue)
    }

    /// Restores the observer's part of the checkpoint from which the run continues. Called on every worker, before
    /// [`start`](Self::start).
    ///
    /// # Errors
    /// If the part cannot be deserialised.
    fn restore(&mut self, part: &Value) -> Result<(), serde_json::Error> {
        let _ = part;
        Ok(())
    }

    /// Returns the name and the value of the observer's part of a checkpoint, if there is one.
    fn part(&self) -> Option<(&'static str, Value)> {
        None
    }

    /// Returns true if a checkpoint is due after this step. The last step, the best validation and a stop always have one.
    fn wants_checkpoint(&self, moment: &Moment<'_>) -> bool {
        let _ = moment;
        false
    }

    /// Observes a state from which the run can resume. The state has the parts of all observers.
    ///
    /// # Errors
    /// If the device fails, a file cannot be written, or with [`Error::Diverged`](crate::Error::Diverged) if the run
    /// cannot resume from this state.
    fn checkpoint(&mut self, moment: &Moment<'_>, model: &dyn ModelAccess) -> Result<()> {
        let _ = (moment, model);
        Ok(())
    }

    /// Called once when training ends or pauses.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Restores the observers from their parts of the checkpoint of `state`.
///
/// # Errors
/// If a part cannot be read.
pub(super) fn restore(observers: &mut [Box<dyn Observer>], state: &RunState) -> Result<()> {
    observers.iter_mut().try_for_each(|observer| {
        let Some((name, _)) = observer.part() else { return Ok(()) };
        let Some(part) = state.parts.get(name) else { return Ok(()) };
        observer.restore(part).map_err(|error| state.damaged(name, &error))
    })
}

/// Opens the observers of every run at the checkpoint of `state`, and sets its rows. Changes no file yet.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn default_observers(setup: &Setup, state: &mut RunState) -> Result<Vec<Box<dyn Observer>>> {
    let (metrics_log, rows) = metrics_log::MetricsLog::open(setup, state)?;
    state.rows = rows;
    Ok(vec![
        Box::new(metrics_log),
        Box::new(tensorboard::TensorBoard::new(setup)),
        Box::new(EarlyStopping::default()),
        Box::new(progress::ProgressDisplay::new(setup, state)),
        Box::new(Explosion::default()),
        Box::new(head_scores::HeadScoreLog::open(setup, state)?),
        Box::new(snapshots::SnapshotLog::open(setup, state)?),
        Box::new(weight_copies::WeightCopies::default()),
        Box::new(time_limit::TimeLimit::new(setup, state)),
        Box::new(checkpoints::Checkpoints::new(state)),
    ])
}

#[cfg(test)]
mod tests;
