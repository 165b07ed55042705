//! How long trials are: as many sequences for each, whatever its batch size, and rungs at which all
//! of them are validated, each within half a step of as many sequences.
//!
//! Sequences are counted as the steps of each trial see them, its last step of an epoch among them.

use super::training_set::TrainingSet;
use crate::config::Config;

/// The budget of every trial of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    set: TrainingSet,
    /// Sequences that a trial sees.
    sequences: usize,
    /// Sequences that a whole run of the config sees.
    pub whole: usize,
    /// Sequences to the first of several rungs.
    first: usize,
    /// Sequences between two validations.
    pub interval: usize,
    rungs: usize,
    eta: usize,
}

impl Budget {
    /// Trials of `steps` steps at the batch size of `base`, which see `set`, when their steps see
    /// `sequences_per_step` sequences.
    ///
    /// Rungs are a whole number of intervals apart, and an interval is a multiple of what each of them sees
    /// in a step, unless that would be longer than the way to the first rung. Then a rung may lie between two
    /// validations, and has one of its own.
    pub fn new(
        base: &Config,
        set: TrainingSet,
        steps: usize,
        (rungs, eta): (usize, usize),
        sequences_per_step: impl IntoIterator<Item = usize>,
    ) -> Self {
        let pace = set.pace(base);
        let (sequences, whole) = (pace.sequences(steps), pace.sequences(set.whole_steps(base)));
        let first = sequences.div_ceil(eta.saturating_pow(rungs.saturating_sub(1) as u32)).max(1);
        let own = pace.sequences_per_step;
        let multiple = |common: usize, next| common.checked_mul(next / divisor(common, next));
        let common = sequences_per_step.into_iter().try_fold(own, multiple);
        let common = common.filter(|&common| common <= first).unwrap_or(own);
        // As many validations as the config's own run has.
        let asked = pace.sequences(base.training.validation_interval(pace.steps_per_epoch));
        let scaled = asked as f64 * (sequences as f64 / whole.max(1) as f64);
        let scaled = (scaled as usize).clamp(1, first).next_multiple_of(common);
        let interval = if scaled <= first { scaled } else { (first / common * common).max(common) };
        let validations = (first as f64 / interval as f64).round().max(1.0) as usize;
        Self { set, sequences, whole, first: validations.saturating_mul(interval), interval, rungs, eta }
    }

    /// Steps of a run of `config` to so many sequences.
    pub fn steps_to(&self, config: &Config, sequences: usize) -> usize {
        self.set.pace(config).steps_to(sequences)
    }

    /// Steps of a trial.
    pub fn steps(&self, config: &Config) -> usize {
        self.steps_to(config, self.sequences)
    }

    /// Steps to a rung, counted from 0.
    pub fn rung(&self, config: &Config, rung: usize) -> usize {
        self.steps_to(config, self.sequences_to(rung))
    }

    /// Sequences that so many steps of a trial see.
    pub fn sequences(&self, config: &Config, steps: usize) -> usize {
        self.set.pace(config).sequences(steps)
    }

    /// The rungs of a trial that lie between two of its validations, in steps.
    pub fn validate_at(&self, config: &Config) -> Vec<usize> {
        let (every, total) = (self.steps_to(config, self.interval), self.steps(config));
        let rungs = (0..self.rungs).map(|rung| self.rung(config, rung));
        let mut between =
            rungs.filter(|rung| !rung.is_multiple_of(every) && *rung < total).collect::<Vec<_>>();
        between.dedup();
        between
    }

    /// Sequences to a rung.
    fn sequences_to(&self, rung: usize) -> usize {
        match rung + 1 < self.rungs {
            true => self.first.saturating_mul(self.eta.saturating_pow(rung as u32)).min(self.sequences),
            false => self.sequences,
        }
    }

    /// The warm-up of a config in a run of so many steps, and the fall that ends a trapezoid: a share of the steps as it
    /// is; what the config says in steps in proportion to the whole run, of `base`.
    pub fn ramps(&self, base: &Config, config: &Config, steps: usize) -> [f64; 2] {
        let whole = self.steps_to(base, self.whole) as f64;
        let mut training = config.training.clone();
        for length in [&mut training.warmup, &mut training.cooldown] {
            if *length >= 1.0 {
                *length = (*length * steps as f64 / whole).round().max(1.0);
            }
        }
        // Both rounded up, what fills the whole run is a step too long.
        let [warmup, cooldown] = training.ramps(steps);
        if training.cooldown >= 1.0 && warmup.saturating_add(cooldown) == steps + 1 {
            training.cooldown -= 1.0;
        }
        [training.warmup, training.cooldown]
    }

    /// Steps between rows of the training loss: as many sequences as between those of the config.
    pub fn log_every(&self, base: &Config, config: &Config) -> usize {
        self.steps_to(config, self.sequences(base, base.training.log_every))
    }

    /// Sequences of the whole study at most, for stages that so many new trials start, of which one in `eta` and
    /// `extra_survivors` more continue from each rung. Every trial sees as many, within half a step.
    pub fn study_sequences(&self, new_trials: &[usize], extra_survivors: usize) -> usize {
        let mut sequences = 0usize;
        for &trials in new_trials {
            let (mut left, mut before) = (trials, 0);
            for reached in (0..self.rungs).map(|rung| self.sequences_to(rung)) {
                sequences = sequences.saturating_add(left.saturating_mul(reached - before));
                (left, before) = (left.min(left.div_ceil(self.eta) + extra_survivors), reached);
            }
        }
        sequences
    }
}

/// The greatest common divisor.
fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a.max(1) } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests;
