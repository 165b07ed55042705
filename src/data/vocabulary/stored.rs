//! The file format of a vocabulary.
//!
//! A vocabulary is stored as `vocabulary.json` next to the weights. The file contains all data that is needed to encode
//! a prompt and to decode the output of the model. The key `kind` selects one of five formats:
//!
//! ```json
//! {"kind": "integers", "integers": 16, "special": ["|"]}
//! {"kind": "characters", "characters": "\n !,.abc", "special": ["<end>"], "columns": ["question", "answer"]}
//! {"kind": "symbols", "symbols": ["up", "down"], "end": null, "columns": ["day", "state"]}
//! {"kind": "bins", "edges": [0.5], "centers": [0.1, 0.9], "special": [], "columns": ["price"]}
//! {"kind": "tokenizer", "tokenizer": { the contents of a tokenizer.json }, "end": 2}
//! ```
//!
//! `end` is the id of the end token; for a tokenizer, it is stored only if files next to the tokenizer declared it.
//! `columns` are the names in the header of the training table, by which columns of other tables are found.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::bins::Bins;
use super::end::TextEnd;
use super::tokenizer::TextTokenizer;
use super::{Kind, Vocabulary};
use crate::error::{Error, Result};
use crate::files::{read_given_json, read_json};

impl Vocabulary {
    /// Reads a `vocabulary.json`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a vocabulary.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        read_json(path.as_ref(), STORED)
    }

    /// Reads the vocabulary of imported weights.
    ///
    /// # Errors
    /// Returns the errors of [`Self::read`].
    pub fn read_given(path: &Path) -> Result<Self> {
        read_given_json(path, STORED)
    }
}

/// The expected contents of the file.
const STORED: &str = "the meaning of the tokens of the weights; copy the file from the run that wrote them";

/// The format of `vocabulary.json`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Stored {
    Integers {
        integers: usize,
        special: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        columns: Vec<String>,
    },
    Characters {
        characters: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        special: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        columns: Vec<String>,
    },
    Symbols {
        symbols: Vec<String>,
        end: Option<u32>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        columns: Vec<String>,
    },
    Bins(Bins),
    Tokenizer {
        tokenizer: serde_json::Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<u32>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        columns: Vec<String>,
    },
}

impl From<Vocabulary> for Stored {
    fn from(vocabulary: Vocabulary) -> Self {
        let columns = vocabulary.columns().to_vec();
        match &*vocabulary.0 {
            Kind::Integers { integers, special } => {
                Stored::Integers { integers: *integers, special: special.clone(), columns }
            }
            Kind::Characters { characters, special, .. } => Stored::Characters {
                characters: characters.iter().collect(),
                special: special.clone(),
                columns,
            },
            Kind::Symbols { symbols, end, .. } => {
                Stored::Symbols { symbols: symbols.clone(), end: *end, columns }
            }
            Kind::Bins(bins) => Stored::Bins(Bins { columns, ..bins.clone() }),
            Kind::Tokenizer(tokenizer) => {
                Stored::Tokenizer { tokenizer: tokenizer.json.clone(), end: tokenizer.declared_end, columns }
            }
        }
    }
}

impl TryFrom<Stored> for Vocabulary {
    type Error = Error;

    fn try_from(stored: Stored) -> Result<Self> {
        match stored {
            Stored::Integers { integers, special, columns } => {
                let special: Vec<&str> = special.iter().map(String::as_str).collect();
                match integers.checked_add(special.len()) {
                    Some(1..=0x1_0000_0000) => {
                        Ok(Vocabulary::integers(integers, &special).with_columns(columns))
                    }
                    _ => Err(Error::Input(format!(
                        "`integers` = {integers} is out of range: with `special`, a vocabulary has 1 to \
                         4294967296 ids"
                    ))),
                }
            }
            Stored::Characters { characters, special, columns } => {
                let special: Vec<&str> = special.iter().map(String::as_str).collect();
                Ok(Vocabulary::characters_with(characters.chars(), &special)?.with_columns(columns))
            }
            Stored::Symbols { symbols, end, columns } => {
                Ok(Vocabulary::symbols(symbols, end)?.with_columns(columns))
            }
            Stored::Bins(bins) => {
                let mut bins = bins.checked()?;
                let columns = std::mem::take(&mut bins.columns);
                Ok(Vocabulary::from(Kind::Bins(bins)).with_columns(columns))
            }
            Stored::Tokenizer { tokenizer, end, columns } => {
                let tokenizer = TextTokenizer::parse(tokenizer)?;
                let end = end.map(|id| TextEnd { id, declared_by: "vocabulary.json".into() });
                Ok(Vocabulary::from(tokenizer.with_end(end)?).with_columns(columns))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn damaged_files_never_cause_a_panic(
            text in prop_oneof![
                "\\{\"kind\": ?\"(integers|symbols|characters|tokenizer)\".{0,60}",
                "\\{\"kind\":\"symbols\",\"symbols\":\\[(\"[a-c]\",){0,3}\"d\"\\],\"end\":(null|[0-9]{1,11})\\}",
                "\\{\"kind\":\"integers\",\"integers\":[0-9]{1,21},\"special\":\\[(\"<end>\")?\\]\\}",
            ],
            ids in proptest::collection::vec(any::<u32>(), 0..9),
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            match Vocabulary::read(file.path()) {
                Ok(vocabulary) => {
                    vocabulary.decode(&ids);
                    prop_assert!(vocabulary.end().is_none_or(|end| (end as usize) < vocabulary.size()));
                    prop_assert!(vocabulary.size() > 0);
                }
                Err(error) => prop_assert_eq!(error.exit_code(), 2),
            }
        }
    }
}
