//! Ctrl-C, SIGTERM, and SIGHUP where a terminal closes: the first asks the run to end after its step, the
//! second ends it at once, and so does the first where nothing is trained yet or all is saved.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use crate::error::{Error, Result};
use crate::terminal::is_silent;
use crate::training::NOTHING_TO_LOSE;

/// The signals that ask a run to end.
#[cfg(unix)]
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Watches for signals: the number of the first one appears in what is returned, once something is under way.
pub fn watch() -> Result<Arc<AtomicUsize>> {
    // One for all: the second signal need not be of the first one's kind.
    let received = Arc::new(AtomicUsize::new(NOTHING_TO_LOSE));
    for signal in SIGNALS.into_iter().filter(|&signal| !outlives(signal)) {
        let (received, number) = (received.clone(), signal as usize);
        let hear = move || {
            if received.swap(number, Ordering::Relaxed) != 0 {
                low_level::exit(exit_code(number).into());
            }
            if !is_silent() {
                answer();
            }
        };
        // SAFETY: to swap and load numbers, to write to a descriptor and to exit is allowed in a signal handler.
        unsafe { low_level::register(signal, hear) }
            .map_err(|error| Error::Failed(format!("cannot watch for signals: {error}")))?;
    }
    Ok(received)
}

/// Says that the signal was heard, for a step may take long.
fn answer() {
    #[cfg(unix)]
    {
        const ANSWER: &[u8] =
            b"\nnotice: interrupted: saving after this step; a second signal ends at once\n";
        // SAFETY: the bytes are static, and what cannot be written is lost.
        unsafe { libc::write(libc::STDERR_FILENO, ANSWER.as_ptr().cast(), ANSWER.len()) };
    }
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
