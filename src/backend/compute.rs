//! What a run computes with: its threads, and the form of its operations.

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

use burn::tensor::backend::Backend;

use super::device::Device;
use crate::config::TrainingConfig;
use crate::error::{Error, Result};
use crate::kernels::{allocator, team};
use crate::ops::Precision;

/// Runs `work` with the threads, kernels and precision that the config asks for.
///
/// The work has a thread of its own, which is one of the pool's: small pieces of work then stay where
/// they are, and no step waits for another thread to wake.
pub fn compute<T: Send>(config: &TrainingConfig, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    /// As large as a program's first thread.
    const STACK: usize = 8 << 20;
    let in_pool = || -> std::result::Result<_, ThreadPoolBuildError> {
        // Zero asks rayon for one a core.
        let threads = ThreadPoolBuilder::new().num_threads(config.threads.unwrap_or(0)).use_current_thread();
        let work = || config.kernels.run(|| config.precision.run(work));
        Ok(threads.build()?.install(|| team::with_threads(rayon::current_num_threads(), work)))
    };
    allocator::share_one_store();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("training".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, in_pool).map_err(|_| Error::Threads)?;
        match thread.join() {
            Ok(done) => done.map_err(|_| Error::Threads)?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Runs `work` as [`compute`] does for a run of this config; in single precision, with a line that says so,
/// where the device `on` does not serve the run's own, for weights may be looked at on another machine.
pub fn compute_as_run<B: Backend, T: Send>(
    config: &TrainingConfig,
    on: &Device,
    device: &B::Device,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    if config.precision.is_served::<B>(device) {
        return compute(config, work);
    }
    log::info!("computed in f32, because {on} does not support {}", config.precision.name());
    compute(&TrainingConfig { precision: Precision::F32, ..config.clone() }, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Kernels;

    #[test]
    fn work_runs_on_the_threads_that_were_asked_for() {
        let config = TrainingConfig { threads: Some(3), kernels: Kernels::Composed, ..Default::default() };
        let threads = compute(&config, || Ok(rayon::current_num_threads())).unwrap();
        assert_eq!(threads, 3);
        let panicked =
            std::panic::catch_unwind(|| compute(&config, || -> Result<()> { panic!("on purpose") }));
        assert!(panicked.is_err());
        let failed = compute(&config, || -> Result<()> { Err(Error::Input("on purpose".into())) });
        assert_eq!(failed.unwrap_err().to_string(), "on purpose");
    }
}
