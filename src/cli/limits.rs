//! What the system allows the program: memory, threads, the size of files. Where a limit is met the program ends with
//! one line, where the standard library would panic or abort; and it reads no settings of libraries from files that
//! happen to lie in the current folder or above.

use std::num::NonZero;
use std::sync::{Once, OnceLock};
use std::thread::available_parallelism;

use burn_std::config::{BurnConfig, RuntimeConfig};

use crate::error::{Error, OUT_OF_MEMORY, Result};
use crate::kernels::allocator;
use crate::terminal::error_line;

/// Threads that may be asked for on any machine.
const MAX_THREADS: usize = 1024;

/// Rayon's variable.
const THREADS: &str = "RAYON_NUM_THREADS";

/// Prepares the program for the limits of the system, once.
///
/// # Errors
/// If the environment asks for more threads than any machine has use for.
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

/// A file that would become larger than RLIMIT_FSIZE is an error of its write, not a signal that ends the program.
fn refuse_large_files_by_an_error() {
    #[cfg(unix)]
    // SAFETY: to ignore a signal needs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The line is made while there is memory.
fn end_by_a_line_without_memory() {
    static LINE: OnceLock<String> = OnceLock::new();
    LINE.get_or_init(|| error_line(OUT_OF_MEMORY) + "\n");
    allocator::on_exhaustion(|| {
        #[cfg(unix)]
        if let Some(line) = LINE.get() {
            // SAFETY: the line is as long as it says, and neither call allocates.
            unsafe {
                libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
                libc::_exit(2);
            }
        }
    });
}

/// Burn and CubeCL look for `burn.toml` and `cubecl.toml` in the current folder and above when their settings are first
/// asked for; those that are set before are taken instead, changed by the environment alone.
fn keep_to_built_in_settings() {
    BurnConfig::set(BurnConfig::default().override_from_env());
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    {
        use cubecl_runtime::config::CubeClRuntimeConfig;
        CubeClRuntimeConfig::set(CubeClRuntimeConfig::default().override_from_env());
    }
}
