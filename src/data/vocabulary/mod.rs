//! The vocabulary: the meaning of ids as integers, characters, symbols, or pieces of text.

mod bins;
mod coding;
mod cuts;
mod declared;
mod end;
mod limits;
mod number_format;
mod phrases;
mod stored;
mod tokenizer;
mod trained;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokenizers::Tokenizer;

use self::bins::Bins;
pub(in crate::data) use self::bins::{BinsOf, Outliers};
use self::declared::Declared;
use self::end::TextEnd;
pub(in crate::data) use self::number_format::NumberFormat;
use self::phrases::Phrases;
use self::stored::Stored;
use self::tokenizer::{TextTokenizer, not_a_tokenizer};
use super::excerpt::excerpt;
use crate::error::{Error, Result};
use crate::files::{LFS_POINTER, Text, is_lfs_pointer};
use crate::numbers::counted;
pub use declared::{END_OF_TEXT, QWEN_WORDS};
pub use tokenizer::byte_level;
pub(crate) use trained::delimited_by_end;
pub(super) use trained::{ASSISTANT, role_token, train_byte_pairs};

/// The name of the token that ends a sequence, in the vocabularies that this crate creates.
///
/// It also precedes the first token of an answer, as the start token of a decoder: the end of one sequence begins the
/// next (as in fairseq).
pub const END: &str = "<end>";

/// The name of the token between the source and the target of a pair.
pub const SEPARATOR: &str = "<sep>";

/// The meaning of the ids below [`size`](Self::size). Cheap to clone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Vocabulary(
    Arc<Kind>,
    /// The names of the columns of the training table, in reading order.
    Arc<[String]>,
);

#[derive(Debug)]
enum Kind {
    Integers {
        integers: usize,
        special: Vec<String>,
    },
    /// Characters, the id of each code point up to the largest of them, and special tokens between texts.
    Characters {
        characters: Vec<char>,
        ids: Vec<Option<u32>>,
        special: Vec<String>,
        /// The token that begins and ends a text, if it is one of the special tokens.
        end: Option<u32>,
    },
    Symbols {
        symbols: Vec<String>,
        ids: HashMap<String, u32>,
        phrases: Phrases,
        end: Option<u32>,
    },
    /// Bins of numbers.
    Bins(Bins),
    Tokenizer(Box<TextTokenizer>),
}

/// The notation of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// Words separated by spaces, such as `3 1 4`. A symbol that contains spaces is quoted.
    Words,
    /// Text in which each character is a token.
    Characters,
    /// Text that a tokenizer splits into tokens.
    Text,
}

impl Vocabulary {
    /// Creates a vocabulary of the integers below `integers`, each its own id, followed by the special tokens.
    pub fn integers(integers: usize, special: &[&str]) -> Self {
        let special = special.iter().map(std::string::ToString::to_string).collect();
        Kind::Integers { integers, special }.into()
    }

    /// Creates a vocabulary of the given characters in ascending order, without duplicates.
    ///
    /// # Errors
    /// Returns an error if `characters` is empty.
    pub fn characters(characters: impl IntoIterator<Item = char>) -> Result<Self> {
        Self::characters_with(characters, &[])
    }

    /// Creates a vocabulary of characters like [`characters`](Self::characters), followed by special tokens.
    ///
    /// # Errors
    /// Returns an error if `characters` is empty.
    pub(super) fn characters_with(
        characters: impl IntoIterator<Item = char>,
        special: &[&str],
    ) -> Result<Self> {
        let mut characters: Vec<char> = characters.into_iter().collect();
        characters.sort_unstable();
        characters.dedup();
        let Some(&last) = characters.last() else {
            return Err(Error::Input("a vocabulary needs at least one character".into()));
        };
        let mut ids = vec![None; last as usize + 1];
        for (&character, id) in characters.iter().zip(0..) {
            ids[character as usize] = Some(id);
        }
        let end = special.iter().position(|name| *name == END).map(|index| (characters.len() + index) as u32);
        let special = special.iter().map(std::string::ToString::to_string).collect();
        Ok(Kind::Characters { characters, ids, special, end }.into())
    }

    /// Creates a vocabulary of named symbols in the given order; `end` is the id of the end token.
    ///
    /// # Errors
    /// Returns an error if `symbols` is empty or has duplicates, or if `end` is not one of its ids.
    pub fn symbols(symbols: Vec<String>, end: Option<u32>) -> Result<Self> {
        let mut ids = HashMap::with_capacity(symbols.len());
        for (symbol, id) in symbols.iter().zip(0..) {
            if ids.insert(symbol.clone(), id).is_some() {
                let symbol = excerpt(symbol);
                let problem = format!("the symbol `{symbol}` occurs twice in the vocabulary; remove one");
                return Err(Error::Input(problem));
            }
        }
        if symbols.is_empty() {
            return Err(Error::Input("a vocabulary needs at least one symbol".into()));
        }
        if let Some(end) = end.filter(|&end| end as usize >= symbols.len()) {
            return Err(Error::Input(format!(
                "the end token {end} is outside the vocabulary (ids 0 to {}); correct its id",
                symbols.len() - 1
            )));
        }
        let phrases = Phrases::of(&symbols);
        Ok(Kind::Symbols { symbols, ids, phrases, end }.into())
    }

    /// Adds the column names of the training table, in reading order. A vocabulary with names, such as that of an existing
    /// run, keeps them.
    pub(super) fn with_columns(self, names: Vec<String>) -> Self {
        if self.1.is_empty() { Vocabulary(self.0, names.into()) } else { self }
    }

    /// Returns the column names of the training table; empty without a header or a table.
    pub(super) fn columns(&self) -> &[String] {
        &self.1
    }

    /// Reads the tokens of a `tokenizer.json`, completed by the files of transformers next to it.
    ///
    /// # Errors
    /// Returns the errors of [`tokenizer`](Self::tokenizer) with the name of the file. Also returns an error if one of
    /// the files cannot be read, or if they contradict each other.
    pub(crate) fn read_tokenizer(path: &Path) -> Result<Self> {
        let text = Text::open(path)?.read_to_string()?;
        if is_lfs_pointer(text.as_bytes()) {
            return Err(Error::file(path, LFS_POINTER));
        }
        let in_file = |error: Error| Error::file(path, error.to_string());
        let mut json: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| in_file(not_a_tokenizer(&error.to_string())))?;
        let declared = Declared::next_to(path)?;
        declared.set_parts(&mut json);
        let parsed = TextTokenizer::parse_with(json, |tokenizer| declared.add_tokens(tokenizer));
        parsed.map_err(in_file)?.with_declared_end(path)
    }

    /// Creates a vocabulary from a tokenizer in the format of `tokenizer.json`, converted from the `vocab.json` at
    /// `path` and its `merges.txt`.
    ///
    /// # Errors
    /// Returns the errors of [`read_tokenizer`](Self::read_tokenizer).
    pub(crate) fn convert_tokenizer(mut json: serde_json::Value, path: &Path) -> Result<Self> {
        let declared = Declared::next_to(path)?;
        declared.set_parts_of_pair(&mut json);
        let complete = |tokenizer: &mut Tokenizer| {
            declared.add_tokens(tokenizer)?;
            declared.add_around(tokenizer)
        };
        let parsed = TextTokenizer::parse_with(json, complete);
        parsed.map_err(|error| Error::file(path, error.to_string()))?.with_declared_end(path)
    }

    /// Creates a vocabulary from a tokenizer in the format of `tokenizer.json`, with the id of its end-of-text token and
    /// the source of that id.
    ///
    /// # Errors
    /// Returns an error if the tokenizer cannot be parsed, or lacks the end-of-text token.
    pub(crate) fn tokenizer_with_end(json: serde_json::Value, end: Option<(u32, &str)>) -> Result<Self> {
        let end = end.map(|(id, declared_by)| TextEnd { id, declared_by: declared_by.into() });
        Ok(TextTokenizer::parse(json)?.with_end(end)?.into())
    }

    /// Creates a vocabulary of the tokens of a tokenizer.
    ///
    /// # Errors
    /// Returns an error if the tokenizer is empty, has large gaps in its ids, cannot be stored, or could expand a text
    /// excessively.
    pub fn tokenizer(tokenizer: Tokenizer) -> Result<Self> {
        Ok(TextTokenizer::new(tokenizer, None)?.into())
    }

    /// Returns the number of tokens; all ids are below it.
    pub fn size(&self) -> usize {
        match &*self.0 {
            Kind::Integers { integers, special, .. } => integers + special.len(),
            Kind::Characters { characters, special, .. } => characters.len() + special.len(),
            Kind::Symbols { symbols, .. } => symbols.len(),
            Kind::Bins(bins) => bins.size(),
            Kind::Tokenizer(tokenizer) => tokenizer.size,
        }
    }

    /// Returns the id of the token that ends a sequence, if the data has one. It also precedes the first token of an
    /// answer.
    pub fn end(&self) -> Option<u32> {
        match &*self.0 {
            Kind::Integers { integers, special, .. } => {
                special.iter().position(|name| name == END).map(|index| (integers + index) as u32)
            }
            Kind::Characters { end, .. } | Kind::Symbols { end, .. } => *end,
            Kind::Bins(bins) => bins.end(),
            Kind::Tokenizer(tokenizer) => tokenizer.end.as_ref().map(|end| end.id),
        }
    }

    /// Returns the source of the end-of-text declaration, such as "tokenizer_config.json". Only a tokenizer has one.
    pub fn end_declared_by(&self) -> Option<&str> {
        match &*self.0 {
            Kind::Tokenizer(tokenizer) => tokenizer.end.as_ref().map(|end| end.declared_by.as_str()),
            _ => None,
        }
    }

    /// Returns the id of the token that a text starts with: the start token of a tokenizer, or else the end token of a
    /// previous text. Sequences of integers, symbols and numbers do not start with a token of their own.
    pub fn begin(&self) -> Option<u32> {
        let end = self.end().filter(|_| self.notation() != Notation::Words);
        self.added_tokens()[0].first().copied().or(end)
    }

    /// Returns true if the ids represent bins of numbers.
    pub fn is_bins(&self) -> bool {
        matches!(&*self.0, Kind::Bins(_))
    }

    /// Returns how the numbers of the bins were read; `None` if the ids do not represent bins.
    pub(super) fn bins_of(&self) -> Option<BinsOf> {
        match &*self.0 {
            Kind::Bins(bins) => Some(bins.of_numbers),
            _ => None,
        }
    }

    /// Returns the first and the last edge between bins, if there are several.
    pub(super) fn inner_bins(&self) -> Option<[f64; 2]> {
        match &*self.0 {
            Kind::Bins(bins) if bins.edges.len() > 1 => Some([bins.edges[0], *bins.edges.last()?]),
            _ => None,
        }
    }

    /// Returns the bin of a number, if the ids represent bins.
    pub(super) fn bin(&self, number: f64) -> Option<u32> {
        match &*self.0 {
            Kind::Bins(bins) => Some(bins.of(number)),
            _ => None,
        }
    }

    /// Returns true if each id represents an integer of the same value.
    pub(crate) fn is_integers(&self) -> bool {
        matches!(&*self.0, Kind::Integers { .. })
    }

    /// Returns the notation of a prompt.
    pub fn notation(&self) -> Notation {
        match &*self.0 {
            Kind::Integers { .. } | Kind::Symbols { .. } | Kind::Bins(_) => Notation::Words,
            Kind::Characters { .. } => Notation::Characters,
            Kind::Tokenizer(_) => Notation::Text,
        }
    }
}

impl From<Kind> for Vocabulary {
    fn from(kind: Kind) -> Self {
        Vocabulary(Arc::new(kind), Arc::default())
    }
}

impl From<TextTokenizer> for Vocabulary {
    fn from(tokenizer: TextTokenizer) -> Self {
        Kind::Tokenizer(Box::new(tokenizer)).into()
    }
}

impl fmt::Display for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Integers { integers, special, .. } => {
                f.write_str(&counted(*integers, "integer"))?;
                special.iter().try_for_each(|name| write!(f, " and `{name}`"))
            }
            Kind::Characters { characters, special, .. } => {
                f.write_str(&counted(characters.len(), "character"))?;
                special.iter().try_for_each(|name| write!(f, " and `{name}`"))
            }
            Kind::Symbols { symbols, .. } => f.write_str(&counted(symbols.len(), "symbol")),
            Kind::Bins(bins) => {
                f.write_str(&counted(bins.centers.len(), "bin"))?;
                bins.special.iter().try_for_each(|name| write!(f, " and `{name}`"))
            }
            Kind::Tokenizer(tokenizer) => f.write_str(&counted(tokenizer.size, "token")),
        }
    }
}

impl PartialEq for Vocabulary {
    /// Returns true if all ids have the same meaning. The columns do not change it.
    fn eq(&self, other: &Self) -> bool {
        let meaning = |it: &Self| Stored::from(Vocabulary(it.0.clone(), Arc::default()));
        Arc::ptr_eq(&self.0, &other.0) || meaning(self) == meaning(other)
    }
}

#[cfg(test)]
mod tests;
