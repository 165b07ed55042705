//! When a run stops: at its end, early, at a time limit, at a signal, or because it diverged.

use serde::{Deserialize, Serialize};

use super::metrics::{Row, Split};
use crate::config::{Monitor, TrainingConfig};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All its steps are done.
    Completed,
    /// The monitored metric no longer improved.
    EarlyStopped,
    /// A signal asked for it.
    Interrupted,
    /// `training.max_minutes` were over.
    TimeLimit,
    /// It has done the steps that it was to pause after.
    Paused,
    /// A loss or gradient was not finite, or the losses ended far above where they began.
    Diverged,
}

impl Ended {
    /// The clause that says it to a person.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::EarlyStopped => "stopped early: the monitored metric no longer improves",
            Self::Interrupted => "interrupted; `train --resume` continues it",
            Self::TimeLimit => "stopped at the time limit; `train --resume` with a longer one continues it",
            Self::Paused => "paused; `train --resume` continues it",
            Self::Diverged => "diverged",
        }
    }
}

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

/// What early stopping has seen so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlyStopping {
    /// The metric that was monitored.
    #[serde(default)]
    pub monitor: Monitor,
    /// Its best value.
    pub best: Option<f64>,
    /// Validations since.
    pub stale: usize,
}

impl Monitor {
    /// What there is to see at a validation, the last of `rows`; none where training wrote no row since
    /// the validation before.
    fn value(self, rows: &[Row]) -> Option<f64> {
        let (validation, before) = rows.split_last()?;
        let mean = |value: fn(&Row) -> Option<f64>| {
            let since = before.iter().rev().take_while(|row| row.split == Split::Train);
            let values = since.filter_map(value).collect::<Vec<_>>();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        match self {
            Monitor::ValidLoss => Some(validation.loss),
            Monitor::ValidAccuracy => Some(validation.accuracy),
            Monitor::TrainLoss => mean(|row| Some(row.loss)),
            Monitor::TrainAccuracy => mean(|row| Some(row.accuracy)),
            Monitor::GradientNorm => mean(|row| row.gradient_norm),
        }
    }

    /// By how much `value` is better than `other`.
    fn gain(self, value: f64, other: f64) -> f64 {
        match self {
            Monitor::ValidLoss | Monitor::TrainLoss | Monitor::GradientNorm => other - value,
            Monitor::ValidAccuracy | Monitor::TrainAccuracy => value - other,
        }
    }
}

impl EarlyStopping {
    /// Takes in a validation, the last of `rows`; true when the run should stop.
    pub fn observe(&mut self, rows: &[Row], config: &TrainingConfig) -> bool {
        if self.monitor != config.monitor {
            // What another metric was says nothing of this one.
            *self = Self { monitor: config.monitor, ..Self::default() };
        }
        if let Some(value) = self.monitor.value(rows) {
            match self.best {
                Some(best) if self.monitor.gain(value, best) <= config.min_delta => self.stale += 1,
                _ => (self.best, self.stale) = (Some(value), 0),
            }
        }
        self.is_stale(config)
    }

    /// Whether patience is at its end.
    pub fn is_stale(&self, config: &TrainingConfig) -> bool {
        self.monitor == config.monitor && config.patience > 0 && self.stale >= config.patience
    }
}

#[cfg(test)]
mod tests;
