//! Monitoring and stopping a run, and the workers that share it.

use super::stop_signal::StopSignal;
use crate::backend::Device;
use crate::terminal::ProgressKind;
use crate::workers::Workers;

/// A reason to stop a run before its last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A signal with this number.
    Signal(usize),
    /// The time limit.
    TimeLimit,
}

/// The requests of an observer or a process, made before a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Stops the run after the step.
    pub stop: Option<Stop>,
    /// Reads the loss of the step from the device, which blocks until the device is done.
    pub wants_loss: bool,
}

impl Requests {
    /// Combines two requests. The first reason to stop counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { stop: self.stop.or(other.stop), wants_loss: self.wants_loss || other.wants_loss }
    }
}

/// The progress display, stop signal, device and workers of a run.
#[derive(Debug, Clone)]
pub struct Control {
    /// The kind of progress display.
    pub progress: ProgressKind,
    /// The signal that stops the run after the current step.
    pub signal: StopSignal,
    /// The device that the run computes on.
    pub device: Device,
    /// The step after which the run pauses, although its schedule is longer, for example a rung of a study. `None` to
    /// train to the end.
    pub until: Option<usize>,
    /// The workers that share the steps.
    pub workers: Workers,
}

impl Control {
    /// Returns true if a signal has asked the run to end.
    pub fn is_interrupted(&self) -> bool {
        self.signal.received().is_some()
    }

    /// Returns the signal that has asked the run to end.
    pub(super) fn stop(&self) -> Option<Stop> {
        self.signal.received().map(Stop::Signal)
    }

    /// Returns the control of a run on `device` to its end, without progress display, in this process only.
    pub fn unwatched(device: Device) -> Self {
        Self {
            progress: ProgressKind::None,
            signal: StopSignal::default(),
            device,
            until: None,
            workers: Workers::single(),
        }
    }
}
