//! Handling of Ctrl-C, SIGTERM, and SIGHUP when a terminal closes. The first signal asks the run to stop after the
//! current step; a second one ends it immediately. The first one also ends it immediately if nothing is trained yet or
//! everything is saved.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use crate::error::{Error, Result};
use crate::terminal::is_silent;
use crate::training::StopSignal;

/// The signals that ask a run to stop.
#[cfg(unix)]
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// The acknowledgement of a signal that saves a run.
pub const SAVING: &str = "\nnotice: interrupted; saving after this step; a second signal exits immediately\n";

/// Installs the signal handlers. Until work is deferred, a signal ends the program immediately. The first deferred signal
/// is acknowledged with a `notice`.
pub fn watch(notice: &'static str) -> Result<StopSignal> {
    // One flag for all signals: the second signal may differ from the first.
    let received = StopSignal::without_unsaved_work();
    for signal in SIGNALS.into_iter().filter(|&signal| !outlives(signal)) {
        let (received, number) = (received.clone(), signal as usize);
        let on_signal = move || {
            if !received.record(number) {
                low_level::exit(exit_code(number).into());
            }
            if !is_silent() {
                acknowledge(notice);
            }
        };
        // SAFETY: exchanging numbers, writing to a descriptor and exiting are allowed in a signal handler.
        unsafe { low_level::register(signal, on_signal) }
            .map_err(|error| Error::Failed(format!("cannot install a signal handler: {error}")))?;
    }
    Ok(received)
}

/// Acknowledges the signal, because a step may take a long time.
#[cfg_attr(not(unix), expect(unused_variables))]
fn acknowledge(notice: &'static str) {
    // SAFETY: the bytes are static, and a failed write is ignored.
    #[cfg(unix)]
    unsafe {
        libc::write(libc::STDERR_FILENO, notice.as_ptr().cast(), notice.len())
    };
}

/// Returns true for SIGHUP if the parent process ignores it, as `nohup` does, so that the program outlives the
/// terminal.
fn outlives(signal: i32) -> bool {
    const SIGHUP: i32 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    signal == SIGHUP && mask & 1 != 0
}

/// Returns the exit code after a signal: 129 for SIGHUP, 130 for Ctrl-C, 143 for SIGTERM.
pub fn exit_code(signal: usize) -> u8 {
    128 + signal as u8
}
