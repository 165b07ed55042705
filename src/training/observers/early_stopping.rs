//! Early stopping: a run stops after `training.patience` validations without improvement of `training.monitor`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Decision, Moment, Observer};
use crate::config::{Monitor, TrainingConfig};
use crate::error::Result;
use crate::numbers::counted;
use crate::training::metrics::{Row, Split};
use crate::training::stopping::Ended;

/// The name of the part in a checkpoint.
const NAME: &str = "stopping";

/// The state of early stopping.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlyStopping {
    /// The monitored metric.
    pub monitor: Monitor,
    /// The best value of the metric.
    pub best: Option<f64>,
    /// The number of validations since the best value.
    pub stale: usize,
}

impl Monitor {
    /// Returns the value of the metric at a validation, the last of `rows`. `None` if training wrote no row since the
    /// previous validation.
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

    /// Returns the improvement of `value` over `other`.
    fn gain(self, value: f64, other: f64) -> f64 {
        match self {
            Monitor::ValidLoss | Monitor::TrainLoss | Monitor::GradientNorm => other - value,
            Monitor::ValidAccuracy | Monitor::TrainAccuracy => value - other,
        }
    }
}

impl EarlyStopping {
    /// Records a validation, the last of `rows`. Returns true if the run should stop.
    pub fn observe(&mut self, rows: &[Row], config: &TrainingConfig) -> bool {
        if self.monitor != config.monitor {
            // The value of another metric is not comparable.
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

    /// Returns true if the patience is exhausted.
    pub fn is_stale(&self, config: &TrainingConfig) -> bool {
        self.monitor == config.monitor && config.patience > 0 && self.stale >= config.patience
    }
}

impl Observer for EarlyStopping {
    fn finished(&self, moment: &Moment<'_>) -> Option<(Ended, String)> {
        let config = &moment.setup.config.training;
        self.is_stale(config).then(|| {
            let reason = format!(
                "has stopped early after {} without improvement; resume it with a larger patience, --set \
                training.patience={}",
                counted(self.stale, "validation"),
                2 * config.patience
            );
            (Ended::EarlyStopped, reason)
        })
    }

    fn validation(&mut self, moment: &Moment<'_>) -> Result<Decision> {
        let is_stale = self.observe(&moment.state.rows, &moment.setup.config.training);
        Ok(if is_stale { Decision::Stop } else { Decision::Continue })
    }

    fn restore(&mut self, part: &Value) -> Result<(), serde_json::Error> {
        *self = Self::deserialize(part)?;
        Ok(())
    }

    fn part(&self) -> Option<(&'static str, Value)> {
        Some((NAME, serde_json::to_value(self).expect("plain values")))
    }
}
