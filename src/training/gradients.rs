//! The gradients of a step, summed over the shards of each worker, then over all workers.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{TensorPrimitive, backend::AutodiffBackend};
use burn::train::TrainOutput;

use super::control::{Requests, Stop};
use super::step::StepInfo;
use super::step::{StepOutput, Trainee};
use crate::backend::MAX_CONCURRENT_SHARDS;
use crate::error::Result;
use crate::kernels::sums;
use crate::model::each_parameter;
use crate::ops::{self, sum_in_order};
use crate::workers::Workers;

/// The gradients of a model with the measurements of the step.
pub(super) type Learned<B> = TrainOutput<StepOutput<<B as AutodiffBackend>::InnerBackend>>;

/// Returns the number of shards whose gradients are kept and added in one pass: a power of two.
pub(super) fn shards_per_pass<B: Backend>(model: &Trainee<B>) -> usize {
    /// The maximum number of bytes of these gradients.
    const MAX_BYTES: usize = 512 << 20;
    let largest = MAX_BYTES / (size_of::<f32>() * model.num_params()).max(1);
    1 << largest.clamp(2, MAX_CONCURRENT_SHARDS).ilog2()
}

/// Sums the gradients and measurements of several shards, or of sums of shards, along a binary tree over their order.
/// Returns `None` for an empty iterator.
pub(super) fn sum<B: AutodiffBackend>(
    model: &Trainee<B>,
    parts: impl IntoIterator<Item = Learned<B>>,
) -> Option<Learned<B>> {
    let (gradients, items): (Vec<_>, Vec<_>) =
        parts.into_iter().map(|learned| (learned.grads, learned.item)).unzip();
    let item = sum_in_order(items.into_iter().map(Some), |mut left, right| {
        left.loss = left.loss + right.loss;
        left.plain = left.plain.zip(right.plain).map(|(left, right)| left + right);
        left.correct = left.correct.zip(right.correct).map(|(left, right)| left + right);
        left
    })?;
    let grads = match <[_; 1]>::try_from(gradients) {
        Ok([gradients]) => gradients,
        Err(several) => model.sum(several),
    };
    Some(TrainOutput { grads, item })
}

/// The numbers of the signals that end a run: SIGHUP, SIGINT and SIGTERM.
const SIGNALS: [usize; 3] = [1, 2, 15];

/// The number of values at the end of the buffer: loss, loss without smoothing, correct predictions, requests.
const TRAILER_LENGTH: usize = 3 + 5;

/// An all-reduce of gradients and measurements over the workers, with reused buffers.
///
/// The gradients pass through the host in one buffer, so that a step takes few messages. Next come, per parameter, the
/// number of workers with a gradient, because a worker without sequences has none, and finally the measurements.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) buffer: Vec<f32>,
    pub(super) scratch: Vec<f32>,
}

impl Exchange {
    /// Returns the sum of `learned` over all workers, and the requests that they agree on. `learned` is `None` for a
    /// worker without sequences.
    ///
    /// # Errors
    /// If a worker does not answer.
    pub(super) fn sum<B: AutodiffBackend>(
        &mut self,
        workers: &Workers,
        model: &Trainee<B>,
        learned: Option<Learned<B>>,
        StepInfo { step, tokens, is_measured }: StepInfo,
        requests: Requests,
    ) -> Result<(Learned<B>, Requests)> {
        let gradients = self.gather(model, learned, requests);
        workers.all_reduce(&mut self.buffer, &mut self.scratch, sums::add)?;

        let (mut gradients, trailer) = self.buffer.split_at(gradients);
        let (holders, trailer) = trailer.split_at(trailer.len() - TRAILER_LENGTH);
        let device = model.devices().first().cloned().unwrap_or_default();
        let (mut grads, mut holders) = (GradientsParams::new(), holders.iter());
        each_parameter(model, |id, shape| {
            let (numbers, rest) = gradients.split_at(shape.num_elements());
            gradients = rest;
            if holders.next().is_some_and(|&holders| holders > 0.0) {
                let gradient = ops::from_numbers::<B::InnerBackend>(numbers, shape, &device);
                let gradient = TensorPrimitive::Float(gradient);
                grads.register(id, Tensor::<B::InnerBackend, 1>::from_primitive(gradient));
            }
        });
        let tensor = |value: f32| Tensor::from_data([value], &device);
        let &[loss, plain, correct, hangup, interrupt, terminate, is_late, wants_loss] = trailer else {
            unreachable!("the trailer has a fixed length")
        };
        let item = StepOutput {
            step,
            loss: tensor(loss),
            plain: (is_measured && model.is_smoothed()).then(|| tensor(plain)),
            correct: is_measured.then(|| tensor(correct)),
            tokens,
            gradient_norm: None,
            began: 0.0,
        };
        let mut signals = SIGNALS.into_iter().zip([hangup, interrupt, terminate]);
        let signal = signals.find(|(_, workers)| *workers > 0.0).map(|(signal, _)| Stop::Signal(signal));
        let stop = signal.or((is_late > 0.0).then_some(Stop::TimeLimit));
        let requests = Requests { stop, wants_loss: wants_loss > 0.0 };
        Ok((TrainOutput { grads, item }, requests))
    }

    /// Fills the buffer with the data of this worker, and returns the number of gradients in the buffer.
    fn gather<B: AutodiffBackend>(
        &mut self,
        model: &Trainee<B>,
        learned: Option<Learned<B>>,
        requests: Requests,
    ) -> usize {
        let (mut grads, item) =
            learned.map_or((GradientsParams::new(), None), |learned| (learned.grads, Some(learned.item)));
        let (buffer, mut held) = (&mut self.buffer, Vec::new());
        buffer.clear();
        each_parameter(model, |id, shape| {
            let gradient = grads.remove::<B::InnerBackend, 1>(id);
            held.push(gradient.is_some());
            match gradient {
                Some(gradient) => {
                    ops::append::<B::InnerBackend>(gradient.into_primitive().tensor(), buffer);
                }
                None => buffer.resize(buffer.len() + shape.num_elements(), ADDITIVE_IDENTITY),
            }
        });
        let number = |tensor: Option<Tensor<B::InnerBackend, 1>>| -> f32 {
            tensor.map_or(ADDITIVE_IDENTITY, |tensor| {
                tensor.into_data().iter::<f32>().next().unwrap_or(f32::NAN)
            })
        };
        let (loss, plain, correct) =
            item.map_or((None, None, None), |item| (Some(item.loss), item.plain, item.correct));
        let gradients = buffer.len();
        buffer.extend(held.iter().map(|&held| f32::from(held)));
        buffer.extend([number(loss), number(plain), number(correct)]);
        let stops = SIGNALS.map(Stop::Signal).into_iter().chain([Stop::TimeLimit]);
        buffer.extend(stops.map(|stop| f32::from(requests.stop == Some(stop))));
        buffer.push(f32::from(requests.wants_loss));
        gradients
    }
}

/// The neutral element of floating-point addition. It is -0, because adding 0 would turn -0 into 0.
const ADDITIVE_IDENTITY: f32 = -0.0;
