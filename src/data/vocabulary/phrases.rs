//! Symbols that contain spaces, in prompts made of words.
//!
//! A symbol can be written in double quotes, with the escapes of JSON: `"place order" pay`. Output uses this form for
//! symbols that contain spaces. Words without quotes are joined wherever they form a symbol; several possible readings
//! are an error. Among symbols that differ only in white space, the one written with the same white space is chosen.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use serde_json::Deserializer;

use super::Vocabulary;
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result};
use crate::terminal::{escape_json, is_terminal_control};

/// The phrases (symbols that contain spaces) of a vocabulary.
#[derive(Debug, Default)]
pub(super) struct Phrases {
    /// The distinct numbers of words of the phrases, in ascending order.
    lengths: Vec<usize>,
    /// The first words of the phrases.
    first_words: HashSet<String>,
    /// The ids of the phrases that consist of the same words, joined by single spaces.
    by_words: HashMap<String, Vec<u32>>,
}

impl Phrases {
    pub(super) fn of(symbols: &[String]) -> Self {
        let (mut lengths, mut phrases) = (BTreeSet::new(), Self::default());
        for (symbol, id) in symbols.iter().zip(0..) {
            if symbol.contains(char::is_whitespace) {
                let words: Vec<&str> = symbol.split_whitespace().collect();
                lengths.insert(words.len());
                phrases.first_words.extend(words.first().map(std::string::ToString::to_string));
                phrases.by_words.entry(words.join(" ")).or_default().push(id);
            }
        }
        Self { lengths: lengths.into_iter().collect(), ..phrases }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Writes a symbol for a prompt. The symbol is quoted if its characters would be misread, or if it could form
    /// another symbol together with the words after it.
    pub(super) fn written(&self, symbol: &str) -> String {
        let is_plain = !symbol.contains(|it: char| it.is_whitespace() || is_terminal_control(it))
            && !symbol.starts_with('"')
            && !self.first_words.contains(symbol);
        match is_plain {
            true => symbol.to_string(),
            false => escape_json(serde_json::Value::from(symbol).to_string()),
        }
    }
}

/// A part of a prompt between spaces.
enum PhrasePart<'t> {
    /// A word and its position in bytes.
    Word(&'t str, usize),
    Quoted(String),
}

impl PhrasePart<'_> {
    fn text(&self) -> &str {
        match self {
            PhrasePart::Word(word, _) => word,
            PhrasePart::Quoted(symbol) => symbol,
        }
    }

    /// Returns a word without quotes, and its position.
    fn word(&self) -> Option<(&str, usize)> {
        match self {
            PhrasePart::Word(word, position) => Some((*word, *position)),
            PhrasePart::Quoted(_) => None,
        }
    }
}

/// The reading of successive words as one symbol, or of one word as one-character symbols.
enum Reading {
    /// The ids of the only reading.
    One(Vec<u32>),
    /// The ids of several phrases that differ only in white space.
    Ambiguous(Vec<u32>),
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
        if parts.is_empty() {
            return Ok(self.word(text).into_iter().collect());
        }
        let step = |from: usize, length: usize| self.reading(text, &parts, from..from + length, phrases);
        let lengths =
            || std::iter::once(1).chain(phrases.lengths.iter().copied().filter(|&length| length > 1));
        // For each part from which the rest of the prompt can be read: the largest number of parts that form a symbol
        // there, and true if a smaller number is also possible.
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
            let read = readings[from]
                .and_then(|(length, has_shorter)| Some((length, has_shorter, step(from, length)?)));
            match read {
                // The symbol may itself contain quotes.
                None => {
                    let id = self.word(text).ok_or_else(|| self.unknown_part(&parts, step, lengths))?;
                    return Ok(vec![id]);
                }
                Some((length, false, Reading::One(ids))) => {
                    encoded.extend(ids);
                    from += length;
                }
                Some((length, has_shorter, Reading::One(ids) | Reading::Ambiguous(ids))) => {
                    let words: Vec<&str> = parts[from..from + length].iter().map(PhrasePart::text).collect();
                    let problem = match has_shorter {
                        true => "is one symbol or the beginning of several",
                        false => "is one of several symbols that differ in white space",
                    };
                    return Err(Error::Input(format!(
                        "`{}` (word {}) {problem}; put each symbol in double quotes, as `{}`, or pass ids \
                         with --tokens",
                        excerpt(&words.join(" ")),
                        from + 1,
                        self.decode(&ids[..1])
                    )));
                }
            }
        }
        Ok(encoded)
    }

    /// Returns the reading of successive parts of a prompt as one symbol, if there is one. The symbol with the same
    /// white space takes precedence.
    fn reading(
        &self,
        text: &str,
        parts: &[PhrasePart<'_>],
        range: Range<usize>,
        phrases: &Phrases,
    ) -> Option<Reading> {
        let one = |id: u32| Reading::One(vec![id]);
        let words = match &parts[range.clone()] {
            [PhrasePart::Quoted(symbol)] => return self.word(symbol).map(one),
            parts => parts.iter().map(PhrasePart::word).collect::<Option<Vec<_>>>()?,
        };
        let (&(_, begin), &(last, end)) = words.first().zip(words.last())?;
        let written = &text[begin..end + last.len()];
        let whole = Some(text).filter(|_| range.len() == parts.len());
        if let Some(id) = whole.into_iter().chain([written]).find_map(|symbol| self.word(symbol)) {
            return Some(one(id));
        }
        if let (1, Some(ids)) = (range.len(), self.ids_of_word(written)) {
            return Some(Reading::One(ids));
        }
        let words = words.iter().map(|&(word, _)| word).collect::<Vec<_>>().join(" ");
        match phrases.by_words.get(&words)?.as_slice() {
            &[id] => Some(one(id)),
            ids => Some(Reading::Ambiguous(ids.to_vec())),
        }
    }

    /// Splits a prompt into parts. A word with quotes may itself be a symbol, or each of its characters may be one.
    fn parts<'t>(&self, text: &'t str) -> Vec<PhrasePart<'t>> {
        let mut parts = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
            let quoted = if word.starts_with('"') { quoted(rest) } else { None };
            let is_quotation = |symbol: &str| self.word(symbol).is_some() || self.ids_of_word(word).is_none();
            let (part, after) = match quoted.filter(|(symbol, _)| is_quotation(symbol)) {
                Some((symbol, after)) => (PhrasePart::Quoted(symbol), after),
                None => (PhrasePart::Word(word, text.len() - rest.len()), after),
            };
            parts.push(part);
            rest = after.trim_start();
        }
        parts
    }

    /// Returns the error for a prompt that cannot be read. It names the part after the longest readable beginning.
    fn unknown_part<L: Iterator<Item = usize>>(
        &self,
        parts: &[PhrasePart<'_>],
        step: impl Fn(usize, usize) -> Option<Reading>,
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
    fn invisible_characters_are_written_as_json_escapes() {
        let symbols = vocabulary(&["a\u{200e}", "b\u{9b} c", "\u{2028}", "\u{7f}", "x\u{200d}y"]);
        let all = [0, 1, 2, 3, 4];
        let text = symbols.decode(&all);
        assert_eq!(text, "\"a\\u200e\" \"b\\u009b c\" \"\\u2028\" \"\\u007f\" x\u{200d}y");
        assert_eq!(symbols.encode(&text).unwrap(), all);
    }

    #[test]
    fn adjacent_words_encode_as_multiword_symbols() {
        let orders = vocabulary(&["place order", "place", "pay", "order now"]);
        assert_eq!(orders.encode("pay  place\torder pay").unwrap(), [2, 0, 2]);
        assert_eq!(orders.encode("place order now").unwrap(), [1, 3]);
        let message = orders.encode("pay pluck order").unwrap_err().to_string();
        assert!(
            message.starts_with("`pluck` (word 2) is not in the vocabulary of 4 symbols; put symbols with"),
            "{message}"
        );
        assert!(message.contains("as `\"place order\"`") && message.contains("--tokens"), "{message}");
    }

    #[test]
    fn symbols_that_differ_in_white_space_stay_distinct() {
        let symbols = vocabulary(&["a b", "a  b", "a\u{a0}b", "c", " c"]);
        for (id, text) in [(0, "a b"), (1, "a  b"), (2, "a\u{a0}b"), (3, "c"), (4, " c")] {
            assert_eq!(symbols.encode(text).unwrap(), [id], "{text:?}");
            assert_eq!(symbols.encode(&format!("{text:?}").replace("\\u{a0}", "\u{a0}")).unwrap(), [id]);
            assert_eq!(symbols.encode(&symbols.decode(&[3, id, 3])).unwrap(), [3, id, 3]);
        }
        assert_eq!(symbols.encode("c a  b  a b\n").unwrap(), [3, 1, 0]);
        let message = symbols.encode("c a\tb").unwrap_err().to_string();
        let expected = "`a b` (word 2) is one of several symbols that differ in white space; put each symbol \
                        in double quotes, as `\"a b\"`, or pass ids with --tokens";
        assert_eq!(message, expected);
        let other = vocabulary(&["say \"a\"", "x\ty"]);
        assert_eq!(other.encode("say \"a\"").unwrap(), [0]);
        assert_eq!(other.encode("x y x\ty").unwrap(), [1, 1]);
    }

    #[test]
    fn words_with_two_readings_are_refused_until_quoted() {
        let places = vocabulary(&["new", "york", "new york"]);
        let message = places.encode("york new york").unwrap_err().to_string();
        let expected =
            "`new york` (word 2) is one symbol or the beginning of several; put each symbol in double quotes";
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(places.encode(r#""new york" "new" "york""#).unwrap(), [2, 0, 1]);
        assert_eq!(places.decode(&[2, 0, 1]), r#""new york" "new" york"#);
        assert_eq!(places.encode(&places.decode(&[2, 0, 1])).unwrap(), [2, 0, 1]);
        let marks = vocabulary(&["\"", "a", "b", "a b"]);
        assert_eq!(marks.encode("\"ab\"").unwrap(), [0, 1, 2, 0], "one-character symbols need no spaces");
    }
}
