//! Positions at which a long text can be cut so that the pieces have the same ids as the entire text.
//!
//! A tokenizer normalizes a text, splits it into words and encodes each word separately. A cut between the end of a
//! word and white space does not change the ids if no part of the tokenizer processes both sides of the cut together.
//! This module knows common kinds of parts. A tokenizer with any other part encodes each text in one piece.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind};
use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

/// The maximum length of an added token, in bytes. A text is not cut if the tokenizer has a longer one.
const MAX_ADDED_LENGTH: usize = 1024;

/// The rules for cutting a text: always before white space that follows a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cuts {
    /// True if the word before the cut must end in a letter.
    needs_letter: bool,
    /// True if the white space must be a plain space.
    needs_plain_space: bool,
    /// True if the tokenizer prepends a space to each piece, so that the text's own space must be dropped.
    pub drops_space: bool,
    /// The added tokens, which are matched before any splitting.
    added: Vec<String>,
}

impl Cuts {
    /// Returns the rules for cutting a text, if they are known for the tokenizer. `json` is the content of its file.
    pub fn of(tokenizer: &Tokenizer, json: &Value) -> Option<Self> {
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder().values();
        let added: Vec<_> = added.map(|token| token.content.to_lowercase()).collect();
        if added.iter().any(|token| token.len() > MAX_ADDED_LENGTH) {
            return None;
        }
        let Normalized { space, prepended } = Normalized::of(parts(&json["normalizer"], "normalizers"))?;
        let cuts = Self { needs_letter: false, needs_plain_space: true, drops_space: false, added };
        let pre_tokenizers = parts(&json["pre_tokenizer"], "pretokenizers");
        if space == " " && prepended.is_none() && !pre_tokenizers.is_empty() {
            return cuts.split_by(&pre_tokenizers, tokenizer);
        }
        // The prepended text must equal the normalized form of a space.
        if prepended.as_ref().is_some_and(|prepended| *prepended != space) {
            return None;
        }
        // A split at spaces never matches if the normalizer replaces all spaces, as in Gemma.
        let never_matches =
            |part: &&Value| part["type"] == "Split" && part["pattern"]["String"] == " " && space != " ";
        let splits_nothing = pre_tokenizers.iter().all(never_matches);
        let drops_space = prepended.is_some();
        (splits_nothing && keeps_words_apart(tokenizer, &space)).then_some(Self { drops_space, ..cuts })
    }

    /// Adds the rules of the pre-tokenizers. The normalizer must keep spaces unchanged.
    fn split_by(self, parts: &[&Value], tokenizer: &Tokenizer) -> Option<Self> {
        let mut cuts = Self { needs_plain_space: false, ..self };
        let mut is_split = false;
        for part in parts {
            let flag = |key: &str| part[key].as_bool();
            match part["type"].as_str()? {
                "Whitespace" | "WhitespaceSplit" | "BertPreTokenizer" => is_split = true,
                "Digits" | "Punctuation" => {}
                "ByteLevel" => {
                    // The prefix space is also prepended to a piece that begins with other white space.
                    cuts.needs_plain_space |= flag("add_prefix_space")?;
                    is_split |= flag("use_regex").unwrap_or(true);
                }
                "CharDelimiterSplit" if part["delimiter"] == " " => {
                    (is_split, cuts.needs_plain_space) = (true, true);
                }
                "Metaspace" if parts.len() == 1 => {
                    cuts.needs_plain_space = true;
                    let mark = part["replacement"].as_str()?;
                    is_split = flag("split").unwrap_or(true) || keeps_words_apart(tokenizer, mark);
                }
                "Split" if flag("invert") == Some(false) => {
                    let pattern = part["pattern"]["Regex"].as_str()?;
                    if !keeps_words_separate(pattern)? {
                        return None;
                    }
                    cuts.needs_letter = true;
                    let is_apart = matches!(part["behavior"].as_str(), Some("Isolated" | "Removed"));
                    is_split |= is_apart && (pattern.ends_with("|\\s+") || pattern == "\\s+");
                }
                _ => return None,
            }
        }
        is_split.then_some(cuts)
    }

    /// Returns the last position within a text, except its beginning and end, at which it can be cut.
    pub fn last_in(&self, text: &str) -> Option<usize> {
        let mut after = None::<char>;
        for (start, character) in text.char_indices().rev() {
            let end = start + character.len_utf8();
            if after.is_some_and(|after| self.allows_cut(character, after))
                && self.has_no_added_token(text, end)
            {
                return Some(end);
            }
            after = Some(character);
        }
        None
    }

    /// Returns true if the rules allow a cut between two characters, apart from added tokens.
    fn allows_cut(&self, before: char, after: char) -> bool {
        let ends_word = if self.needs_letter {
            contains(&LETTERS, before)
        } else {
            !before.is_whitespace() && before != '▁'
        };
        // All parts of a tokenizer treat ASCII white space as white space.
        let is_space =
            if self.needs_plain_space { after == ' ' } else { matches!(after, ' ' | '\n' | '\r' | '\t') };
        ends_word && is_space
    }

    /// Returns true if a word follows the white space at a position, and no added token touches that white space. Added
    /// tokens may absorb the white space around them.
    fn has_no_added_token(&self, text: &str, at: usize) -> bool {
        let gap = text[at..].len() - text[at..].trim_start().len();
        let end = at + gap;
        if end == text.len() {
            return false;
        }
        let from = text.floor_char_boundary(at.saturating_sub(MAX_ADDED_LENGTH));
        let to = text.ceil_char_boundary((end + MAX_ADDED_LENGTH).min(text.len()));
        let [before, gap, after] = [&text[from..at], &text[at..end], &text[end..to]].map(str::to_lowercase);
        let (at, end) = (before.len(), before.len() + gap.len());
        let near = [before, gap, after].concat();
        let touches = |token: &String| {
            near.match_indices(token.as_str()).any(|(start, token)| start <= end && start + token.len() >= at)
        };
        !self.added.iter().any(touches)
    }
}

/// Flattens a part of a tokenizer's file into a list of parts; empty for null.
fn parts<'a>(part: &'a Value, sequence: &str) -> Vec<&'a Value> {
    match part {
        Value::Null => Vec::new(),
        part if part["type"] == "Sequence" => {
            part[sequence].as_array().into_iter().flatten().flat_map(|part| parts(part, sequence)).collect()
        }
        part => vec![part],
    }
}

/// The normalized form of a space, and the text that normalizers prepend.
struct Normalized {
    space: String,
    prepended: Option<String>,
}

impl Normalized {
    /// Returns `None` if a normalizer might process both sides of a cut together.
    fn of(parts: Vec<&Value>) -> Option<Self> {
        let mut normalized = Self { space: " ".into(), prepended: None };
        for part in parts {
            match part["type"].as_str()? {
                "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "BertNormalizer" => {}
                "Prepend" if normalized.prepended.is_none() => {
                    normalized.prepended = Some(part["prepend"].as_str()?.into());
                }
                "Replace" => {
                    let (pattern, content) = (part["pattern"]["String"].as_str()?, part["content"].as_str()?);
                    if pattern == normalized.space {
                        normalized.space = content.into();
                    } else if pattern.contains(char::is_whitespace) || pattern.contains(&normalized.space) {
                        return None;
                    }
                    normalized.prepended =
                        normalized.prepended.map(|prepended| prepended.replace(pattern, content));
                }
                _ => return None,
            }
        }
        (!normalized.space.is_empty()).then_some(normalized)
    }
}

/// Returns true if all tokens of a byte pair encoding contain the mark only at the beginning. Then no merge joins the
/// end of a word with the mark after it.
fn keeps_words_apart(tokenizer: &Tokenizer, mark: &str) -> bool {
    let ModelWrapper::BPE(_) = tokenizer.get_model() else { return false };
    let tokens = tokenizer.get_vocab(false);
    let is_apart = |token: &String| !token.trim_start_matches(mark).contains(mark);
    mark.chars().count() == 1 && tokens.contains_key(mark) && tokens.keys().all(is_apart)
}

/// Returns true if no match of a pattern contains a letter followed by white space. Returns `None` if this is unknown,
/// or if a match depends on its surroundings.
fn keeps_words_separate(pattern: &str) -> Option<bool> {
    // `(?!\S)` holds before white space and at the end of a text alike, so a cut before white space does not affect it.
    // Possessive quantifiers match a subset of greedy ones.
    let plain = pattern.replace("(?!\\S)", "").replace("?+", "?").replace("++", "+").replace("*+", "*");
    let parsed = regex_syntax::parse(&plain).ok()?;
    (parsed.properties().look_set().is_empty()).then(|| !Edges::of(&parsed).spans_words)
}

/// The characters that patterns treat as letters and as white space.
static LETTERS: LazyLock<ClassUnicode> = LazyLock::new(|| class(r"\p{L}"));
static SPACES: LazyLock<ClassUnicode> = LazyLock::new(|| class(r"\s"));

fn class(pattern: &str) -> ClassUnicode {
    match regex_syntax::parse(pattern).map(Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        _ => unreachable!("`{pattern}` is a class of characters"),
    }
}

fn contains(class: &ClassUnicode, character: char) -> bool {
    let (start, end) = (ClassUnicodeRange::start, ClassUnicodeRange::end);
    let ranges = class.ranges();
    let index = ranges.partition_point(|range| end(range) < character);
    ranges.get(index).is_some_and(|range| start(range) <= character)
}

/// Properties of the matches of a part of a pattern: true if at least one match has the property.
#[derive(Debug, Clone, Copy, Default)]
struct Edges {
    /// The match is empty.
    is_optional: bool,
    begins_with_space: bool,
    ends_with_letter: bool,
    /// The match contains a letter followed by white space.
    spans_words: bool,
}

impl Edges {
    fn of(hir: &Hir) -> Self {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Self { is_optional: true, ..Self::default() },
            HirKind::Literal(literal) => {
                // Invalid UTF-8 is treated as a letter followed by white space.
                let text = std::str::from_utf8(&literal.0).unwrap_or("a a");
                text.chars().map(Self::of_character).reduce(Self::then).unwrap_or_default()
            }
            HirKind::Class(Class::Unicode(class)) => {
                let overlaps = |other: &ClassUnicode| {
                    let mut both = class.clone();
                    both.intersect(other);
                    !both.ranges().is_empty()
                };
                Self {
                    begins_with_space: overlaps(&SPACES),
                    ends_with_letter: overlaps(&LETTERS),
                    ..Self::default()
                }
            }
            HirKind::Class(Class::Bytes(_)) => {
                Self { begins_with_space: true, ends_with_letter: true, ..Self::default() }
            }
            HirKind::Repetition(repetition) => {
                let once = Self::of(&repetition.sub);
                let again = if repetition.max == Some(1) { once } else { once.then(once) };
                Self { is_optional: once.is_optional || repetition.min == 0, ..again }
            }
            HirKind::Capture(capture) => Self::of(&capture.sub),
            HirKind::Concat(parts) => {
                let empty = Self { is_optional: true, ..Self::default() };
                parts.iter().map(Self::of).fold(empty, Self::then)
            }
            HirKind::Alternation(parts) => {
                parts.iter().map(Self::of).fold(Self::default(), |all, one| Self {
                    is_optional: all.is_optional || one.is_optional,
                    begins_with_space: all.begins_with_space || one.begins_with_space,
                    ends_with_letter: all.ends_with_letter || one.ends_with_letter,
                    spans_words: all.spans_words || one.spans_words,
                })
            }
        }
    }

    fn of_character(character: char) -> Self {
        Self {
            begins_with_space: contains(&SPACES, character),
            ends_with_letter: contains(&LETTERS, character),
            ..Self::default()
        }
    }

    /// Returns the properties of a match of one part followed by a match of another.
    fn then(self, next: Self) -> Self {
        Self {
            is_optional: self.is_optional && next.is_optional,
            begins_with_space: self.begins_with_space || self.is_optional && next.begins_with_space,
            ends_with_letter: next.ends_with_letter || next.is_optional && self.ends_with_letter,
            spans_words: self.spans_words
                || next.spans_words
                || self.ends_with_letter && next.begins_with_space,
        }
    }
}

#[cfg(test)]
mod tests;
