//! When a run stops: at its end, early, at a time limit, at a signal, or because it diverged.

use serde::{Deserialize, Serialize};

use super::config::{TrainingConfig, Watch};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All its steps are done.
    Completed,
    /// The watched metric no longer improved.
    EarlyStopped,
    /// A signal asked for it.
    Interrupted,
    /// `training.max_minutes` were over.
    TimeLimit,
    /// A study stopped it at a rung, where others did better or are waited for.
    Paused,
    /// A loss or gradient was not finite.
    Diverged,
}

impl Ended {
    /// The clause that says it to a person.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::EarlyStopped => "stopped early: the watched metric no longer improves",
            Self::Interrupted => "interrupted: `train --resume` goes on from here",
            Self::TimeLimit => "stopped at the time limit: `train --resume` with a longer one goes on",
            Self::Paused => "paused by a study: `train --resume` goes on from here",
            Self::Diverged => "diverged",
        }
    }
}

/// What early stopping has seen so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlyStopping {
    /// The best value of the watched metric.
    pub best: Option<f64>,
    /// Validations since.
    pub stale: usize,
}

/// The values of one validation that can be watched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watched {
    /// Mean validation loss in nats.
    pub valid_loss: f64,
    /// Share of the validation's targets that were predicted.
    pub valid_accuracy: f64,
    /// Mean training loss since the validation before, in nats.
    pub train_loss: f64,
}

impl EarlyStopping {
    /// Takes in a validation; true when the run should stop.
    pub fn observe(&mut self, values: Watched, config: &TrainingConfig) -> bool {
        // Lower is better for all: an accuracy counts downwards.
        let value = match config.watch {
            Watch::ValidLoss => values.valid_loss,
            Watch::ValidAccuracy => -values.valid_accuracy,
            Watch::TrainLoss => values.train_loss,
        };
        match self.best {
            Some(best) if value >= best - config.min_delta => self.stale += 1,
            _ => *self = Self { best: Some(value), stale: 0 },
        }
        self.is_stale(config)
    }

    /// Whether patience is at its end.
    pub fn is_stale(&self, config: &TrainingConfig) -> bool {
        config.patience > 0 && self.stale >= config.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops_at(values: &[f64], config: &TrainingConfig) -> Option<usize> {
        let mut stopping = EarlyStopping::default();
        let watched = |value| Watched { valid_loss: value, valid_accuracy: -value, train_loss: value };
        values.iter().position(|&value| stopping.observe(watched(value), config))
    }

    #[test]
    fn patience_counts_validations_without_enough_improvement() {
        let config = TrainingConfig { patience: 2, min_delta: 0.1, ..Default::default() };
        assert_eq!(
            stops_at(&[3.0, 2.0, 1.95, 1.91, 1.0], &config),
            Some(3),
            "0.05 and 0.09 are no improvement"
        );
        assert_eq!(
            stops_at(&[3.0, 2.0, 1.95, 1.8, 1.75, 1.75], &config),
            Some(5),
            "an improvement starts anew"
        );
        let accuracy = TrainingConfig { watch: Watch::ValidAccuracy, ..config };
        assert_eq!(stops_at(&[3.0, 2.0, 1.95, 1.91, 1.0], &accuracy), Some(3));
        let off = TrainingConfig::default();
        assert_eq!(stops_at(&[1.0; 50], &off), None);
    }
}
