//! The check before a search: a model that can learn at all learns a few sequences by heart.
//!
//! Its training loss must come close to the least that is possible on them, the entropy of what follows
//! equal prefixes. Where it does not, other rates are tried, so that the answer says what is wrong
//! rather than that something is.

use std::collections::HashMap;

use burn::module::{ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer as _};
use burn::prelude::*;
use burn::train::TrainStep;
use serde::{Deserialize, Serialize};

use crate::data::{Batch, Dataset, Loader, Order, Role};
use crate::error::{Error, Result};
use crate::ops;
use crate::training::{DeviceBatch, Experiment, Hyper, Optimizer, StepBatches, compute};
use crate::weights::native;

/// Targets to learn by heart: enough to be no accident, few enough for seconds.
const TARGETS: usize = 256;
const MOST_SEQUENCES: usize = 8;
/// Targets that tell whether labels follow from what came before.
const TARGETS_OF_LABELS: usize = 4_096;
const MOST_SEQUENCES_OF_LABELS: usize = 512;
/// Labels count as not learnable where what follows equal prefixes leaves so much of the loss of a guess.
const LEFT_TO_CHANCE: f64 = 0.8;
/// Steps in which it must be done.
const STEPS: usize = 300;
/// Of these the first, over which the rate rises.
const WARMUP: usize = 10;
/// The training loss counts as near its least below so many nats above it.
const NEAR: f64 = 0.1;
/// The step after which every parameter must have had a gradient: what starts at zero lets none pass
/// in the first.
const FLOWING: usize = 5;
/// Rates that are tried where the config's fails, as multiples of it, and then whatever it is.
const MULTIPLES: [f64; 6] = [0.1, 10.0, 0.01, 100.0, 0.001, 1_000.0];
const USUAL_RATES: [f64; 5] = [1e-3, 1e-2, 1e-4, 1e-1, 1e-5];

/// What the check found. Losses are in nats a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Sequences that were learned by heart.
    pub sequences: usize,
    /// Their targets.
    pub targets: usize,
    /// The least possible loss on them.
    pub least: f64,
    /// The loss of the fresh model.
    pub first: f64,
    /// The loss that was reached.
    pub reached: f64,
    /// Steps that it took.
    pub steps: usize,
    /// The learning rate.
    pub learning_rate: f64,
}

/// How a few sequences were learned at one rate.
#[derive(Debug)]
struct Course {
    first: f64,
    reached: f64,
    steps: usize,
    finite: bool,
    /// Parameters that never had a gradient.
    silent: Vec<String>,
}

/// Trains a copy of the experiment's model on a few of its sequences alone, at its own rate; where that
/// fails, at each of `rates`, those that a search would try beside it.
///
/// # Errors
/// What is wrong, where it does not learn them: a rate that is too high or too low, a parameter that no
/// gradient reaches, or labels that the inputs do not determine.
pub fn check<B: ops::AutodiffBackend>(
    experiment: &Experiment,
    dataset: &Dataset,
    rates: &[f64],
    device: &B::Device,
) -> Result<Baseline> {
    let batch = few(dataset, TARGETS, MOST_SEQUENCES);
    let targets = batch.roles.iter().filter(|&&role| role != Role::Padding).count();
    let least = least_loss(&batch);
    let rate = experiment.training.learning_rate;
    let guess = (dataset.vocabulary.size() as f64).ln();
    let wide = few(dataset, TARGETS_OF_LABELS, MOST_SEQUENCES_OF_LABELS);
    let chance = least_loss(&wide);
    if targets == 0 || chance > LEFT_TO_CHANCE * guess {
        return Err(Error::Input(format!(
            "baseline check: the labels cannot be learned: in {} sequences the same tokens are followed by different \
             ones, so no model comes below {chance:.2} nats, where a guess has {guess:.2}; check [data], as a longer \
             `data.length`, or go on all the same with --set tune.baseline=false",
            wide.rows
        )));
    }
    let near = least + NEAR;
    let learn = |experiment: &Experiment, rate: f64| {
        compute(&experiment.training, || learn::<B>(experiment, dataset, (&batch, near), rate, device))
    };
    let found = |course: &Course, rate: f64| Baseline {
        sequences: batch.rows,
        targets,
        least,
        first: course.first,
        reached: course.reached,
        steps: course.steps,
        learning_rate: rate,
    };
    let course = learn(experiment, rate)?;
    if course.reached <= near {
        return Ok(found(&course, rate));
    }
    for &other in rates.iter().filter(|&&other| other != rate) {
        let course = learn(experiment, other)?;
        if course.reached <= near {
            return Ok(found(&course, other));
        }
    }
    let first_that_works = |experiment: &Experiment, rates: &[f64]| {
        for &rate in rates {
            if learn(experiment, rate)?.reached <= near {
                return Ok::<_, Error>(Some(rate));
            }
        }
        Ok(None)
    };
    let others = MULTIPLES.map(|factor| rate * factor).into_iter().chain(USUAL_RATES).collect::<Vec<_>>();
    let works = first_that_works(experiment, &others)?;
    let norm = experiment.training.max_gradient_norm;
    if works.is_none() && norm > 0.0 {
        let mut unclipped = experiment.clone();
        unclipped.training.max_gradient_norm = 0.0;
        let rates = [&[rate], &USUAL_RATES[..]].concat();
        if let Some(works) = first_that_works(&unclipped, &rates)? {
            return Err(Error::key(
                "training.max_gradient_norm",
                format!("{norm:e}"),
                format!(
                    "holds every step back. {}; without clipping, at a rate of {works:e}, they are. Raise it, as to 1, \
                     {ANYWAY}",
                    course.happened(batch.rows, near)
                ),
            ));
        }
    }
    Err(course.problem(rate, works, batch.rows, near))
}

const ANYWAY: &str = "or go on all the same with --set tune.baseline=false";

impl Course {
    fn happened(&self, rows: usize, near: f64) -> String {
        let Self { first, reached, steps, finite, .. } = self;
        let happened = match finite {
            false => format!("the loss is no longer finite after {steps} steps"),
            true => format!("the training loss came from {first:.2} to {reached:.2} nats in {steps} steps"),
        };
        format!(
            "baseline check: {rows} sequences could not be learned by heart: {happened}, not below {near:.2}"
        )
    }

    /// `works`: another rate, at which they are.
    fn problem(&self, rate: f64, works: Option<f64>, rows: usize, near: f64) -> Error {
        let asked = self.happened(rows, near);
        let silent = match self.silent.as_slice() {
            [] => String::new(),
            names => format!("; no gradient reaches `{}`", names.join("`, `")),
        };
        match works {
            Some(works) => {
                let (is, other) = if works < rate { ("high", "lower") } else { ("low", "higher") };
                let good = format!("{:e}", format!("{works:.3e}").parse::<f64>().unwrap_or(works));
                Error::key(
                    "training.learning_rate",
                    format!("{rate:e}"),
                    format!(
                        "is too {is}. {asked}; with {good} they are{silent}. Take a {other} rate, {ANYWAY}"
                    ),
                )
            }
            None => Error::Input(format!(
                "{asked}, nor with rates from a thousandth to a thousand times `training.learning_rate` = {rate:e}, nor from \
                 1e-5 to 0.1{silent}; \
                 the model may be too small (`model.d_model`, `model.layers`) or not see what decides \
                 (`model.position`). Change it, {ANYWAY}"
            )),
        }
    }
}

/// The first sequences of the training set; of long ones the beginning.
fn few(dataset: &Dataset, targets: usize, sequences: usize) -> Batch {
    let rows = (targets / dataset.train.time().max(1)).clamp(1, sequences);
    let mut batch = Batch::default();
    Loader::new(dataset.train.clone(), rows, 0, Order::InOrder).batch(0, 0, &mut batch);
    let kept = batch.time.min(targets);
    if kept == batch.time {
        return batch;
    }
    Batch {
        inputs: shortened(&batch.inputs, batch.time, kept),
        targets: shortened(&batch.targets, batch.time, kept),
        roles: shortened(&batch.roles, batch.time, kept),
        time: kept,
        ..batch
    }
}

/// The first `kept` of each row of `time`.
fn shortened<T: Copy>(values: &[T], time: usize, kept: usize) -> Vec<T> {
    values.chunks(time).flat_map(|row| row[..kept].iter().copied()).collect()
}

/// The loss of a model that knows these very sequences: the mean entropy of what follows each prefix.
fn least_loss(batch: &Batch) -> f64 {
    // By source and prefix.
    let mut followers: HashMap<_, HashMap<u32, usize>> = HashMap::new();
    for row in 0..batch.rows {
        let source = batch
            .source
            .as_ref()
            .map_or(&[][..], |source| &source.tokens[row * source.time..(row + 1) * source.time]);
        for time in 0..batch.time {
            let place = row * batch.time + time;
            if batch.roles[place] == Role::Padding {
                continue;
            }
            let prefix = &batch.inputs[row * batch.time..=place];
            *followers.entry((source, prefix)).or_default().entry(batch.targets[place]).or_default() += 1;
        }
    }
    let (mut loss, mut targets) = (0.0, 0);
    for counts in followers.values() {
        let all = counts.values().sum::<usize>();
        targets += all;
        loss -= counts.values().map(|&count| count as f64 * (count as f64 / all as f64).ln()).sum::<f64>();
    }
    loss / targets.max(1) as f64
}

/// Learns `batch` alone until the loss is below `near`, without what keeps a model from learning by
/// heart: dropout, smoothed labels, weight decay.
fn learn<B: ops::AutodiffBackend>(
    experiment: &Experiment,
    dataset: &Dataset,
    (batch, near): (&Batch, f64),
    rate: f64,
    device: &B::Device,
) -> Result<Course> {
    let mut plain = experiment.clone();
    plain.model.dropout = 0.0;
    plain.training.label_smoothing = 0.0;
    plain.training.weight_decay = 0.0;
    let mut trainee = plain.model::<B>(plain.sizes(dataset), device)?;
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

#[cfg(test)]
mod tests {
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    use super::super::testing::small;
    use super::*;

    fn checked(sets: &[&str]) -> Result<Baseline> {
        checked_with(sets, &[])
    }

    fn checked_with(sets: &[&str], rates: &[f64]) -> Result<Baseline> {
        let sets = [&["training.learning_rate=3e-3"], sets].concat();
        let experiment = small(&sets)?;
        let dataset = experiment.dataset()?;
        check::<Autodiff<NdArray>>(&experiment, &dataset, rates, &Default::default())
    }

    #[test]
    fn a_healthy_model_learns_a_few_sequences_by_heart_even_with_dropout() {
        let found = checked(&["model.dropout=0.5", "training.label_smoothing=0.2"]).unwrap();
        assert!(found.reached < found.least + NEAR && found.first > 1.5, "{found:?}");
        assert_eq!((found.sequences, found.targets), (8, 96));
    }

    #[test]
    fn a_rate_that_is_too_high_or_too_low_is_told_with_one_that_works() {
        let said = checked(&["training.learning_rate=1"]).unwrap_err().to_string();
        assert!(
            said.contains("`training.learning_rate` = 1e0 is too high") && said.contains("with 1e-"),
            "{said}"
        );
        let low = ["training.learning_rate=1e-6", "training.min_learning_rate=0"];
        let said = checked(&low).unwrap_err().to_string();
        assert!(said.contains("is too low") && said.lines().count() == 1, "{said}");
        for (rate, part) in [("1e-8", "is too low"), ("1e30", "is too high")] {
            let sets = [&format!("training.learning_rate={rate}"), "training.min_learning_rate=0"];
            let said = checked(&sets).unwrap_err().to_string();
            assert!(said.starts_with("`training.learning_rate`") && said.contains(part), "{said}");
        }
    }

    #[test]
    fn clipping_that_lets_nothing_move_is_told() {
        let held = ["training.optimizer=sgd", "training.max_gradient_norm=1e-9"];
        let said = checked(&held).unwrap_err().to_string();
        assert!(said.starts_with("`training.max_gradient_norm` = 1e-9 holds"), "{said}");
    }

    #[test]
    fn a_rate_that_the_search_tries_too_may_stand_for_one_that_fails() {
        let found = checked_with(&["training.learning_rate=10"], &[10.0, 3e-3]).unwrap();
        assert_eq!(found.learning_rate, 3e-3);
    }

    #[test]
    fn labels_that_do_not_follow_from_what_came_before_are_told() {
        let said = checked(&["data.task=random", "data.length=1", "data.train_samples=512"])
            .unwrap_err()
            .to_string();
        assert!(said.contains("labels cannot be learned") && said.contains("tune.baseline=false"), "{said}");
    }

    #[test]
    fn the_least_loss_is_the_entropy_of_what_follows_equal_prefixes() {
        // After 1 come 2 and 3; what follows them is certain.
        let batch = Batch {
            rows: 2,
            time: 2,
            inputs: vec![1, 2, 1, 3],
            targets: vec![2, 5, 3, 5],
            roles: vec![Role::Undetermined; 4],
            source: None,
        };
        assert!((least_loss(&batch) - 2f64.ln() / 2.0).abs() < 1e-12);
    }
}
