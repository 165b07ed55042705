//! Limits of the system: memory, threads, file sizes. At a limit the program ends with a one-line error, whereas the
//! standard library would panic or abort. The program also ignores config files of libraries in the current folder and
//! its parents.

use std::num::NonZero;
use std::sync::{Once, OnceLock};
use std::thread::available_parallelism;

use burn_std::config::{BurnConfig, RuntimeConfig};

use crate::error::{Error, OUT_OF_MEMORY, Result};
use crate::kernels::allocator;
use crate::terminal::error_line;

/// The maximum number of threads on a machine with few cores.
const MAX_THREADS: usize = 1024;

/// The environment variable that sets Rayon's number of threads.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";

/// Prepares the program for the limits of the system, once.
///
/// # Errors
/// Returns an error if the environment requests more threads than any machine can use.
pub fn prepare() -> Result<()> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        ignore_file_size_signal();
        report_exhausted_memory();
        ignore_library_config_files();
    });
    let Some(requested) =
        std::env::var(THREADS_VARIABLE).ok().and_then(|text| text.trim().parse::<usize>().ok())
    else {
        return Ok(());
    };
    let max = MAX_THREADS.max(4 * available_parallelism().map_or(1, NonZero::get));
    if requested <= max {
        return Ok(());
    }
    Err(Error::Input(format!(
        "{THREADS_VARIABLE} = {requested} must be at most {max}; set it to the number of cores, or unset it"
    )))
}

/// Makes a write beyond RLIMIT_FSIZE return an error instead of raising a fatal signal.
fn ignore_file_size_signal() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal needs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Ends the program with an error line if memory runs out. The line is built in advance, while there is memory.
fn report_exhausted_memory() {
    static LINE: OnceLock<String> = OnceLock::new();
    LINE.get_or_init(|| error_line(OUT_OF_MEMORY) + "\n");
    allocator::on_exhaustion(|| {
        #[cfg(unix)]
        if let Some(line) = LINE.get() {
            // SAFETY: the pointer and the length belong to the line, and neither call allocates.
            unsafe {
                libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
                libc::_exit(2);
            }
        }
    });
}

/// Prevents Burn and CubeCL from reading `burn.toml` and `cubecl.toml` in the current folder and its parents. Both
/// libraries read these files at the first use of their settings, unless the settings were set before. Environment
/// variables still apply.
fn ignore_library_config_files() {
    BurnConfig::set(BurnConfig::default().override_from_env());
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    {
        use cubecl_runtime::config::CubeClRuntimeConfig;
        CubeClRuntimeConfig::set(CubeClRuntimeConfig::default().override_from_env());
    }
}
