//! What a run computes with: its threads, and the form of its operations.

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

use super::config::TrainingConfig;
use crate::error::{Error, Result};
use crate::ops::{self, Precision};

/// Runs `work` with the threads, kernels and precision that the config asks for.
///
/// The work has a thread of its own, which is one of the pool's: small pieces of work then stay where
/// they are, and no step waits for another thread to wake.
pub fn compute<T: Send>(config: &TrainingConfig, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    /// As large as a program's first thread.
    const STACK: usize = 8 << 20;
    let refused = |error: &dyn std::fmt::Display| {
        Error::Failed(format!("no threads for the training: {error}; ask for fewer with `training.threads`"))
    };
    let in_pool = || -> std::result::Result<_, ThreadPoolBuildError> {
        // Zero asks rayon for one a core.
        let threads = ThreadPoolBuilder::new().num_threads(config.threads.unwrap_or(0)).use_current_thread();
        Ok(threads.build()?.install(|| config.kernels.run(|| config.precision.run(work))))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("training".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, in_pool).map_err(|error| refused(&error))?;
        match thread.join() {
            Ok(done) => done.map_err(|error| refused(&error))?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Lets the GNU allocator keep what a step frees for the next one, which needs the same again, rather than
/// give it back to the system and have fresh pages cleared.
///
/// It learns from what is freed: up to the largest piece it serves from its own store, and it gives back no
/// less than twice that at once (`mallopt(3)`, `M_MMAP_THRESHOLD`). Other allocators are left as they are.
/// What is there for good, as the weights, is better allocated before: among what comes and goes it would
/// leave gaps.
pub fn keep_freed_memory() {
    /// The most that it learns from.
    const LARGEST: usize = (32 << 20) - (64 << 10);
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGEST)));
}

/// Runs `work` as [`compute`] does for a run of this config; in single precision where `device` does
/// not serve the run's own, for weights may be looked at on another machine.
pub fn compute_as_run<B: ops::Backend, T: Send>(
    config: &TrainingConfig,
    device: &B::Device,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let precision = Some(config.precision).filter(|precision| precision.is_served::<B>(device));
    let config = TrainingConfig { precision: precision.unwrap_or(Precision::F32), ..config.clone() };
    compute(&config, work)
}

#[cfg(test)]
mod tests {
    use burn::module::AutodiffModule;
    use burn::optim::Optimizer as _;
    use burn::train::TrainStep;
    use burn_autodiff::Autodiff;
    use burn_flex::Flex;
    use burn_ndarray::NdArray;

    use super::*;
    use crate::data::{Batch, Role};
    use crate::kernels::testing::assert_same_on_any_number_of_threads;
    use crate::model::{ModelConfig, Sizes};
    use crate::ops::Kernels;
    use crate::training::{DeviceBatch, Hyper, Optimizer, StepBatches, Trainee};
    use crate::weights::native;

    const VOCAB: usize = 13;
    const TIME: usize = 37;

    fn trainee<B: ops::AutodiffBackend>() -> Trainee<B> {
        let config = ModelConfig { d_model: 24, heads: 3, layers: 2, dropout: 0.0, ..ModelConfig::default() };
        let sizes = Sizes { vocab: VOCAB, context: TIME, source_context: None };
        Trainee { model: config.init(sizes, &Default::default()).unwrap(), label_smoothing: 0.0 }
    }

    /// A batch of sequences that count in steps of their own.
    fn batch(step: usize) -> Batch {
        let rows = 5;
        let token = |place: usize| {
            let (row, time) = (place / TIME, place % TIME);
            ((step + row + time * (row + 1)) % VOCAB) as u32
        };
        let tokens = |ahead: usize| {
            (0..rows * TIME).map(|place| token(place / TIME * TIME + place % TIME + ahead)).collect()
        };
        let roles = vec![Role::Undetermined; rows * TIME];
        Batch { rows, time: TIME, inputs: tokens(0), targets: tokens(1), roles, source: None }
    }

    /// The loss of each step, and the weights in the end.
    fn run<B: ops::AutodiffBackend>(mut trainee: Trainee<B>, steps: usize) -> (Vec<f32>, Vec<Vec<f32>>) {
        let device = Default::default();
        let mut optimizer = Optimizer::<B>::new(Hyper::from(&TrainingConfig::default()));
        let mut losses = Vec::new();
        for step in 0..steps {
            let batches = vec![DeviceBatch::new(&batch(step), &device)];
            let output = trainee.step(StepBatches { step, batches, measured: false });
            trainee = optimizer.step(3e-3, trainee, output.grads);
            losses.extend(output.item.loss.into_data().iter::<f32>());
        }
        let weights = native::collect(&trainee.valid().model).unwrap();
        (losses, weights.into_iter().map(|(_, data)| data.to_vec().unwrap()).collect())
    }

    #[test]
    fn two_hundred_fused_steps_follow_the_composed_ones() {
        fn follow<B: ops::AutodiffBackend>() {
            let trainee = trainee::<B>();
            let losses = |kernels: Kernels| kernels.run(|| run(trainee.clone(), 200)).0;
            let (fused, composed) = (losses(Kernels::Fused), losses(Kernels::Composed));
            for (step, (fused, composed)) in fused.iter().zip(&composed).enumerate() {
                assert!((fused - composed).abs() < 1e-3, "step {step}: {fused}, not {composed}");
            }
            assert_ne!(fused, composed, "two ways of computing");
            assert!(composed[199] < 0.5 * composed[0], "{composed:?}");
        }
        follow::<Autodiff<NdArray>>();
        follow::<Autodiff<Flex>>();
    }

    #[test]
    fn steps_have_the_same_bits_on_any_number_of_threads() {
        fn same<B: ops::AutodiffBackend>() {
            let trainee = trainee::<B>();
            // A module is sent, not shared.
            let trainee = std::sync::Mutex::new(trainee);
            assert_same_on_any_number_of_threads(|| {
                let trainee = trainee.lock().unwrap().clone();
                let (losses, mut weights) = run(trainee, 3);
                weights.push(losses);
                weights
            });
        }
        same::<Autodiff<NdArray>>();
        same::<Autodiff<Flex>>();
    }

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
