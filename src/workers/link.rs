//! Messages between two workers.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::presence::Presence;
use crate::error::Result;

/// How a worker reaches another. What is sent to one worker arrives in its order.
pub trait Link: Debug + Send + Sync {
    /// Sends `out` to a worker that sends as many bytes as `into` has, at the same time.
    fn swap(&self, peer: usize, out: &[u8], into: &mut [u8], wait: &mut Wait) -> Result<()>;

    /// Sends a message.
    fn send(&self, peer: usize, message: &[u8], wait: &mut Wait) -> Result<()>;

    /// Waits for a message of `peer`.
    fn receive(&self, peer: usize, wait: &mut Wait) -> Result<Vec<u8>>;

    /// A message that has come from `peer`; none where there is none yet.
    fn poll(&self, peer: usize) -> Result<Option<Vec<u8>>>;
}

/// How a worker waits for another: awake at first, as an answer within a step comes soon, then at rest, and with an eye
/// on whether the other one still works.
#[derive(Debug)]
pub struct Wait {
    began: Option<Instant>,
    presence: Arc<Mutex<Option<Presence>>>,
}

impl Wait {
    pub(super) fn new(presence: Arc<Mutex<Option<Presence>>>) -> Self {
        Self { began: None, presence }
    }

    /// Another look has shown nothing yet.
    pub fn again(&mut self) {
        let passed = self.began.get_or_insert_with(Instant::now).elapsed();
        match passed.as_micros() {
            0..50 => std::hint::spin_loop(),
            50..20_000 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(200)),
        }
        if passed > Duration::from_secs(1)
            && let Some(presence) = &mut *self.presence.lock().unwrap_or_else(PoisonError::into_inner)
        {
            presence.waits(passed);
        }
    }

    /// What was waited for is there.
    pub fn done(&mut self) {
        if self.began.take().is_some_and(|began| began.elapsed() > Duration::from_secs(1))
            && let Some(presence) = &mut *self.presence.lock().unwrap_or_else(PoisonError::into_inner)
        {
            presence.works();
        }
    }
}
