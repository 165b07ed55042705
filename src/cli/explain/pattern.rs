//! `--pattern`: sequences that `explain` generates.

use crate::analysis::Sample;
use crate::analysis::circuit::repeated_sequences;
use crate::data::Vocabulary;
use crate::error::{Error, Result};

/// A standard probe: random tokens, repeated once.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    /// The number of tokens in each copy.
    length: Option<usize>,
}

/// The number of tokens in each copy by default, if the context and the vocabulary hold them.
const DEFAULT_REPEAT: usize = 24;

/// Parses `repeat` or `repeat:N`.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    let problem = "write repeat, or repeat:N for N tokens from 2";
    match text.split_once(':').unwrap_or((text, "")) {
        ("repeat", "") if !text.ends_with(':') => Ok(Pattern { length: None }),
        ("repeat", length) => {
            let length = length.parse().ok().filter(|length| *length >= 2);
            length.map(|length| Pattern { length: Some(length) }).ok_or_else(|| problem.to_string())
        }
        _ => Err(problem.to_string()),
    }
}

/// Returns the number of tokens in each copy, and the sequences of the probe.
pub fn repeated(
    Pattern { length }: Pattern,
    vocabulary: &Vocabulary,
    context: usize,
    seed: u64,
) -> Result<(usize, Vec<Sample>)> {
    let longest = length.unwrap_or(DEFAULT_REPEAT.min(context / 2));
    let lengths = if length.is_some() { longest..=longest } else { 2..=longest };
    let found =
        lengths.rev().find_map(|length| Some((length, repeated_sequences(vocabulary, length, seed)?)));
    found.ok_or_else(|| {
        let problem = "more than the vocabulary has; pass a smaller number";
        Error::Input(format!("--pattern: {} different tokens are {problem}", longest.max(2)))
    })
}
