//! How long trials are: as many sequences for each, whatever its batch size, and rungs at which all
//! of them are validated, each within half a step of as many sequences.
//!
//! An epoch ends with a step, which sees fewer sequences where the others do not divide the training set: so
//! sequences are counted epoch by epoch.

use crate::config::Config;

/// The budget of every trial of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Sequences of the training set.
    epoch: usize,
    /// Sequences that a trial sees.
    sequences: usize,
    /// The same for a run of the config itself.
    whole: usize,
    /// Sequences to the first of several rungs.
    first: usize,
    /// Sequences between two validations.
    interval: usize,
    rungs: usize,
    eta: usize,
}

/// Sequences that a step sees, but for the last of an epoch.
pub fn a_step(config: &Config, epoch: usize) -> usize {
    config.training.batch_size.saturating_mul(config.training.accumulate).clamp(1, epoch)
}

/// Steps of a run of `config` itself, when its training set has `epoch` sequences.
pub fn whole_steps(config: &Config, epoch: usize) -> usize {
    config.training.total_steps(epoch.div_ceil(config.training.batch_size))
}

/// Sequences that so many steps see.
fn sequences(config: &Config, epoch: usize, steps: usize) -> usize {
    let a_step = a_step(config, epoch);
    let an_epoch = epoch.div_ceil(a_step);
    let begun = (steps % an_epoch * a_step).min(epoch);
    (steps / an_epoch).saturating_mul(epoch).saturating_add(begun)
}

impl Budget {
    /// Trials of `steps` steps at the batch size of `base`, whose training set has `epoch` sequences, when
    /// their steps see `a_step` sequences.
    ///
    /// Rungs are a whole number of intervals apart, and an interval is a multiple of what each of them sees
    /// in a step, unless that would be longer than the way to the first rung. Then a rung may lie between two
    /// validations, and has one of its own.
    pub fn new(
        base: &Config,
        epoch: usize,
        steps: usize,
        (rungs, eta): (usize, usize),
        a_step_of_each: impl IntoIterator<Item = usize>,
    ) -> Self {
        let epoch = epoch.max(1);
        let seen = |steps: usize| sequences(base, epoch, steps);
        let (sequences, whole) = (seen(steps), seen(whole_steps(base, epoch)));
        let first = sequences.div_ceil(eta.saturating_pow(rungs.saturating_sub(1) as u32)).max(1);
        let common = a_step_of_each
            .into_iter()
            .try_fold(a_step(base, epoch), |common, next| common.checked_mul(next / divisor(common, next)))
            .filter(|&common| common <= first)
            .unwrap_or(a_step(base, epoch));
        // As many validations as the config's own run has.
        let asked = match base.training.validate_every {
            0 => epoch,
            steps => seen(steps),
        };
        let scaled = asked as f64 * (sequences as f64 / whole.max(1) as f64);
        let scaled = (scaled as usize).clamp(1, first).next_multiple_of(common);
        let interval = if scaled <= first { scaled } else { (first / common * common).max(common) };
        let validations = (first as f64 / interval as f64).round().max(1.0) as usize;
        Self { epoch, sequences, whole, first: validations.saturating_mul(interval), interval, rungs, eta }
    }

    /// Steps of a trial.
    pub fn steps(&self, config: &Config) -> usize {
        self.steps_to(config, self.sequences)
    }

    /// Steps of a whole run of a trial's setting: what a study is for.
    pub fn whole(&self, config: &Config) -> usize {
        self.steps_to(config, self.whole)
    }

    /// Steps between the validations of a trial.
    pub fn validate_every(&self, config: &Config) -> usize {
        self.steps_to(config, self.interval)
    }

    /// The rungs of a trial that lie between two of these validations, in steps.
    pub fn validate_at(&self, config: &Config) -> Vec<usize> {
        let (every, total) = (self.validate_every(config), self.steps(config));
        let mut between = (0..self.rungs).map(|rung| self.rung(config, rung)).collect::<Vec<_>>();
        between.retain(|rung| !rung.is_multiple_of(every) && *rung < total);
        between.dedup();
        between
    }

    /// Steps to a rung, counted from 0.
    pub fn rung(&self, config: &Config, rung: usize) -> usize {
        self.steps_to(config, self.sequences_to(rung))
    }

    /// Sequences that so many steps of a trial see.
    pub fn sequences(&self, config: &Config, steps: usize) -> usize {
        sequences(config, self.epoch, steps)
    }

    /// Steps after which a trial has seen as near to so many sequences as its steps allow, at least one.
    fn steps_to(&self, config: &Config, sequences: usize) -> usize {
        let a_step = a_step(config, self.epoch);
        let epochs = sequences / self.epoch;
        let before = epochs * self.epoch.div_ceil(a_step) + sequences % self.epoch / a_step;
        let below = sequences - self.sequences(config, before);
        let above = self.sequences(config, before + 1) - sequences;
        if below < above { before.max(1) } else { before + 1 }
    }

    /// Sequences to a rung.
    fn sequences_to(&self, rung: usize) -> usize {
        match rung + 1 < self.rungs {
            true => self.first.saturating_mul(self.eta.saturating_pow(rung as u32)).min(self.sequences),
            false => self.sequences,
        }
    }

    /// Steps of warm-up: as large a share of a run of `steps` as those of the config are of its own run.
    pub fn warmup(&self, base: &Config, config: &Config, steps: usize) -> f64 {
        match config.training.warmup {
            share if share < 1.0 => share,
            warmup => (warmup * steps as f64 / self.whole(base) as f64).round().max(1.0),
        }
    }

    /// Steps between rows of the training loss: as many sequences as between those of the config.
    pub fn log_every(&self, base: &Config, config: &Config) -> usize {
        self.steps_to(config, self.sequences(base, base.training.log_every))
    }

    /// Sequences of the whole study at most, for races that so many trials start, and `spared` more than one
    /// in `eta` go on from each rung. Every trial sees as many, within half a step.
    pub fn study_sequences(&self, races: &[usize], spared: usize) -> usize {
        let mut sequences = 0usize;
        for &trials in races {
            let (mut left, mut before) = (trials, 0);
            for rung in 0..self.rungs {
                let reached = self.sequences_to(rung);
                sequences = sequences.saturating_add(left.saturating_mul(reached - before));
                (left, before) = (left.min(left.div_ceil(self.eta) + spared), reached);
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
    fn every_trial_sees_as_many_sequences_and_is_compared_after_as_many() {
        let base = config(32, 500);
        let batch_sizes = [16, 24, 32, 64];
        for rungs in 1..4 {
            let budget = Budget::new(&base, 32_768, 1_000, (rungs, 3), batch_sizes);
            for batch_size in [16, 32, 64] {
                let trial = config(batch_size, 500);
                let seen = (budget.steps(&trial) * batch_size, budget.whole(&trial) * batch_size);
                assert_eq!(seen, (32_000, 128_000));
            }
            let sequences = |step: &dyn Fn(&Config) -> usize| {
                batch_sizes.map(|batch_size| step(&config(batch_size, 500)) * batch_size)
            };
            let between = sequences(&|trial| budget.validate_every(trial));
            assert!(between.iter().all(|&sequences| sequences == between[0]), "{between:?}");
            // A validation each 500 of 4,000 steps makes eight of them; rungs may ask for more.
            assert!(32_000_usize.div_ceil(between[0]) >= 8, "{between:?}");
            for rung in 0..rungs - 1 {
                let reached = sequences(&|trial| budget.rung(trial, rung));
                assert!(reached.iter().all(|&sequences| sequences == reached[0]), "{rung}: {reached:?}");
            }
        }
        let by_epochs = config(32, 0);
        assert_eq!(Budget::new(&by_epochs, 3_200, 1_000, (1, 3), []).validate_every(&by_epochs), 25);
        // Batch sizes without a multiple in reach: each comes as near as its steps allow.
        let odd = Budget::new(&base, 32_768, 1_000, (2, 3), [31, 37, 41, 43]);
        assert_eq!(odd.validate_every(&config(37, 500)), (4_000.0_f64 / 37.0).round() as usize);
    }

    #[test]
    fn trials_are_compared_within_a_step_of_as_many_sequences_whatever_their_batch_sizes() {
        for validate_every in [0, 1, 7, 500] {
            let base = config(32, validate_every);
            let budget = Budget::new(&base, 32_768, 1_000, (4, 3), 4..=128);
            for rung in 0..4 {
                let sequences = budget.rung(&base, rung) * 32;
                for batch_size in 4..=128 {
                    let trial = config(batch_size, validate_every);
                    let step = budget.rung(&trial, rung);
                    let seen = budget.sequences(&trial, step);
                    assert!(
                        seen.abs_diff(sequences) <= batch_size,
                        "{rung}: {seen} for {sequences} by {batch_size}"
                    );
                    let is_validated = step.is_multiple_of(budget.validate_every(&trial))
                        || budget.validate_at(&trial).contains(&step)
                        || step == budget.steps(&trial);
                    assert!(is_validated, "{rung}: step {step} by {batch_size}");
                }
            }
            assert!(
                budget.validate_at(&base).is_empty(),
                "those of the config's own batch size are due anyway"
            );
        }
    }

    #[test]
    fn sequences_are_counted_where_batches_do_not_divide_the_training_set() {
        // One epoch of 65 is five steps of 16, the last of one sequence, or three of 32, or two of 64.
        let seen = |batch_size: usize, steps| sequences(&config(batch_size, 0), 65, steps);
        assert_eq!([4, 5, 6, 10].map(|steps| seen(16, steps)), [64, 65, 81, 130]);
        assert_eq!([2, 3, 4].map(|steps| seen(32, steps)), [64, 65, 97]);
        assert_eq!([1, 2, 3].map(|steps| seen(64, steps)), [64, 65, 129]);
        assert_eq!([1, 7].map(|steps| seen(1_000, steps)), [65, 455], "no batch is larger than the set");
        let mut accumulated = config(16, 0);
        accumulated.training.accumulate = 3;
        assert_eq!([1, 2, 3].map(|steps| sequences(&accumulated, 65, steps)), [48, 65, 113]);

        let base = config(32, 10);
        let budget = Budget::new(&base, 65, 300, (2, 3), [16, 32, 64, 65]);
        let steps = [16, 32, 64, 1_000].map(|batch_size| budget.steps(&config(batch_size, 10)));
        assert_eq!(steps, [500, 300, 200, 100], "a hundred epochs each");
        let rung = budget.sequences_to(0);
        for batch_size in [16, 32, 48, 64, 1_000] {
            let trial = config(batch_size, 10);
            let step = budget.rung(&trial, 0);
            let seen = |step| budget.sequences(&trial, step).abs_diff(rung);
            assert!(seen(step) <= seen(step - 1) && seen(step) <= seen(step + 1), "{batch_size}: {step}");
        }
        // A step of 48 and one of 17 make an epoch: 64 sequences are nearer to both than to the first.
        let of = |sequences| Budget { epoch: 65, sequences, ..budget };
        assert_eq!([1, 56, 57, 64].map(|sequences| of(sequences).steps(&config(48, 10))), [1, 1, 2, 2]);
    }

    #[test]
    fn warm_up_in_steps_and_rows_of_the_loss_keep_their_share_of_a_trial() {
        let base = config(32, 500);
        let budget = Budget::new(&base, 32_768, 1_000, (1, 3), []);
        for (batch_size, warmup, log_every) in [(32, 50.0, 10), (16, 100.0, 20), (64, 25.0, 5)] {
            let mut trial = config(batch_size, 500);
            trial.training.warmup = 200.0;
            assert_eq!(budget.warmup(&base, &trial, budget.steps(&trial)), warmup);
            assert_eq!(budget.warmup(&base, &trial, budget.whole(&trial)), 4.0 * warmup);
            assert_eq!(budget.log_every(&base, &trial), log_every);
            trial.training.warmup = 0.05;
            assert_eq!(budget.warmup(&base, &trial, budget.steps(&trial)), 0.05);
        }
        let mut short = config(1_024, 500);
        short.training.warmup = 1.0;
        assert_eq!(budget.warmup(&base, &short, 31), 1.0, "less than one step would be a share of the run");
    }

    #[test]
    fn rungs_are_eta_apart_at_validations_and_end_with_the_trial() {
        let base = config(32, 70);
        let budget = Budget::new(&base, 4_096, 1_000, (4, 3), []);
        let every = budget.validate_every(&base);
        let rungs = [0, 1, 2, 3].map(|rung| budget.rung(&base, rung));
        assert!(rungs[..3].iter().all(|rung| rung % every == 0), "{rungs:?} by {every}");
        assert_eq!((rungs[1], rungs[2], rungs[3]), (3 * rungs[0], 9 * rungs[0], 1_000));
        assert_eq!(budget.study_sequences(&[1], 0), 32_000);
        let alone = Budget::new(&base, 4_096, 1_000, (1, 3), []);
        assert_eq!((alone.rung(&base, 0), alone.study_sequences(&[7], 0)), (1_000, 7_000 * 32));
        let two = Budget::new(&base, 4_096, 1_000, (2, 2), []);
        let first = two.rung(&base, 0);
        assert_eq!(
            two.study_sequences(&[4, 3], 0),
            32 * (4 * first + 2 * (1_000 - first) + 3 * first + 2 * (1_000 - first))
        );
        assert_eq!(two.study_sequences(&[4], 1), 32 * (4 * first + 3 * (1_000 - first)));
        // A race in more rungs than steps still ends.
        let short = Budget::new(&base, 4_096, 2, (9, 3), []);
        assert!((0..9).map(|rung| short.rung(&base, rung)).is_sorted());
    }
}
