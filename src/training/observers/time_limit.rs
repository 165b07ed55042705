//! The time limit `training.max_minutes`.

use std::time::Instant;

use super::Observer;
use crate::training::control::{Requests, Stop};
use crate::training::setup::Setup;
use crate::training::state::RunState;

/// An observer that stops a run at its time limit.
pub struct TimeLimit {
    /// The seconds left at `begun`. `None` without a limit.
    left: Option<f64>,
    begun: Instant,
}

impl TimeLimit {
    /// Returns the time limit of a run that continues from `state`.
    pub fn new(setup: &Setup, state: &RunState) -> Self {
        let limit = setup.config.training.max_minutes * 60.0;
        Self { left: (limit > 0.0).then_some(limit - state.time.elapsed), begun: Instant::now() }
    }
}

impl Observer for TimeLimit {
    fn request(&mut self) -> Requests {
        let is_late = self.left.is_some_and(|left| self.begun.elapsed().as_secs_f64() >= left);
        Requests { stop: is_late.then_some(Stop::TimeLimit), ..Requests::default() }
    }
}
