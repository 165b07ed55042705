//! How fast a run goes, counted from where this part of it began: a resumed run has earlier ones.

use std::time::Instant;

use super::checkpoint::State;

/// When this part of a run began, and what its state counted then.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    start: Instant,
    elapsed_before: f64,
    seconds_before: f64,
    tokens_before: u64,
    step_before: usize,
}

impl Pace {
    /// Starts the clock for a run that is at `state`.
    pub fn from(state: &State) -> Self {
        Self {
            start: Instant::now(),
            elapsed_before: state.elapsed,
            seconds_before: state.seconds,
            tokens_before: state.tokens,
            step_before: state.step,
        }
    }

    /// Seconds of all parts of the run, with all that is not training.
    pub fn elapsed(&self) -> f64 {
        self.elapsed_before + self.start.elapsed().as_secs_f64()
    }

    /// Of training alone.
    pub fn tokens_per_second(&self, state: &State) -> f64 {
        (state.tokens - self.tokens_before) as f64 / (state.seconds - self.seconds_before).max(1e-9)
    }

    /// With all that happens between steps.
    pub fn seconds_per_step(&self, state: &State) -> f64 {
        self.start.elapsed().as_secs_f64() / (state.step - self.step_before).max(1) as f64
    }
}
