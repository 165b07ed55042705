//! Sequence tasks whose optimal predictor is known.
//!
//! Each task draws sequences `x_0 … x_n` from a distribution of its own. The optimal predictor of
//! `x_t` knows that distribution and the tokens before: it gives each token its probability
//! `P(x_t | x_0 … x_{t-1})`, and no model can have a lower loss in expectation than its
//! `-ln P`. That is the task's *floor*, known here in two ways: in expectation, which is the
//! entropy of `x_1 … x_n` given `x_0` divided by `n`, and on the very sequences of a validation
//! set, which differ from the expectation by chance as much as a run's loss on them does.
//!
//! | task | what is drawn |
//! |---|---|
//! | [`random`] | independent integers |
//! | [`arithmetic`] | counting by a step that the sequence draws |
//! | [`repeat`] | a motif of random period, repeated |
//! | [`reverse`] | a prefix, then the prefix backwards |
//! | [`sort`] | a prefix, then the prefix in ascending order |
//! | [`markov`] | a random walk by a matrix that all sequences share |
//! | [`recall`] | pairs of key and value, then keys to be answered |
//! | [`addition`] | two numbers and their sum |
//! | [`copy_gap`] | tokens that come again after a fixed gap |

pub mod addition;
pub mod arithmetic;
pub mod copy_gap;
#[cfg(test)]
pub(crate) mod enumeration;
pub mod markov;
pub mod random;
pub mod recall;
pub mod repeat;
pub mod reverse;
pub mod sort;
pub mod transduction;

use super::batch::Role;
use super::config::{DataConfig, Task};
use super::dataset::{Dataset, Floor};
use super::seed::{ChaCha8Rng, Purpose, generator};
use super::sequences::{Rows, Sequences};
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::numbers::counted;
use crate::terminal::{ProgressKind, Waiting};

/// The most ids that a drawn set may hold: 2^28, or 800 MB with their roles.
const MOST_IDS: usize = 1 << 28;

/// Ids of a set that may take more than a second to draw.
const SLOW: usize = 1 << 23;

/// A target is determined when the optimal predictor gives it at least this probability: 0.99.
///
/// With one, the probability is exactly 1 in most tasks (the answer of `sort`). It is a little less
/// where a rare coincidence can imitate the pattern: a motif of `repeat` that has been seen to
/// come again could still be chance. At 0.99 the token is what every good predictor names, so
/// an accuracy of 100 % on determined targets can be reached, and a model that misses one has
/// not learned something that can be learned.
pub const DETERMINED: f64 = 0.99;

/// The task that `config` names, with its sizes; `seed` is the run's.
///
/// # Errors
/// Names the key whose value the task cannot have.
pub fn build(config: &DataConfig, seed: u64) -> Result<Box<dyn SequenceTask>> {
    Ok(match config.task {
        Task::Random => Box::new(random::task(config)),
        Task::Arithmetic => Box::new(arithmetic::task(config)),
        Task::Repeat => Box::new(repeat::Repeat::new(config)?),
        Task::Reverse => Box::new(transduction::task(config, reverse::answer)?),
        Task::Sort => Box::new(transduction::task(config, sort::answer)?),
        Task::Markov => Box::new(markov::Markov::new(config, seed)?),
        Task::Recall => Box::new(recall::task(config)?),
        Task::Addition => Box::new(addition::task(config)?),
        Task::CopyGap => Box::new(copy_gap::task(config)?),
    })
}

/// Checks the sizes of the task that `config` names, without drawing a set.
pub(super) fn check(config: &DataConfig) -> Result<()> {
    if let Some(lengths) = config.lengths {
        for length in lengths {
            let problem = |error: Error| format!("has a length of {length}, and {error}");
            build(&config.at_length(length), 0)
                .map_err(|error| config.wrong_lengths(lengths, &problem(error)))?;
        }
    }
    let tokens = build(config, 0)?.tokens();
    let most = MOST_IDS / tokens;
    let sets = [("data.train_samples", config.train_samples), ("data.valid_samples", config.valid_samples)];
    sets.into_iter().try_for_each(|(key, samples)| {
        let problem = format!("must be from 1 to {most} for sequences of {}", counted(tokens, "token"));
        Error::check_key((1..=most).contains(&samples), key, samples, problem)
    })
}

/// A distribution of sequences, and the predictor that knows it.
pub trait SequenceTask {
    /// What the ids stand for.
    fn vocabulary(&self) -> Vocabulary;

    /// Tokens in a sample, one more than it has targets.
    fn tokens(&self) -> usize;

    /// Draws a sample: fills a slice of [`tokens`](Self::tokens) ids.
    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]);

    /// The probability that the optimal predictor gives to each target of a sample:
    /// `probabilities[t]` is `P(x_{t+1} | x_0 … x_t)`.
    fn probabilities(&self, sample: &[u32], probabilities: &mut [f64]);

    /// The mean of `-ln P` over the targets, in expectation, in nats per token.
    fn expected_floor(&self) -> f64;

    /// Exchanges in a sample what the answer of one target follows from, and says of which: `Some(t)` where
    /// `x_{t+1}` is another one now. What is left is a sample that the task could have drawn, too, so that a model
    /// reads nothing it has never seen. None where no answer follows from anything that can be exchanged.
    fn corrupt(&self, sample: &mut [u32]) -> Option<usize>;
}

/// Exchanges what the last token of a sample repeats from so many tokens before, wherever it stands.
fn corrupt_period(sample: &mut [u32], period: usize, vocab: usize) -> Option<usize> {
    let last = sample.len() - 1;
    for position in (0..=last).rev().step_by(period) {
        sample[position] = (sample[position] + 1) % vocab as u32;
    }
    last.checked_sub(1)
}

/// Fills a sample with what is drawn.
type Draw = dyn Fn(&mut ChaCha8Rng, &mut [u32]);
/// As [`SequenceTask::corrupt`].
type Corrupt = dyn Fn(&mut [u32]) -> Option<usize>;

/// A task whose optimal predictor gives a target the same probability in every sample.
pub struct FixedProbabilities {
    vocabulary: Vocabulary,
    probabilities: Vec<f64>,
    draw: Box<Draw>,
    corrupt: Box<Corrupt>,
}

impl FixedProbabilities {
    fn new(
        vocabulary: Vocabulary,
        probabilities: Vec<f64>,
        draw: impl Fn(&mut ChaCha8Rng, &mut [u32]) + 'static,
        corrupt: impl Fn(&mut [u32]) -> Option<usize> + 'static,
    ) -> Self {
        FixedProbabilities { vocabulary, probabilities, draw: Box::new(draw), corrupt: Box::new(corrupt) }
    }
}

impl SequenceTask for FixedProbabilities {
    fn vocabulary(&self) -> Vocabulary {
        self.vocabulary.clone()
    }

    fn tokens(&self) -> usize {
        self.probabilities.len() + 1
    }

    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]) {
        (self.draw)(random, sample);
    }

    fn probabilities(&self, _sample: &[u32], probabilities: &mut [f64]) {
        probabilities.copy_from_slice(&self.probabilities);
    }

    fn expected_floor(&self) -> f64 {
        let surprise = self.probabilities.iter().map(|p| (1.0 / p).ln());
        surprise.sum::<f64>() / self.probabilities.len() as f64
    }

    fn corrupt(&self, sample: &mut [u32]) -> Option<usize> {
        (self.corrupt)(sample)
    }
}

/// Draws the sets of the task that `config` names.
pub(super) fn load(config: &DataConfig, seed: u64) -> Result<Dataset> {
    let task = build(config, seed)?;
    let (samples, tokens) = (config.train_samples + config.valid_samples, task.tokens());
    let what = format!("drawing {} of {}", counted(samples, "sequence"), counted(tokens, "token"));
    let _waiting = (samples * tokens > SLOW).then(|| Waiting::new(ProgressKind::automatic(), &what));
    let set = |samples, purpose| {
        let mut random = generator(seed, purpose, [0, 0]);
        let (rows, paid) = draw_set(&*task, 0..samples, |_, sample| task.draw(&mut random, sample));
        (Sequences::rows(rows), paid)
    };
    let (mut train, _) = set(config.train_samples, Purpose::TrainingSet);
    let (valid, floor_by_position) = set(config.valid_samples, Purpose::ValidationSet);
    if let Some(range) = config.lengths {
        let config = config.clone();
        train =
            train.with_drawn_lengths(range, move |length, samples| rows_at(&config, seed, length, samples));
    }
    let floor = floor_by_position.iter().sum::<f64>() / floor_by_position.len() as f64;
    let floor = Some(Floor { expected: task.expected_floor(), valid: floor });
    Ok(Dataset { vocabulary: task.vocabulary(), train, valid, floor, floor_by_position, table: None })
}

/// Draws the sets of the task that `config` names in the form for an encoder-decoder.
pub(super) fn load_pairs(config: &DataConfig, seed: u64) -> Result<Dataset> {
    match config.task {
        Task::Reverse => Ok(transduction::load_pairs(config, seed, reverse::answer)),
        Task::Sort => Ok(transduction::load_pairs(config, seed, sort::answer)),
        task => {
            let problem = "has no source and answer for an encoder-decoder; take `reverse` or `sort`, or \
                           `model.architecture` = \"decoder\"";
            Err(Error::key("data.task", task, problem))
        }
    }
}

/// Some samples of the training set of another length, each drawn by its number.
fn rows_at(config: &DataConfig, seed: u64, length: usize, samples: &[usize]) -> Rows {
    let task = build(&config.at_length(length), seed).expect("the task has both ends of the lengths");
    let random = |number| generator(seed, Purpose::TrainingSet, [length as u64, number as u64]);
    draw_set(&*task, samples.iter().copied(), |number, sample| task.draw(&mut random(number), sample)).0
}

/// Draws the samples of these numbers, and the optimal predictor's loss on them at each position, in nats per token.
fn draw_set(
    task: &dyn SequenceTask,
    numbers: impl ExactSizeIterator<Item = usize>,
    mut draw: impl FnMut(usize, &mut [u32]),
) -> (Rows, Vec<f64>) {
    let (mut sample, mut probabilities) = (vec![0; task.tokens()], vec![0.0; task.tokens() - 1]);
    let (mut rows, mut paid) = (Rows::default(), vec![0.0; probabilities.len()]);
    let samples = numbers.len() as f64;
    for number in numbers {
        draw(number, &mut sample);
        task.probabilities(&sample, &mut probabilities);
        let role = |&p: &f64| if p >= DETERMINED { Role::Determined } else { Role::Undetermined };
        rows.push_with_roles(&sample, probabilities.iter().map(role));
        paid.iter_mut().zip(&probabilities).for_each(|(paid, p)| *paid -= p.ln());
    }
    paid.iter_mut().for_each(|paid| *paid /= samples);
    (rows, paid)
}

#[cfg(test)]
mod tests;
