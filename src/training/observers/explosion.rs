//! Divergence with finite losses: they rise far above those of a model that has learned nothing, and stay there.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Decision, Moment, Observer};
use crate::error::Result;
use crate::numbers::{fixed, thousands};

/// Its name in a checkpoint.
pub const NAME: &str = "explosion";

/// Nats above the loss of a model that has learned nothing from which a loss counts as exploded. A model that merely
/// memorises its training set stays below it in training, and one that learns nothing stays near 0.
const EXPLODED_ABOVE: f64 = 1.0;

/// Validations in a row with exploded losses after which a run stops: a spike may recover.
const MAX_EXPLODED: usize = 3;

/// Detects a training whose losses are finite but far above where they began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Explosion {
    /// The loss of the first training step.
    pub first: Option<f64>,
    /// The loss of the last training step that was read.
    pub last: Option<f64>,
    /// Validations in a row with exploded losses.
    pub validations: usize,
}

impl Explosion {
    /// Takes in the loss of a training step; `is_first` in the run.
    pub fn train(&mut self, loss: f64, is_first: bool) {
        if is_first {
            self.first = Some(loss);
        }
        self.last = Some(loss);
    }

    /// Takes in a validation. Its loss and that of the last training step have exploded where both are far above the
    /// `uniform` loss, the logarithm of the vocabulary's size, and above the losses at the start; `start` is the
    /// validation loss there, where it is known. Returns the loss that they began with then.
    pub fn validate(&mut self, loss: f64, uniform: f64, start: Option<f64>) -> Option<f64> {
        let began = [self.first, start].into_iter().flatten().fold(uniform, f64::max);
        let limit = began + EXPLODED_ABOVE;
        let is_exploded = loss > limit && self.last.is_some_and(|last| last > limit);
        self.validations = if is_exploded { self.validations + 1 } else { 0 };
        is_exploded.then_some(began)
    }

    /// Returns whether the losses stay exploded: a spike would have recovered.
    pub fn lasts(&self) -> bool {
        self.validations >= MAX_EXPLODED
    }
}

impl Observer for Explosion {
    fn loss(&mut self, step: usize, loss: f64) {
        self.train(loss, step == 1);
    }

    fn validation(&mut self, moment: &Moment<'_>) -> Result<Decision> {
        let Moment { setup, state, rows, .. } = moment;
        let Some(loss) = rows.last().map(|row| row.loss) else { return Ok(Decision::Continue) };
        let uniform = (setup.description.sizes.vocab as f64).ln();
        let start = rows.first().filter(|row| row.step == 0).map(|row| row.loss);
        let Some(began) = self.validate(loss, uniform, start) else { return Ok(Decision::Continue) };
        let is_warm = state.step >= setup.schedule.warmup;
        if !(moment.is_ending || is_warm && self.lasts()) {
            return Ok(Decision::Distrust);
        }
        let shown = |loss: f64| if loss < 1e4 { fixed(loss, 2) } else { thousands(loss) };
        let train = self.last.unwrap_or(loss);
        let what = format!(
            "the loss has risen to {} nats in training and {} on validation, where a model that has learned nothing has \
             {}",
            shown(train),
            shown(loss),
            shown(began)
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
