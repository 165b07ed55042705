//! The progress display in the terminal.

use super::{Decision, Moment, Observer};
use crate::error::Result;
use crate::terminal::Progress;
use crate::training::checkpoint::State;
use crate::training::setup::Setup;

/// The progress display of a run.
pub struct ProgressDisplay(Progress);

impl ProgressDisplay {
    /// Creates the display of a run from the step of a checkpoint.
    pub fn new(setup: &Setup, state: &State) -> Self {
        let floor = setup.dataset.floor.map(|floor| floor.valid);
        Self(Progress::new(setup.control.progress, state.step, setup.total, floor))
    }
}

impl Observer for ProgressDisplay {
    fn wants_loss(&mut self) -> bool {
        self.0.wants_loss()
    }

    fn step(&mut self, moment: &Moment<'_>) {
        self.0.step(&moment.status);
    }

    fn validation(&mut self, moment: &Moment<'_>) -> Result<Decision> {
        if let Some(row) = moment.rows.last() {
            self.0.validated(&moment.status, row.loss, row.accuracy);
        }
        Ok(Decision::Continue)
    }

    fn end(&mut self) {
        self.0.finish();
    }
}
