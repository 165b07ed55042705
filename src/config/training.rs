//! The keys of `[training]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::device::{BackendName, DeviceChoice};
use super::intervene::Intervention;
use super::optimizer::{OptimizerKeys, OptimizerKind};
use crate::choice::UnusedKeys;
use crate::choices;
use crate::error::{Error, Result};
use crate::numbers::counted;
use crate::ops::{Kernels, Precision, Rule};
use crate::range::{Number, Range, Ranged, Section};
use crate::role::ParamRole;

/// The section `[training]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// The backend, which must be compiled in. Omitted: the first of cuda, wgpu, ndarray and flex that is compiled in
    /// and finds a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendName>,
    /// The device of the backend: its number in the list of `backends`, or a kind, such as "integrated". Omitted: the
    /// best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceChoice>,
    /// The precision of the matrix products. bf16 is faster on GPUs and CPUs that support it, f16 on GPUs;
    /// softmax, norms, loss, weights and the optimizer's moments stay in f32.
    pub precision: Precision,
    /// The implementation of the expensive operations. `fused`: this project's kernels on CPU backends, and block-wise
    /// attention on GPUs. `reference`: Burn's operations.
    pub kernels: Kernels,
    /// The number of CPU threads, which does not change the result. Omitted: one per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// The number of optimizer steps of the run. Omitted: set by `epochs`, or 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// The number of passes over the training set, instead of `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<usize>,
    /// Sequences per batch. 32: small enough to fit anywhere, large enough for a steady gradient.
    pub batch_size: usize,
    /// Gradient accumulation steps: the number of batches whose gradients are averaged into one step. 1: none.
    pub accumulate: usize,
    /// The number of shards of a step, each computed separately: a power of two that divides `batch_size`. The result
    /// depends on it, but not on the number of workers. Omitted: one per worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<usize>,
    /// The number of seconds that a worker waits for another. 600: enough to write a large checkpoint to a slow disk.
    #[serde(skip_serializing_if = "is_default_timeout")]
    pub worker_timeout: f64,
    /// The optimizer.
    pub optimizer: OptimizerKind,
    /// The highest learning rate. 1e-3 is stable for small decoders.
    pub learning_rate: f64,
    /// The schedule of the learning rate after the warm-up.
    pub schedule: ScheduleKind,
    /// Linear warm-up: a fraction of the run if below 1, else steps. 0.05: enough for Adam's second moments to settle.
    pub warmup: f64,
    /// The decay at the end of a trapezoid: a fraction of the run if below 1, else steps. 0.4: suits short runs.
    pub cooldown: f64,
    /// The final learning rate of a decaying schedule. 1e-4: a tenth of the highest.
    pub min_learning_rate: f64,
    /// Decoupled weight decay, on matrices only. 0.01: as in PyTorch.
    pub weight_decay: f64,
    /// Decay rate of the first moment. 0.9: as in PyTorch.
    pub beta1: f64,
    /// Decay rate of the second moment. 0.999: as in PyTorch.
    pub beta2: f64,
    /// The term that Adam adds to the denominator. 1e-8: as in PyTorch.
    pub epsilon: f64,
    /// Momentum of SGD and Muon. Omitted: 0.9 for SGD, 0.95 for Muon, the usual values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// Steps in which Muon's momentum rises from 0.85. 0: constant momentum.
    pub momentum_warmup: usize,
    /// The maximum global norm of the gradients, to which they are clipped. 0: no clipping.
    pub max_gradient_norm: f64,
    /// Weight of the uniform distribution in the target. 0: none. Otherwise `metrics.csv` has both losses: the plain
    /// cross-entropy, as in validation, and the smoothed `objective`.
    pub label_smoothing: f64,
    /// Steps between validations. 0: once per epoch, at least ten steps apart. The last step is always validated.
    pub validate_every: usize,
    /// Additional steps at which the run is validated. A study adds its rungs, at which it compares
    /// trials.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validate_at: Vec<usize>,
    /// Steps between checkpoints. 0: at every validation.
    pub checkpoint_every: usize,
    /// Steps between rows of the training loss in `metrics.csv`. 10: a smooth curve and a small file.
    pub log_every: usize,
    /// True to write an event file for TensorBoard: curves during training; config and pictures at the end.
    pub tensorboard: bool,
    /// The number of validations without improvement after which the run stops. 0: never.
    pub patience: usize,
    /// The minimum change of the monitored metric that counts as an improvement.
    pub min_delta: f64,
    /// The metric that early stopping monitors, by default the validation loss.
    pub monitor: Monitor,
    /// Minutes of training after which the run stops. A run without a validation until then is validated first. 0: no
    /// limit.
    pub max_minutes: f64,
    /// Interventions on heads and feed-forward layers during a part of training, such as
    /// `[{ at = "0.2", kind = "mean_ablate", until = 500 }]`. Validations of these steps include them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervene: Vec<Intervention>,
}

const DEFAULT_WORKER_TIMEOUT: f64 = 600.0;

/// Returns true for the default timeout, which the config of a run omits.
fn is_default_timeout(seconds: &f64) -> bool {
    *seconds == DEFAULT_WORKER_TIMEOUT
}

choices! {
    /// The schedule of the learning rate after the warm-up.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ScheduleKind {
        /// `learning_rate` to the end.
        Constant,
        /// Linear decay to `min_learning_rate`.
        Linear uses ["min_learning_rate"],
        /// Cosine decay to `min_learning_rate`.
        Cosine uses ["min_learning_rate"],
        /// `learning_rate sqrt((warmup + 1) / (step + 1))`, never below `min_learning_rate`.
        InverseSqrt uses ["min_learning_rate"],
        /// `learning_rate`, then linear decay to `min_learning_rate` over the last `cooldown` steps (Zhai et al., 2022,
        /// arXiv 2106.04560; Hägele et al., 2024, arXiv 2405.18392).
        Trapezoid uses ["min_learning_rate", "cooldown"],
    }
}

choices! {
    /// A metric of `metrics.csv` that early stopping can monitor, at each validation: a result of the validation, or the
    /// mean over the training rows since the previous validation.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Monitor {
        /// The validation loss: lower is better.
        #[default]
        ValidLoss,
        /// The validation accuracy over all targets: higher is better.
        ValidAccuracy,
        /// The training loss: lower is better.
        TrainLoss,
        /// The training accuracy: higher is better.
        TrainAccuracy,
        /// The norm of the gradients before they are clipped: lower is better.
        GradientNorm,
    }
}

impl Monitor {
    /// Returns true if the metric is part of the training rows.
    pub fn is_training_metric(self) -> bool {
        match self {
            Self::ValidLoss | Self::ValidAccuracy => false,
            Self::TrainLoss | Self::TrainAccuracy | Self::GradientNorm => true,
        }
    }
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            backend: None,
            device: None,
            precision: Precision::F32,
            kernels: Kernels::Fused,
            threads: None,
            steps: None,
            epochs: None,
            batch_size: 32,
            accumulate: 1,
            shards: None,
            worker_timeout: DEFAULT_WORKER_TIMEOUT,
            optimizer: OptimizerKind::Adamw,
            learning_rate: 1e-3,
            schedule: ScheduleKind::Cosine,
            warmup: 0.05,
            cooldown: 0.4,
            min_learning_rate: 1e-4,
            weight_decay: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            momentum: None,
            momentum_warmup: 0,
            max_gradient_norm: 1.0,
            label_smoothing: 0.0,
            validate_every: 0,
            validate_at: Vec::new(),
            checkpoint_every: 0,
            log_every: 10,
            tensorboard: false,
            patience: 0,
            min_delta: 0.0,
            monitor: Monitor::ValidLoss,
            max_minutes: 0.0,
            intervene: Vec::new(),
        }
    }
}

/// The maximum number of steps. A larger number is a typo: at a thousand steps per second, the run would take 34 years.
pub(super) const MAX_STEPS: usize = 1 << 40;
const MAX_SEQUENCES: usize = 1 << 20;

impl Section for TrainingConfig {
    fn unused_keys(&self) -> UnusedKeys {
        let mut unused = UnusedKeys::default();
        unused
            .other_choices("training.optimizer", self.optimizer)
            .other_choices("training.schedule", self.schedule)
            .unless(
                self.patience > 0,
                &["min_delta", "monitor"],
                "early stopping, which `training.patience` enables",
            );
        if self.weight_decay == 0.0 {
            unused.remove("weight_decay");
        }
        unused
    }

    fn ranges(&self) -> Vec<Ranged> {
        let optional = |key, value: Option<usize>, min, max: usize| {
            (key, value.map(Number::from), Range::Integer(min, max as u64))
        };
        let integer = |key, value, min, max| optional(key, Some(value), min, max);
        let real = |key, value: f64, range| (key, Some(value.into()), range);
        vec![
            optional("threads", self.threads, 1, 1_024),
            optional("steps", self.steps, 1, MAX_STEPS),
            optional("epochs", self.epochs, 1, MAX_STEPS),
            optional("shards", self.shards, 1, MAX_SEQUENCES),
            integer("batch_size", self.batch_size, 1, MAX_SEQUENCES),
            integer("accumulate", self.accumulate, 1, MAX_SEQUENCES),
            integer("momentum_warmup", self.momentum_warmup, 0, MAX_STEPS),
            integer("validate_every", self.validate_every, 0, MAX_STEPS),
            integer("checkpoint_every", self.checkpoint_every, 0, MAX_STEPS),
            integer("log_every", self.log_every, 1, MAX_STEPS),
            integer("patience", self.patience, 0, MAX_STEPS),
            real("learning_rate", self.learning_rate, Range::POSITIVE),
            real("worker_timeout", self.worker_timeout, Range::POSITIVE),
            real("epsilon", self.epsilon, Range::POSITIVE),
            real("warmup", self.warmup, Range::NON_NEGATIVE),
            real("cooldown", self.cooldown, Range::NON_NEGATIVE),
            real("min_learning_rate", self.min_learning_rate, Range::NON_NEGATIVE),
            real("weight_decay", self.weight_decay, Range::NON_NEGATIVE),
            real("max_gradient_norm", self.max_gradient_norm, Range::NON_NEGATIVE),
            real("min_delta", self.min_delta, Range::NON_NEGATIVE),
            real("max_minutes", self.max_minutes, Range::NON_NEGATIVE),
            real("beta1", self.beta1, Range::FRACTION),
            real("beta2", self.beta2, Range::FRACTION),
            ("momentum", self.momentum.map(Number::from), Range::FRACTION),
            real("label_smoothing", self.label_smoothing, Range::FRACTION),
        ]
    }
}

/// The number of steps of a run that sets neither steps nor epochs.
const DEFAULT_STEPS: usize = 1_000;

impl TrainingConfig {
    /// Returns the rule that updates a parameter of this role, and its weight decay, at an update counted from 1.
    pub fn rule(&self, role: &ParamRole, update: usize) -> (Rule, f64) {
        let Self { beta1, beta2, epsilon, weight_decay, momentum, momentum_warmup, .. } = *self;
        let keys = OptimizerKeys { beta1, beta2, epsilon, weight_decay, momentum, momentum_warmup };
        self.optimizer.rule(keys, role, update)
    }

    /// Checks everything that does not need the data.
    ///
    /// # Errors
    /// An error that names the key of the first invalid value.
    pub fn check(&self) -> Result<()> {
        if let (Some(steps), Some(epochs)) = (self.steps, self.epochs) {
            let problem = format!("cannot be combined with `training.epochs` = {epochs}; keep one of them");
            return Err(Error::key("training.steps", steps, problem));
        }
        self.check_ranges().map_err(Error::in_section("training"))?;
        let shards = self.shards.unwrap_or(1);
        let problem = "must be a power of two";
        Error::check_key(shards.is_power_of_two(), "training.shards", shards, problem)?;
        let problem = format!("must divide `training.batch_size` = {}", self.batch_size);
        Error::check_key(self.batch_size.is_multiple_of(shards), "training.shards", shards, problem)?;
        for (key, value) in [("training.warmup", self.warmup), ("training.cooldown", self.cooldown)] {
            let problem = "is longer than any run; use steps, or a fraction of the run below 1";
            Error::check_key(value <= MAX_STEPS as f64, key, value, problem)?;
        }
        let (min, max) = (self.min_learning_rate, self.learning_rate);
        let ends_below = self.schedule == ScheduleKind::Constant || min <= max;
        let problem = format!("must not exceed `training.learning_rate` = {max}; use {:.0e}", max / 10.0);
        Error::check_key(ends_below, "training.min_learning_rate", min, problem)
    }

    /// Returns the steps of the warm-up, and of the cooldown of a trapezoid, in a run of `total` steps.
    pub fn ramps(&self, total: usize) -> [usize; 2] {
        let [warmup, cooldown] = [self.warmup, self.cooldown].map(|length| match length {
            fraction if fraction < 1.0 => (fraction * total as f64).round() as usize,
            steps => steps.round() as usize,
        });
        // Fractions that sum to 1 are one step too long if both are rounded up.
        let are_fractions =
            self.warmup < 1.0 && self.cooldown < 1.0 && self.warmup + self.cooldown < 1.0 + 1e-9;
        [warmup, if are_fractions { cooldown.min(total - warmup) } else { cooldown }]
    }

    /// Checks that the phases of the schedule fit into a run of `total` steps.
    ///
    /// # Errors
    /// [`Error::Key`] if a trapezoid is longer than the run.
    pub fn check_schedule(&self, total: usize) -> Result<()> {
        let [warmup, cooldown] = self.ramps(total);
        let ramps = warmup.saturating_add(cooldown);
        let keys = [("training.warmup", self.warmup), ("training.cooldown", self.cooldown)];
        // The warm-up alone may be too long.
        let [(key, value), (other, other_value)] = if warmup > total { keys } else { [keys[1], keys[0]] };
        let problem = format!(
            "is too long: with `{other}` = {other_value}, the ramps take {}, but the run has {}; shorten one of them",
            counted(ramps, "step"),
            counted(total, "step")
        );
        let fits = self.schedule != ScheduleKind::Trapezoid || ramps <= total;
        Error::check_key(fits, key, value, problem)
    }

    /// Returns the optimizer steps of an epoch of `batches` batches. The last step has the remaining batches.
    pub fn steps_per_epoch(&self, batches: usize) -> usize {
        batches.div_ceil(self.accumulate)
    }

    /// Returns the optimizer steps of the run if an epoch has `batches` batches.
    pub fn total_steps(&self, batches: usize) -> usize {
        match (self.steps, self.epochs) {
            (Some(steps), _) => steps,
            (None, Some(epochs)) => epochs.saturating_mul(self.steps_per_epoch(batches)).min(MAX_STEPS),
            (None, None) => DEFAULT_STEPS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_numbers_are_refused() {
        let default = TrainingConfig::default;
        for (config, part) in [
            (TrainingConfig { steps: Some(usize::MAX / 2), ..default() }, "must be in [1, 1099511627776]"),
            (TrainingConfig { epochs: Some(usize::MAX / 2), ..default() }, "must be in [1, 1099511627776]"),
            (TrainingConfig { beta1: f64::NAN, ..default() }, "must be in [0, 1)"),
        ] {
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(TrainingConfig { epochs: Some(1 << 40), ..default() }.total_steps(1 << 40), 1 << 40);
    }

    #[test]
    fn ramps_may_fill_but_not_exceed_the_run() {
        let trapezoid = |warmup, cooldown| TrainingConfig {
            schedule: ScheduleKind::Trapezoid,
            warmup,
            cooldown,
            ..TrainingConfig::default()
        };
        for (warmup, total) in [(0.5, 1), (0.5, 5), (0.02, 25), (0.1, 1_000)] {
            let config = trapezoid(warmup, 1.0 - warmup);
            assert_eq!(config.ramps(total).iter().sum::<usize>(), total, "{warmup} of {total}");
            config.check_schedule(total).unwrap();
        }
        let message =
            |warmup, cooldown| trapezoid(warmup, cooldown).check_schedule(5).unwrap_err().to_string();
        assert!(message(6.0, 0.0).starts_with("`training.warmup` = 6 is too long"), "{}", message(6.0, 0.0));
        assert!(
            message(3.0, 3.0).starts_with("`training.cooldown` = 3 is too long"),
            "{}",
            message(3.0, 3.0)
        );
    }
}
