//! The request to stop training that a signal makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The state without a signal while there is unsaved work.
const DEFERRED: usize = 0;
/// The state without a signal and without unsaved work.
const NO_UNSAVED_WORK: usize = usize::MAX;

/// Holds the number of the signal that asks to stop after the current step. Clones share the signal.
///
/// While there is [no unsaved work](Self::without_unsaved_work), a signal should end the program immediately. The
/// default defers signals from the beginning.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<AtomicUsize>);

impl StopSignal {
    /// Returns a signal that is not deferred, because there is no unsaved work yet.
    pub fn without_unsaved_work() -> Self {
        Self(Arc::new(AtomicUsize::new(NO_UNSAVED_WORK)))
    }

    /// Records the signal with this number. Returns true if it is the first one and deferred: the program then ends after
    /// it has saved its work, otherwise immediately. A signal handler may call this.
    pub fn record(&self, number: usize) -> bool {
        self.0.swap(number, Ordering::Relaxed) == DEFERRED
    }

    /// Makes the first signal stop the work after its state is saved, instead of ending the program.
    pub fn defer(&self) {
        let _ = self.0.compare_exchange(NO_UNSAVED_WORK, DEFERRED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Reverts [`defer`](Self::defer) once everything is saved. Returns the number of the signal that arrived before.
    pub fn stop_deferring(&self) -> Option<usize> {
        let _ = self.0.compare_exchange(DEFERRED, NO_UNSAVED_WORK, Ordering::Relaxed, Ordering::Relaxed);
        self.received()
    }

    /// Returns the number of the signal that has arrived.
    pub fn received(&self) -> Option<usize> {
        let number = self.0.load(Ordering::Relaxed);
        (![DEFERRED, NO_UNSAVED_WORK].contains(&number)).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_deferred_signal_waits_for_the_work() {
        let signal = StopSignal::without_unsaved_work();
        assert!(!signal.clone().record(2), "there is nothing to save");

        let signal = StopSignal::without_unsaved_work();
        signal.defer();
        assert_eq!(signal.received(), None);
        assert!(signal.clone().record(15));
        assert_eq!((signal.received(), signal.stop_deferring()), (Some(15), Some(15)));
        assert!(!signal.record(2), "a second signal ends the program");

        let signal = StopSignal::default();
        assert_eq!(signal.stop_deferring(), None);
        assert!(!signal.record(2), "everything is saved");
    }
}
