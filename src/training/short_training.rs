//! A short training in memory alone: it leaves no run, and whatever it starts from stays as it is.

use std::path::Path;

use burn::{optim::Optimizer as _, train::TrainStep};

use super::optimizer::Optimizer;
use super::start::{Start, trainee_of};
use super::step::StepBatches;
use crate::{backend::compute, config::Config, data::Dataset, error::Result, ops};

/// Trains the model of `config` on `steps`. `rate` is told each step with its loss in nats per token, and says the
/// learning rate of its update, or ends the training.
///
/// # Errors
/// If the model cannot be made.
pub fn train_briefly<B: ops::AutodiffBackend, I: Iterator<Item = StepBatches<B>>>(
    config: &Config,
    dataset: &Dataset,
    device: &B::Device,
    steps: impl FnOnce() -> I + Send,
    mut rate: impl FnMut(usize, f64) -> Option<f64> + Send,
) -> Result<()> {
    compute(&config.training, || {
        let start = Start::of(config)?;
        let sizes = start.sizes(config, dataset)?;
        let weights = start.weights(config, sizes)?;
        let origin = Path::new("the weights to start from");
        let mut trainee = trainee_of::<B>(config, sizes, weights, origin, device)?;
        let mut optimizer = Optimizer::<B>::new(&config.training);
        B::seed(device, config.run.seed);
        for batches in steps() {
            let step = batches.step;
            let output = trainee.step(batches);
            let loss = output.item.loss.into_data().iter::<f64>().next().unwrap_or(f64::NAN);
            let Some(rate) = rate(step, loss) else { break };
            trainee = optimizer.step(rate, trainee, output.grads);
        }
        Ok(())
    })
}
