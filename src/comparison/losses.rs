//! The losses of a run in a list or a comparison, in nats per token.

use serde::Serialize;

/// The losses of a run, or of the best trial of a study.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct RunLosses {
    /// The lowest validation loss.
    pub best_valid_loss: Option<f64>,
    /// The loss of the optimal predictor.
    pub floor: Option<f64>,
    /// The lowest validation loss minus the entropy floor.
    pub above_floor: Option<f64>,
}

impl RunLosses {
    /// Returns the losses of a run whose lowest validation loss is `best_valid_loss`.
    pub(super) fn new(best_valid_loss: Option<f64>, floor: Option<f64>) -> Self {
        let above_floor = best_valid_loss.zip(floor).map(|(best, floor)| best - floor);
        Self { best_valid_loss, floor, above_floor }
    }
}
