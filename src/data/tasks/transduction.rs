//! The common part of `reverse` and `sort`: a sequence and an answer of the same length.
//!
//! For a decoder, a sample contains the sequence and the answer, with a separator `|` between them:
//!
//! ```text
//! 3 1 2 | 1 2 3
//!   ? ? ↑ ↑ ↑ ↑      the prefix is random, all other targets are determined
//! ```
//!
//! The sequence is the prefix of the sample. It has `data.length / 2` integers, so the separator is always at the same
//! position. For an encoder-decoder, the sequence is the source, with 1 to `data.length` integers (each length equally
//! likely). The answer is enclosed in two end tokens: the first one starts the answer, and the second one ends it.
//!
//! ```text
//! source  3 1 2
//! input   <end> 1 2 3
//! target  1 2 3 <end>
//! ```
//!
//! **Floor:** a prefix of `n` integers below `V` gives `2 n` targets, of which `n - 1` are random. The floor is
//! `(n - 1) ln V / 2 n` nats, both expected and on every set. An encoder-decoder only predicts the answer, so its floor
//! is zero.

use rand::RngExt;

use super::FixedProbabilities;
use crate::data::batch::Role;
use crate::data::config::DataConfig;
use crate::data::dataset::{Dataset, Floor};
use crate::data::seed::{Purpose, generator};
use crate::data::sequences::{Rows, Sequences};
use crate::data::vocabulary::{END, Vocabulary};
use crate::error::{Error, Result};

/// Creates a task with prefixes of `data.length / 2` integers below `data.vocab`. `answer` turns a copy of the prefix
/// into its answer in place.
///
/// # Errors
/// Returns an error if the length is too short for a prefix and its answer.
pub(super) fn task(config: &DataConfig, answer: fn(&mut [u32])) -> Result<FixedProbabilities> {
    if config.length < 2 {
        let problem = "must be at least 2: a prefix and its answer";
        return Err(Error::key("data.length", config.length, problem));
    }
    let (symbols, length) = (config.symbols(), config.length / 2);
    let mut probabilities = vec![1.0; 2 * length];
    probabilities[..length - 1].fill(1.0 / symbols as f64);
    Ok(FixedProbabilities::new(
        Vocabulary::integers(symbols, &["|"]),
        probabilities,
        move |random, sample| {
            let (prefix, rest) = sample.split_at_mut(length);
            prefix.fill_with(|| random.random_range(0..symbols as u32));
            rest[0] = symbols as u32;
            rest[1..].copy_from_slice(prefix);
            answer(&mut rest[1..]);
        },
        move |sample| {
            let (prefix, rest) = sample.split_at_mut(length);
            let answered = rest.to_vec();
            prefix[length / 2] = (prefix[length / 2] + 1) % symbols as u32;
            rest[1..].copy_from_slice(prefix);
            answer(&mut rest[1..]);
            // Before the first token of the answer that differs, only the prefix has changed.
            let first = answered.iter().zip(rest).position(|(clean, corrupted)| clean != corrupted)?;
            Some(length + first - 1)
        },
    ))
}

/// Draws the splits for an encoder-decoder. `answer` turns a copy of a source into its answer in place.
pub(super) fn load_pairs(config: &DataConfig, seed: u64, answer: fn(&mut [u32])) -> Dataset {
    let vocabulary = Vocabulary::integers(config.symbols(), &[END]);
    let draw = |samples: usize, purpose| {
        let mut random = generator(seed, purpose, [0, 0]);
        let end = config.symbols() as u32;
        let (mut sources, mut answers) = (Rows::default(), Rows::default());
        for _ in 0..samples {
            let length = random.random_range(1..=config.length as u32);
            let source: Vec<u32> = (0..length).map(|_| random.random_range(0..end)).collect();
            let mut answered = [&[end], &source[..], &[end]].concat();
            answer(&mut answered[1..=source.len()]);
            sources.push(&source);
            answers.push_with_roles(&answered, (1..answered.len()).map(|_| Role::Determined));
        }
        Sequences::pairs(sources, answers)
    };
    let train = draw(config.train_samples, Purpose::TrainingSet);
    let valid = draw(config.valid_samples, Purpose::ValidationSet);
    let floor = Some(Floor { expected: 0.0, standard_error: None, valid: 0.0 });
    let floor_by_position = vec![0.0; valid.time()];
    Dataset { floor, floor_by_position, ..Dataset::without_floor(vocabulary, (train, valid)) }
}
