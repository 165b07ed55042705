//! The growing text of a continuation: streams its visible part and finds stop strings.

use std::ops::Range;

use crate::data::{Notation, Vocabulary};
use crate::error::Result;

/// The number of prompt tokens decoded together with the first new token. Without them, a tokenizer may drop the space
/// before the new token.
const DECODED_PROMPT_TOKENS: usize = 4;

/// The stop strings of a generation.
#[derive(Debug)]
pub(super) enum Stops<'a> {
    /// Matched anywhere in the text.
    Texts(&'a [String]),
    /// Matched against whole tokens, for vocabularies of integers or symbols: `1` does not match in `12`.
    Tokens(Vec<Vec<u32>>),
}

impl<'a> Stops<'a> {
    /// Parses stop strings in the notation of a vocabulary.
    ///
    /// # Errors
    /// Returns an error if a string contains a symbol outside a vocabulary of integers or symbols.
    pub(super) fn new(vocabulary: &Vocabulary, strings: &'a [String]) -> Result<Self> {
        match vocabulary.notation() {
            Notation::Words => {
                strings.iter().map(|text| vocabulary.encode(text)).collect::<Result<_>>().map(Self::Tokens)
            }
            Notation::Characters | Notation::Text => Ok(Self::Texts(strings)),
        }
    }
}

/// New tokens and their text.
#[derive(Debug)]
pub(super) struct Transcript<'a> {
    vocabulary: &'a Vocabulary,
    stops: &'a Stops<'a>,
    pub(super) tokens: Vec<u32>,
    pub(super) text: String,
    /// The end of each token in the text, in bytes.
    ends: Vec<usize>,
    /// The last settled tokens, or the last prompt tokens, together with which new tokens are decoded.
    decode_context: Vec<u32>,
    /// The number of settled tokens and bytes: those before an incomplete character at the end.
    settled: (usize, usize),
    /// The number of bytes of the text that were already returned.
    shown: usize,
    /// The ranges of special tokens in the text, which are not shown.
    hidden: Vec<Range<usize>>,
}

impl<'a> Transcript<'a> {
    pub(super) fn new(vocabulary: &'a Vocabulary, prompt: &[u32], stops: &'a Stops<'a>) -> Self {
        let last = match vocabulary.notation() {
            // The first word does not start with a space.
            Notation::Words => &[],
            Notation::Characters | Notation::Text => {
                &prompt[prompt.len().saturating_sub(DECODED_PROMPT_TOKENS)..]
            }
        };
        // The text after a special token does not start with a space either.
        let decode_context = last.iter().copied().filter(|&token| !vocabulary.is_special(token)).collect();
        let (tokens, text, ends, hidden) = (Vec::new(), String::new(), Vec::new(), Vec::new());
        Self { vocabulary, stops, tokens, text, ends, decode_context, settled: (0, 0), shown: 0, hidden }
    }

    /// Appends a token. Returns true if it completes a stop string, which is removed with all text after it.
    pub(super) fn push(&mut self, token: u32) -> bool {
        self.tokens.push(token);
        let (first, settled) = self.settled;
        let new = &self.tokens[first..];
        let all = self.vocabulary.decode(&[&self.decode_context, new].concat());
        self.text.truncate(settled);
        match all.strip_prefix(&self.vocabulary.decode(&self.decode_context)) {
            Some(text) => self.text.push_str(text),
            // A prompt may end within a character.
            None => self.text.push_str(&self.vocabulary.decode(new)),
        }
        self.ends.push(self.text.len());
        if self.vocabulary.is_special(token) {
            let (end, name) = (self.text.len(), self.vocabulary.decode(&[token]));
            self.hidden.extend(self.text.ends_with(&name).then(|| end - name.len()..end));
        }
        if let Some(end) = self.find_stop(settled) {
            // A token is kept if any of its text is kept.
            while !self.tokens.is_empty() && self.end_of(self.tokens.len() - 1) >= end {
                self.tokens.pop();
            }
            self.text.truncate(end);
            return true;
        }
        if !self.text.ends_with(char::REPLACEMENT_CHARACTER) {
            self.decode_context = new.to_vec();
            self.settled = (self.tokens.len(), self.text.len());
        }
        false
    }

    /// Returns the start of the first stop string among those that end after the `settled` bytes.
    fn find_stop(&self, settled: usize) -> Option<usize> {
        match self.stops {
            Stops::Texts(stops) => {
                let found = stops.iter().filter_map(|stop| {
                    let from = self.text.floor_char_boundary(settled.saturating_sub(stop.len()));
                    self.text[from..].find(stop.as_str()).map(|at| from + at)
                });
                found.min()
            }
            Stops::Tokens(stops) => {
                let found = stops.iter().filter(|stop| self.tokens.ends_with(stop));
                found.map(|stop| self.end_of(self.tokens.len() - stop.len())).min()
            }
        }
    }

    /// Returns the end of the first `count` tokens in the text, in bytes.
    fn end_of(&self, count: usize) -> usize {
        count.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Returns the new text that can be shown. Incomplete characters and the possible start of a stop string are held
    /// back until `is_over`; special tokens are never shown.
    pub(super) fn take_visible(&mut self, is_over: bool) -> String {
        let mut end = self.text.len();
        if !is_over {
            end = self.text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
            end -= match self.stops {
                Stops::Texts(stops) => {
                    let partial = stops.iter().filter_map(|stop| {
                        let starts = stop.char_indices().map(|(at, _)| &stop[..at]).skip(1);
                        starts.filter(|start| self.text[..end].ends_with(start)).map(str::len).max()
                    });
                    partial.max().unwrap_or(0)
                }
                Stops::Tokens(stops) => {
                    let partial = |stop: &Vec<u32>| {
                        (1..stop.len()).rev().find(|&count| self.tokens.ends_with(&stop[..count]))
                    };
                    let tokens = stops.iter().filter_map(partial).max().unwrap_or(0);
                    end - self.end_of(self.tokens.len() - tokens)
                }
            };
        }
        let start = self.shown.min(end);
        self.shown = end.max(self.shown);
        self.visible(start..end)
    }

    /// Returns a part of the text without its special tokens.
    pub(super) fn visible(&self, Range { mut start, end }: Range<usize>) -> String {
        let mut visible = String::new();
        for hidden in &self.hidden {
            visible += &self.text[start..hidden.start.clamp(start, end)];
            start = hidden.end.clamp(start, end);
        }
        visible + &self.text[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn characters() -> Vocabulary {
        Vocabulary::characters("abcdef".chars()).unwrap()
    }

    #[test]
    fn stop_string_truncates_text_and_tokens() {
        let vocabulary = characters();
        let stops = ["cde".to_string(), "f".to_string()];
        let stops = Stops::Texts(&stops);
        let mut transcript = Transcript::new(&vocabulary, &[0], &stops);
        let mut shown = String::new();
        for (token, stopped) in [(0, false), (2, false), (3, false), (2, false), (3, false), (4, true)] {
            assert_eq!(transcript.push(token), stopped, "{token}");
            shown.push_str(&transcript.take_visible(stopped));
            assert!(!shown.ends_with('d') || shown == "acd", "the start of a stop string is held back");
        }
        assert_eq!(shown, "acd");
        assert_eq!(transcript.tokens, [0, 2, 3]);
        assert_eq!(transcript.text, "acd");
    }

    #[test]
    fn stop_strings_match_whole_words() {
        let symbols = ["car", "cart", "new york"].map(String::from).to_vec();
        let vocabulary = Vocabulary::symbols(symbols, None).unwrap();
        let stops = ["\"new york\" car".to_string(), "car car".into()];
        let stops = Stops::new(&vocabulary, &stops).unwrap();
        let mut transcript = Transcript::new(&vocabulary, &[0], &stops);
        let mut shown = String::new();
        for (token, stopped) in
            [(1, false), (0, false), (1, false), (2, false), (1, false), (2, false), (0, true)]
        {
            assert_eq!(transcript.push(token), stopped, "{token}");
            shown.push_str(&transcript.take_visible(stopped));
        }
        assert_eq!(transcript.tokens, [1, 0, 1, 2, 1]);
        assert_eq!((shown.as_str(), vocabulary.decode(&[1, 0, 1, 2, 1])), (&*transcript.text, shown.clone()));
        assert!(Stops::new(&vocabulary, &["ca".into()]).is_err());
        let first = Stops::Tokens(vec![vec![0]]);
        let mut transcript = Transcript::new(&vocabulary, &[0], &first);
        assert!(transcript.push(0) && transcript.tokens.is_empty() && transcript.text.is_empty());
    }

    #[test]
    fn held_back_text_is_flushed_at_the_end() {
        let vocabulary = characters();
        let stops = ["cde".to_string()];
        let stops = Stops::Texts(&stops);
        let mut transcript = Transcript::new(&vocabulary, &[], &stops);
        transcript.push(1);
        transcript.push(2);
        assert_eq!(transcript.take_visible(false), "b");
        assert_eq!(transcript.take_visible(true), "c");
        assert_eq!(transcript.take_visible(true), "");
    }

    /// Returns a vocabulary with bytes as tokens: é is C3 A9, which a byte-level tokenizer writes as Ã and ©.
    fn bytes() -> Vocabulary {
        let json = r#"{"kind": "tokenizer", "tokenizer": {"version": "1.0", "truncation": null,
            "padding": null, "normalizer": null, "added_tokens": [], "pre_tokenizer": null,
            "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", "dropout": null,
            "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": {"a": 0, "Ã": 1, "©": 2}, "merges": []}}}"#;
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn streamed_text_equals_the_decoded_text() {
        let words = Vocabulary::symbols(["down", "up"].map(String::from).to_vec(), None).unwrap();
        for vocabulary in [bytes(), characters(), words] {
            let mut transcript = Transcript::new(&vocabulary, &[0], &Stops::Texts(&[]));
            let mut shown = String::new();
            let mut random: u32 = 7;
            for step in 0..1_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                transcript.push((random >> 16) % vocabulary.size() as u32);
                shown.push_str(&transcript.take_visible(step == 999));
            }
            let tokens = transcript.tokens.clone();
            assert!(transcript.settled.0 > 990, "{:?}", transcript.settled);
            let decoded = vocabulary.decode(&tokens);
            assert_eq!((transcript.text, shown), (decoded.clone(), decoded));
        }
    }

    #[test]
    fn stop_string_is_found_far_past_the_prompt() {
        let vocabulary = characters();
        let stops = ["bcb".to_string()];
        let stops = Stops::Texts(&stops);
        let mut transcript = Transcript::new(&vocabulary, &[0], &stops);
        let ended = (0..).find(|&step| transcript.push(if step < 1_000 { 0 } else { 1 + step % 2 }));
        assert_eq!((ended, transcript.tokens.len()), (Some(1_002), 1_000));
    }

    #[test]
    fn special_tokens_are_hidden_from_output() {
        let mut stored = serde_json::to_value(bytes()).unwrap();
        stored["tokenizer"]["added_tokens"] = serde_json::json!([{"id": 3, "content": "<s>", "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}]);
        let vocabulary: Vocabulary = serde_json::from_value(stored).unwrap();
        let mut transcript = Transcript::new(&vocabulary, &[3], &Stops::Texts(&[]));
        let mut shown = String::new();
        for (token, is_over) in [(3, false), (0, false), (3, false), (1, false), (2, false), (3, true)] {
            transcript.push(token);
            shown += &transcript.take_visible(is_over);
        }
        assert_eq!((transcript.text.as_str(), shown.as_str()), ("<s>a<s>é<s>", "aé"));
        assert_eq!(transcript.visible(0..transcript.text.len()), shown);
    }

    #[test]
    fn multi_token_characters_appear_only_when_complete() {
        let vocabulary = bytes();
        let mut transcript = Transcript::new(&vocabulary, &[0], &Stops::Texts(&[]));
        let mut shown = Vec::new();
        for token in [0, 1, 2, 0] {
            transcript.push(token);
            shown.push(transcript.take_visible(false));
        }
        assert_eq!(shown, ["a", "", "é", "a"]);
    }
}
