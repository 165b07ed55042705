//! The machine that a worker is on.

use std::num::NonZero;
use std::thread::available_parallelism;

/// The cores of this machine.
pub(super) fn cores() -> usize {
    #[cfg(unix)]
    // SAFETY: it reads no memory of this program.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    #[cfg(not(unix))]
    let online = 0;
    usize::try_from(online)
        .ok()
        .filter(|&cores| cores > 0)
        .unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get))
}

/// The name of this machine.
pub fn host() -> String {
    sysinfo::System::host_name().unwrap_or_else(|| "an unnamed host".into())
}
