//! Ctrl-C, SIGTERM, and SIGHUP where a terminal closes: the first asks the run to end after its step, the
//! second ends it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{Error, Result};

/// The signals that ask a run to end.
#[cfg(unix)]
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Watches for signals: the number of the first one appears in what is returned, 0 until then.
pub fn watch() -> Result<Arc<AtomicUsize>> {
    let received = Arc::new(AtomicUsize::new(0));
    // One for all: the second signal need not be of the first one's kind.
    let again = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS.into_iter().filter(|&signal| !outlives(signal)) {
        // The order counts: a signal first looks whether it is the second, then says that it was here.
        flag::register_conditional_shutdown(signal, exit_code(signal as usize).into(), again.clone())
            .and_then(|_| flag::register(signal, again.clone()))
            .and_then(|_| flag::register_usize(signal, received.clone(), signal as usize))
            .map_err(|error| Error::Failed(format!("cannot watch for signals: {error}")))?;
    }
    Ok(received)
}

/// Whether this is SIGHUP, and whoever started the program wants it to outlive the terminal, as `nohup` does.
fn outlives(signal: i32) -> bool {
    const SIGHUP: i32 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    signal == SIGHUP && mask & 1 != 0
}

/// What a program ends with after a signal: 129 for SIGHUP, 130 for Ctrl-C, 143 for SIGTERM.
pub fn exit_code(signal: usize) -> u8 {
    128 + signal as u8
}
