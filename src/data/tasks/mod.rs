//! Sequence tasks whose best possible predictor is known.
//!
//! Each task draws sequences `x_0 … x_n` from a distribution of its own. The best predictor of
//! `x_t` knows that distribution and the tokens before: it gives each token its probability
//! `P(x_t | x_0 … x_{t-1})`, and no model can have a lower loss in expectation than its
//! `-ln P`. That is the task's *floor*, known here in two ways: in expectation, which is the
//! entropy of `x_1 … x_n` given `x_0` divided by `n`, and on the very sequences of a validation
//! set, which differ from the expectation by chance as much as a run's loss on them does.
//!
//! | task | what is drawn |
//! |---|---|
//! | [`random`] | independent integers |
//! | [`repeat`] | a motif of random period, repeated |

pub mod random;
pub mod repeat;

use serde::{Deserialize, Serialize};

use super::batch::Role;
use super::config::DataConfig;
use super::seed::{ChaCha8Rng, Purpose, generator};
use super::sequences::{Rows, Sequences};
use super::vocabulary::Vocabulary;
use super::{Dataset, Floor};
use crate::error::Result;

/// A target is determined when the best predictor gives it at least this probability: 0.99.
///
/// With one, the probability is exactly 1 in most tasks (the answer of `sort`). It is a little less
/// where a rare coincidence can imitate the pattern: a motif of `repeat` that has been seen to
/// come again could still be chance. At 0.99 the token is what every good predictor names, so
/// an accuracy of 100 % on determined targets can be reached, and a model that misses one has
/// not learned something that can be learned.
pub const DETERMINED: f64 = 0.99;

/// The sequence tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Independent integers: nothing to learn ([`random`]).
    Random,
    /// A motif of random period, repeated ([`repeat`]).
    #[default]
    Repeat,
}

impl Task {
    /// All tasks, in the order in which they are explained.
    pub const ALL: [Task; 2] = [Task::Random, Task::Repeat];

    /// Checks the keys that the task uses.
    pub(crate) fn check(self, config: &DataConfig) -> Result<()> {
        self.build(config).map(drop)
    }

    /// The task with the sizes of `config`.
    ///
    /// # Errors
    /// Names the key whose value the task cannot have.
    pub fn build(self, config: &DataConfig) -> Result<Box<dyn SequenceTask>> {
        Ok(match self {
            Task::Random => Box::new(random::Random::new(config)?),
            Task::Repeat => Box::new(repeat::Repeat::new(config)?),
        })
    }
}

/// A distribution of sequences, and the predictor that knows it.
pub trait SequenceTask {
    /// What the ids stand for.
    fn vocabulary(&self) -> Vocabulary;

    /// Tokens in a sample, one more than it has targets.
    fn tokens(&self) -> usize;

    /// Draws a sample: fills a slice of [`tokens`](Self::tokens) ids.
    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]);

    /// The probability that the best predictor gives to each target of a sample:
    /// `probabilities[t]` is `P(x_{t+1} | x_0 … x_t)`.
    fn probabilities(&self, sample: &[u32], probabilities: &mut [f64]);

    /// The mean of `-ln P` over the targets, in expectation, in nats a target.
    fn expected_floor(&self) -> f64;
}

/// Draws the sets of the task that `config` names.
pub(crate) fn load(config: &DataConfig, seed: u64) -> Result<Dataset> {
    let task = config.task.build(config)?;
    let (train, _) = draw_set(&*task, config.train_samples, generator(seed, Purpose::TrainingSet, [0, 0]));
    let (valid, floor) =
        draw_set(&*task, config.valid_samples, generator(seed, Purpose::ValidationSet, [0, 0]));
    let floor = Some(Floor { expected: task.expected_floor(), valid: floor });
    Ok(Dataset { vocabulary: task.vocabulary(), train, valid, floor })
}

/// Draws a set, and what the best predictor would pay on it, in nats a target.
fn draw_set(task: &dyn SequenceTask, samples: usize, mut random: ChaCha8Rng) -> (Sequences, f64) {
    let mut sample = vec![0; task.tokens()];
    let mut probabilities = vec![0.0; task.tokens() - 1];
    let mut rows = Rows::new(task.vocabulary().size());
    rows.reserve(samples, samples * sample.len());
    let mut paid = 0.0;
    for _ in 0..samples {
        task.draw(&mut random, &mut sample);
        task.probabilities(&sample, &mut probabilities);
        paid -= probabilities.iter().map(|p| p.ln()).sum::<f64>();
        rows.push_with_roles(&sample, probabilities.iter().map(|&p| role(p)));
    }
    (Sequences::rows(rows), paid / (samples * probabilities.len()) as f64)
}

fn role(probability: f64) -> Role {
    if probability >= DETERMINED { Role::Determined } else { Role::Undetermined }
}

#[cfg(test)]
pub(crate) mod enumeration {
    //! The best predictor by brute force: all that a task can draw, written out with its
    //! probability. What the predictor gives to a target is the share of the sequences that
    //! agree with the tokens up to it among those that agree with the tokens before it.

    use std::collections::HashMap;

    use super::*;

    /// Checks a task against all that it can draw, given as (sequence, probability); a sequence
    /// may stand more than once.
    pub fn agrees(task: &dyn SequenceTask, all: &[(Vec<u32>, f64)]) {
        let total: f64 = all.iter().map(|(_, p)| p).sum();
        assert!((total - 1.0).abs() < 1e-9, "the enumeration sums to {total}");
        let mut prefixes: HashMap<&[u32], f64> = HashMap::new();
        for (sequence, p) in all {
            assert_eq!(sequence.len(), task.tokens());
            for end in 1..=sequence.len() {
                *prefixes.entry(&sequence[..end]).or_default() += p;
            }
        }
        // What the predictor gives, sequence by sequence.
        let mut expected = 0.0;
        let mut given = vec![0.0; task.tokens() - 1];
        for (sequence, p) in all {
            task.probabilities(sequence, &mut given);
            for (time, &given) in given.iter().enumerate() {
                let right = prefixes[&sequence[..time + 2]] / prefixes[&sequence[..=time]];
                assert!((given - right).abs() < 1e-9, "{sequence:?} at {time}: {given}, not {right}");
                expected -= p * right.ln() / (task.tokens() - 1) as f64;
            }
        }
        // The floor in expectation.
        let floor = task.expected_floor();
        assert!((floor - expected).abs() < 1e-3, "expected floor {floor}, not {expected}");
        // What is drawn has the distribution that was written out: chi-square over sequences,
        // with five standard deviations of room, and nothing else is ever drawn.
        let whole: Vec<(&[u32], f64)> =
            prefixes.iter().filter(|(s, _)| s.len() == task.tokens()).map(|(s, p)| (*s, *p)).collect();
        let draws = 100 * whole.len().max(50);
        let mut counts: HashMap<Vec<u32>, f64> = HashMap::new();
        let mut random = generator(5, Purpose::TrainingSet, [0, 0]);
        let mut sample = vec![0; task.tokens()];
        for _ in 0..draws {
            task.draw(&mut random, &mut sample);
            assert!(prefixes.contains_key(&sample[..]), "{sample:?} cannot be drawn");
            *counts.entry(sample.clone()).or_default() += 1.0;
        }
        let (mut square, mut freedom, mut rare, mut rare_counts) = (0.0, -1.0, 0.0, 0.0);
        for (sequence, p) in whole {
            let (right, count) = (p * draws as f64, counts.get(sequence).copied().unwrap_or(0.0));
            if right < 5.0 {
                (rare, rare_counts) = (rare + right, rare_counts + count);
            } else {
                square += (count - right).powi(2) / right;
                freedom += 1.0;
            }
        }
        if rare > 0.0 {
            square += (rare_counts - rare).powi(2) / rare;
            freedom += 1.0;
        }
        let freedom: f64 = freedom;
        assert!(square <= freedom + 5.0 * (2.0 * freedom).sqrt(), "chi-square {square} for {freedom}");
        // Every id is in the vocabulary.
        let size = task.vocabulary().size() as u32;
        assert!(all.iter().all(|(sequence, _)| sequence.iter().all(|&id| id < size)));
    }

    /// All sequences of `length` ids below `vocab`.
    pub fn all_sequences(vocab: u32, length: usize) -> Vec<Vec<u32>> {
        let mut all = vec![vec![]];
        for _ in 0..length {
            all = all
                .iter()
                .flat_map(|start| (0..vocab).map(move |id| [start.as_slice(), &[id]].concat()))
                .collect();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Batch, Loader, Order};

    fn config(task: Task) -> DataConfig {
        DataConfig { task, train_samples: 11, valid_samples: 4096, ..DataConfig::default() }
    }

    #[test]
    fn every_task_works_with_the_default_sizes_and_stays_within_its_vocabulary() {
        for task in Task::ALL {
            let dataset = config(task).load(3).unwrap();
            assert!(dataset.context() <= 32, "{task:?} needs {} positions", dataset.context());
            let (loader, mut batch) = (Loader::new(dataset.train, 11, 0, Order::InOrder), Batch::default());
            loader.batch(0, 0, &mut batch);
            dataset.vocabulary.check(&batch.inputs).unwrap();
            dataset.vocabulary.check(&batch.targets).unwrap();
        }
    }

    #[test]
    fn on_a_large_validation_set_the_floor_is_near_its_expectation() {
        for task in Task::ALL {
            let floor = config(task).load(7).unwrap().floor.unwrap();
            let difference = (floor.expected - floor.valid).abs();
            assert!(difference < 0.02, "{task:?}: {floor:?}");
        }
    }

    #[test]
    fn training_and_validation_sets_differ_and_both_follow_the_seed() {
        let rows = |dataset: Dataset| {
            [dataset.train, dataset.valid].map(|set| {
                let mut batch = Batch::default();
                Loader::new(set, 5, 0, Order::InOrder).batch(0, 0, &mut batch);
                batch
            })
        };
        let [train, valid] = rows(config(Task::Random).load(3).unwrap());
        assert_ne!(train, valid);
        assert_eq!([train.clone(), valid], rows(config(Task::Random).load(3).unwrap()));
        assert_ne!(train, rows(config(Task::Random).load(4).unwrap())[0]);
    }
}
