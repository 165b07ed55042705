//! How good a model is on a whole set: every counted target weighed alike, nothing at random.
//!
//! What `train` reports at a validation and what `evaluate` reports afterwards is made here, so
//! the two cannot differ.

use serde::{Deserialize, Serialize};

use crate::data::{Batch, Role};

/// A model's scores over a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Mean loss over the counted targets, in nats.
    pub loss: f64,
    /// Share of the counted targets that were the likeliest token.
    pub accuracy: f64,
    /// The same over the targets that a perfect model can know; none where there are none.
    pub determined_accuracy: Option<f64>,
    /// Mean loss over the targets that a perfect model can know, in nats.
    pub determined_loss: Option<f64>,
    /// Counted targets.
    pub tokens: u64,
    /// Targets among them that a perfect model can know.
    pub determined_tokens: u64,
    /// Mean loss at each position of the sequence, in nats; none where no target counts.
    pub loss_by_position: Vec<Option<f64>>,
}

/// Sums over the batches of a set.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    all: Sum,
    determined: Sum,
    positions: Vec<Sum>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    loss: f64,
    correct: u64,
    tokens: u64,
}

impl Sum {
    fn add(&mut self, loss: f64, correct: bool) {
        self.loss += loss;
        self.correct += u64::from(correct);
        self.tokens += 1;
    }

    fn loss(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.loss / self.tokens as f64)
    }

    fn accuracy(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.correct as f64 / self.tokens as f64)
    }
}

impl Tally {
    /// Adds a batch: the `losses` in nats and the likeliest tokens, both `[rows, time]` row-major.
    pub fn add(&mut self, batch: &Batch, losses: &[f32], predictions: &[i64]) {
        if self.positions.len() < batch.time {
            self.positions.resize(batch.time, Sum::default());
        }
        for (index, role) in batch.roles.iter().enumerate() {
            if *role == Role::Padding {
                continue;
            }
            let (loss, correct) =
                (f64::from(losses[index]), predictions[index] == i64::from(batch.targets[index]));
            self.all.add(loss, correct);
            self.positions[index % batch.time].add(loss, correct);
            if *role == Role::Determined {
                self.determined.add(loss, correct);
            }
        }
    }

    /// The means. Not a number where nothing was counted.
    pub fn evaluation(&self) -> Evaluation {
        Evaluation {
            loss: self.all.loss().unwrap_or(f64::NAN),
            accuracy: self.all.accuracy().unwrap_or(f64::NAN),
            determined_accuracy: self.determined.accuracy(),
            determined_loss: self.determined.loss(),
            tokens: self.all.tokens,
            determined_tokens: self.determined.tokens,
            loss_by_position: self.positions.iter().map(Sum::loss).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_counts_nothing_and_uneven_rows_weigh_by_token() {
        use Role::{Determined, Padding, Undetermined};
        let batch = Batch {
            rows: 2,
            time: 3,
            inputs: vec![0; 6],
            targets: vec![1, 2, 3, 4, 0, 0],
            roles: vec![Undetermined, Determined, Determined, Undetermined, Padding, Padding],
            source: None,
        };
        let mut tally = Tally::default();
        tally.add(&batch, &[1.0, 2.0, 3.0, 6.0, 99.0, 99.0], &[1, 2, 0, 0, 0, 0]);
        let evaluation = tally.evaluation();
        assert_eq!(evaluation.loss, 3.0);
        assert_eq!(evaluation.accuracy, 0.5);
        assert_eq!(evaluation.determined_accuracy, Some(0.5));
        assert_eq!(evaluation.determined_loss, Some(2.5));
        assert_eq!(evaluation.loss_by_position, [Some(3.5), Some(2.0), Some(3.0)]);
        assert_eq!((evaluation.tokens, evaluation.determined_tokens), (4, 2));
    }
}
