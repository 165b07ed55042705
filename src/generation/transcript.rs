//! The text of a continuation as it grows: what can be shown already, and where a stop string
//! ends it.

use crate::data::{Notation, Vocabulary};

/// Tokens of the prompt with which new ones are decoded: a tokenizer may drop the space before
/// the first token of a text.
const CONTEXT: usize = 4;

/// New tokens and their text.
#[derive(Debug)]
pub(super) struct Transcript<'a> {
    vocabulary: &'a Vocabulary,
    stops: &'a [String],
    before: Vec<u32>,
    tokens: Vec<u32>,
    text: String,
    /// Bytes of the text that were given out.
    shown: usize,
}

impl<'a> Transcript<'a> {
    pub(super) fn new(vocabulary: &'a Vocabulary, prompt: &[u32], stops: &'a [String]) -> Self {
        let before = prompt[prompt.len().saturating_sub(CONTEXT)..].to_vec();
        Self { vocabulary, stops, before, tokens: Vec::new(), text: String::new(), shown: 0 }
    }

    /// Takes up a token; true where a stop string is complete, which with all behind it is dropped.
    pub(super) fn push(&mut self, token: u32) -> bool {
        self.tokens.push(token);
        self.text = self.decode(&self.tokens);
        let stop = self.stops.iter().filter_map(|stop| self.text.find(stop.as_str())).min();
        let Some(end) = stop else { return false };
        // A token stays if any of its text does.
        while let Some((_, fewer)) = self.tokens.split_last()
            && self.decode(fewer).len() >= end
        {
            self.tokens.pop();
        }
        self.text.truncate(end);
        true
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

    fn decode(&self, tokens: &[u32]) -> String {
        match self.vocabulary.notation() {
            // Each token has a text of its own.
            Notation::Words | Notation::Characters => self.vocabulary.decode(tokens),
            Notation::Text => {
                let all = self.vocabulary.decode(&[&self.before, tokens].concat());
                let before = self.vocabulary.decode(&self.before);
                // A prompt may end within a character.
                match all.strip_prefix(&before) {
                    Some(new) => new.to_string(),
                    None => self.vocabulary.decode(tokens),
                }
            }
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

    #[test]
    fn a_character_of_several_tokens_is_shown_when_it_is_whole() {
        // Bytes as tokens: é is C3 A9, which a byte-level tokenizer writes as Ã and ©.
        let json = r#"{"kind": "tokenizer", "tokenizer": {"version": "1.0", "truncation": null,
            "padding": null, "normalizer": null, "added_tokens": [], "pre_tokenizer": null,
            "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", "dropout": null,
            "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": {"a": 0, "Ã": 1, "©": 2}, "merges": []}}}"#;
        let vocabulary: Vocabulary = serde_json::from_str(json).unwrap();
        let mut transcript = Transcript::new(&vocabulary, &[0], &[]);
        let mut shown = Vec::new();
        for token in [0, 1, 2, 0] {
            transcript.push(token);
            shown.push(transcript.fresh(false).to_string());
        }
        assert_eq!(shown, ["a", "", "é", "a"]);
    }
}
