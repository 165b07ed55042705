//! Divergence with finite losses, which rise far above the loss of an untrained model and stay there.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Decision, Moment, Observer};
use crate::error::Result;
use crate::numbers::{fixed, thousands};

/// The name of the part in a checkpoint.
const NAME: &str = "explosion";

/// The minimum difference between an exploded loss and the loss of an untrained model, in nats. A model that merely
/// memorises its training set has a lower training loss, and a model that learns nothing has a difference near 0.
const EXPLODED_ABOVE: f64 = 1.0;

/// The number of consecutive validations with exploded losses after which a run stops: a spike may recover.
const MAX_EXPLODED: usize = 3;

/// A detector of losses that are finite but far above the losses at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Explosion {
    /// The loss of the first training step.
    pub first: Option<f64>,
    /// The last training loss that was read.
    pub last: Option<f64>,
    /// The number of consecutive validations with exploded losses.
    pub validations: usize,
}

impl Explosion {
    /// Records the loss of a training step. `is_first` marks the first step of the run.
    pub fn train(&mut self, loss: f64, is_first: bool) {
        if is_first {
            self.first = Some(loss);
        }
        self.last = Some(loss);
    }

    /// Records a validation. Losses have exploded if the validation loss and the last training loss are far above both
    /// the `uniform` loss and the losses at the start. The `uniform` loss is the logarithm of the vocabulary size, and
    /// `start` is the validation loss at the start, if known. Returns the highest of these losses if the losses have
    /// exploded.
    pub fn validate(&mut self, loss: f64, uniform: f64, start: Option<f64>) -> Option<f64> {
        let initial = [self.first, start].into_iter().flatten().fold(uniform, f64::max);
        let limit = initial + EXPLODED_ABOVE;
        let is_exploded = loss > limit && self.last.is_some_and(|last| last > limit);
        self.validations = if is_exploded { self.validations + 1 } else { 0 };
        is_exploded.then_some(initial)
    }

    /// Returns true if the last training loss is far above the first.
    pub fn has_begun(&self) -> bool {
        self.first.zip(self.last).is_some_and(|(first, last)| last > first + EXPLODED_ABOVE)
    }

    /// Returns true if the losses have stayed exploded for longer than a spike lasts.
    pub fn is_lasting(&self) -> bool {
        self.validations >= MAX_EXPLODED
    }
}

impl Observer for Explosion {
    fn advice(&self, moment: &Moment<'_>) -> Option<String> {
        self.has_begun().then(|| {
            format!(
                "The losses had already risen at step {}, from which the run resumed; start a new run with these settings",
                thousands(moment.state.step as f64)
            )
        })
    }

    fn trusts_weights(&self) -> bool {
        self.validations == 0
    }

    fn loss(&mut self, step: usize, loss: f64) {
        self.train(loss, step == 1);
    }

    fn validation(&mut self, moment: &Moment<'_>) -> Result<Decision> {
        let Moment { setup, state, .. } = moment;
        let Some(loss) = state.rows.last().map(|row| row.loss) else { return Ok(Decision::Continue) };
        let uniform = (setup.description.sizes.vocab as f64).ln();
        let start = state.rows.first().filter(|row| row.step == 0).map(|row| row.loss);
        let Some(initial) = self.validate(loss, uniform, start) else { return Ok(Decision::Continue) };
        let is_warm = state.step >= setup.schedule.warmup;
        if !(moment.is_ending || is_warm && self.is_lasting()) {
            return Ok(Decision::Distrust);
        }
        let shown = |loss: f64| if loss < 1e4 { fixed(loss, 2) } else { thousands(loss) };
        let train = self.last.unwrap_or(loss);
        let what = format!(
            "the loss has risen to {} nats in training and {} in validation, from {} at the start",
            shown(train),
            shown(loss),
            shown(initial)
        );
        Err(setup.diverged(state.step, what))
    }

    fn restore(&mut self, part: &Value) -> Result<(), serde_json::Error> {
        *self = Self::deserialize(part)?;
        Ok(())
    }

    fn part(&self) -> Option<(&'static str, Value)> {
        Some((NAME, serde_json::to_value(self).expect("plain values")))
    }
}
