//! The value types of keys in `[data]`.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choices;
use crate::data::excerpt::excerpt;
use crate::data::ids::Integer;
use crate::files::without_compression;

/// The source of the sequences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A sequence task, drawn from the run's seed.
    #[default]
    Sequences,
    /// A text file, or a folder of text files.
    Text,
    /// A table: CSV or JSON.
    Table,
    /// An array of token ids: a NumPy file, or bare ids.
    Array,
    /// Sequences that a program gave to training; no command can read them again.
    Memory,
}

impl Source {
    /// Returns the source that reads a file with the extension of `path`.
    pub(in crate::data) fn by_extension(path: &Path) -> Self {
        let path = without_compression(path);
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or("").to_ascii_lowercase();
        match extension.as_str() {
            "csv" | "tsv" | "jsonl" | "ndjson" | "json" | "parquet" | "arrow" | "feather" => Source::Table,
            "npy" | "bin" => Source::Array,
            _ => Source::Text,
        }
    }
}

impl fmt::Display for Source {
    /// Writes the name as in a config.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

choices! {
    /// The sequence tasks.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Task {
        /// Independent integers: nothing to learn.
        Random,
        /// Counting with a random step per sequence.
        Arithmetic,
        /// A motif of random period, repeated.
        #[default]
        Repeat uses ["period"],
        /// A prefix, then the reversed prefix.
        Reverse,
        /// A prefix, then the prefix in ascending order.
        Sort,
        /// A random walk with a transition matrix that all sequences share.
        Markov uses ["order"],
        /// Key-value pairs, then keys, each followed by its value.
        Recall,
        /// Two numbers and their sum.
        Addition uses ["digits"],
        /// Two numbers and their sum modulo `data.vocab`.
        ModularAddition,
        /// Tokens that recur after a fixed gap.
        CopyGap uses ["gap"],
    }
}

impl Task {
    /// Returns true if the task determines the length of its samples, so that `data.length` has no effect.
    pub(in crate::data) fn has_own_length(self) -> bool {
        matches!(self, Task::Addition | Task::ModularAddition)
    }
}

/// The tokens of a text, or of the texts in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "expected text in quotes")]
pub enum Tokens {
    /// The characters of a text or of pairs; in other tables, each value is a token.
    #[default]
    Auto,
    /// The characters.
    Characters,
    /// Words and punctuation marks; texts of a table only.
    Words,
    /// Byte pair encoding, trained on the training set.
    Bpe,
    /// The tokens of the given `tokenizer.json`.
    #[serde(untagged)]
    File(PathBuf),
}

impl fmt::Display for Tokens {
    /// Writes the name as in a config, or the path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tokens::Auto => f.write_str("\"auto\""),
            Tokens::Characters => f.write_str("\"characters\""),
            Tokens::Words => f.write_str("\"words\""),
            Tokens::Bpe => f.write_str("\"bpe\""),
            Tokens::File(path) => path.display().fmt(f),
        }
    }
}

/// The folder in which the tokens of a text are cached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "expected \"auto\", \"none\" or a folder in quotes")]
pub enum Cache {
    /// `runs/.tokens` for a large text; otherwise the tokens are kept in memory.
    #[default]
    Auto,
    /// The tokens are kept in memory.
    None,
    /// This folder, for a text of any size.
    #[serde(untagged)]
    Folder(PathBuf),
}

/// The treatment of a text's documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Documents {
    /// One stream: attention reads across the boundaries of documents, and every token is a target.
    #[default]
    Joined,
    /// Independent documents: attention and positions restart in each document, whose first token is not a
    /// target.
    Separate,
}

/// The values of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// Integers or symbols, inferred from the first value.
    #[default]
    Auto,
    /// Integers, each of which is its own id.
    Integers,
    /// Names, each of which gets an id.
    Symbols,
}

/// The type of the integers in a file of bare token ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Inferred from the file: `uint16` unless the values show another size.
    #[default]
    Auto,
    /// 8 bits.
    Uint8,
    /// 16 bits.
    Uint16,
    /// 32 bits.
    Uint32,
    /// 64 bits.
    Uint64,
    /// 8 bits with a sign.
    Int8,
    /// 16 bits with a sign.
    Int16,
    /// 32 bits with a sign.
    Int32,
    /// 64 bits with a sign.
    Int64,
}

impl Dtype {
    /// Returns the type of the integers; `None` if it is inferred.
    pub(crate) fn integer(self) -> Option<Integer> {
        let (bytes, is_signed) = match self {
            Dtype::Auto => return None,
            Dtype::Uint8 => (1, false),
            Dtype::Uint16 => (2, false),
            Dtype::Uint32 => (4, false),
            Dtype::Uint64 => (8, false),
            Dtype::Int8 => (1, true),
            Dtype::Int16 => (2, true),
            Dtype::Int32 => (4, true),
            Dtype::Int64 => (8, true),
        };
        Some(Integer { is_signed, ..Integer::unsigned(bytes) })
    }
}

/// The shortest and the longest period of a motif.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    rename_all = "lowercase",
    expecting = "expected the shortest and the longest, as [8, 16], or \"auto\""
)]
#[schemars(untagged)]
pub enum Periods {
    /// A quarter and half of the length. Written `"auto"`.
    #[default]
    #[schemars(with = "String")]
    Auto,
    /// The shortest and the longest period.
    #[serde(untagged)]
    Of([usize; 2]),
}

/// The column of a table that is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected the name or the number of a column")]
pub enum Column {
    /// The number of the column, from 1.
    Number(usize),
    /// The name of the column. If it is empty, each line is a sequence.
    Name(String),
}

impl Default for Column {
    fn default() -> Self {
        Column::Name(String::new())
    }
}

impl fmt::Display for Column {
    /// Writes the name or the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::Number(number) => number.fmt(f),
            Column::Name(name) => f.write_str(&excerpt(name)),
        }
    }
}

impl Column {
    /// Returns columns as a list for a message.
    pub(in crate::data) fn list(columns: &[Self]) -> String {
        columns.iter().map(Self::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Returns true if a column is selected.
    pub(crate) fn is_set(&self) -> bool {
        *self != Column::default()
    }

    /// Returns the name, if it is not empty.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Column::Name(name) if !name.is_empty() => Some(name),
            _ => None,
        }
    }
}

/// A number, or `"auto"` for a number that suits the data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", expecting = "expected an integer or \"auto\"")]
#[schemars(untagged)]
pub enum Count {
    /// A number that suits the data. Written `"auto"`.
    #[default]
    #[schemars(with = "String")]
    Auto,
    /// This number.
    #[serde(untagged)]
    Of(usize),
}

impl Count {
    /// Returns the number, or `default` for `"auto"`.
    pub fn or(self, default: usize) -> usize {
        match self {
            Count::Auto => default,
            Count::Of(count) => count,
        }
    }
}
