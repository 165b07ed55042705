//! Symbols that contain spaces, in prompts made of words.
//!
//! A symbol can be written in double quotes, with the escapes of JSON: `"place order" pay`. Output uses this form for
//! symbols that contain spaces. Words without quotes are joined wherever they form a symbol; several possible readings
//! are an error.

use std::collections::{BTreeSet, HashSet};

use serde_json::Deserializer;

use super::Vocabulary;
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result};

/// The phrases (symbols that contain spaces) of a vocabulary.
#[derive(Debug, Default)]
pub(super) struct Phrases {
    /// The distinct numbers of words of the phrases, in ascending order.
    lengths: Vec<usize>,
    /// The first words of the phrases.
    first_words: HashSet<String>,
}

impl Phrases {
    pub(super) fn of(symbols: &[String]) -> Self {
        let phrases = || symbols.iter().filter(|symbol| symbol.contains(char::is_whitespace));
        let lengths = phrases().map(|symbol| symbol.split_whitespace().count()).collect::<BTreeSet<_>>();
        Self {
            lengths: lengths.into_iter().collect(),
            first_words: phrases()
                .filter_map(|symbol| Some(symbol.split_whitespace().next()?.to_string()))
                .collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Writes a symbol for a prompt. It is quoted if its characters would be misread, or if the words after it could
    /// form another symbol with it.
    pub(super) fn written(&self, symbol: &str) -> String {
        let is_plain = !symbol.contains(|it: char| it.is_whitespace() || it.is_control())
            && !symbol.starts_with('"')
            && !self.first_words.contains(symbol);
        if is_plain { symbol.to_string() } else { serde_json::Value::from(symbol).to_string() }
    }
}

/// A part of a prompt between spaces.
enum Part<'t> {
    Word(&'t str),
    Quoted(String),
}

impl Part<'_> {
    fn text(&self) -> &str {
        match self {
            Part::Word(word) => word,
            Part::Quoted(symbol) => symbol,
        }
    }
}

/// Returns the quoted symbol at the beginning of a text, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut strings = Deserializer::from_str(text).into_iter::<String>();
    let symbol = strings.next()?.ok()?;
    let rest = &text[strings.byte_offset()..];
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then_some((symbol, rest))
}

impl Vocabulary {
    /// Encodes a prompt whose symbols may contain spaces.
    pub(super) fn encode_phrases(&self, text: &str, phrases: &Phrases) -> Result<Vec<u32>> {
        let parts = self.parts(text);
        let joined = |from: usize, length: usize| {
            let words = parts.get(from..from + length)?.iter().map(|part| match part {
                Part::Word(word) => Some(*word),
                Part::Quoted(_) => None,
            });
            Some(words.collect::<Option<Vec<_>>>()?.join(" "))
        };
        let step = |from: usize, length: usize| match (&parts[from], length) {
            (Part::Quoted(symbol), 1) => self.word(symbol).map(|id| vec![id]),
            (Part::Word(word), 1) => self.ids_of_word(word),
            _ => self.word(&joined(from, length)?).map(|id| vec![id]),
        };
        let lengths =
            || std::iter::once(1).chain(phrases.lengths.iter().copied().filter(|&length| length > 1));
        // For each part from which the rest can be read: the largest number of words of a symbol there, and true if a
        // smaller number is also possible.
        let mut readings: Vec<Option<(usize, bool)>> = vec![None; parts.len()];
        readings.push(Some((0, false)));
        for from in (0..parts.len()).rev() {
            let fitting = lengths().filter(|length| from + length <= parts.len());
            for length in fitting.filter(|&length| step(from, length).is_some()) {
                if readings[from + length].is_some() {
                    readings[from] = Some((length, readings[from].is_some()));
                }
            }
        }
        let mut encoded = Vec::new();
        let mut from = 0;
        while from < parts.len() {
            let Some((length, is_ambiguous)) = readings[from] else {
                return Err(self.unknown_part(&parts, step, lengths));
            };
            if is_ambiguous {
                let phrase = joined(from, length).unwrap_or_default();
                return Err(Error::Input(format!(
                    "`{}` (word {}) is one symbol or the beginning of several; put each symbol in double \
                     quotes, as `{}`, or pass ids with --tokens",
                    excerpt(&phrase),
                    from + 1,
                    phrases.written(&phrase)
                )));
            }
            encoded.extend(step(from, length).unwrap_or_default());
            from += length;
        }
        Ok(encoded)
    }

    /// Splits a prompt into parts. A word with quotes may itself be a symbol, or each of its characters may be one.
    fn parts<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
            let quoted = if word.starts_with('"') { quoted(rest) } else { None };
            let is_meant = |symbol: &str| self.word(symbol).is_some() || self.ids_of_word(word).is_none();
            let (part, after) = match quoted.filter(|(symbol, _)| is_meant(symbol)) {
                Some((symbol, after)) => (Part::Quoted(symbol), after),
                None => (Part::Word(word), after),
            };
            parts.push(part);
            rest = after.trim_start();
        }
        parts
    }

    /// Returns the error for a prompt that cannot be read, which names the first part that no symbol covers.
    fn unknown_part<L: Iterator<Item = usize>>(
        &self,
        parts: &[Part<'_>],
        step: impl Fn(usize, usize) -> Option<Vec<u32>>,
        lengths: impl Fn() -> L,
    ) -> Error {
        let mut is_reached = vec![false; parts.len() + 1];
        is_reached[0] = true;
        let mut last = 0;
        for from in 0..parts.len() {
            if is_reached[from] {
                last = from;
                let fitting = lengths().filter(|length| from + length <= parts.len());
                fitting
                    .filter(|&length| step(from, length).is_some())
                    .for_each(|length| is_reached[from + length] = true);
            }
        }
        let unknown = self.not_in(parts[last].text(), "word", last + 1);
        let mut symbols = (0..self.size() as u32).map(|id| self.decode(&[id]));
        let phrase = symbols.find(|symbol| symbol.starts_with('"') && symbol.contains(' '));
        match phrase {
            Some(phrase) => Error::Input(format!(
                "{unknown}; put symbols with spaces in double quotes, as `{phrase}`, or pass ids with \
                 --tokens"
            )),
            None => unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(symbols: &[&str]) -> Vocabulary {
        Vocabulary::symbols(symbols.iter().map(|symbol| symbol.to_string()).collect(), None).unwrap()
    }

    #[test]
    fn symbols_with_spaces_are_read_back_as_written() {
        let orders =
            vocabulary(&["place order", "pay", "\n", "say \"a\"", "\"", "two  spaces", "\"x\"", "x"]);
        let all = [0, 1, 2, 3, 4, 5, 6, 7, 0];
        let text = orders.decode(&all);
        assert_eq!(text, r#""place order" pay "\n" "say \"a\"" "\"" "two  spaces" "\"x\"" x "place order""#);
        assert_eq!(orders.encode(&text).unwrap(), all);
        assert_eq!(orders.token(2), "\\n");
        assert_eq!(orders.encode("").unwrap(), [0; 0]);
    }

    #[test]
    fn adjacent_words_encode_as_multiword_symbols() {
        let orders = vocabulary(&["place order", "place", "pay", "order now"]);
        assert_eq!(orders.encode("pay  place\torder pay").unwrap(), [2, 0, 2]);
        assert_eq!(orders.encode("place order now").unwrap(), [1, 3]);
        let said = orders.encode("pay pluck order").unwrap_err().to_string();
        assert!(
            said.starts_with("`pluck` (word 2) is not in the vocabulary of 4 symbols; put symbols with"),
            "{said}"
        );
        assert!(said.contains("as `\"place order\"`") && said.contains("--tokens"), "{said}");
    }

    #[test]
    fn words_with_two_readings_are_refused_until_quoted() {
        let places = vocabulary(&["new", "york", "new york"]);
        let said = places.encode("york new york").unwrap_err().to_string();
        let expected =
            "`new york` (word 2) is one symbol or the beginning of several; put each symbol in double quotes";
        assert!(said.starts_with(expected), "{said}");
        assert_eq!(places.encode(r#""new york" "new" "york""#).unwrap(), [2, 0, 1]);
        assert_eq!(places.decode(&[2, 0, 1]), r#""new york" "new" york"#);
        assert_eq!(places.encode(&places.decode(&[2, 0, 1])).unwrap(), [2, 0, 1]);
        let marks = vocabulary(&["\"", "a", "b", "a b"]);
        assert_eq!(marks.encode("\"ab\"").unwrap(), [0, 1, 2, 0], "characters of a word need no spaces");
    }
}
