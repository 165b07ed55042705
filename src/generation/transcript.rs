//! The text of a continuation as it grows: what can be shown already, and where a stop string
//! ends it.

use std::ops::Range;

use crate::data::{Notation, Vocabulary};

/// Tokens of the prompt with which new ones are decoded: a tokenizer may drop the space before
/// the first token of a text.
const CONTEXT: usize = 4;

/// New tokens that are decoded again with each that comes: what stands before has its text for good. It is at
/// most twice as many.
const UNSETTLED: usize = 32;

/// New tokens and their text.
#[derive(Debug)]
pub(super) struct Transcript<'a> {
    vocabulary: &'a Vocabulary,
    stops: &'a [String],
    before: Vec<u32>,
    tokens: Vec<u32>,
    text: String,
    /// Tokens whose text is settled, and how many bytes that is.
    settled: (usize, usize),
    /// Bytes of the text that were given out.
    shown: usize,
}

impl<'a> Transcript<'a> {
    pub(super) fn new(vocabulary: &'a Vocabulary, prompt: &[u32], stops: &'a [String]) -> Self {
        let before = prompt[prompt.len().saturating_sub(CONTEXT)..].to_vec();
        Self { vocabulary, stops, before, tokens: Vec::new(), text: String::new(), settled: (0, 0), shown: 0 }
    }

    /// Takes up a token; true where a stop string is complete, which with all behind it is dropped.
    pub(super) fn push(&mut self, token: u32) -> bool {
        self.tokens.push(token);
        let (first, settled) = self.settled;
        let tail = self.decode(first..self.tokens.len());
        self.text.truncate(settled);
        self.text.push_str(&tail);
        let Some(end) = self.stop(settled) else {
            self.settle(&tail);
            return false;
        };
        // A token stays if any of its text does.
        while let Some(fewer) = self.tokens.len().checked_sub(1)
            && self.decode(0..fewer).len() >= end
        {
            self.tokens.pop();
        }
        self.text.truncate(end);
        true
    }

    /// Where the first stop string begins, of those that end behind what was `settled`.
    fn stop(&self, settled: usize) -> Option<usize> {
        let found = self.stops.iter().filter_map(|stop| {
            let from = self.text.floor_char_boundary(settled.saturating_sub(stop.len()));
            self.text[from..].find(stop.as_str()).map(|at| from + at)
        });
        found.min()
    }

    /// Settles the text of all but the last tokens, where it is that whatever follows.
    fn settle(&mut self, tail: &str) {
        let (first, settled) = self.settled;
        if self.tokens.len() - first < 2 * UNSETTLED {
            return;
        }
        let next = self.tokens.len() - UNSETTLED;
        let text = self.decode(first..next);
        // Not so where the cut would part a character, or what a tokenizer joins.
        if tail.strip_prefix(&text) == Some(self.decode(next..self.tokens.len()).as_str()) {
            self.settled = (next, settled + text.len());
        }
    }

    /// What can be shown that was not: characters that are whole, and no beginning of a stop
    /// string, unless the text is `over`.
    pub(super) fn fresh(&mut self, over: bool) -> &str {
        let mut end = self.text.len();
        if !over {
            end = self.text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
            let begun = self.stops.iter().filter_map(|stop| {
                let starts = stop.char_indices().map(|(at, _)| &stop[..at]).skip(1);
                starts.filter(|start| self.text[..end].ends_with(start)).map(str::len).max()
            });
            end -= begun.max().unwrap_or(0);
        }
        let start = self.shown.min(end);
        self.shown = end.max(self.shown);
        &self.text[start..end]
    }

    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// The text of some of the new tokens, as it stands behind those before them.
    fn decode(&self, range: Range<usize>) -> String {
        let tokens = &self.tokens[range.clone()];
        let before = match (self.vocabulary.notation(), range.start) {
            // Each token has a text of its own.
            (Notation::Characters, _) | (Notation::Words, 0) => return self.vocabulary.decode(tokens),
            (Notation::Words | Notation::Text, start) => {
                let near = &self.tokens[start.saturating_sub(CONTEXT)..start];
                if near.is_empty() { self.before.clone() } else { near.to_vec() }
            }
        };
        let all = self.vocabulary.decode(&[&before, tokens].concat());
        // A prompt may end within a character.
        match all.strip_prefix(&self.vocabulary.decode(&before)) {
            Some(new) => new.to_string(),
            None => self.vocabulary.decode(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn characters() -> Vocabulary {
        Vocabulary::characters("abcdef".chars()).unwrap()
    }

    #[test]
    fn a_stop_string_ends_the_text_and_its_tokens() {
        let vocabulary = characters();
        let stops = ["cde".to_string(), "f".to_string()];
        let mut transcript = Transcript::new(&vocabulary, &[0], &stops);
        let mut shown = String::new();
        for (token, stopped) in [(0, false), (2, false), (3, false), (2, false), (3, false), (4, true)] {
            assert_eq!(transcript.push(token), stopped, "{token}");
            shown.push_str(transcript.fresh(stopped));
            assert!(!shown.ends_with('d') || shown == "acd", "a beginning of a stop string is held back");
        }
        assert_eq!(shown, "acd");
        assert_eq!(transcript.tokens(), [0, 2, 3]);
        assert_eq!(transcript.into_text(), "acd");
    }

    #[test]
    fn what_was_held_back_is_shown_at_the_end() {
        let vocabulary = characters();
        let stops = ["cde".to_string()];
        let mut transcript = Transcript::new(&vocabulary, &[], &stops);
        transcript.push(1);
        transcript.push(2);
        assert_eq!(transcript.fresh(false), "b");
        assert_eq!(transcript.fresh(true), "c");
        assert_eq!(transcript.fresh(true), "");
    }

    /// Bytes as tokens: é is C3 A9, which a byte-level tokenizer writes as Ã and ©.
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
    fn what_is_written_piece_by_piece_is_the_text_of_the_whole() {
        let words = Vocabulary::symbols(["down", "up"].map(String::from).to_vec(), None).unwrap();
        for vocabulary in [bytes(), characters(), words] {
            let mut transcript = Transcript::new(&vocabulary, &[0], &[]);
            let mut shown = String::new();
            let mut random: u32 = 7;
            for step in 0..1_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                transcript.push((random >> 16) % vocabulary.size() as u32);
                shown.push_str(transcript.fresh(step == 999));
            }
            let tokens = transcript.tokens().to_vec();
            assert!(transcript.settled.0 > 800, "{:?}", transcript.settled);
            let whole = vocabulary.decode(&tokens);
            assert_eq!((transcript.into_text(), shown), (whole.clone(), whole));
        }
    }

    #[test]
    fn a_stop_string_is_found_far_behind_the_prompt() {
        let vocabulary = characters();
        let stops = ["bcb".to_string()];
        let mut transcript = Transcript::new(&vocabulary, &[0], &stops);
        let ended = (0..).find(|&step| transcript.push(if step < 1_000 { 0 } else { 1 + step % 2 }));
        assert_eq!((ended, transcript.tokens().len()), (Some(1_002), 1_000));
    }

    #[test]
    fn a_character_of_several_tokens_is_shown_when_it_is_whole() {
        let vocabulary = bytes();
        let mut transcript = Transcript::new(&vocabulary, &[0], &[]);
        let mut shown = Vec::new();
        for token in [0, 1, 2, 0] {
            transcript.push(token);
            shown.push(transcript.fresh(false).to_string());
        }
        assert_eq!(shown, ["a", "", "é", "a"]);
    }
}
