//! Advice about keys of `[training]` with unintended effects.

use super::{OptimizerKind, ScheduleKind, TrainingConfig};
use crate::choice::Choice;
use crate::numbers::counted;

impl TrainingConfig {
    /// Returns warnings about keys that do not have the intended effect in a run of `total` steps.
    pub fn warnings(&self, total: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.ramps(total)[0] >= total {
            warnings.push(format!(
                "training.warmup = {} takes the entire run of {}, so the rate never reaches \
                 training.learning_rate; use a fraction of the run, such as --set training.warmup=0.05",
                self.warmup,
                counted(total, "step")
            ));
        }
        if self.optimizer == OptimizerKind::Muon && self.momentum_warmup > total {
            warnings.push(format!(
                "training.momentum_warmup = {} is longer than the run of {}, so the momentum never reaches \
                 training.momentum; lower it",
                self.momentum_warmup,
                counted(total, "step")
            ));
        }
        let (rate, min_rate) = (self.learning_rate, self.min_learning_rate);
        if self.schedule != ScheduleKind::Constant && rate == min_rate {
            warnings.push(format!(
                "training.min_learning_rate = training.learning_rate = {rate:e}, so the rate never decays; \
                 pass --set training.min_learning_rate={:.0e}, or --set training.schedule=constant",
                rate / 10.0
            ));
        }
        let beyond: Vec<_> =
            self.validate_at.iter().filter(|&&step| step > total).map(usize::to_string).collect();
        if !beyond.is_empty() {
            warnings.push(format!(
                "training.validate_at = [{}] has no effect, because the run ends after {}; use earlier steps, \
                 or raise training.steps",
                beyond.join(", "),
                counted(total, "step")
            ));
        }
        warnings
    }

    /// Returns the settings for training at another learning rate, as values of `--set`.
    pub fn rate_settings(&self, rate: &str) -> Vec<String> {
        let mut settings = vec![format!("training.learning_rate={rate}")];
        let is_below = |rate: f64| self.min_learning_rate >= rate;
        if self.schedule != ScheduleKind::Constant && rate.parse().is_ok_and(is_below) {
            settings.push("training.min_learning_rate=0".to_string());
        }
        settings
    }

    /// Returns advice after a divergence, as a sentence that suggests options for smaller steps.
    pub fn divergence_advice(&self) -> String {
        let rate = format!(
            "{:.0e}",
            (self.learning_rate / 10.0).min(self.optimizer.usual_rate()).max(f64::MIN_POSITIVE)
        );
        let mut keys = self.rate_settings(&rate);
        if self.max_gradient_norm == 0.0 || self.max_gradient_norm > 1.0 {
            keys.push("training.max_gradient_norm=1".to_string());
        }
        if self.weight_decay > 1.0 && self.optimizer.keys().contains(&"weight_decay") {
            keys.push("training.weight_decay=0.1".to_string());
        }
        if self.warmup == 0.0 {
            keys.push("training.warmup=0.05".to_string());
        }
        format!("Try --set {}", keys.join(" --set "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OptimizerKind;

    #[test]
    fn validations_beyond_the_run_warn() {
        let config = TrainingConfig { validate_at: vec![5, 10, 11, 500], ..TrainingConfig::default() };
        let warned = config.warnings(10);
        assert!(
            warned.len() == 1
                && warned[0].contains("= [11, 500] has no effect, because the run ends after 10 steps")
        );
        assert_eq!(config.warnings(500), [""; 0]);
    }

    #[test]
    fn warmup_spanning_the_entire_run_warns() {
        let default = TrainingConfig::default;
        let warned = |config: &TrainingConfig, total| config.warnings(total).len();
        let long = TrainingConfig { warmup: 50.0, ..default() };
        assert_eq!([51, 50, 49].map(|total| warned(&long, total)), [0, 1, 1]);
        assert_eq!(warned(&TrainingConfig { warmup: 0.999, ..default() }, 100), 1);
        assert_eq!(warned(&default(), 1), 0);
    }

    #[test]
    fn a_schedule_that_never_decays_warns() {
        let flat = TrainingConfig { learning_rate: 1e-4, ..TrainingConfig::default() };
        let [warning] = &flat.warnings(100)[..] else { panic!("{:?}", flat.warnings(100)) };
        assert!(warning.contains("--set training.min_learning_rate=1e-5"), "{warning}");
        let advised = TrainingConfig { min_learning_rate: 1e-5, ..flat.clone() };
        let constant = TrainingConfig { schedule: ScheduleKind::Constant, ..flat };
        assert!(advised.warnings(100).is_empty() && constant.warnings(100).is_empty());
    }

    #[test]
    fn advice_after_a_divergence_fits_the_config() {
        let advice = |config: TrainingConfig| {
            config.check().unwrap();
            config.divergence_advice()
        };
        let default = TrainingConfig::default;
        let high = TrainingConfig { learning_rate: 3.0, ..default() };
        assert_eq!(advice(high), "Try --set training.learning_rate=1e-3");
        let low = TrainingConfig { learning_rate: 1e-3, max_gradient_norm: 0.0, warmup: 0.0, ..default() };
        assert_eq!(
            advice(low),
            "Try --set training.learning_rate=1e-4 --set training.min_learning_rate=0 --set \
             training.max_gradient_norm=1 --set training.warmup=0.05"
        );
        let constant = TrainingConfig { schedule: ScheduleKind::Constant, learning_rate: 1e-3, ..default() };
        assert_eq!(advice(constant), "Try --set training.learning_rate=1e-4");
        let sgd = TrainingConfig { optimizer: OptimizerKind::Sgd, learning_rate: 1e30, ..default() };
        assert_eq!(advice(sgd), "Try --set training.learning_rate=1e-1");
    }
}
