//! Sequence tasks with a known optimal predictor.
//!
//! Each task draws sequences `x_0 … x_n` from a distribution. The optimal predictor knows this distribution: it
//! predicts each token `x_t` with the probability `P(x_t | x_0 … x_{t-1})`. The expected loss `-ln P` of the optimal
//! predictor is a lower bound for every model, the *entropy floor* of the task. Two values of the floor are reported.
//! The expected floor is the entropy of `x_1 … x_n` given `x_0`, divided by `n`. The floor on the sequences of a
//! validation set differs from the expected floor by chance, just as the loss of a run on this set differs from the
//! expected loss.
//!
//! | task | sequences |
//! |---|---|
//! | [`random`] | independent integers |
//! | [`arithmetic`] | counting with a random step per sequence |
//! | [`repeat`] | a motif of random period, repeated |
//! | [`reverse`] | a prefix, then the reversed prefix |
//! | [`sort`] | a prefix, then the prefix in ascending order |
//! | [`markov`] | a random walk with a transition matrix that all sequences share |
//! | [`recall`] | key-value pairs, then keys, each followed by its value |
//! | [`addition`] | two numbers and their sum |
//! | [`modular_addition`] | two numbers and their sum modulo a third |
//! | [`copy_gap`] | tokens that recur after a fixed gap |

pub mod addition;
pub mod arithmetic;
pub mod copy_gap;
#[cfg(test)]
pub(crate) mod enumeration;
pub mod markov;
pub mod modular_addition;
pub mod random;
pub mod recall;
pub mod repeat;
pub mod reverse;
pub mod sort;
pub mod transduction;

use std::ops::Range;

use super::batch::Role;
use super::config::{DataConfig, Task};
use super::dataset::{Dataset, Floor};
use super::seed::{ChaCha8Rng, Purpose, generator};
use super::sequences::{Rows, Sequences};
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::numbers::counted;

/// The maximum number of ids of a drawn set: 2^28, or 800 MB with their roles.
const MAX_IDS: usize = 1 << 28;

/// The maximum number of ids that are drawn without a notice. Drawing them takes about a second.
const MAX_SILENT_IDS: usize = 1 << 23;

/// A target is determined if the optimal predictor gives it at least this probability: 0.99.
///
/// In most tasks, the probability of a determined target is exactly 1, such as for the answer of `sort`. It is slightly
/// lower where the same tokens can also occur by chance: a motif of `repeat` may only seem to repeat. At 0.99, every
/// good predictor ranks the token first, so 100 % accuracy on determined targets is attainable. A model that misses a
/// determined target has not learned the task completely.
pub const DETERMINED: f64 = 0.99;

/// Creates the task that `config` names, with its sizes and the `seed` of the run.
///
/// # Errors
/// Returns an error that names the key whose value does not suit the task.
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
        Task::ModularAddition => Box::new(modular_addition::ModularAddition::new(config)?),
        Task::CopyGap => Box::new(copy_gap::task(config)?),
    })
}

/// Checks the sizes of the task that `config` names, without drawing a set.
pub(super) fn check(config: &DataConfig) -> Result<()> {
    if let Some(lengths) = config.lengths {
        if config.task == Task::ModularAddition {
            let problem = "has no effect on `modular_addition`, whose samples have four tokens; remove it";
            return Err(config.wrong_lengths(lengths, problem));
        }
        for length in lengths {
            let problem = |error: Error| format!("includes the length {length}, but {error}");
            build(&config.at_length(length), 0)
                .map_err(|error| config.wrong_lengths(lengths, &problem(error)))?;
        }
    }
    let tokens = build(config, 0)?.tokens();
    let max_samples = MAX_IDS / tokens;
    let sets = [("data.train_samples", config.train_samples), ("data.valid_samples", config.valid_samples)];
    sets.into_iter().try_for_each(|(key, samples)| {
        let problem = format!("must be in [1, {max_samples}] for sequences of {}", counted(tokens, "token"));
        Error::check_key((1..=max_samples).contains(&samples), key, samples, problem)
    })
}

/// A distribution of sequences, with its optimal predictor.
pub trait SequenceTask {
    /// Returns the vocabulary of the ids.
    fn vocabulary(&self) -> Vocabulary;

    /// Returns the number of tokens of a sample, one more than its number of targets.
    fn tokens(&self) -> usize;

    /// Draws a sample into a slice of [`tokens`](Self::tokens) ids.
    fn draw(&self, random: &mut ChaCha8Rng, sample: &mut [u32]);

    /// Returns all samples of a finite task in random order. Training and validation sets are then disjoint parts of them.
    /// By default, samples are drawn independently.
    fn shuffled(&self, random: &mut ChaCha8Rng) -> Option<Vec<Vec<u32>>> {
        let _ = random;
        None
    }

    /// Returns true if a target counts in the loss, as all do by default. The others have no effect on training.
    fn counts(&self, target: usize) -> bool {
        let _ = target;
        true
    }

    /// Writes the probability that the optimal predictor gives to each target of a sample: `probabilities[t]` is
    /// `P(x_{t+1} | x_0 … x_t)`.
    fn probabilities(&self, sample: &[u32], probabilities: &mut [f64]);

    /// Returns the expected mean of `-ln P` over the counted targets, in nats per token, with its standard error unless it is
    /// exact.
    fn expected_floor(&self) -> (f64, Option<f64>);

    /// Corrupts a sample at the tokens that determine one target, and returns the index `t` of this target: `x_{t+1}`
    /// of the corrupted sample is a different token. The corrupted sample could also have been drawn, so it is not out
    /// of distribution for a model. Returns `None` if no target depends on a token that can be exchanged.
    fn corrupt(&self, sample: &mut [u32]) -> Option<usize>;
}

/// Changes the last token of a sample together with all earlier tokens at multiples of `period` before it.
fn corrupt_period(sample: &mut [u32], period: usize, vocab: usize) -> Option<usize> {
    let last = sample.len() - 1;
    for position in (0..=last).rev().step_by(period) {
        sample[position] = (sample[position] + 1) % vocab as u32;
    }
    last.checked_sub(1)
}

/// A function that fills a sample with drawn ids.
type Draw = dyn Fn(&mut ChaCha8Rng, &mut [u32]);
/// A function that implements [`SequenceTask::corrupt`].
type Corrupt = dyn Fn(&mut [u32]) -> Option<usize>;

/// A task whose optimal predictor gives each target the same probability in all samples.
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

    fn expected_floor(&self) -> (f64, Option<f64>) {
        let losses = self.probabilities.iter().map(|p| (1.0 / p).ln());
        (losses.sum::<f64>() / self.probabilities.len() as f64, None)
    }

    fn corrupt(&self, sample: &mut [u32]) -> Option<usize> {
        (self.corrupt)(sample)
    }
}

/// Draws the splits of the task that `config` names.
pub(super) fn load(config: &DataConfig, seed: u64) -> Result<Dataset> {
    let task = build(config, seed)?;
    let (samples, tokens) = (config.train_samples + config.valid_samples, task.tokens());
    if samples * tokens > MAX_SILENT_IDS {
        log::info!("drawing {} of {}", counted(samples, "sequence"), counted(tokens, "token"));
    }
    let finite = task.shuffled(&mut generator(seed, Purpose::Split, [0, 0]));
    let set = |samples: Range<usize>, purpose| {
        let mut random = generator(seed, purpose, [0, 0]);
        let (rows, losses) = draw_set(&*task, samples, |index, sample| match &finite {
            Some(all) => sample.copy_from_slice(&all[index]),
            None => task.draw(&mut random, sample),
        });
        (Sequences::rows(rows), losses)
    };
    let (mut train, _) = set(0..config.train_samples, Purpose::TrainingSet);
    let (valid, floor_by_position) = set(config.train_samples..samples, Purpose::ValidationSet);
    if let Some(range) = config.lengths {
        let config = config.clone();
        train =
            train.with_drawn_lengths(range, move |length, samples| rows_at(&config, seed, length, samples));
    }
    let counted = (0..floor_by_position.len()).filter(|&target| task.counts(target)).count();
    let floor = floor_by_position.iter().sum::<f64>() / counted as f64;
    let (expected, standard_error) = task.expected_floor();
    let floor = Some(Floor { expected, standard_error, valid: floor });
    Ok(Dataset { floor, floor_by_position, ..Dataset::without_floor(task.vocabulary(), (train, valid)) })
}

/// Draws the splits of the task that `config` names as sources and answers for an encoder-decoder.
pub(super) fn load_pairs(config: &DataConfig, seed: u64) -> Result<Dataset> {
    if let Some(answer) = answer(config.task) {
        return Ok(transduction::load_pairs(config, seed, answer));
    }
    let others = Task::ALL.into_iter().filter(|task| answer(*task).is_some());
    let others = others.map(|task| format!("`{task}`")).collect::<Vec<_>>().join(" or ");
    let problem = format!(
        "does not have a source and an answer for an encoder-decoder; use {others}, or `model.architecture` = \
         \"decoder\""
    );
    Err(Error::key("data.task", config.task, problem))
}

/// Returns the function that turns a sequence into its answer in place, for the tasks that an encoder-decoder learns.
fn answer(task: Task) -> Option<fn(&mut [u32])> {
    match task {
        Task::Reverse => Some(reverse::answer),
        Task::Sort => Some(sort::answer),
        Task::Random
        | Task::Arithmetic
        | Task::Repeat
        | Task::Markov
        | Task::Recall
        | Task::Addition
        | Task::ModularAddition
        | Task::CopyGap => None,
    }
}

/// Draws samples of the training set at another length, each seeded by its index.
fn rows_at(config: &DataConfig, seed: u64, length: usize, samples: &[usize]) -> Rows {
    let task = build(&config.at_length(length), seed).expect("the task supports both ends of the lengths");
    let random = |index| generator(seed, Purpose::TrainingSet, [length as u64, index as u64]);
    draw_set(&*task, samples.iter().copied(), |index, sample| task.draw(&mut random(index), sample)).0
}

/// Draws the samples with the given indices. Also returns the mean loss of the optimal predictor at each position, in
/// nats per token, or zero for targets that do not count.
fn draw_set(
    task: &dyn SequenceTask,
    indices: impl ExactSizeIterator<Item = usize>,
    mut draw: impl FnMut(usize, &mut [u32]),
) -> (Rows, Vec<f64>) {
    let (mut sample, mut probabilities) = (vec![0; task.tokens()], vec![0.0; task.tokens() - 1]);
    let (mut rows, mut losses) = (Rows::default(), vec![0.0; probabilities.len()]);
    let samples = indices.len() as f64;
    for index in indices {
        draw(index, &mut sample);
        task.probabilities(&sample, &mut probabilities);
        let role = |(target, &p): (usize, &f64)| match (task.counts(target), p >= DETERMINED) {
            (false, _) => Role::Padding,
            (true, true) => Role::Determined,
            (true, false) => Role::Undetermined,
        };
        rows.push_with_roles(&sample, probabilities.iter().enumerate().map(role));
        let counted = losses.iter_mut().enumerate().filter(|(target, _)| task.counts(*target));
        counted.for_each(|(target, loss)| *loss -= probabilities[target].ln());
    }
    losses.iter_mut().for_each(|loss| *loss /= samples);
    (rows, losses)
}

#[cfg(test)]
mod tests;
