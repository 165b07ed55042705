//! Options for reading the lines of a table and for splitting its rows.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The delimiters that have a name in a config.
const NAMED_DELIMITERS: [(&str, u8); 5] =
    [("comma", b','), ("tab", b'\t'), ("semicolon", b';'), ("space", b' '), ("pipe", b'|')];

/// The character between the values of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Delimiter {
    /// Inferred from the lines and the file's extension. Written `"auto"`.
    #[default]
    Auto,
    /// This ASCII character.
    Of(u8),
}

impl TryFrom<String> for Delimiter {
    type Error = &'static str;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        let named = NAMED_DELIMITERS.into_iter().find(|(name, _)| *name == word);
        match (named, word.as_bytes()) {
            (Some((_, byte)), _) => Ok(Delimiter::Of(byte)),
            (None, b"auto") => Ok(Delimiter::Auto),
            (None, br"\t") => Ok(Delimiter::Of(b'\t')),
            (None, &[byte @ 1..0x7f]) if !byte.is_ascii_alphanumeric() && !b"\"\r\n".contains(&byte) => {
                Ok(Delimiter::Of(byte))
            }
            _ => {
                Err("expected \"auto\", \"comma\", \"tab\", \"semicolon\", \"space\", \"pipe\" or one ASCII \
                 character that is neither a letter nor a digit")
            }
        }
    }
}

impl From<Delimiter> for String {
    fn from(delimiter: Delimiter) -> Self {
        match delimiter {
            Delimiter::Auto => "auto".to_string(),
            Delimiter::Of(byte) => match NAMED_DELIMITERS.into_iter().find(|(_, named)| *named == byte) {
                Some((name, _)) => name.to_string(),
                None => char::from(byte).to_string(),
            },
        }
    }
}

impl fmt::Display for Delimiter {
    /// Writes the name as in a config.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(*self))
    }
}

/// The lines of a CSV table that are comments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Comment {
    /// Lines that begin with `#`, if they cannot be rows. Written `"auto"`.
    #[default]
    Auto,
    /// No line. Written `"none"`.
    None,
    /// Lines with this beginning.
    Of(String),
}

impl From<String> for Comment {
    fn from(word: String) -> Self {
        match word.as_str() {
            "auto" => Comment::Auto,
            "" | "none" => Comment::None,
            _ => Comment::Of(word),
        }
    }
}

impl From<Comment> for String {
    fn from(comment: Comment) -> Self {
        match comment {
            Comment::Auto => "auto".to_string(),
            Comment::None => "none".to_string(),
            Comment::Of(beginning) => beginning,
        }
    }
}

/// The meaning of the first line of a CSV table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", expecting = "expected true, false or \"auto\"")]
#[schemars(untagged)]
pub enum Header {
    /// Inferred from the lines. Written `"auto"`.
    #[default]
    #[schemars(with = "String")]
    Auto,
    /// True for column names, false for the first row.
    #[serde(untagged)]
    Given(bool),
}

/// The double quotes in a CSV table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", expecting = "expected true, false or \"auto\"")]
#[schemars(untagged)]
pub enum Quotes {
    /// Inferred from the lines. Written `"auto"`.
    #[default]
    #[schemars(with = "String")]
    Auto,
    /// True if quotes enclose values, false if they are part of the values.
    #[serde(untagged)]
    Given(bool),
}

/// The sequences of a table, or of an array of two dimensions, that are held out for validation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowSplit {
    /// Random sequences, or the end of a table that is a single sequence.
    #[default]
    Auto,
    /// The last sequences.
    Tail,
    /// Random sequences, drawn by `data.seed`.
    Shuffle,
    /// Random groups of `data.group_by`, each of which is a sequence.
    Group,
}

/// The handling of sequences of a table that are longer than `data.length`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LongRows {
    /// They are kept whole: `data.length` does not limit them.
    #[default]
    Keep,
    /// They end after `data.length` targets.
    Cut,
    /// They are left out.
    Drop,
    /// The table is refused.
    Error,
}

/// The targets of pairs and conversations that count in the loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossOn {
    /// The targets of answers.
    #[default]
    Target,
    /// All targets.
    All,
}

/// The edges between the bins of numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Binning {
    /// Quantiles of the training set, so that each bin holds about as many numbers.
    #[default]
    Quantile,
    /// Equal distances between the smallest and the largest number of the training set.
    Uniform,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataConfig;

    #[test]
    fn delimiters_parse_from_name_or_character() {
        for (word, byte, name) in [
            ("tab", b'\t', "tab"),
            ("\t", b'\t', "tab"),
            (r"\t", b'\t', "tab"),
            (",", b',', "comma"),
            (":", b':', ":"),
        ] {
            let delimiter = Delimiter::try_from(word.to_string()).unwrap();
            assert_eq!((delimiter, delimiter.to_string().as_str()), (Delimiter::Of(byte), name));
        }
        for wrong in ["", "\"", "\n", "a", "7", "tabs", "ä", ",,", "\0"] {
            assert!(Delimiter::try_from(wrong.to_string()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_header_is_auto_true_or_false() {
        for (text, header) in [
            ("header = \"auto\"", Header::Auto),
            ("header = true", Header::Given(true)),
            ("header = false", Header::Given(false)),
        ] {
            let config: DataConfig = toml::from_str(text).unwrap();
            assert_eq!(config.header, header);
            assert!(toml::to_string(&config).unwrap().contains(text));
        }
        let error = toml::from_str::<DataConfig>("header = 1").unwrap_err().to_string();
        assert!(error.contains("expected true, false or \"auto\""), "{error}");
    }
}
