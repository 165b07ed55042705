//! Monitoring and stopping a run, and the workers that share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::Device;
use crate::terminal::ProgressKind;
use crate::workers::Workers;

/// The value of `signal` while no work could be lost. The first signal then ends the program immediately.
pub const NOTHING_TO_LOSE: usize = usize::MAX;

/// Makes the first signal stop the run after its state is saved, instead of ending the program.
pub fn hold(signal: &AtomicUsize) {
    let _ = signal.compare_exchange(NOTHING_TO_LOSE, 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns true if a signal has arrived since [`hold`].
pub(super) fn is_heard(signal: &AtomicUsize) -> bool {
    !matches!(signal.load(Ordering::Relaxed), 0 | NOTHING_TO_LOSE)
}

/// Reverts [`hold`] once everything is saved. Returns the signal that arrived before, or 0.
pub(super) fn release(signal: &AtomicUsize) -> usize {
    let held = signal.compare_exchange(0, NOTHING_TO_LOSE, Ordering::Relaxed, Ordering::Relaxed);
    held.err().filter(|&heard| heard != NOTHING_TO_LOSE).unwrap_or(0)
}

/// The progress display, stop signal, device and workers of a run.
#[derive(Debug, Clone)]
pub struct Control {
    /// The kind of progress display.
    pub progress: ProgressKind,
    /// The stop signal. A signal's number stops the run after the current step, 0 lets it continue, and
    /// [`NOTHING_TO_LOSE`] means that it has not begun.
    pub signal: Arc<AtomicUsize>,
    /// The device that computes.
    pub device: Device,
    /// The step after which the run pauses although its schedule is longer, as a rung of a study does. `None` for a run
    /// to the end.
    pub until: Option<usize>,
    /// The workers that share the steps.
    pub workers: Workers,
}

impl Control {
    /// Returns true if a signal has asked the run to end.
    pub fn is_interrupted(&self) -> bool {
        is_heard(&self.signal)
    }

    /// Returns the control of a run on `device` to its end, without progress display, in this process only.
    pub fn unwatched(device: Device) -> Self {
        Self {
            progress: ProgressKind::None,
            signal: Arc::default(),
            device,
            until: None,
            workers: Workers::alone(),
        }
    }
}
