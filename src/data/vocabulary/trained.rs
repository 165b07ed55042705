//! Vocabularies of the texts in a table: words or byte pairs, with special tokens that delimit the texts; and the encoding
//! of texts that consist of several parts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::wordlevel::{WordLevel, WordLevelTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::whitespace::Whitespace;
use tokenizers::{AddedToken, PostProcessorWrapper, Tokenizer};

use super::{END, SEPARATOR, Vocabulary, byte_level};
use crate::data::config::{Count, MAX_SIZE};
use crate::error::{Error, Result};

/// The role whose turns are the answers of a conversation.
pub(in crate::data) const ASSISTANT: &str = "assistant";

/// The token of words that do not occur in the training set.
const UNKNOWN: &str = "<unk>";

impl Vocabulary {
    /// Creates a vocabulary of the words and punctuation marks of the texts, the most frequent first: `vocab` tokens, or
    /// all. The `special` tokens come first; the [`END`] token also begins each text.
    ///
    /// # Errors
    /// Returns an error if the library cannot train the tokenizer.
    pub(in crate::data) fn words<'t>(
        texts: impl Iterator<Item = &'t str> + Send,
        special: &[&str],
        vocab: Count,
    ) -> Result<Self> {
        let unknown = AddedToken::from(UNKNOWN, true);
        let trainer = WordLevelTrainer::builder()
            .vocab_size(vocab.or(MAX_SIZE))
            .special_tokens(added(special).chain([unknown]).collect())
            .show_progress(false)
            .build();
        let trainer = trainer.map_err(|error| failed(&error.to_string()))?;
        let model = WordLevel::builder().unk_token(UNKNOWN.into()).build();
        let mut tokenizer = Tokenizer::new(model.map_err(|error| failed(&error.to_string()))?);
        tokenizer.with_pre_tokenizer(Some(Whitespace {}));
        delimited(train(tokenizer, TrainerWrapper::from(trainer), texts.map(str::to_string))?)
    }

    /// Creates a vocabulary of `vocab` tokens by byte pair encoding, trained on the texts. The `special` tokens come
    /// first; the [`END`] token also begins each text.
    ///
    /// # Errors
    /// Returns an error if the library cannot train the tokenizer.
    pub(in crate::data) fn byte_pairs(
        texts: impl Iterator<Item = String> + Send,
        special: &[&str],
        vocab: usize,
    ) -> Result<Self> {
        delimited(train_byte_pairs(texts, special, vocab)?)
    }

    /// Returns true for the vocabulary of the texts of a table, each of which begins with the end token.
    pub(in crate::data) fn is_of_texts(&self) -> bool {
        self.notation() != super::Notation::Words && self.special(END).is_some()
    }

    /// Returns true for the vocabulary of pairs of texts or of conversations, which delimit questions and answers.
    pub fn is_of_questions(&self) -> bool {
        let is_delimited =
            self.special(SEPARATOR).is_some() || self.special(&role_token(ASSISTANT)).is_some();
        self.is_of_texts() && is_delimited
    }

    /// Returns the tokens that begin an answer, and the token that ends it; `None` without pairs and conversations.
    pub(crate) fn answers(&self) -> Option<(Vec<u32>, Option<u32>)> {
        let assistant = role_token(ASSISTANT);
        let begin = [SEPARATOR, &assistant].into_iter().filter_map(|name| self.special(name));
        self.is_of_questions().then(|| (begin.collect(), self.end()))
    }

    /// Returns the vocabulary with the token of this name as its end-of-text token; `None` if it is no token.
    pub(in crate::data) fn with_end_named(mut self, name: &str) -> Option<Self> {
        let super::Kind::Tokenizer(tokenizer) = Arc::get_mut(&mut self.0)? else { return None };
        let id = tokenizer.tokenizer.token_to_id(name)?;
        tokenizer.declared_end = Some(id);
        tokenizer.end = Some(super::end::TextEnd { id, declared_by: "data.end_of_text".into() });
        Some(self)
    }

    /// Returns the ids of a source with its separator, or of a user's turn up to the answer, and those of the answer, as a
    /// decoder reads them in training.
    ///
    /// # Errors
    /// Returns the errors of [`encode`](Self::encode).
    pub fn pair(&self, source: &str, answer: &str) -> Result<(Vec<u32>, Vec<u32>)> {
        let [begin, _] = self.added_tokens();
        if self.is_of_questions() {
            return Ok((self.question(&self.encode(source)?)?, self.encode(answer)?));
        }
        let mut parts = self.encode_parts(&[source, "\n", answer])?;
        let answer = parts.pop().unwrap_or_default();
        Ok(([begin, &parts.concat()].concat(), answer))
    }

    /// Returns the ids of an encoded source with its separator, or of a user's turn up to the answer.
    ///
    /// # Errors
    /// Returns an error if the vocabulary has no separator.
    pub fn question(&self, source: &[u32]) -> Result<Vec<u32>> {
        let [begin, _] = self.added_tokens();
        match self.is_of_questions() {
            true => Ok(self.as_question(&[begin, source].concat())),
            false => Ok([begin, source, &self.separator()?].concat()),
        }
    }

    /// Returns an encoded prompt as the model read it in training: the source of a pair with its separator, or the user's
    /// turn of a conversation up to the answer. Other vocabularies keep the prompt.
    pub fn as_question(&self, prompt: &[u32]) -> Vec<u32> {
        if self.notation() == super::Notation::Words {
            return prompt.to_vec();
        }
        let [separator, user, assistant] =
            [SEPARATOR, &role_token("user"), &role_token(ASSISTANT)].map(|name| self.special(name));
        match (separator, user, assistant, self.special(END)) {
            (Some(separator), ..) => [prompt, &[separator]].concat(),
            (None, Some(user), Some(assistant), Some(end)) => {
                let (begin, text) = prompt.split_at(usize::from(prompt.first() == Some(&end)));
                [begin, &[user], text, &[end, assistant]].concat()
            }
            _ => prompt.to_vec(),
        }
    }

    /// Encodes adjacent parts of a text, and returns the ids of each part. A tokenizer reads the text as a whole; a token
    /// across a boundary belongs to the part in which it ends.
    ///
    /// # Errors
    /// Returns the errors of [`encode`](Self::encode).
    pub(in crate::data) fn encode_parts(&self, parts: &[&str]) -> Result<Vec<Vec<u32>>> {
        let super::Kind::Tokenizer(tokenizer) = &*self.0 else {
            return parts.iter().map(|part| self.encode(part)).collect();
        };
        let text = parts.concat();
        if parts.len() == 1 {
            return Ok(vec![self.encode(&text)?]);
        }
        self.check_characters(&text)?;
        let encode = || tokenizer.tokenizer.encode(text.as_str(), false);
        let Ok(Ok(encoding)) = catch_unwind(AssertUnwindSafe(encode)) else {
            // Encoding without positions fails too, and names the cause.
            self.encode(&text)?;
            return Err(Error::Input("the tokenizer does not locate its tokens; save it again".into()));
        };
        let mut end = 0;
        let ends = parts.iter().map(|part| {
            end += part.len();
            end
        });
        let ends: Vec<usize> = ends.collect();
        let mut divided = vec![Vec::new(); parts.len()];
        for (&id, &(_, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            divided[ends.partition_point(|&part_end| part_end < end).min(parts.len() - 1)].push(id);
        }
        Ok(divided)
    }

    /// Returns the id of a special token.
    pub(in crate::data) fn special(&self, name: &str) -> Option<u32> {
        match &*self.0 {
            super::Kind::Characters { characters, special, .. } => {
                let index = special.iter().position(|special| special == name)?;
                Some((characters.len() + index) as u32)
            }
            super::Kind::Tokenizer(tokenizer) => tokenizer.tokenizer.token_to_id(name),
            super::Kind::Integers { .. } | super::Kind::Symbols { .. } | super::Kind::Bins(_) => {
                self.word(name)
            }
        }
    }

    /// Returns the ids between the source and the target of a pair: the separator, or else a line break.
    ///
    /// # Errors
    /// Returns an error if the vocabulary has neither.
    pub fn separator(&self) -> Result<Vec<u32>> {
        match self.special(SEPARATOR) {
            Some(id) => Ok(vec![id]),
            None => self.encode("\n"),
        }
    }
}

/// Returns the token that begins a turn of this role in a conversation.
pub(in crate::data) fn role_token(role: &str) -> String {
    format!("<{role}>")
}

fn added(special: &[&str]) -> impl Iterator<Item = AddedToken> {
    special.iter().map(|name| AddedToken::from(*name, true))
}

fn failed(problem: &str) -> Error {
    Error::Failed(format!("cannot train a tokenizer: {problem}"))
}

/// Trains byte pair encoding with up to `vocab` tokens, which include the `special` tokens. There are fewer if the texts
/// have too few pairs that occur twice.
///
/// # Errors
/// Returns an error if the library fails.
pub(in crate::data) fn train_byte_pairs(
    texts: impl Iterator<Item = String> + Send,
    special: &[&str],
    vocab: usize,
) -> Result<Tokenizer> {
    let trainer = BpeTrainer::builder()
        .vocab_size(vocab)
        // A pair that occurs only once is not a pattern.
        .min_frequency(2)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(added(special).collect())
        .show_progress(false)
        .build();
    train(byte_level(BPE::default()), TrainerWrapper::from(trainer), texts)
}

fn train(
    mut tokenizer: Tokenizer,
    mut trainer: TrainerWrapper,
    texts: impl Iterator<Item = String> + Send,
) -> Result<Tokenizer> {
    tokenizer.train(&mut trainer, texts).map_err(|error| failed(&error.to_string()))?;
    Ok(tokenizer)
}

/// Returns the vocabulary of a tokenizer that begins each text with the end token of the previous one.
/// Returns the post-processor of a `tokenizer.json` that begins each text with the [`END`] token of this id.
pub(crate) fn delimited_by_end(end: usize) -> serde_json::Value {
    serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {END: {"id": END, "ids": [end], "tokens": [END]}},
    })
}

fn delimited(mut tokenizer: Tokenizer) -> Result<Vocabulary> {
    let end = tokenizer.token_to_id(END).ok_or_else(|| failed("it lacks the end token"))?;
    let template: PostProcessorWrapper =
        serde_json::from_value(delimited_by_end(end as usize)).map_err(|error| failed(&error.to_string()))?;
    tokenizer.with_post_processor(Some(template));
    Vocabulary::tokenizer(tokenizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_special_and_unknown_tokens() {
        let texts = ["to be, or not to be", "to see"];
        let vocabulary = Vocabulary::words(texts.into_iter(), &[END, SEPARATOR], Count::Auto).unwrap();
        assert_eq!(vocabulary.size(), 3 + 6);
        let ids = vocabulary.encode("to be, never").unwrap();
        assert_eq!(
            ids.iter().map(|&id| vocabulary.token(id)).collect::<Vec<_>>(),
            ["to", "be", ",", "<unk>"]
        );
        assert_eq!(vocabulary.end(), Some(0));
        assert_eq!(vocabulary.encode_whole("to").unwrap()[0], 0);
        assert_eq!(vocabulary.separator().unwrap(), [1]);
        assert_eq!(vocabulary.as_question(&[0, 4]), [0, 4, 1]);
        let chat = Vocabulary::characters_with("ab".chars(), &[END, "<user>", "<assistant>"]).unwrap();
        assert_eq!(chat.as_question(&chat.encode_whole("ba").unwrap()), [2, 3, 1, 0, 2, 4]);
        assert_eq!(vocabulary.decode(&vocabulary.encode("to be or").unwrap()), "to be or");
    }

    #[test]
    fn byte_pairs_keep_special_tokens_apart() {
        let texts = ["abab".repeat(30), "abc".into()];
        let vocabulary = Vocabulary::byte_pairs(texts.into_iter(), &[END], 260).unwrap();
        assert_eq!((vocabulary.size(), vocabulary.end()), (260, Some(0)));
        assert!(vocabulary.encode("abab").unwrap().len() < 4);
        assert!(vocabulary.is_special(0));
    }
}
