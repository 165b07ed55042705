//! The progress display in the terminal.

use std::time::Instant;

use super::{Decision, Moment, Observer};
use crate::error::Result;
use crate::terminal::{Progress, RunStatus};
use crate::training::control::Requests;
use crate::training::metrics::{Row, Split};
use crate::training::setup::Setup;
use crate::training::state::RunState;

/// The progress display of a run.
pub struct ProgressDisplay {
    progress: Progress,
    /// The time at which this session of the run began, and the step, tokens and seconds of training before it.
    begun: Instant,
    before: (usize, u64, f64),
    /// The last training loss that was read.
    train_loss: Option<f64>,
    is_smoothed: bool,
}

impl ProgressDisplay {
    /// Creates the display of a run from the step of a checkpoint.
    pub fn new(setup: &Setup, state: &RunState) -> Self {
        let floor = setup.dataset.floor.map(|floor| floor.valid);
        Self {
            progress: Progress::new(setup.control.progress, state.step, setup.total, floor),
            begun: Instant::now(),
            before: (state.step, state.tokens, state.time.seconds),
            train_loss: None,
            is_smoothed: setup.config.training.label_smoothing > 0.0,
        }
    }

    fn status(&self, Moment { setup, state, .. }: &Moment<'_>) -> RunStatus {
        let (step, tokens, seconds) = self.before;
        let seconds_per_step = self.begun.elapsed().as_secs_f64() / (state.step - step).max(1) as f64;
        RunStatus {
            step: state.step,
            epoch: setup.epoch(state),
            train_loss: self.train_loss,
            learning_rate: setup.learning_rate(state),
            tokens_per_second: (state.tokens - tokens) as f64 / (state.time.seconds - seconds).max(1e-9),
            // Includes validations and checkpoints between steps.
            seconds_left: seconds_per_step * (setup.total - state.step) as f64,
        }
    }
}

impl Observer for ProgressDisplay {
    fn request(&mut self) -> Requests {
        Requests { wants_loss: self.progress.wants_loss(), stop: None }
    }

    fn loss(&mut self, _step: usize, loss: f64) {
        // The display compares this loss with the validation loss, so both are without label smoothing.
        if !self.is_smoothed {
            self.train_loss = Some(loss);
        }
    }

    fn row(&mut self, rows: &[Row]) -> Result<()> {
        if let Some(row) = rows.last().filter(|row| row.split == Split::Train) {
            self.train_loss = Some(row.loss);
        }
        Ok(())
    }

    fn step(&mut self, moment: &Moment<'_>) {
        self.progress.step(&self.status(moment));
    }

    fn validation(&mut self, moment: &Moment<'_>) -> Result<Decision> {
        if let Some(row) = moment.state.rows.last() {
            self.progress.validated(&self.status(moment), row.loss, row.accuracy);
        }
        Ok(Decision::Continue)
    }

    fn end(&mut self) -> Result<()> {
        self.progress.finish();
        Ok(())
    }
}
