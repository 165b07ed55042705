//! The steps after which a run is validated and logged, as pure functions of the step, since a run may resume at
//! any step.

use super::TrainingConfig;

/// The minimum number of steps between two validations by default.
const MIN_VALIDATION_INTERVAL: usize = 10;

impl TrainingConfig {
    /// Returns the number of steps between two validations: `validate_every`, or by default the smallest number of
    /// whole epochs with at least ten steps. More frequent validations would write more checkpoints.
    pub fn validation_interval(&self, steps_per_epoch: usize) -> usize {
        let steps_per_epoch = steps_per_epoch.max(1);
        match self.validate_every {
            0 => steps_per_epoch * MIN_VALIDATION_INTERVAL.div_ceil(steps_per_epoch),
            steps => steps,
        }
    }

    /// Returns true if the run of `total` steps is validated after `step` steps.
    pub fn validates_at(&self, step: usize, total: usize, steps_per_epoch: usize) -> bool {
        step.is_multiple_of(self.validation_interval(steps_per_epoch))
            || self.validate_at.contains(&step)
            || step == total
    }

    /// Returns true if `metrics.csv` gets a row of the training loss after `step` of `total` steps. Early stopping on a
    /// training metric needs a row at each validation.
    pub fn logs(&self, step: usize, total: usize, steps_per_epoch: usize) -> bool {
        let is_monitored = self.patience > 0 && self.monitor.is_training_metric();
        step.is_multiple_of(self.log_every)
            || step == total
            || is_monitored && self.validates_at(step, total, steps_per_epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT_TEXT;

    #[test]
    fn default_validations_are_ten_steps_apart() {
        let default = TrainingConfig::default();
        assert_eq!([1, 3, 10, 12].map(|epoch| default.validation_interval(epoch)), [10, 12, 10, 12]);
        let configured = TrainingConfig { validate_every: 1, ..default };
        assert_eq!(configured.validation_interval(3), 1);
        assert!(DEFAULT_TEXT.contains("# steps; 0: once an epoch, at least ten steps apart"));
    }
}
