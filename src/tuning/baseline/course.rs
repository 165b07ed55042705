//! Learning a few sequences at one rate.

use burn::module::{ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer as _};
use burn::prelude::*;
use burn::train::TrainStep;

use crate::config::Config;
use crate::data::{Batch, Dataset};
use crate::error::Result;
use crate::ops;
use crate::training::{DeviceBatch, Hyper, Optimizer, Start, StepBatches};
use crate::weights::native;

/// Steps in which it must be done.
const STEPS: usize = 300;
/// Of these the first, over which the rate rises.
const WARMUP: usize = 10;
/// The step after which every parameter must have had a gradient: what starts at zero lets none pass
/// in the first.
const FLOWING: usize = 5;

/// How a few sequences were learned at one rate. Losses are in nats a token.
#[derive(Debug)]
pub struct Course {
    /// The loss before the first step.
    pub first: f64,
    /// The last loss; infinite where it was not finite.
    pub reached: f64,
    /// Steps that it took.
    pub steps: usize,
    /// Whether every loss was finite.
    pub finite: bool,
    /// Parameters that never had a gradient.
    pub silent: Vec<String>,
}

/// Learns `batch` alone until the loss is below `near`, without what keeps a model from learning by
/// heart: dropout, smoothed labels, weight decay.
pub fn learn<B: ops::AutodiffBackend>(
    experiment: &Config,
    dataset: &Dataset,
    (batch, near): (&Batch, f64),
    rate: f64,
    device: &B::Device,
) -> Result<Course> {
    let mut plain = experiment.clone();
    plain.model.dropout = 0.0;
    plain.training.label_smoothing = 0.0;
    plain.training.weight_decay = 0.0;
    let start = Start::of(&plain)?;
    let sizes = start.sizes(&plain, dataset)?;
    let mut trainee = start.trainee::<B>(&plain, sizes, device)?;
    let names = native::names(&trainee.model);
    let mut optimizer = Optimizer::<B>::new(Hyper::from(&plain.training));
    let batch = DeviceBatch::<B>::new(batch, device);
    let mut course =
        Course { first: f64::NAN, reached: f64::INFINITY, steps: 0, finite: true, silent: Vec::new() };
    for step in 0..STEPS {
        let output = trainee.step(StepBatches { step, batches: vec![batch.clone()], measured: false });
        let loss = output.item.loss.into_data().iter::<f64>().next().unwrap_or(f64::NAN);
        course.steps = step;
        if step == 0 {
            course.first = loss;
        }
        if !loss.is_finite() {
            course.finite = false;
            break;
        }
        course.reached = loss;
        if loss <= near {
            break;
        }
        if step == FLOWING {
            let mut flow = Flow { gradients: &output.grads, flows: Vec::new() };
            trainee.model.visit(&mut flow);
            let silent = names.iter().zip(flow.flows).filter(|(_, flows)| !flows);
            course.silent = silent.map(|(name, _)| name.clone()).collect();
        }
        let warmed = ((step + 1) as f64 / WARMUP as f64).min(1.0);
        trainee = optimizer.step(rate * warmed, trainee, output.grads);
    }
    if !course.finite {
        course.reached = f64::INFINITY;
    }
    Ok(course)
}

/// Which parameters have a gradient other than zero, in visiting order.
struct Flow<'a> {
    gradients: &'a GradientsParams,
    flows: Vec<bool>,
}

impl<B: ops::AutodiffBackend> ModuleVisitor<B> for Flow<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let gradient = self.gradients.get::<B::InnerBackend, D>(param.id);
        let flows =
            gradient.is_some_and(|gradient| gradient.into_data().iter::<f32>().any(|value| value != 0.0));
        self.flows.push(flows);
    }
}
