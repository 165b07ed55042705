//! Encoding and decoding of text, and the labels of tokens in pictures.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::number_format::unpadded;
use super::{Kind, Vocabulary};
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result, panic_message};
use crate::numbers::part_of;

impl Vocabulary {
    /// Encodes a text into its characters or tokens, or into its words if ids represent integers or symbols. Words that
    /// consist only of one-character symbols need no spaces: `12+34=`.
    ///
    /// # Errors
    /// Returns an error that names the first unknown part and its position.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.check_characters(text)?;
        let mut encoded = self.encode_all(&[text])?;
        Ok(encoded.swap_remove(0))
    }

    /// Returns an error for the first character of a text that is not in the vocabulary.
    pub(super) fn check_characters(&self, text: &str) -> Result<()> {
        let Some((byte, character)) = self.unknown(text) else { return Ok(()) };
        let position = text[..byte].chars().count();
        Err(self.not_in(&character.to_string(), "character", position + 1))
    }

    /// Encodes a complete text: like [`encode`](Self::encode), with the tokens that a tokenizer adds before and after
    /// it.
    ///
    /// # Errors
    /// Returns the errors of [`encode`](Self::encode).
    pub fn encode_whole(&self, text: &str) -> Result<Vec<u32>> {
        let [before, after] = self.added_tokens();
        Ok([before, &self.encode(text)?, after].concat())
    }

    /// Returns the tokens that are added before and after a complete text: by a tokenizer, or the end token of the
    /// previous text.
    pub fn added_tokens(&self) -> [&[u32]; 2] {
        match &*self.0 {
            Kind::Tokenizer(tokenizer) => tokenizer.added_tokens.each_ref().map(Vec::as_slice),
            Kind::Characters { end, .. } => [end.as_slice(), &[]],
            Kind::Integers { .. } | Kind::Symbols { .. } | Kind::Bins(_) => [&[], &[]],
        }
    }

    /// Returns true for a special token of a tokenizer or between texts, which is not part of a text.
    pub fn is_special(&self, id: u32) -> bool {
        match &*self.0 {
            Kind::Tokenizer(tokenizer) => tokenizer.is_special(id),
            Kind::Characters { characters, .. } => id as usize >= characters.len(),
            Kind::Integers { .. } | Kind::Symbols { .. } | Kind::Bins(_) => false,
        }
    }

    /// Encodes each text; a tokenizer encodes them in parallel. Drops [unknown](Self::unknown) characters without an
    /// error.
    ///
    /// # Errors
    /// Returns the errors of [`encode`](Self::encode).
    pub(crate) fn encode_all<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Vec<u32>>> {
        let texts = texts.iter().map(AsRef::as_ref);
        match &*self.0 {
            Kind::Integers { .. } | Kind::Symbols { .. } | Kind::Bins(_) => {
                texts.map(|text| self.encode_words(text)).collect()
            }
            Kind::Characters { ids, .. } => {
                let id = |character| ids.get(character as usize).copied().flatten();
                Ok(texts.map(|text: &str| text.chars().filter_map(id).collect()).collect())
            }
            Kind::Tokenizer(tokenizer) => {
                let texts = texts.collect::<Vec<_>>();
                let encode = || tokenizer.tokenizer.encode_batch_fast(texts.clone(), false);
                // The library panics if the parts of a tokenizer are inconsistent.
                let encoded = match catch_unwind(AssertUnwindSafe(encode)) {
                    Ok(encoded) => encoded.map_err(|error| error.to_string()),
                    Err(panic) => Err(panic_message(panic.as_ref()).to_string()),
                };
                let encoded = encoded.map_err(|problem| match tokenizer.word_without_token(&texts) {
                    Some(word) => Error::Input(format!(
                        "the tokenizer has no token for `{}`, and its unknown token is not in its \
                         vocabulary; use a tokenizer with an unknown token",
                        excerpt(word)
                    )),
                    None => Error::Input(format!(
                        "the tokenizer cannot encode the text: {}; save the tokenizer again",
                        excerpt(&problem)
                    )),
                })?;
                Ok(encoded.iter().map(|encoding| encoding.get_ids().to_vec()).collect())
            }
        }
    }

    /// Returns the last position at which a text can be cut so that both parts together have the ids of the entire
    /// text. The second part must be encoded as [`continued`](Self::continued).
    pub(crate) fn last_cut(&self, text: &str) -> Option<usize> {
        match &*self.0 {
            Kind::Tokenizer(tokenizer) => tokenizer.cuts.as_ref()?.last_in(text),
            _ => Some(text.len()),
        }
    }

    /// Returns the text after a [cut](Self::last_cut), without its leading space if the tokenizer prepends one itself.
    pub(crate) fn continued<'a>(&self, text: &'a str) -> &'a str {
        match &*self.0 {
            Kind::Tokenizer(tokenizer) if tokenizer.cuts.as_ref().is_some_and(|cuts| cuts.drops_space) => {
                text.strip_prefix(' ').unwrap_or(text)
            }
            _ => text,
        }
    }

    /// Returns the byte offset and the value of the first character that is not in the vocabulary. `None` if ids
    /// represent words, which are checked one by one.
    pub(crate) fn unknown(&self, text: &str) -> Option<(usize, char)> {
        match &*self.0 {
            Kind::Integers { .. } | Kind::Symbols { .. } | Kind::Bins(_) => None,
            Kind::Characters { ids, .. } => text
                .char_indices()
                .find(|&(_, character)| ids.get(character as usize).is_none_or(Option::is_none)),
            Kind::Tokenizer(tokenizer) => tokenizer.dropped(text),
        }
    }

    /// Returns the unknown token of a tokenizer.
    pub(crate) fn unknown_token(&self) -> Option<u32> {
        match &*self.0 {
            Kind::Tokenizer(tokenizer) => tokenizer.unknown_token(),
            _ => None,
        }
    }

    /// Returns a warning if many of the ids are the unknown token.
    pub(crate) fn warn_of_unknown(&self, ids: impl Iterator<Item = u32>) -> Option<String> {
        /// The percentage of unknown tokens above which the tokenizer probably does not suit the text.
        const MAX_PERCENT: usize = 1;
        let unknown = self.unknown_token()?;
        let (mut all, mut count) = (0usize, 0usize);
        ids.for_each(|id| (all, count) = (all + 1, count + usize::from(id == unknown)));
        (100 * count > MAX_PERCENT * all).then(|| {
            format!(
                "{} {} `{}`, because the tokenizer lacks tokens for parts of the text, whose content is \
                 lost; use a tokenizer for its language",
                part_of(count, all, "token"),
                if count == 1 { "is" } else { "are" },
                self.token(unknown)
            )
        })
    }

    /// Returns the id of an integer, a symbol or a number.
    pub fn word(&self, word: &str) -> Option<u32> {
        match &*self.0 {
            Kind::Integers { integers, special, .. } => match special.iter().position(|name| name == word) {
                Some(index) => Some((integers + index) as u32),
                None => word.parse().ok().filter(|&id: &u32| (id as usize) < *integers),
            },
            Kind::Symbols { ids, end, .. } => ids.get(word).copied().or_else(|| unpadded(ids, *end, word)),
            Kind::Bins(bins) => bins.word(word),
            Kind::Characters { .. } | Kind::Tokenizer(_) => None,
        }
    }

    fn encode_words(&self, text: &str) -> Result<Vec<u32>> {
        if let Kind::Symbols { phrases, .. } = &*self.0
            && (!phrases.is_empty() || text.contains('"'))
        {
            return self.encode_phrases(text, phrases);
        }
        let mut encoded = Vec::new();
        for (word, position) in text.split_whitespace().zip(1..) {
            let ids = self.ids_of_word(word).ok_or_else(|| self.not_in(word, "token", position))?;
            encoded.extend(ids);
        }
        Ok(encoded)
    }

    /// Returns the id of a word, or the ids of its characters if each is a symbol.
    pub(super) fn ids_of_word(&self, word: &str) -> Option<Vec<u32>> {
        let symbol = |character: char| self.word(character.encode_utf8(&mut [0; 4]));
        match self.word(word) {
            None if self.is_integers() || self.is_bins() => None,
            None => word.chars().map(symbol).collect(),
            Some(id) => Some(vec![id]),
        }
    }

    pub(super) fn not_in(&self, part: &str, unit: &str, position: usize) -> Error {
        let part = excerpt(part);
        Error::Input(format!("`{part}` ({unit} {position}) is not in the vocabulary of {self}"))
    }

    /// Checks that ids given as numbers are in the vocabulary.
    ///
    /// # Errors
    /// Returns an error that names the first id outside the vocabulary, and its position.
    pub fn check(&self, ids: &[u32]) -> Result<()> {
        match ids.iter().position(|&id| id as usize >= self.size()) {
            None => Ok(()),
            Some(at) => Err(Error::Input(format!(
                "`{}` (token {}) is outside the vocabulary (ids 0 to {})",
                ids[at],
                at + 1,
                self.size().saturating_sub(1)
            ))),
        }
    }

    /// Decodes ids into the notation that [`encode`](Self::encode) reads. An id outside the vocabulary becomes
    /// `\u{fffd}`.
    pub fn decode(&self, ids: &[u32]) -> String {
        match &*self.0 {
            Kind::Integers { .. } => {
                let words: Vec<String> = ids.iter().map(|&id| self.token(id)).collect();
                words.join(" ")
            }
            Kind::Bins(bins) => ids.iter().map(|&id| bins.written(id)).collect::<Vec<_>>().join(" "),
            Kind::Symbols { symbols, phrases, .. } => {
                let word = |&id: &u32| match symbols.get(id as usize) {
                    Some(symbol) => phrases.written(symbol),
                    None => char::REPLACEMENT_CHARACTER.to_string(),
                };
                ids.iter().map(word).collect::<Vec<_>>().join(" ")
            }
            Kind::Characters { characters, special, .. } => {
                let mut text = String::new();
                for &id in ids {
                    let named = || special.get((id as usize).checked_sub(characters.len())?);
                    match (characters.get(id as usize), named()) {
                        (Some(&character), _) => text.push(character),
                        (None, Some(name)) => text.push_str(name),
                        (None, None) => text.push(char::REPLACEMENT_CHARACTER),
                    }
                }
                text
            }
            Kind::Tokenizer(tokenizer) => {
                let decode = || tokenizer.tokenizer.decode(ids, false);
                let decoded = catch_unwind(AssertUnwindSafe(decode)).ok().and_then(std::result::Result::ok);
                // If the decoder fails, fall back to the names of the tokens.
                let name = |&id: &u32| tokenizer.tokenizer.id_to_token(id);
                decoded.unwrap_or_else(|| ids.iter().filter_map(name).collect())
            }
        }
    }

    /// Returns the text of a token as it occurs within a text. Decoded alone, a token may lose its leading space.
    pub fn piece(&self, id: u32) -> String {
        let text = self.decode(&[id]);
        let starts_word = match &*self.0 {
            Kind::Tokenizer(tokenizer) => {
                tokenizer.tokenizer.id_to_token(id).is_some_and(|name| name.starts_with('▁'))
            }
            _ => false,
        };
        if starts_word && !text.starts_with(' ') { format!(" {text}") } else { text }
    }

    /// Returns a label for an id with only visible characters: a space is written as `␣`, a line break as `\n`, and an
    /// incomplete character as its bytes, such as `\xe2`.
    pub fn token(&self, id: u32) -> String {
        let replacement = || char::REPLACEMENT_CHARACTER.to_string();
        match &*self.0 {
            Kind::Integers { integers, special, .. } => match (id as usize).checked_sub(*integers) {
                None => id.to_string(),
                Some(index) => special.get(index).cloned().unwrap_or_else(replacement),
            },
            Kind::Symbols { symbols, .. } => match symbols.get(id as usize) {
                // The spaces between the words of a phrase are kept.
                Some(symbol) => symbol.split(' ').map(visible).collect::<Vec<_>>().join(" "),
                None => replacement(),
            },
            Kind::Bins(bins) => bins.label(id),
            Kind::Characters { .. } => visible(&self.decode(&[id])),
            Kind::Tokenizer(tokenizer) => match self.piece(id) {
                // An incomplete character is written as its bytes, and a token that decodes to nothing as its name.
                text if text.is_empty() || text.contains(char::REPLACEMENT_CHARACTER) => {
                    let name = tokenizer.tokenizer.id_to_token(id).unwrap_or_else(replacement);
                    tokenizer.bytes(&name).map_or(name, |bytes| visible_bytes(&bytes))
                }
                text => visible(&text),
            },
        }
    }
}

/// Replaces each space and control character by a visible form.
fn visible(text: &str) -> String {
    let label = |character: char| match character {
        ' ' => "␣".to_string(),
        other if other.is_control() || is_invisible(other) => other.escape_default().to_string(),
        other => other.to_string(),
    };
    text.chars().map(label).collect()
}

/// Returns true for an invisible format character, and for a white-space character other than the plain space.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{a0}' | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
            | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
    )
}

/// Converts bytes to a visible form; each byte of invalid UTF-8 is written as in `\xe2`.
fn visible_bytes(bytes: &[u8]) -> String {
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    bytes.utf8_chunks().map(|chunk| visible(chunk.valid()) + &hexadecimal(chunk.invalid())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(symbols: &[&str], end: Option<u32>) -> Result<Vocabulary> {
        Vocabulary::symbols(symbols.iter().map(|symbol| symbol.to_string()).collect(), end)
    }

    #[test]
    fn unknown_parts_are_named_with_their_position() {
        let unknown = |vocabulary: Vocabulary, text| vocabulary.encode(text).unwrap_err().to_string();
        assert_eq!(
            unknown(Vocabulary::integers(5, &["|"]), "3 | 5"),
            "`5` (token 3) is not in the vocabulary of 5 integers and `|`"
        );
        assert_eq!(
            unknown(Vocabulary::characters("ab".chars()).unwrap(), "abßa"),
            "`ß` (character 3) is not in the vocabulary of 2 characters"
        );
        assert_eq!(
            unknown(symbols(&["1", "+"], None).unwrap(), "1 + 1x"),
            "`1x` (token 3) is not in the vocabulary of 2 symbols"
        );
        assert_eq!(
            Vocabulary::integers(5, &[]).check(&[4, 5]).unwrap_err().to_string(),
            "`5` (token 2) is outside the vocabulary (ids 0 to 4)"
        );
    }

    #[test]
    fn words_of_one_character_symbols_need_no_spaces() {
        let vocabulary = symbols(&["1", "2", "+", "="], None).unwrap();
        assert_eq!(vocabulary.encode("12 +1=").unwrap(), [0, 1, 2, 0, 3]);
    }

    #[test]
    fn labels_contain_only_visible_characters() {
        let vocabulary = Vocabulary::characters("a \n\u{7}".chars()).unwrap();
        let labels: Vec<String> = (0..5).map(|id| vocabulary.token(id)).collect();
        assert_eq!(labels, ["\\u{7}", "\\n", "␣", "a", "\u{fffd}"]);
        let texts = Vocabulary::characters_with("ba".chars(), &["<sep>", "<end>"]).unwrap();
        assert_eq!(
            (texts.decode(&[0, 2, 1, 3]), texts.encode_whole("ab").unwrap()),
            ("a<sep>b<end>".into(), vec![3, 0, 1])
        );
        assert_eq!(
            (texts.size(), texts.end(), texts.is_special(2), texts.is_special(1)),
            (4, Some(3), true, false)
        );
        let stored = serde_json::to_string(&texts).unwrap();
        assert_eq!(serde_json::from_str::<Vocabulary>(&stored).unwrap(), texts);
    }

    #[test]
    fn labels_of_word_starts_include_the_space() {
        let json = r#"{"kind": "tokenizer", "tokenizer": {"version": "1.0", "truncation": null, "padding": null,
            "normalizer": null, "added_tokens": [], "post_processor": null,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true},
            "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true},
            "model": {"type": "WordLevel", "vocab": {"\u2581a": 0, "a": 1, "\u2581": 2}, "unk_token": "a"}}}"#;
        let vocabulary: Vocabulary = serde_json::from_str(json).unwrap();
        assert_eq!([0, 1, 2].map(|id| vocabulary.token(id)), ["␣a", "a", "␣"]);
        assert_eq!([0, 1, 2].map(|id| vocabulary.piece(id)), [" a", "a", " "]);
    }

    #[test]
    fn incomplete_characters_are_labelled_by_their_bytes() {
        // The GPT-2 names of the bytes e2 80, of the last byte of a dash, and of a space before e2.
        let json = r#"{"kind": "tokenizer", "tokenizer": {"version": "1.0", "truncation": null, "padding": null,
            "normalizer": null, "added_tokens": [], "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "vocab": {"\u00e2\u0122": 0, "\u0136": 1, "\u0120\u00e2": 2, "a": 3}, "merges": []}}}"#;
        let vocabulary: Vocabulary = serde_json::from_str(json).unwrap();
        let labels: Vec<String> = (0..4).map(|id| vocabulary.token(id)).collect();
        assert_eq!(labels, ["\\xe2\\x80", "\\x94", "␣\\xe2", "a"]);
        assert_eq!(vocabulary.decode(&[0, 1]), "—");
    }
}
