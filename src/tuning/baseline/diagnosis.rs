//! Why a few sequences were not learned: what else works, and what to do.

use super::course::Course;
use super::{ANYWAY, Candidate, Trainer};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::ops;
use crate::tuning::table::setting_shown;

/// Rates that are tried where the config's fails, as multiples of it, and then whatever it is.
const MULTIPLES: [f64; 6] = [0.1, 10.0, 0.01, 100.0, 0.001, 1_000.0];
const USUAL_RATES: [f64; 5] = [1e-3, 1e-2, 1e-4, 1e-1, 1e-5];

const RATE: &str = "training.learning_rate";
const CLIPPING: &str = "training.max_gradient_norm";

/// With what a model learns that does not with its own rate and clipping.
pub enum Works {
    /// Another rate.
    AtRate(f64),
    /// No clipping, at a rate.
    WithoutClipping { rate: f64 },
    /// Nothing that was tried.
    Nothing,
}

impl<B: ops::AutodiffBackend> Trainer<'_, B> {
    fn first_rate(&self, experiment: &Config, rates: &[f64]) -> Result<Option<f64>> {
        for &rate in rates {
            if self.learn(experiment, rate)?.reached <= self.near {
                return Ok(Some(rate));
            }
        }
        Ok(None)
    }

    /// Its own rate comes first, without clipping: gradients that are clipped to nothing a higher rate may
    /// make up for, which is no remedy.
    pub fn what_works(&self, experiment: &Config) -> Result<Works> {
        let rate = experiment.training.learning_rate;
        let unclipped = (experiment.training.max_gradient_norm > 0.0).then(|| {
            let mut unclipped = experiment.clone();
            unclipped.training.max_gradient_norm = 0.0;
            unclipped
        });
        let without_clipping = |rates: &[f64]| match &unclipped {
            Some(unclipped) => self.first_rate(unclipped, rates),
            None => Ok(None),
        };
        if let Some(rate) = without_clipping(&[rate])? {
            return Ok(Works::WithoutClipping { rate });
        }
        let rates = MULTIPLES.map(|factor| rate * factor).into_iter().chain(USUAL_RATES).collect::<Vec<_>>();
        if let Some(rate) = self.first_rate(experiment, &rates)? {
            return Ok(Works::AtRate(rate));
        }
        Ok(without_clipping(&USUAL_RATES)?.map_or(Works::Nothing, |rate| Works::WithoutClipping { rate }))
    }
}

/// What is known of a candidate that did not learn.
pub struct Diagnosis<'a> {
    pub candidate: &'a Candidate,
    /// At its own rate.
    pub course: Course,
    /// Candidates beside it that did not learn either.
    pub others: usize,
    /// Sequences that were to be learned.
    pub rows: usize,
    /// The loss that was to be reached.
    pub near: f64,
}

impl Diagnosis<'_> {
    /// What is wrong, by what works instead.
    pub fn error(&self, works: Works) -> Error {
        let training = &self.candidate.experiment.training;
        let (own, norm) = (training.learning_rate, training.max_gradient_norm);
        let silent = match self.course.silent.as_slice() {
            [] => String::new(),
            names => format!("; no gradient reaches `{}`", names.join("`, `")),
        };
        match works {
            Works::AtRate(rate) => {
                let (is, other) = if rate < own { ("high", "lower") } else { ("low", "higher") };
                let good = format!("{:e}", format!("{rate:.3e}").parse::<f64>().unwrap_or(rate));
                self.blame(
                    (RATE, own),
                    &format!("is too {is}"),
                    &format!("with {good} they are{silent}"),
                    (&format!("Take a {other} rate"), other),
                )
            }
            Works::WithoutClipping { rate } => self.blame(
                (CLIPPING, norm),
                "holds every step back",
                &format!("without clipping, at a rate of {rate:e}, they are"),
                ("Raise it, or take 0, which clips nothing", "higher"),
            ),
            Works::Nothing => Error::Input(format!(
                "{}, nor with rates from a thousandth to a thousand times `{RATE}` = {own:e}, nor from 1e-5 to \
                 0.1{silent}; the model may be too small (`model.d_model`, `model.layers`) or not see what decides \
                 (`model.position`). Change it, {ANYWAY}",
                self.happened()
            )),
        }
    }

    /// Says that a key's value is at fault: one that the user wrote, or one of those that are searched.
    fn blame(
        &self,
        (key, value): (&str, f64),
        fault: &str,
        evidence: &str,
        (remedy, other): (&str, &str),
    ) -> Error {
        let happened = self.happened();
        match self.candidate.setting.contains_key(key) {
            false => Error::key(
                key,
                format!("{value:e}"),
                format!("{fault}. {happened}; {evidence}. {remedy}, {ANYWAY}"),
            ),
            true => Error::Input(format!(
                "{happened}; {evidence}, so {value:e} {fault}. Search {other} values of `{key}`, {ANYWAY}"
            )),
        }
    }

    fn happened(&self) -> String {
        let Self { candidate: Candidate { trial, setting, .. }, course, others, rows, near } = self;
        let Course { first, reached, steps, finite, .. } = course;
        let whose = match setting.is_empty() {
            true => String::new(),
            false => format!(" by trial {trial:03} ({})", setting_shown(setting)),
        };
        let happened = match finite {
            false => format!("the loss is no longer finite after {steps} steps"),
            true => format!("the training loss came from {first:.2} to {reached:.2} nats in {steps} steps"),
        };
        let others = match others {
            0 => String::new(),
            1 => ", and another trial fails too".to_string(),
            others => format!(", and {others} other trials fail too"),
        };
        format!(
            "baseline check: {rows} sequences could not be learned by heart{whose}: {happened}, not below \
             {near:.2}{others}"
        )
    }
}
