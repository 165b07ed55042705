//! How a run is watched and stopped, and who shares it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::Device;
use crate::terminal::ProgressKind;
use crate::workers::Workers;

/// In the place of a signal's number, as long as there is nothing that could be lost: the first one then ends the
/// program at once.
pub const NOTHING_TO_LOSE: usize = usize::MAX;

/// From here on the first signal is heard, and what is under way saves what it has.
pub fn hold(signal: &AtomicUsize) {
    let _ = signal.compare_exchange(NOTHING_TO_LOSE, 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns whether a signal was heard since [`hold`].
pub(super) fn is_heard(signal: &AtomicUsize) -> bool {
    !matches!(signal.load(Ordering::Relaxed), 0 | NOTHING_TO_LOSE)
}

/// Takes [`hold`] back once everything is saved, and returns the signal that was heard before; 0: none.
pub(super) fn release(signal: &AtomicUsize) -> usize {
    let held = signal.compare_exchange(0, NOTHING_TO_LOSE, Ordering::Relaxed, Ordering::Relaxed);
    held.err().filter(|&heard| heard != NOTHING_TO_LOSE).unwrap_or(0)
}

/// How a run is watched and stopped.
#[derive(Debug, Clone)]
pub struct Control {
    /// How progress is shown.
    pub progress: ProgressKind,
    /// Set to a signal's number, stops the run after the step under way; 0: go on; [`NOTHING_TO_LOSE`] until it has
    /// begun.
    pub signal: Arc<AtomicUsize>,
    /// What computes.
    pub device: Device,
    /// The step after which the run pauses, though its schedule spans more: a rung of a study. None: it goes on
    /// to its end.
    pub until: Option<usize>,
    /// The workers that share its steps.
    pub workers: Workers,
}

impl Control {
    /// Returns whether a signal has asked the run to end.
    pub fn is_interrupted(&self) -> bool {
        is_heard(&self.signal)
    }

    /// A run on `device` that is not watched and goes on to its end, by this process alone.
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
