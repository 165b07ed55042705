//! Short training in memory only: it creates no run and changes no files.

use burn::tensor::backend::AutodiffBackend;
use burn::{optim::Optimizer as _, train::TrainStep};

use super::launch::check_precision;
use super::loader::train_steps;
use super::optimizer::Optimizer;
use super::start::initial_trainee;
use super::step::StepBatches;
use crate::backend::{self, Device, Job, compute};
use crate::config::Config;
use crate::data::{Batch, Dataset};
use crate::error::Result;
use crate::evaluation::DeviceBatch;
use crate::ops;
use crate::role::ParamRoles;
use crate::workers::Shards;

/// Trains the model of `config` repeatedly on one `batch`, or on the batches of its run if `batch` is `None`. `rate`
/// receives each step with its loss in nats per token, and returns the learning rate of the update, or `None` to stop.
///
/// # Errors
/// If the model cannot be built, does not fit into memory, or the device does not support the precision.
pub fn train_briefly(
    config: &Config,
    dataset: &Dataset,
    on: &Device,
    batch: Option<&Batch>,
    rate: impl FnMut(usize, f64) -> Option<f64> + Send,
) -> Result<()> {
    struct Train<'a, R>(&'a Config, &'a Dataset, &'a Device, Option<&'a Batch>, R);

    impl<R: FnMut(usize, f64) -> Option<f64> + Send> Job for Train<'_, R> {
        type Output = ();

        fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<()> {
            let Train(config, dataset, on, batch, mut rate) = self;
            compute(&config.training, || {
                let mut trainee = initial_trainee::<B>(config, dataset, on, &device)?;
                let mut optimizer = Optimizer::<B>::new(&config.training, trainee.model.roles());
                ops::seed::<B>(&device, config.run.seed);
                let mut run_steps =
                    train_steps(config, dataset, 0..usize::MAX, Shards::one(), &device).flatten();
                for step in 0.. {
                    let repeated = |batch| {
                        let batches = vec![DeviceBatch::new(batch, &device)];
                        StepBatches::unsharded(step, batches, false)
                    };
                    let Some(batches) = batch.map(repeated).or_else(|| run_steps.next()) else { break };
                    let output = trainee.step(batches);
                    let loss = output.item.loss.into_data().iter::<f64>().next().unwrap_or(f64::NAN);
                    let Some(rate) = rate(step, loss) else { break };
                    trainee = optimizer.step(rate, trainee, output.grads);
                }
                Ok(())
            })
        }
    }

    config.model.check()?;
    check_precision(&config.training, on)?;
    backend::run(on, Train(config, dataset, on, batch, rate))
}
