//! How long trials are: as many sequences for each, whatever its batch size, and rungs at which all
//! of them were validated.

use crate::config::Config;

/// The budget of every trial of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Sequences that a trial sees.
    sequences: usize,
    /// The same for a run of the config itself.
    whole: usize,
    /// Sequences of the training set.
    epoch: usize,
    rungs: usize,
    eta: usize,
}

/// Sequences that a step sees.
fn a_step(config: &Config) -> usize {
    config.training.batch_size * config.training.accumulate
}

/// Steps of a run of `config` itself, when its training set has `epoch` sequences.
pub fn whole_steps(config: &Config, epoch: usize) -> usize {
    config.training.total_steps(epoch.div_ceil(config.training.batch_size))
}

impl Budget {
    /// Trials of `steps` steps at the batch size of `base`, whose training set has `epoch` sequences.
    pub fn new(base: &Config, epoch: usize, steps: usize, (rungs, eta): (usize, usize)) -> Self {
        Self {
            sequences: steps * a_step(base),
            whole: whole_steps(base, epoch) * a_step(base),
            epoch,
            rungs,
            eta,
        }
    }

    /// Steps of a trial.
    pub fn steps(&self, config: &Config) -> usize {
        steps(self.sequences, config)
    }

    /// Steps of a whole run of a trial's setting: what a study is for.
    pub fn whole(&self, config: &Config) -> usize {
        steps(self.whole, config)
    }

    /// Steps between the validations of a trial, of which it has as many as the config's own run has; all
    /// rungs but the last are multiples of it.
    pub fn validate_every(&self, config: &Config) -> usize {
        let asked = match config.training.validate_every {
            0 => self.epoch.div_ceil(a_step(config)),
            steps => steps,
        };
        let scaled = asked * self.steps(config) / self.whole(config).max(1);
        scaled.clamp(1, self.first(config).max(1))
    }

    /// Steps to the first rung, before they are rounded to a validation.
    fn first(&self, config: &Config) -> usize {
        self.steps(config).div_ceil(self.eta.saturating_pow(self.rungs as u32 - 1))
    }

    /// Steps to a rung, counted from 0.
    pub fn rung(&self, config: &Config, rung: usize) -> usize {
        let total = self.steps(config);
        if rung + 1 >= self.rungs {
            return total;
        }
        let first = self.first(config).next_multiple_of(self.validate_every(config));
        first.saturating_mul(self.eta.saturating_pow(rung as u32)).min(total)
    }

    /// Steps of the whole study at most, if so many trials start it.
    pub fn study_steps(&self, base: &Config, trials: usize) -> usize {
        let (mut left, mut before, mut steps) = (trials, 0, 0);
        for rung in 0..self.rungs {
            let reached = self.rung(base, rung);
            steps += left * (reached - before);
            (left, before) = (left.div_ceil(self.eta), reached);
        }
        steps
    }
}

fn steps(sequences: usize, config: &Config) -> usize {
    ((sequences as f64 / a_step(config) as f64).round() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(batch_size: usize, validate_every: usize) -> Config {
        let mut config = Config::default();
        config.training.batch_size = batch_size;
        config.training.validate_every = validate_every;
        config.training.steps = Some(4_000);
        config
    }

    #[test]
    fn every_trial_sees_as_many_sequences_and_is_validated_as_often_as_the_whole_run() {
        let base = config(32, 500);
        let budget = Budget::new(&base, 32_768, 1_000, (1, 3));
        for (batch_size, steps, every) in [(32, 1_000, 125), (16, 2_000, 125), (64, 500, 125)] {
            let trial = config(batch_size, 500);
            assert_eq!((budget.steps(&trial), budget.whole(&trial)), (steps, 4 * steps));
            let validations = budget.steps(&trial) / budget.validate_every(&trial);
            assert_eq!((budget.validate_every(&trial), validations), (every, steps / every));
        }
        let by_epochs = config(32, 0);
        assert_eq!(Budget::new(&by_epochs, 3_200, 1_000, (1, 3)).validate_every(&by_epochs), 25);
    }

    #[test]
    fn rungs_are_eta_apart_at_validations_and_end_with_the_trial() {
        let base = config(32, 70);
        let budget = Budget::new(&base, 4_096, 1_000, (4, 3));
        let every = budget.validate_every(&base);
        let rungs = [0, 1, 2, 3].map(|rung| budget.rung(&base, rung));
        assert!(rungs[..3].iter().all(|rung| rung % every == 0), "{rungs:?} by {every}");
        assert_eq!((rungs[1], rungs[2], rungs[3]), (3 * rungs[0], 9 * rungs[0], 1_000));
        assert_eq!(budget.study_steps(&base, 1), 1_000);
        let alone = Budget::new(&base, 4_096, 1_000, (1, 3));
        assert_eq!((alone.rung(&base, 0), alone.study_steps(&base, 7)), (1_000, 7_000));
        // A race in more rungs than steps still ends.
        let short = Budget::new(&base, 4_096, 2, (9, 3));
        assert!((0..9).map(|rung| short.rung(&base, rung)).is_sorted());
    }
}
