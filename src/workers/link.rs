//! Messages between two workers.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::presence::Presence;
use crate::error::Result;

/// A connection to the other workers. Messages to one worker arrive in the order in which they are sent.
pub trait Link: Debug + Send + Sync {
    /// Sends `out` to a worker, and fills `into` with the bytes that this worker sends at the same time.
    fn swap(&self, peer: usize, out: &[u8], into: &mut [u8], wait: &mut Wait) -> Result<()>;

    /// Sends a message.
    fn send(&self, peer: usize, message: &[u8], wait: &mut Wait) -> Result<()>;

    /// Waits for a message from `peer`.
    fn receive(&self, peer: usize, wait: &mut Wait) -> Result<Vec<u8>>;

    /// Returns a message that has arrived from `peer`, or `None` if there is none yet.
    fn poll(&self, peer: usize) -> Result<Option<Vec<u8>>>;
}

/// The waiting strategy of a worker: it spins at first, because replies within a step arrive soon, then yields, then
/// sleeps. After a second, it also marks the worker as waiting and enforces the time limit.
#[derive(Debug)]
pub struct Wait {
    began: Option<Instant>,
    presence: Arc<Mutex<Option<Presence>>>,
}

impl Wait {
    pub(super) fn new(presence: Arc<Mutex<Option<Presence>>>) -> Self {
        Self { began: None, presence }
    }

    /// Waits for a moment after an unsuccessful poll.
    pub fn back_off(&mut self) {
        let passed = self.began.get_or_insert_with(Instant::now).elapsed();
        match passed.as_micros() {
            0..50 => std::hint::spin_loop(),
            50..20_000 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(200)),
        }
        if passed > Duration::from_secs(1)
            && let Some(presence) = &mut *self.presence.lock().unwrap_or_else(PoisonError::into_inner)
        {
            presence.set_waiting(passed);
        }
    }

    /// Ends the wait, because the message has arrived.
    pub fn done(&mut self) {
        if self.began.take().is_some_and(|began| began.elapsed() > Duration::from_secs(1))
            && let Some(presence) = &mut *self.presence.lock().unwrap_or_else(PoisonError::into_inner)
        {
            presence.set_working();
        }
    }
}
