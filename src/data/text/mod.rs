//! The user's text: a file, or a folder of files, in UTF-8.
//!
//! All files are one stream of tokens, read piece by piece. Training reads windows of the first
//! part at random offsets, validation the rest in windows side by side. Where files follow each
//! other, each ends in a line break, and in the end token of a tokenizer that has one.

mod bpe;
mod pieces;

use std::fs;
use std::path::PathBuf;

use self::pieces::{Piece, Pieces, files};
use super::Dataset;
use super::config::{Count, DataConfig, Tokens};
use super::ids::Ids;
use super::sequences::Sequences;
use super::vocabulary::{Notation, Vocabulary};
use crate::error::{Error, Result};

/// The tokens of byte pair encoding where a config does not say: little of a small model's weight
/// is spent on their embedding, and a token stands for two to three characters.
pub(crate) const TOKENS: usize = 1024;

/// Reads the text that `config` names, by a given vocabulary, or by the one that it asks for.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    let files = files(&config.path)?;
    if files.iter().all(|path| fs::metadata(path).is_ok_and(|file| file.len() == 0)) {
        return Err(Error::file(&config.path, None, None, "is empty; give a text to learn from"));
    }
    let vocabulary = match given {
        Some(vocabulary) if vocabulary.notation() != Notation::Words => vocabulary.clone(),
        Some(vocabulary) => {
            let problem = format!("reads text, and the vocabulary of {vocabulary} does not");
            return Err(Error::key("data.source", "text", problem));
        }
        None => vocabulary(config, &files)?,
    };
    let ids = encode(&files, &vocabulary)?;
    let (train, valid) = Sequences::cut(config, ids)?;
    Ok(Dataset { vocabulary, train, valid, floor: None, floor_by_position: Vec::new() })
}

/// The vocabulary that `data.tokens` asks for.
fn vocabulary(config: &DataConfig, files: &[PathBuf]) -> Result<Vocabulary> {
    match &config.tokens {
        Tokens::Characters => characters(files),
        Tokens::Bpe => {
            // Validation must not choose the tokens in which it is read.
            let mut bytes = 0;
            for path in files {
                bytes += fs::metadata(path).map_err(|error| Error::io("read", path, error))?.len();
            }
            let train = config.train_part(usize::try_from(bytes).unwrap_or(usize::MAX));
            let vocab = match config.vocab {
                Count::Auto => TOKENS,
                Count::Of(vocab) => vocab,
            };
            Vocabulary::tokenizer(bpe::train(files, train as u64, vocab)?)
        }
        Tokens::File(path) if !path.is_file() => {
            let problem =
                "must be \"characters\", \"bpe\" or the path of a tokenizer.json, and there is no such file";
            Err(Error::key("data.tokens", path.display(), problem))
        }
        Tokens::File(path) => Vocabulary::read_tokenizer(path),
    }
}

/// The characters that stand in the files.
fn characters(files: &[PathBuf]) -> Result<Vocabulary> {
    let mut seen = vec![false; char::MAX as usize + 1];
    for piece in Pieces::new(files) {
        if let Piece::Text(text) = piece? {
            text.chars().for_each(|character| seen[character as usize] = true);
        }
    }
    let codes = (0..).zip(seen).filter_map(|(code, seen)| seen.then_some(code));
    Vocabulary::characters(codes.filter_map(char::from_u32))
}

/// The stream of ids of all files.
fn encode(files: &[PathBuf], vocabulary: &Vocabulary) -> Result<Ids> {
    // A tokenizer reads this many pieces at once, in parallel.
    const PIECES: usize = 32;
    let mut ids = Ids::default();
    let end = vocabulary.end().filter(|_| files.len() > 1);
    let mut dropped = vocabulary.dropped();
    let mut texts = Vec::new();
    let mut pieces = Pieces::new(files);
    loop {
        let piece = pieces.next().transpose()?;
        let is_pause = !matches!(piece, Some(Piece::Text(_))) || texts.len() == PIECES;
        if is_pause {
            let encoded = vocabulary.encode_all(&texts);
            texts.clear();
            for more in encoded.map_err(|error| unknown(files, vocabulary).unwrap_or(error))? {
                ids.extend(&more);
            }
        }
        match piece {
            Some(Piece::Text(text)) => {
                if let Some((_, character)) = dropped.as_mut().and_then(|dropped| dropped.first(&text)) {
                    return Err(first(files, character, vocabulary));
                }
                texts.push(text);
            }
            Some(Piece::End) => ids.extend(end.as_slice()),
            None => return Ok(ids),
        }
    }
}

/// The first character of the files that a vocabulary of characters does not have.
fn unknown(files: &[PathBuf], vocabulary: &Vocabulary) -> Option<Error> {
    let is_unknown = |&character: &char| vocabulary.encode(character.encode_utf8(&mut [0; 4])).is_err();
    let is_characters = vocabulary.notation() == Notation::Characters;
    let mut texts = files.iter().flat_map(|path| Pieces::new(std::slice::from_ref(path)));
    let character = texts.find_map(|piece| match piece {
        Ok(Piece::Text(text)) if is_characters => text.chars().find(is_unknown),
        _ => None,
    });
    Some(first(files, character?, vocabulary))
}

/// Says of a character that the vocabulary does not have it, and where in the files it stands first.
fn first(files: &[PathBuf], character: char, vocabulary: &Vocabulary) -> Error {
    let shown = character.escape_debug();
    let problem = match vocabulary.notation() {
        Notation::Text => format!(
            "`{shown}` is not in the vocabulary of {vocabulary}: remove it, or take a tokenizer with a token for the \
             unknown"
        ),
        _ => format!("`{shown}` is not in the vocabulary of {vocabulary} that the weights were trained on"),
    };
    for path in files {
        let (mut line, mut column) = (1, 1);
        for piece in Pieces::new(std::slice::from_ref(path)) {
            let Ok(Piece::Text(text)) = piece else { break };
            for here in text.chars() {
                if here == character {
                    return Error::file(path, Some(line), Some(column), problem);
                }
                (line, column) = if here == '\n' { (line + 1, 1) } else { (line, column + 1) };
            }
        }
    }
    Error::Input(problem)
}

#[cfg(test)]
mod tests;
