//! What the values of a table stand for: integers that are ids already, or symbols that get one.

use std::collections::HashMap;

use crate::data::config::{Count, DataConfig, LARGEST, Values};
use crate::data::excerpt::excerpt;
use crate::data::ids::Ids;
use crate::data::vocabulary::{END, Vocabulary};
use crate::error::Result;

/// Turns values into ids, and learns the vocabulary on the way.
#[derive(Debug)]
pub(super) enum Encoder<'a> {
    /// Nothing read yet: the first value decides.
    Undecided,
    /// Each integer is its own id; `limit` was asked for.
    Integers { limit: Option<usize>, largest: u32 },
    /// Ids in the order in which symbols came.
    Symbols { ids: HashMap<String, u32> },
    /// By the vocabulary of a run.
    Given(&'a Vocabulary),
}

impl<'a> Encoder<'a> {
    pub fn new(config: &DataConfig, given: Option<&'a Vocabulary>) -> Self {
        match (given, config.values) {
            (Some(vocabulary), _) => Encoder::Given(vocabulary),
            (None, Values::Auto) => Encoder::Undecided,
            (None, Values::Integers) => Encoder::integers(config),
            (None, Values::Symbols) => Encoder::Symbols { ids: HashMap::new() },
        }
    }

    fn integers(config: &DataConfig) -> Self {
        let limit = match config.vocab {
            Count::Auto => None,
            Count::Of(vocab) => Some(vocab),
        };
        Encoder::Integers { limit, largest: 0 }
    }

    /// The id of a value, or what is wrong with it.
    pub fn id(&mut self, value: &str, config: &DataConfig) -> Result<u32, String> {
        if value.is_empty() {
            return Err("an empty value; give it a name, or leave out the line".into());
        }
        match self {
            Encoder::Undecided => {
                *self = match value.parse::<f64>() {
                    // Infinities and NaN are words first.
                    Ok(number) if number.is_finite() => Encoder::integers(config),
                    _ => Encoder::Symbols { ids: HashMap::new() },
                };
                self.id(value, config)
            }
            Encoder::Integers { limit, largest } => {
                let id = integer(value, limit.unwrap_or(LARGEST), limit.is_some())?;
                *largest = id.max(*largest);
                Ok(id)
            }
            Encoder::Symbols { ids } => match ids.get(value) {
                Some(&id) => Ok(id),
                None if ids.len() == LARGEST => Err(format!("the table has more than {LARGEST} symbols")),
                None => {
                    let id = ids.len() as u32;
                    ids.insert(value.to_string(), id);
                    Ok(id)
                }
            },
            Encoder::Given(vocabulary) => vocabulary.word(value).ok_or_else(|| {
                let value = excerpt(value);
                format!("`{value}` is not in the vocabulary of {vocabulary} that the weights were trained on")
            }),
        }
    }

    /// The vocabulary of all values that came, in ascending order of symbols, to which the ids are
    /// brought; with an end token where it is asked for.
    pub fn finish(self, ids: &mut Ids, with_end: bool) -> Result<Vocabulary> {
        match self {
            Encoder::Undecided => Vocabulary::symbols(Vec::new(), None),
            Encoder::Integers { limit, largest } => {
                let integers = limit.unwrap_or(largest as usize + 1);
                Ok(Vocabulary::integers(integers, if with_end { &[END] } else { &[] }))
            }
            Encoder::Symbols { ids: names } => {
                let mut sorted: Vec<(String, u32)> = names.into_iter().collect();
                sorted.sort_unstable();
                let mut places = vec![0; sorted.len()];
                for ((_, id), place) in sorted.iter().zip(0..) {
                    places[*id as usize] = place;
                }
                ids.replace(|id| places[id as usize]);
                let mut symbols: Vec<String> = sorted.into_iter().map(|(symbol, _)| symbol).collect();
                // A table may end its lines itself.
                let mut end = symbols.iter().position(|symbol| symbol == END);
                if with_end && end.is_none() {
                    end = Some(symbols.len());
                    symbols.push(END.to_string());
                }
                Vocabulary::symbols(symbols, end.map(|end| end as u32))
            }
            Encoder::Given(vocabulary) => Ok(vocabulary.clone()),
        }
    }
}

fn integer(value: &str, vocab: usize, is_asked_for: bool) -> Result<u32, String> {
    let last = vocab - 1;
    let shown = excerpt(value);
    match value.parse::<i128>() {
        Ok(integer @ 0..) if integer <= last as i128 => Ok(integer as u32),
        Ok(integer) if integer < 0 || !is_asked_for => Err(format!(
            "`{shown}` is outside the vocabulary: ids run from 0 to {last}; \
             set `data.values` = \"symbols\" to number the integers that there are"
        )),
        Ok(_) => Err(format!(
            "`{shown}` is outside the vocabulary: ids run from 0 to {last}; \
             raise `data.vocab` = {vocab}, or set it to \"auto\""
        )),
        Err(_) => Err(format!(
            "`{shown}` is no integer; mend it, or set `data.values` = \"symbols\" to read each value as a name"
        )),
    }
}
