//! Splits a text into segments that a tokenizer encodes to the same ids as the entire text.

use std::path::Path;

use crate::data::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::numbers::Bytes;

/// The size in bytes from which a text is cut where possible: large enough that cuts cost little, small enough that
/// every core gets segments.
pub(super) const SEGMENT_BYTES: usize = 1 << 16;

/// The maximum size in bytes of a text that cannot be cut. Encoding needs about a hundred times as much memory.
const MAX_SEGMENT_BYTES: usize = 1 << 23;

/// A part of a text.
#[derive(Debug)]
pub(super) struct Segment {
    pub text: String,
    /// True if another segment of the text precedes this one.
    pub is_continued: bool,
}

/// An iterator that merges the pieces of a text and cuts them where the vocabulary allows it.
pub(super) struct Segments<'a, I> {
    pub pieces: I,
    pub vocabulary: &'a Vocabulary,
    pub path: &'a Path,
    pub rest: String,
    pub is_continued: bool,
}

impl<I: Iterator<Item = Result<String>>> Segments<'_, I> {
    fn cut(&mut self, at: usize) -> Segment {
        let rest = self.rest.split_off(at);
        let text = std::mem::replace(&mut self.rest, rest);
        Segment { text, is_continued: std::mem::replace(&mut self.is_continued, true) }
    }
}

impl<I: Iterator<Item = Result<String>>> Iterator for Segments<'_, I> {
    type Item = Result<Segment>;

    fn next(&mut self) -> Option<Result<Segment>> {
        let mut min = SEGMENT_BYTES;
        loop {
            if self.rest.len() >= min {
                if let Some(at) = self.vocabulary.last_cut(&self.rest) {
                    return Some(Ok(self.cut(at)));
                }
                if self.rest.len() > MAX_SEGMENT_BYTES {
                    let problem = format!(
                        "cannot be split within {} without changing this tokenizer's ids, and is too long \
                         to encode in one piece; split it into smaller files and set `data.path` to their \
                         folder",
                        Bytes(MAX_SEGMENT_BYTES as f64)
                    );
                    return Some(Err(Error::file(self.path, problem)));
                }
                min = (2 * self.rest.len()).min(MAX_SEGMENT_BYTES + 1);
            }
            match self.pieces.next() {
                Some(Ok(piece)) => self.rest.push_str(&piece),
                Some(Err(error)) => return Some(Err(error)),
                None if self.rest.is_empty() => return None,
                None => return Some(Ok(self.cut(self.rest.len()))),
            }
        }
    }
}
