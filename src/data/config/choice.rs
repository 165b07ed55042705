//! The kinds of value that keys of `[data]` take.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Where sequences come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A sequence task, drawn from the run's seed.
    #[default]
    Sequences,
    /// A text file, or a folder of them.
    Text,
    /// A table: CSV, or JSON Lines.
    Table,
}

/// What the tokens of a text are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Tokens {
    /// Its characters.
    #[default]
    Characters,
    /// What byte pair encoding, trained on the text, makes of it.
    Bpe,
    /// What a given `tokenizer.json` makes of it.
    File(PathBuf),
}

impl Source {
    /// What reads the file or folder at `path`: as its name says, or else as text; none reads nothing.
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

    /// The name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Source::Sequences => "sequences",
            Source::Text => "text",
            Source::Table => "table",
        }
    }
}

impl From<String> for Tokens {
    fn from(name: String) -> Self {
        match name.as_str() {
            "characters" => Tokens::Characters,
            "bpe" => Tokens::Bpe,
            _ => Tokens::File(name.into()),
        }
    }
}

impl From<Tokens> for String {
    fn from(tokens: Tokens) -> Self {
        match tokens {
            Tokens::Characters => "characters".into(),
            Tokens::Bpe => "bpe".into(),
            Tokens::File(path) => path.to_string_lossy().into_owned(),
        }
    }
}

/// What the values of a table are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// As the first value reads.
    #[default]
    Auto,
    /// Ids that stand for themselves.
    Integers,
    /// Names, each of which gets an id.
    Symbols,
}

/// The shortest and the longest period of a motif.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Periods {
    /// As the length suggests. Written `"auto"`.
    #[default]
    Auto,
    /// These.
    Of([usize; 2]),
}

impl Serialize for Periods {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Periods::Auto => serializer.serialize_str("auto"),
            Periods::Of(periods) => periods.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Periods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair;

        impl<'de> Visitor<'de> for Pair {
            type Value = Periods;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the shortest and the longest, as [8, 16], or \"auto\"")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Periods, E> {
                match word {
                    "auto" => Ok(Periods::Auto),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut pair: A) -> Result<Periods, A::Error> {
                let mut read = || -> Result<usize, A::Error> {
                    pair.next_element()?.ok_or_else(|| de::Error::invalid_length(1, &self))
                };
                let periods = [read()?, read()?];
                match pair.next_element::<de::IgnoredAny>()? {
                    Some(_) => Err(de::Error::invalid_length(3, &self)),
                    None => Ok(Periods::Of(periods)),
                }
            }
        }

        deserializer.deserialize_any(Pair)
    }
}

/// The column of a table that is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Column {
    /// Each line is a sequence of its own. Written `""`.
    #[default]
    None,
    /// By its number, from 1.
    Number(usize),
    /// By its name.
    Name(String),
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Column::None => serializer.serialize_str(""),
            Column::Number(number) => serializer.serialize_u64(*number as u64),
            Column::Name(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "the name or the number of a column";
        Ok(match number_or_word(deserializer, expected)? {
            NumberOrWord::Number(number) => Column::Number(number),
            NumberOrWord::Word(name) if name.is_empty() => Column::None,
            NumberOrWord::Word(name) => Column::Name(name),
        })
    }
}

/// A number, or `"auto"` for the one that suits the data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Count {
    /// Written `"auto"`.
    #[default]
    Auto,
    /// Written as an integer.
    Of(usize),
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Auto => f.write_str("auto"),
            Count::Of(count) => count.fmt(f),
        }
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Count::Auto => serializer.serialize_str("auto"),
            Count::Of(count) => serializer.serialize_u64(*count as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "an integer or \"auto\"";
        match number_or_word(deserializer, expected)? {
            NumberOrWord::Number(count) => Ok(Count::Of(count)),
            NumberOrWord::Word(word) if word == "auto" => Ok(Count::Auto),
            NumberOrWord::Word(word) => Err(de::Error::invalid_value(Unexpected::Str(&word), &expected)),
        }
    }
}

enum NumberOrWord {
    Number(usize),
    Word(String),
}

/// Reads an integer or a string; `expected` says in an error what either stands for.
fn number_or_word<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<NumberOrWord, D::Error> {
    struct NumberOrWordVisitor(&'static str);

    impl Visitor<'_> for NumberOrWordVisitor {
        type Value = NumberOrWord;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<NumberOrWord, E> {
            let wrong = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
            usize::try_from(number).map(NumberOrWord::Number).map_err(wrong)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<NumberOrWord, E> {
            let wrong = |_| E::invalid_value(Unexpected::Signed(number), &self);
            usize::try_from(number).map(NumberOrWord::Number).map_err(wrong)
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<NumberOrWord, E> {
            Ok(NumberOrWord::Word(word.to_string()))
        }
    }

    deserializer.deserialize_any(NumberOrWordVisitor(expected))
}
