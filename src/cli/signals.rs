//! Ctrl-C and SIGTERM: the first asks the run to end after its step, the second ends it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{Error, Result};

/// Watches for signals: the number of the first one appears in what is returned, 0 until then.
pub fn watch() -> Result<Arc<AtomicUsize>> {
    let received = Arc::new(AtomicUsize::new(0));
    // One for both: the second signal need not be of the first one's kind.
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order counts: a signal first looks whether it is the second, then says that it was here.
        flag::register_conditional_shutdown(signal, exit_code(signal as usize).into(), again.clone())
            .and_then(|_| flag::register(signal, again.clone()))
            .and_then(|_| flag::register_usize(signal, received.clone(), signal as usize))
            .map_err(|error| Error::Failed(format!("cannot watch for signals: {error}")))?;
    }
    Ok(received)
}

/// What a program ends with after a signal: 130 for Ctrl-C, 143 for SIGTERM.
pub fn exit_code(signal: usize) -> u8 {
    128 + signal as u8
}
