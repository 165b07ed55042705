//! The ids of table values: integers are their own ids, and symbols are numbered.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::data::config::{Count, DataConfig, MAX_SIZE, Values};
use crate::data::excerpt::excerpt;
use crate::data::ids::Ids;
use crate::data::vocabulary::{END, Vocabulary};
use crate::error::Result;
use crate::numbers::{counted, thousands};

/// Encodes values as ids, and collects the vocabulary.
#[derive(Debug)]
pub(super) enum Encoder<'a> {
    /// Each integer is its own id, below `vocab` if that is set.
    Integers { vocab: Count, largest: u32 },
    /// Ids in the order in which the integers first occur, until the number of different ones is known.
    AutoIntegers(HashMap<u64, u32>),
    /// Ids in the order in which the symbols first occur.
    Symbols(HashMap<String, u32>),
    /// The existing vocabulary of a run.
    Given(&'a Vocabulary),
}

impl<'a> Encoder<'a> {
    /// Creates an encoder with the given vocabulary, or according to `data.values` or else the first value.
    pub fn new(config: &DataConfig, given: Option<&'a Vocabulary>, first: &str) -> Self {
        // Infinities and NaN are treated as words here.
        let is_number = || first.parse().is_ok_and(f64::is_finite);
        match (given, config.values) {
            (Some(vocabulary), _) if !vocabulary.is_bins() => Encoder::Given(vocabulary),
            // Numbers are read as texts until their format is known.
            (Some(_), _) => Encoder::Symbols(HashMap::new()),
            (None, _) if config.bins > 0 => Encoder::Symbols(HashMap::new()),
            (None, Values::Auto) if !is_number() => Encoder::Symbols(HashMap::new()),
            (None, Values::Symbols) => Encoder::Symbols(HashMap::new()),
            (None, Values::Auto) if config.vocab == Count::Auto => Encoder::AutoIntegers(HashMap::new()),
            (None, Values::Auto | Values::Integers) => Encoder::Integers { vocab: config.vocab, largest: 0 },
        }
    }

    /// Returns the id of a value, or an error message without the location.
    pub fn id(&mut self, value: &str) -> Result<u32, String> {
        match self {
            Encoder::Integers { vocab, largest } => {
                let id = integer(value, *vocab)?;
                *largest = id.max(*largest);
                Ok(id)
            }
            Encoder::AutoIntegers(ids) => {
                let integer = value.parse().ok().filter(|integer| i64::try_from(*integer).is_ok());
                let integer: u64 = integer.ok_or_else(|| not_an_integer(value))?;
                let next = ids.len();
                match ids.entry(integer) {
                    Entry::Occupied(entry) => Ok(*entry.get()),
                    Entry::Vacant(_) if next >= MAX_SIZE => {
                        Err(format!("the table has more than {MAX_SIZE} different integers; merge rare ones"))
                    }
                    Entry::Vacant(entry) => Ok(*entry.insert(next as u32)),
                }
            }
            Encoder::Symbols(ids) => match (ids.get(value), ids.len()) {
                (Some(&id), _) => Ok(id),
                (None, MAX_SIZE) => {
                    Err(format!("the table has more than {MAX_SIZE} symbols; merge rare ones"))
                }
                (None, id) => Ok(*ids.entry(value.to_string()).or_insert(id as u32)),
            },
            Encoder::Given(vocabulary) => vocabulary.word(value).ok_or_else(|| {
                let value = excerpt(value);
                format!("`{value}` is not in the vocabulary of {vocabulary}; replace or remove it")
            }),
        }
    }

    /// Returns the current id of the end token, if there is one.
    pub fn end(&self) -> Option<u32> {
        match self {
            Encoder::Integers { .. } | Encoder::AutoIntegers(_) => None,
            Encoder::Symbols(ids) => ids.get(END).copied(),
            Encoder::Given(vocabulary) => vocabulary.end(),
        }
    }

    /// Returns the vocabulary of all values, with symbols in ascending order, and renumbers `ids` accordingly.
    /// `with_end` adds an end token. Integers with large gaps become symbols, with a notice in `guesses`.
    pub fn finish(self, ids: &mut Ids, with_end: bool, guesses: &mut Vec<String>) -> Result<Vocabulary> {
        match self {
            Encoder::AutoIntegers(numbers) => {
                let largest = numbers.keys().copied().max().unwrap_or(0);
                let range = largest.saturating_add(1);
                if range > (MAX_GAPS * numbers.len()) as u64 || range > MAX_SIZE as u64 {
                    let remedy = match range > MAX_SIZE as u64 {
                        true => "",
                        false => "; set `data.values` = \"integers\" to keep the gaps between them",
                    };
                    // Floats above 2^53 are rounded.
                    let shown =
                        if largest < 1 << 53 { thousands(largest as f64) } else { largest.to_string() };
                    guesses.push(format!(
                        "the {} reach up to {shown}, so each one that occurs is a symbol{remedy}",
                        counted(numbers.len(), "different integer")
                    ));
                    return in_order(numbers, ids, with_end);
                }
                let mut integers = vec![0; numbers.len()];
                numbers.iter().for_each(|(&integer, &id)| integers[id as usize] = integer as u32);
                *ids = ids.mapped(|id| integers[id as usize]);
                Ok(Vocabulary::integers(range as usize, if with_end { &[END] } else { &[] }))
            }
            Encoder::Integers { vocab, largest } => {
                let integers = vocab.or(largest as usize + 1);
                Ok(Vocabulary::integers(integers, if with_end { &[END] } else { &[] }))
            }
            Encoder::Symbols(names) => {
                let mut sorted: Vec<(String, u32)> = names.into_iter().collect();
                sorted.sort_unstable();
                let mut new_ids = vec![0; sorted.len()];
                for ((_, id), new) in sorted.iter().zip(0..) {
                    new_ids[*id as usize] = new;
                }
                ids.replace(|id| new_ids[id as usize]);
                let mut symbols: Vec<String> = sorted.into_iter().map(|(symbol, _)| symbol).collect();
                // A table may contain end tokens itself.
                let end = symbols.iter().position(|symbol| symbol == END);
                let end = end.or(with_end.then_some(symbols.len()));
                symbols.resize(symbols.len().max(end.map_or(0, |end| end + 1)), END.to_string());
                Vocabulary::symbols(symbols, end.map(|end| end as u32))
            }
            Encoder::Given(vocabulary) => Ok(vocabulary.clone()),
        }
    }
}

/// The maximum ratio of the range of integers to the number of different ones.
const MAX_GAPS: usize = 4;

/// Returns the vocabulary of integers as symbols in ascending order, and renumbers `ids` accordingly.
fn in_order(numbers: HashMap<u64, u32>, ids: &mut Ids, with_end: bool) -> Result<Vocabulary> {
    let mut sorted: Vec<(u64, u32)> = numbers.into_iter().collect();
    sorted.sort_unstable();
    let mut new_ids = vec![0; sorted.len()];
    sorted.iter().zip(0..).for_each(|((_, id), new)| new_ids[*id as usize] = new);
    ids.replace(|id| new_ids[id as usize]);
    let mut symbols: Vec<String> = sorted.into_iter().map(|(integer, _)| integer.to_string()).collect();
    let end = with_end.then_some(symbols.len() as u32);
    symbols.extend(with_end.then(|| END.to_string()));
    Vocabulary::symbols(symbols, end)
}

fn not_an_integer(value: &str) -> String {
    let excerpt = excerpt(value);
    let names = "set `data.values` = \"symbols\" to number only the integers that occur";
    let remedy = match (value.parse::<i128>(), value.parse::<f64>()) {
        (Ok(0), _) => return format!("`{excerpt}` is a negative zero; write it without its sign"),
        (Ok(0..), _) => return format!("`{excerpt}` is too large; {names}"),
        (Ok(_), _) => return format!("`{excerpt}` is negative; {names}"),
        (Err(_), Ok(number)) if number.is_finite() => {
            "set `data.bins` = 32 to read numbers in 32 bins (and `data.column`, if other columns hold names), or \
             `data.values` = \"symbols\" to read each one as a name"
        }
        (Err(_), _) => "fix it, or set `data.values` = \"symbols\" to read each value as a name",
    };
    format!("`{excerpt}` is not an integer; {remedy}")
}

/// Parses an integer below `vocab`.
fn integer(value: &str, vocab: Count) -> Result<u32, String> {
    let (excerpt, last) = (excerpt(value), vocab.or(MAX_SIZE) - 1);
    let remedy = match (value.parse::<i128>(), vocab) {
        (Ok(integer), _) if (0..=last as i128).contains(&integer) => return Ok(integer as u32),
        (Ok(0..), Count::Of(vocab)) => format!("raise `data.vocab` = {vocab}, or set it to \"auto\""),
        (Ok(_), _) => "set `data.values` = \"symbols\" to number only the integers that occur".to_string(),
        (Err(_), _) => return Err(not_an_integer(value)),
    };
    Err(format!("`{excerpt}` is outside the vocabulary (ids 0 to {last}); {remedy}"))
}
