//! The compute settings of a run: its threads, kernels and precision.

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

use burn::tensor::backend::Backend;

use super::device::Device;
use crate::config::TrainingConfig;
use crate::error::{Error, Result};
use crate::kernels::{allocator, team};
use crate::ops::Precision;

/// Runs `work` with the threads, kernels and precision of the config.
///
/// The work runs on its own thread, which is part of the pool: small tasks then stay on that thread, and no step waits
/// for another thread to wake.
///
/// # Errors
/// Those of `work`, and if the system cannot start the threads.
pub fn compute<T: Send>(config: &TrainingConfig, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    /// The stack size of a program's main thread.
    const STACK_BYTES: usize = 8 << 20;
    let in_pool = || -> std::result::Result<_, ThreadPoolBuildError> {
        // Zero makes rayon use one thread per core.
        let threads = ThreadPoolBuilder::new().num_threads(config.threads.unwrap_or(0)).use_current_thread();
        let work = || config.kernels.run(|| config.precision.run(work));
        Ok(threads.build()?.install(|| team::with_threads(rayon::current_num_threads(), work)))
    };
    allocator::share_one_arena();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("training".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, in_pool).map_err(|_| Error::Threads)?;
        match thread.join() {
            Ok(done) => done.map_err(|_| Error::Threads)?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Runs `work` like [`compute`]. If the device `on` does not support the run's precision, uses single precision and
/// logs a notice, because weights may be analysed on a machine other than the one that trained them.
///
/// # Errors
/// Same as [`compute`].
pub fn compute_as_run<B: Backend, T: Send>(
    config: &TrainingConfig,
    on: &Device,
    device: &B::Device,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    if config.precision.is_supported::<B>(device) {
        return compute(config, work);
    }
    log::info!("computed in f32, because {on} does not support {}", config.precision);
    compute(&TrainingConfig { precision: Precision::F32, ..config.clone() }, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Kernels;

    #[test]
    fn work_runs_on_the_requested_threads() {
        let config = TrainingConfig { threads: Some(3), kernels: Kernels::Reference, ..Default::default() };
        let threads = compute(&config, || Ok(rayon::current_num_threads())).unwrap();
        assert_eq!(threads, 3);
        let panicked =
            std::panic::catch_unwind(|| compute(&config, || -> Result<()> { panic!("on purpose") }));
        assert!(panicked.is_err());
        let failed = compute(&config, || -> Result<()> { Err(Error::Input("on purpose".into())) });
        assert_eq!(failed.unwrap_err().to_string(), "on purpose");
    }
}
