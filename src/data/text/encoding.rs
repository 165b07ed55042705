//! Encodes the files of a text in rounds, whose segments a tokenizer encodes in parallel.

use std::path::Path;

use super::File;
use super::segments::{SEGMENT_BYTES, Segment, Segments};
use crate::data::ids::Ids;
use crate::data::vocabulary::{Notation, Vocabulary};
use crate::error::{Error, Result};

/// The number of bytes read per round.
const ROUND_BYTES: usize = 32 * SEGMENT_BYTES;

/// The destination of the ids of a text.
pub(super) trait Sink {
    /// Returns true if it already has the ids of the current round, which are then not computed again.
    fn has_round(&self) -> bool {
        false
    }

    /// Begins a file.
    fn begin_file(&mut self) {}

    /// Appends ids, unless it already has the current round.
    fn push(&mut self, ids: &[u32]) -> Result<()>;

    /// Ends a round of this many bytes of text.
    fn end_round(&mut self, _bytes: usize) -> Result<()> {
        Ok(())
    }
}

/// Ids in memory, with the start of each file.
#[derive(Default)]
struct InMemory {
    ids: Ids,
    starts: Vec<usize>,
}

impl Sink for InMemory {
    fn begin_file(&mut self) {
        self.starts.push(self.ids.len());
    }

    fn push(&mut self, ids: &[u32]) -> Result<()> {
        self.ids.extend(ids);
        Ok(())
    }
}

/// Encodes all files, of `bytes` bytes in total, into one sequence of ids in memory. Also returns the start of each file.
pub(super) fn in_memory(files: &[File], bytes: usize, vocabulary: &Vocabulary) -> Result<(Ids, Vec<usize>)> {
    let mut sink = InMemory::default();
    if vocabulary.notation() == Notation::Characters && sink.ids.try_reserve(bytes + files.len()).is_err() {
        let problem = "has more characters than fit in memory; set `data.cache` to a folder, or use a part of the \
                       text";
        return Err(Error::file(&files[0].text.path, problem));
    }
    encode(files, vocabulary, &mut sink)?;
    Ok((sink.ids, sink.starts))
}

/// Encodes all files into one sequence of ids.
pub(super) fn encode(files: &[File], vocabulary: &Vocabulary, sink: &mut impl Sink) -> Result<()> {
    // An end token separates files without a line break.
    let end = vocabulary.end().filter(|_| files.len() > 1);
    // Each file begins with the tokens that the tokenizer adds before a text; most windows of the file do not.
    let [before, _] = vocabulary.added_tokens();
    for file in files {
        sink.begin_file();
        sink.push(before)?;
        let is_closed = file.is_closed || end.is_some();
        let (pieces, path) = (file.pieces(is_closed)?, file.text.path.as_path());
        let rest = String::new();
        let mut segments = Segments { pieces, vocabulary, path, rest, is_continued: false };
        let mut position = (1, 1);
        loop {
            let (mut texts, mut bytes) = (Vec::new(), 0);
            while bytes < ROUND_BYTES
                && let Some(segment) = segments.next().transpose()?
            {
                bytes += segment.text.len();
                texts.push(segment);
            }
            if texts.is_empty() {
                break;
            }
            match sink.has_round() {
                true => position = texts.iter().fold(position, |at, segment| advance(at, &segment.text)),
                false => {
                    position = check(&texts, vocabulary, path, position)?;
                    let texts = texts.iter().map(|Segment { text, is_continued }| match is_continued {
                        true => vocabulary.continued(text),
                        false => text.as_str(),
                    });
                    let texts = texts.collect::<Vec<_>>();
                    vocabulary.encode_all(&texts)?.iter().try_for_each(|ids| sink.push(ids))?;
                }
            }
            sink.end_round(bytes)?;
        }
        sink.push(end.as_slice())?;
    }
    Ok(())
}

/// Checks that the characters of segments from a `position` are in the vocabulary, and returns the position after them.
fn check(
    texts: &[Segment],
    vocabulary: &Vocabulary,
    path: &Path,
    mut position: (usize, usize),
) -> Result<(usize, usize)> {
    for Segment { text, .. } in texts {
        if let Some((byte, character)) = vocabulary.unknown(text) {
            let position = advance(position, &text[..byte]);
            return Err(unknown_character(vocabulary, path, position, character));
        }
        position = advance(position, text);
    }
    Ok(position)
}

/// Returns the line and the column after a text that begins at the given line and column.
fn advance((line, column): (usize, usize), text: &str) -> (usize, usize) {
    match text.rsplit_once('\n') {
        None => (line, column + text.chars().count()),
        Some((above, last)) => (line + above.matches('\n').count() + 1, last.chars().count() + 1),
    }
}

/// Creates the error about a character that is not in the vocabulary, with its line and column.
fn unknown_character(
    vocabulary: &Vocabulary,
    path: &Path,
    (line, column): (usize, usize),
    character: char,
) -> Error {
    let remedy = match vocabulary.notation() {
        Notation::Text => "; remove it, or use a tokenizer with an unknown token",
        _ => "; remove or replace it",
    };
    let character = character.escape_debug();
    let problem = format!("`{character}` is not in the vocabulary of {vocabulary}{remedy}");
    Error::in_file(path, Some(line), Some(column), problem)
}
