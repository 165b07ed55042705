//! Monitoring and stopping a run, and the workers that share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::Device;
use crate::terminal::ProgressKind;
use crate::workers::Workers;

/// The value of `signal` while there is no unsaved work. The first signal then ends the program immediately.
pub const NO_UNSAVED_WORK: usize = usize::MAX;

/// Makes the first signal stop the run after its state is saved, instead of ending the program.
pub fn defer_signal(signal: &AtomicUsize) {
    let _ = signal.compare_exchange(NO_UNSAVED_WORK, 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns true if a signal has arrived since [`defer_signal`].
pub(super) fn has_signal(signal: &AtomicUsize) -> bool {
    !matches!(signal.load(Ordering::Relaxed), 0 | NO_UNSAVED_WORK)
}

/// Reverts [`defer_signal`] once everything is saved. Returns the signal that arrived before.
pub(super) fn stop_deferring(signal: &AtomicUsize) -> Option<usize> {
    let received = signal.compare_exchange(0, NO_UNSAVED_WORK, Ordering::Relaxed, Ordering::Relaxed);
    received.err().filter(|&signal| signal != NO_UNSAVED_WORK)
}

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
    /// The stop signal. A signal's number stops the run after the current step, 0 lets it continue, and
    /// [`NO_UNSAVED_WORK`] means that the run has not begun.
    pub signal: Arc<AtomicUsize>,
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
        has_signal(&self.signal)
    }

    /// Returns the signal that has asked the run to end.
    pub(super) fn stop(&self) -> Option<Stop> {
        self.is_interrupted().then(|| Stop::Signal(self.signal.load(Ordering::Relaxed)))
    }

    /// Returns the control of a run on `device` to its end, without progress display, in this process only.
    pub fn unwatched(device: Device) -> Self {
        Self {
            progress: ProgressKind::None,
            signal: Arc::default(),
            device,
            until: None,
            workers: Workers::single(),
        }
    }
}
