//! Limits of the system: memory, threads, file sizes. At a limit the program ends with a one-line error, where the
//! standard library would panic or abort. It also ignores library settings in files of the current folder and its
//! parents.

use std::num::NonZero;
use std::sync::{Once, OnceLock};
use std::thread::available_parallelism;

use burn_std::config::{BurnConfig, RuntimeConfig};

use crate::error::{Error, OUT_OF_MEMORY, Result};
use crate::kernels::allocator;
use crate::terminal::error_line;

/// The number of threads that is accepted on any machine.
const MAX_THREADS: usize = 1024;

/// The environment variable of Rayon.
const THREADS: &str = "RAYON_NUM_THREADS";

/// Prepares the program for the limits of the system, once.
///
/// # Errors
/// Returns an error if the environment requests more threads than any machine can use.
pub fn prepare() -> Result<()> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        refuse_large_files_by_an_error();
        end_by_a_line_without_memory();
        keep_to_built_in_settings();
    });
    let Some(asked) = std::env::var(THREADS).ok().and_then(|text| text.trim().parse::<usize>().ok()) else {
        return Ok(());
    };
    let most = MAX_THREADS.max(4 * available_parallelism().map_or(1, NonZero::get));
    if asked <= most {
        return Ok(());
    }
    Err(Error::Input(format!(
        "{THREADS} = {asked} must be at most {most}: set it to the number of cores, or unset it"
    )))
}

/// Turns a file larger than RLIMIT_FSIZE into a write error instead of a fatal signal.
fn refuse_large_files_by_an_error() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal needs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Ends the program with an error line if memory runs out. The line is built in advance, while there is memory.
fn end_by_a_line_without_memory() {
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

/// Prevents Burn and CubeCL from reading `burn.toml` and `cubecl.toml` in the current folder and its parents. They do
/// so when their settings are first used, unless settings were set before; only the environment changes those.
fn keep_to_built_in_settings() {
    BurnConfig::set(BurnConfig::default().override_from_env());
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    {
        use cubecl_runtime::config::CubeClRuntimeConfig;
        CubeClRuntimeConfig::set(CubeClRuntimeConfig::default().override_from_env());
    }
}
