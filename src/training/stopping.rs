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
mod tests {
    use super::*;

    fn row(split: Split, loss: f64, accuracy: f64) -> Row {
        let gradient_norm = (split == Split::Train).then_some(loss + 5.0);
        let (step, epoch, learning_rate, tokens, seconds, clip_rate) = (1, 1, 0.1, 1, 1.0, None);
        let objective = None;
        Row {
            step,
            epoch,
            split,
            loss,
            accuracy,
            learning_rate,
            gradient_norm,
            tokens,
            seconds,
            clip_rate,
            objective,
        }
    }

    #[test]
    fn losses_explode_far_above_uniform_and_their_start() {
        let seen = |first, last, valid, start| {
            let mut explosion = Explosion::default();
            explosion.train(first, true);
            explosion.train(last, false);
            explosion.validate(valid, 2.8, start).is_some()
        };
        assert!(seen(2.9, 5e6, 5e6, None));
        assert!(!seen(2.9, 0.1, 9.0, None), "a memorised training set is no explosion");
        assert!(!seen(2.9, 3.0, 3.1, None), "nothing learned is no explosion");
        assert!(!seen(300.0, 200.0, 200.0, None), "untrained weights may have a large loss");
        assert!(!seen(9.0, 12.5, 12.5, Some(12.0)), "weights of other data may have a large loss");
        assert!(seen(9.0, 13.5, 13.5, Some(12.0)));
    }

    #[test]
    fn exploded_losses_that_recover_start_anew() {
        let mut explosion = Explosion::default();
        explosion.train(2.8, true);
        let mut lasts = |loss| {
            explosion.train(loss, false);
            explosion.validate(loss, 2.8, None);
            explosion.lasts()
        };
        assert_eq!(
            [50.0, 40.0, 3.0, 50.0, 40.0, 30.0].map(&mut lasts),
            [false, false, false, false, false, true]
        );
    }

    /// The validation at which values of the monitored metric, each beside worse ones of the others, end a
    /// run.
    fn stops_at(values: &[f64], config: &TrainingConfig) -> Option<usize> {
        let mut stopping = EarlyStopping::default();
        let mut rows = Vec::new();
        values.iter().enumerate().position(|(at, &value)| {
            let other = at as f64;
            let (train, valid) = match config.monitor {
                Monitor::ValidLoss => ([(other, -other); 2], (value, -other)),
                Monitor::ValidAccuracy => ([(other, -other); 2], (other, -value)),
                // Two rows, of which the mean is the value.
                Monitor::TrainLoss | Monitor::GradientNorm => {
                    ([(value - 0.5, -other), (value + 0.5, -other)], (other, -other))
                }
                Monitor::TrainAccuracy => ([(other, 0.5 - value), (other, -0.5 - value)], (other, -other)),
            };
            rows.extend(train.map(|(loss, accuracy)| row(Split::Train, loss, accuracy)));
            rows.push(row(Split::Valid, valid.0, valid.1));
            stopping.observe(&rows, config)
        })
    }

    #[test]
    fn patience_counts_validations_without_enough_improvement_of_any_metric() {
        use Monitor::{GradientNorm, TrainAccuracy, TrainLoss, ValidAccuracy, ValidLoss};
        for monitor in [ValidLoss, ValidAccuracy, TrainLoss, TrainAccuracy, GradientNorm] {
            let config = TrainingConfig { patience: 2, min_delta: 0.1, monitor, ..Default::default() };
            let small = [3.0, 2.0, 1.95, 1.91, 1.0];
            assert_eq!(stops_at(&small, &config), Some(3), "{monitor:?}: 0.05 and 0.09 are no improvement");
            let anew = [3.0, 2.0, 1.95, 1.8, 1.75, 1.75];
            assert_eq!(stops_at(&anew, &config), Some(5), "{monitor:?}: an improvement starts anew");
        }
        assert_eq!(stops_at(&[1.0; 50], &TrainingConfig::default()), None);
    }

    #[test]
    fn another_metric_starts_anew_and_a_validation_without_rows_counts_nothing() {
        let accuracy = TrainingConfig { patience: 1, monitor: Monitor::ValidAccuracy, ..Default::default() };
        let mut stopping = EarlyStopping::default();
        for _ in 0..2 {
            stopping.observe(&[row(Split::Valid, 2.0, 0.5)], &accuracy);
        }
        assert!(stopping.is_stale(&accuracy));
        let loss = TrainingConfig { monitor: Monitor::ValidLoss, ..accuracy.clone() };
        assert!(!stopping.is_stale(&loss), "nothing is known of the loss");
        assert!(!stopping.observe(&[row(Split::Valid, 2.0, 0.5)], &loss), "the first value is the best");
        assert_eq!((stopping.best, stopping.stale), (Some(2.0), 0));

        let train = TrainingConfig { monitor: Monitor::TrainLoss, ..accuracy };
        let mut stopping = EarlyStopping::default();
        let rows = [row(Split::Train, 2.0, 0.5), row(Split::Valid, 2.0, 0.5), row(Split::Valid, 2.0, 0.5)];
        assert!(!stopping.observe(&rows[..2], &train) && !stopping.observe(&rows, &train));
        assert_eq!((stopping.best, stopping.stale), (Some(2.0), 0));
    }
}
