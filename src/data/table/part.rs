//! The parts of a text sequence, each of which counts in the loss or not.

use crate::data::vocabulary::{SEPARATOR, Vocabulary};

/// A part of a sequence.
#[derive(Debug)]
pub(super) struct Part {
    /// True if the targets of this part count in the loss with `data.loss_on` = "target".
    pub(super) is_answer: bool,
    pub(super) text: PartText,
}

/// The content of a part.
#[derive(Debug)]
pub(super) enum PartText {
    /// The text, split into tokens.
    Text(String),
    /// A special token.
    Special(String),
    /// Token ids that the data holds.
    Ids(Vec<u32>),
}

impl Part {
    /// Returns a text as a part.
    pub(super) fn text(text: &str, is_answer: bool) -> Self {
        Self { is_answer, text: PartText::Text(text.to_string()) }
    }

    /// Returns the text of the part; `None` for tokens that the vocabulary does not read as text.
    pub(super) fn as_text(&self, vocabulary: &Vocabulary) -> Option<&str> {
        match &self.text {
            PartText::Text(text) => Some(text),
            PartText::Special(name) if name == SEPARATOR && vocabulary.special(name).is_none() => Some("\n"),
            PartText::Special(_) | PartText::Ids(_) => None,
        }
    }

    /// Returns a special token as a part.
    pub(super) fn special(name: &str, is_answer: bool) -> Self {
        Self { is_answer, text: PartText::Special(name.to_string()) }
    }
}
