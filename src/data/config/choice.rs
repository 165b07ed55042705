//! The value types of keys in `[data]`.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choices;

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
    /// Sequences that a program gave to training; no command can read them again.
    Memory,
}

impl Source {
    /// Returns the source that reads the file or folder at `path`: a table by its extension, or else a text. An empty
    /// path selects the task.
    pub fn of(path: &Path) -> Self {
        if path.as_os_str().is_empty() {
            return Source::Sequences;
        }
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or("").to_ascii_lowercase();
        match extension.as_str() {
            "csv" | "tsv" | "jsonl" | "ndjson" | "json" => Source::Table,
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
        /// Tokens that recur after a fixed gap.
        CopyGap uses ["gap"],
    }
}

/// The tokens of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "expected text in quotes")]
pub enum Tokens {
    /// The characters of the text.
    #[default]
    Characters,
    /// Byte pair encoding, trained on the text.
    Bpe,
    /// The tokens of the given `tokenizer.json`.
    #[serde(untagged)]
    File(PathBuf),
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

impl Column {
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
