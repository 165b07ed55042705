//! The user's text: a file, or a folder of files, in UTF-8.
//!
//! All files are one stream of tokens, read piece by piece. Training reads windows of the first
//! part at random offsets, validation the rest in windows side by side. Where files follow each
//! other, each ends in a line break, and in the end token of a tokenizer that has one.

mod bpe;
mod pieces;

use std::path::Path;

use self::pieces::{Text, pieces, texts};
use super::Dataset;
use super::config::{Count, DataConfig, Tokens};
use super::ids::Ids;
use super::sequences::Sequences;
use super::vocabulary::{Notation, Vocabulary};
use crate::error::{Error, Result};

/// The tokens of byte pair encoding where a config does not say: little of a small model's weight
/// is spent on their embedding, and a token stands for two to three characters.
const TOKENS: usize = 1024;

/// Reads the text that `config` names, by a given vocabulary, or by the one that it asks for.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    let texts = texts(&config.path)?;
    let bytes: u64 = texts.iter().map(|text| text.bytes).sum();
    if bytes == 0 {
        return Err(Error::file(&config.path, None, None, "is empty; give a text to learn from"));
    }
    let vocabulary = match (given, &config.tokens) {
        (Some(vocabulary), _) if vocabulary.notation() == Notation::Words => {
            let problem = format!("reads text, and the vocabulary of {vocabulary} does not");
            return Err(Error::key("data.source", "text", problem));
        }
        (Some(vocabulary), _) => Some(vocabulary.clone()),
        (None, Tokens::Characters) => None,
        (None, Tokens::Bpe) => {
            // Validation must not choose the tokens in which it is read.
            let train = config.train_part(usize::try_from(bytes).unwrap_or(usize::MAX));
            let vocab = match config.vocab {
                Count::Auto => TOKENS,
                Count::Of(vocab) => vocab,
            };
            Some(Vocabulary::tokenizer(bpe::train(&texts, train as u64, vocab)?)?)
        }
        (None, Tokens::File(path)) => Some(tokenizer(path)?),
    };
    let (vocabulary, ids) = match vocabulary {
        Some(vocabulary) => {
            let ids = encode(&texts, &vocabulary)?;
            (vocabulary, ids)
        }
        None => characters(&texts)?,
    };
    let (train, valid) = Sequences::cut(config, ids)?;
    Ok(Dataset { vocabulary, train, valid, floor: None, floor_by_position: Vec::new() })
}

/// The tokenizer in a file.
fn tokenizer(path: &Path) -> Result<Vocabulary> {
    if !path.exists() {
        let problem =
            "must be \"characters\", \"bpe\" or the path of a tokenizer.json, and there is no such file";
        return Err(Error::key("data.tokens", path.display(), problem));
    }
    Vocabulary::read_tokenizer(path)
}

/// The characters that stand in the texts, and the stream of their ids.
fn characters(texts: &[Text]) -> Result<(Vocabulary, Ids)> {
    const NEW: u32 = u32::MAX;
    // Numbered as they come, and brought into their order in the end.
    let mut numbers = vec![NEW; char::MAX as usize + 1];
    let mut seen = String::new();
    let (mut count, mut ids, mut more) = (0, Ids::default(), Vec::new());
    for piece in pieces(texts, u64::MAX).flatten() {
        let (text, _) = piece?;
        more.clear();
        for character in text.chars() {
            let number = &mut numbers[character as usize];
            if *number == NEW {
                *number = count;
                count += 1;
                seen.push(character);
            }
            more.push(*number);
        }
        ids.extend(&more);
    }
    let vocabulary = Vocabulary::characters(seen.chars())?;
    let places = vocabulary.encode(&seen)?;
    ids.replace(|number| places[number as usize]);
    Ok((vocabulary, ids))
}

/// The stream of ids of all texts.
fn encode(texts: &[Text], vocabulary: &Vocabulary) -> Result<Ids> {
    // A tokenizer reads this many pieces at once, in parallel.
    const PIECES: usize = 32;
    let end = vocabulary.end().filter(|_| texts.len() > 1);
    let mut unknown = vocabulary.unknown();
    let (mut ids, mut waiting) = (Ids::default(), Vec::new());
    for pieces in pieces(texts, u64::MAX) {
        let mut pieces = pieces.peekable();
        while let Some(piece) = pieces.next() {
            let (text, place) = piece?;
            if let Some((index, character)) = unknown.first(&text) {
                return Err(place.problem(&text, index, not_in(vocabulary, character)));
            }
            waiting.push(text);
            if waiting.len() == PIECES || pieces.peek().is_none() {
                vocabulary.encode_all(&waiting)?.iter().for_each(|more| ids.extend(more));
                waiting.clear();
            }
        }
        ids.extend(end.as_slice());
    }
    Ok(ids)
}

/// What is wrong with a character that a vocabulary does not have.
fn not_in(vocabulary: &Vocabulary, character: char) -> String {
    let remedy = match vocabulary.notation() {
        Notation::Text => ": remove it, or take a tokenizer with a token for the unknown",
        _ => " that the weights were trained on",
    };
    format!("`{}` is not in the vocabulary of {vocabulary}{remedy}", character.escape_debug())
}

#[cfg(test)]
mod tests;
