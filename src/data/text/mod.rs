//! The user's text: a file, or a folder of files, in UTF-8.
//!
//! All files are one stream of tokens. Training reads windows of the first part at random offsets,
//! validation the rest in windows side by side. Where files follow each other, each ends in a line
//! break, and in the end token of a tokenizer that has one.

mod bpe;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::config::{Count, DataConfig, Tokens};
use super::dataset::Dataset;
use super::ids::Ids;
use super::input;
use super::sequences::Sequences;
use super::vocabulary::{Notation, Vocabulary};
use crate::error::{Error, Result};

/// The tokens of byte pair encoding where a config does not say: little of a small model's weight
/// is spent on their embedding, and a token stands for two to three characters.
const TOKENS: usize = 1024;

/// The most bytes that a tokenizer gets at a time: many enough that the cuts are not felt, few enough that
/// all cores get some.
const PIECE: usize = 1 << 16;

/// Reads the text that `config` names, by a given vocabulary, or by the one that it asks for.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    let files = files(&config.path)?;
    let bytes = files.iter().map(|file| file.text.len()).sum();
    if bytes == 0 {
        return Err(Error::file(&config.path, None, None, "is empty; give a text to learn from"));
    }
    let (vocabulary, ids) = match (given, &config.tokens) {
        (Some(vocabulary), _) if vocabulary.notation() == Notation::Words => {
            let problem = format!("reads text, and the vocabulary of {vocabulary} does not");
            return Err(Error::key("data.source", "text", problem));
        }
        (Some(vocabulary), _) => encoded(&files, vocabulary.clone())?,
        (None, Tokens::Characters) => characters(&files)?,
        (None, Tokens::Bpe) => {
            let vocab = match config.vocab {
                Count::Auto => TOKENS,
                Count::Of(vocab) => vocab,
            };
            // Validation must not choose the tokens in which it is read.
            let tokenizer = bpe::train(&files, config.train_part(bytes), vocab)?;
            encoded(&files, Vocabulary::tokenizer(tokenizer)?)?
        }
        (None, Tokens::File(path)) if !path.exists() => {
            let problem =
                "must be \"characters\", \"bpe\" or the path of a tokenizer.json, and there is no such file";
            return Err(Error::key("data.tokens", path.display(), problem));
        }
        (None, Tokens::File(path)) => encoded(&files, Vocabulary::read_tokenizer(path)?)?,
    };
    let (train, valid) = Sequences::cut(config, ids)?;
    Ok(Dataset { vocabulary, train, valid, floor: None, floor_by_position: Vec::new() })
}

/// A file that was read.
#[derive(Debug)]
struct File {
    path: PathBuf,
    text: String,
    /// The line break that closes it, where another file follows and it has none.
    closing: &'static str,
}

/// The file or stream at `path`, or all files below the folder there in the order of their paths. Hidden
/// ones are left out.
fn files(path: &Path) -> Result<Vec<File>> {
    let visible = |name: &OsStr| !name.as_encoded_bytes().starts_with(b".");
    let walk = WalkDir::new(path).follow_links(true).sort_by_file_name().into_iter();
    let mut files: Vec<File> = Vec::new();
    for entry in walk.filter_entry(|entry| entry.depth() == 0 || visible(entry.file_name())) {
        let entry = entry.map_err(|error| {
            let at = error.path().unwrap_or(path).to_path_buf();
            match error.into_io_error() {
                Some(error) => Error::io("read", at, error),
                None => Error::file(at, None, None, "is a link to a folder that holds it; remove the link"),
            }
        })?;
        let kind = entry.file_type();
        if kind.is_dir() {
            continue;
        }
        if !kind.is_file() && entry.depth() > 0 {
            let problem = "is a pipe, a socket or a device, which may never end; take it out of the folder";
            return Err(Error::file(entry.path(), None, None, problem));
        }
        if let Some(before) =
            files.last_mut().filter(|file| !file.text.is_empty() && !file.text.ends_with('\n'))
        {
            before.closing = "\n";
        }
        let text = input::read_text(entry.path())?;
        files.push(File { path: entry.into_path(), text, closing: "" });
    }
    match files.is_empty() {
        true => Err(Error::key("data.path", path.display(), "is a folder without files; put texts in it")),
        false => Ok(files),
    }
}

/// The characters that stand in the files, and the stream of their ids.
fn characters(files: &[File]) -> Result<(Vocabulary, Ids)> {
    let all = || files.iter().flat_map(|file| file.text.chars().chain(file.closing.chars()));
    let mut seen = vec![false; char::MAX as usize + 1];
    all().for_each(|character| seen[character as usize] = true);
    let codes = (0..).zip(seen).filter_map(|(code, seen)| seen.then_some(code));
    encoded(files, Vocabulary::characters(codes.filter_map(char::from_u32))?)
}

/// A vocabulary, and the stream of the ids of all files in it.
fn encoded(files: &[File], vocabulary: Vocabulary) -> Result<(Vocabulary, Ids)> {
    let end = vocabulary.end().filter(|_| files.len() > 1);
    let mut unknown = vocabulary.unknown();
    let mut ids = Ids::default();
    for File { path, text, closing } in files {
        if let Some((index, character)) = unknown.first(text) {
            return Err(not_in(&vocabulary, path, text, index, character));
        }
        let texts: Vec<&str> =
            pieces(text).chain([*closing].into_iter().filter(|text| !text.is_empty())).collect();
        // Some at once, which a tokenizer reads in parallel.
        for texts in texts.chunks(32) {
            vocabulary.encode_all(texts)?.iter().for_each(|more| ids.extend(more));
        }
        ids.extend(end.as_slice());
    }
    drop(unknown);
    Ok((vocabulary, ids))
}

/// A text in pieces, cut before white space where there is some: where tokenizers cut.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_gap = |pair: &[u8]| !pair[0].is_ascii_whitespace() && pair[1].is_ascii_whitespace();
        let end = match rest.as_bytes().get(..PIECE) {
            None => rest.len(),
            Some(bytes) => match bytes.windows(2).rposition(is_gap) {
                Some(before) => before + 1,
                None => rest.floor_char_boundary(PIECE),
            },
        };
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Says of a character of a text that a vocabulary does not have it, and where it stands.
fn not_in(vocabulary: &Vocabulary, path: &Path, text: &str, index: usize, character: char) -> Error {
    let before: String = text.chars().take(index).collect();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&character| character != '\n').count() + 1;
    let remedy = match vocabulary.notation() {
        Notation::Text => ": remove it, or take a tokenizer with a token for the unknown",
        _ => " that the weights were trained on",
    };
    let shown = character.escape_debug();
    let problem = format!("`{shown}` is not in the vocabulary of {vocabulary}{remedy}");
    Error::file(path, Some(line), Some(column), problem)
}

#[cfg(test)]
mod tests;
