//! The budget of trials. Each trial sees the same number of sequences, whatever its batch size. All trials are
//! validated at common rungs, within half a step of the same number of sequences, but after at least one step.
//!
//! Sequences are counted as the steps of a trial see them, including the smaller last step of an epoch.

use toml::Table;

use super::training_set::TrainingSet;
use crate::config::Config;

/// The budget of every trial of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    set: TrainingSet,
    /// The number of sequences in a trial.
    sequences: usize,
    /// The number of sequences in a full run of the config.
    pub full: usize,
    /// The number of sequences to the first rung, if there are several.
    first: usize,
    /// The number of sequences between two validations.
    pub interval: usize,
    rungs: usize,
    eta: usize,
}

impl Budget {
    /// Creates the budget of trials on `set` that take `steps` steps at the batch size of `base`. `sequences_per_step`
    /// lists the numbers of sequences per step of the trials.
    ///
    /// The distance between rungs is a multiple of the validation interval. The interval is a common multiple of
    /// `sequences_per_step`, unless that exceeds the distance to the first rung. In that case a rung can fall between
    /// two validations and gets a validation of its own.
    pub fn new(
        base: &Config,
        set: TrainingSet,
        steps: usize,
        (rungs, eta): (usize, usize),
        sequences_per_step: impl IntoIterator<Item = usize>,
    ) -> Self {
        let pace = set.pace(base);
        let (sequences, full) = (pace.sequences(steps), pace.sequences(set.full_steps(base)));
        let first = sequences.div_ceil(eta.saturating_pow(rungs.saturating_sub(1) as u32)).max(1);
        let own = pace.sequences_per_step;
        let multiple = |common: usize, next| common.checked_mul(next / greatest_common_divisor(common, next));
        let common = sequences_per_step.into_iter().try_fold(own, multiple);
        let common = common.filter(|&common| common <= first).unwrap_or(own);
        // As many validations as in the config's own run.
        let own_interval = pace.sequences(base.training.validation_interval(pace.steps_per_epoch));
        let scaled = own_interval as f64 * (sequences as f64 / full.max(1) as f64);
        let scaled = (scaled as usize).clamp(1, first).next_multiple_of(common);
        let interval = if scaled <= first { scaled } else { (first / common * common).max(common) };
        let validations = (first as f64 / interval as f64).round().max(1.0) as usize;
        Self { set, sequences, full, first: validations.saturating_mul(interval), interval, rungs, eta }
    }

    /// Returns the number of steps after which a run of `config` has seen this many sequences.
    pub fn steps_to(&self, config: &Config, sequences: usize) -> usize {
        self.set.pace(config).steps_to(sequences)
    }

    /// Returns the number of steps of a trial.
    pub fn steps(&self, config: &Config) -> usize {
        self.steps_to(config, self.sequences)
    }

    /// Returns the number of steps to a rung; rungs count from 0.
    pub fn rung(&self, config: &Config, rung: usize) -> usize {
        self.steps_to(config, self.sequences_to(rung))
    }

    /// Returns the number of sequences that a trial sees in this many steps.
    pub fn sequences(&self, config: &Config, steps: usize) -> usize {
        self.set.pace(config).sequences(steps)
    }

    /// Returns the rungs of a trial that fall between two of its validations, in steps.
    pub fn validate_at(&self, config: &Config) -> Vec<usize> {
        let (every, total) = (self.steps_to(config, self.interval), self.steps(config));
        let rungs = (0..self.rungs).map(|rung| self.rung(config, rung));
        let mut between =
            rungs.filter(|rung| !rung.is_multiple_of(every) && *rung < total).collect::<Vec<_>>();
        between.dedup();
        between
    }

    /// Returns the number of sequences in the budget up to a rung.
    pub fn sequences_to(&self, rung: usize) -> usize {
        match rung + 1 < self.rungs {
            true => self.first.saturating_mul(self.eta.saturating_pow(rung as u32)).min(self.sequences),
            false => self.sequences,
        }
    }

    /// Sets the warm-ups and the cool-down of a config for a run of `steps` steps. Values below 1 are fractions of the
    /// run and stay as they are. Values in steps are scaled by the ratio of `steps` to a full run: of `base` for its
    /// own values, and of `config` for values of keys in `search`.
    pub fn scale_ramps(&self, base: &Config, config: &mut Config, search: &Table, steps: usize) {
        let [of_base, own] = [base, &*config].map(|config| self.steps_to(config, self.full) as f64);
        let training = &mut config.training;
        let scaled = |key: &str, length: f64| {
            let full = if search.contains_key(key) { own } else { of_base };
            (length * steps as f64 / full).round().max(1.0)
        };
        let ramps =
            [("training.warmup", &mut training.warmup), ("training.cooldown", &mut training.cooldown)];
        for (key, length) in ramps.into_iter().filter(|(_, length)| **length >= 1.0) {
            *length = scaled(key, *length);
        }
        if training.momentum_warmup > 0 {
            training.momentum_warmup =
                scaled("training.momentum_warmup", training.momentum_warmup as f64) as usize;
        }
        // If both ramps together fill the run and are rounded up, they are one step too long.
        let [warmup, cooldown] = training.ramps(steps);
        if training.cooldown >= 1.0 && warmup.saturating_add(cooldown) == steps + 1 {
            training.cooldown -= 1.0;
        }
    }

    /// Returns the number of steps of `config` that see as many sequences as `interval` steps of `base`; 0 stays 0.
    pub fn scale_interval(&self, base: &Config, config: &Config, interval: usize) -> usize {
        if interval == 0 { 0 } else { self.steps_to(config, self.sequences(base, interval)) }
    }

    /// Returns the number of sequences that a trial of `config` has seen at each rung. A trial reaches the first rung
    /// after at least one step.
    pub fn seen(&self, config: &Config) -> Vec<usize> {
        (0..self.rungs).map(|rung| self.sequences(config, self.rung(config, rung))).collect()
    }

    /// Returns the rung at which a trial that has `seen` these sequences differs most from the budget, and the
    /// difference as a fraction of the budget.
    pub fn largest_deviation(&self, seen: &[usize]) -> (usize, f64) {
        let deviation = |(rung, &seen): (usize, &usize)| {
            let budget = self.sequences_to(rung);
            (rung, seen.abs_diff(budget) as f64 / budget as f64)
        };
        let deviations = seen.iter().enumerate().map(deviation);
        deviations.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    }

    /// Returns the maximum number of sequences of a stage whose trials, if run to their end, have `seen` these
    /// sequences at each rung. One in `eta` trials and `extra_survivors` more continue from each rung.
    pub fn stage_sequences(&self, seen: &[Vec<usize>], extra_survivors: usize) -> usize {
        let (mut sequences, mut left) = (0usize, seen.len());
        for rung in 0..self.rungs {
            let before = |trial: &[usize]| rung.checked_sub(1).map_or(0, |before| trial[before]);
            let mut further = seen.iter().map(|trial| trial[rung] - before(trial)).collect::<Vec<_>>();
            // Any of the trials can be among those that continue.
            further.sort_unstable();
            sequences =
                further.iter().rev().take(left).fold(sequences, |sum, &more| sum.saturating_add(more));
            left = left.min(left.div_ceil(self.eta) + extra_survivors);
        }
        sequences
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a.max(1) } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests;
