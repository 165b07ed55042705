//! A tokenizer as a vocabulary: deterministic, without large gaps in its ids, and with an error instead of silently
//! dropped characters.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    DecoderWrapper, Encoding, Model, ModelWrapper, NormalizedString, Normalizer, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer, Token, Tokenizer,
};

use super::cuts::Cuts;
use super::end::TextEnd;
use super::limits;
use super::{END, Vocabulary};
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result};
use crate::numbers::counted;

/// A tokenizer, with the contents of its file.
#[derive(Debug)]
pub(super) struct TextTokenizer {
    pub tokenizer: Tokenizer,
    pub json: Value,
    /// The largest id plus one.
    pub size: usize,
    /// The end-of-text token.
    pub end: Option<TextEnd>,
    /// The id of the end-of-text token, if a file next to the tokenizer's own file declares it.
    pub declared_end: Option<u32>,
    /// The rules for cutting a long text, if they are known.
    pub cuts: Option<Cuts>,
    /// The tokens that the tokenizer adds before and after a text, such as the begin-of-text token of Llama.
    pub added_tokens: [Vec<u32>; 2],
    /// For each code point, true if it was checked and has tokens.
    known: Mutex<Vec<bool>>,
}

impl TextTokenizer {
    /// Parses a tokenizer from the contents of its file.
    pub fn parse(json: Value) -> Result<Self> {
        Self::parse_with(json, |_| Ok(()))
    }

    /// Parses a tokenizer, and modifies it with `complete` before its properties are derived.
    pub fn parse_with(json: Value, complete: impl FnOnce(&mut Tokenizer) -> Result<()>) -> Result<Self> {
        limits::check(&json)?;
        let parse = || {
            let parsed = serde_json::from_value::<Tokenizer>(json.clone());
            let mut tokenizer = parsed.map_err(|error| not_a_tokenizer(&error.to_string()))?;
            complete(&mut tokenizer)?;
            Self::new(tokenizer, Some(&json["model"]))
        };
        // The library panics on some damaged parts of a file, such as a precompiled normalizer.
        catch_unwind(AssertUnwindSafe(parse))
            .unwrap_or_else(|_| Err(not_a_tokenizer("a part of it is damaged")))
    }

    /// Adds the end-of-text token declared by the files next to the tokenizer file `path`.
    pub fn with_declared_end(self, path: &Path) -> Result<Vocabulary> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let end = TextEnd::next_to(folder, &self.tokenizer.get_vocab(true), self.end.as_ref())?;
        Ok(self.with_end(end)?.into())
    }

    /// Sets the end-of-text token, if one is declared.
    pub fn with_end(self, end: Option<TextEnd>) -> Result<Self> {
        let Some(end) = end else { return Ok(self) };
        if end.id as usize >= self.size {
            return Err(Error::Input(format!(
                "the end token {} is outside the vocabulary (ids 0 to {}); correct its id",
                end.id,
                self.size - 1
            )));
        }
        Ok(Self { declared_end: Some(end.id), end: Some(end), ..self })
    }

    /// Creates the tokenizer without settings that belong to the training of another model: padding, truncation, and
    /// the dropout of merges, which makes encoding random. `model` is the value of `model` in its file.
    pub fn new(mut tokenizer: Tokenizer, model: Option<&Value>) -> Result<Self> {
        // Texts are encoded in full length; the config determines the length of a sequence.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| Error::Input(error.to_string()))?;
        if let ModelWrapper::BPE(model) = tokenizer.get_model()
            && model.dropout.is_some()
        {
            let mut model = model.clone();
            model.dropout = None;
            tokenizer.with_model(model);
        }
        let tokens = tokenizer.get_vocab(true);
        let Some(&largest) = tokens.values().max() else {
            let problem = "the tokenizer does not have any tokens; train it, or use another one";
            return Err(Error::Input(problem.into()));
        };
        // Some gaps are common, and the model has rows for them. The library iterates over all ids when it stores them.
        let (count, size) = (tokens.len(), largest as usize + 1);
        if size > 2 * count {
            return Err(Error::Input(format!(
                "the tokenizer numbers its {} up to {largest}, so a model would have weights for many unused \
                 ids; number the tokens from 0 without gaps",
                counted(count, "token")
            )));
        }
        check_ids(&tokens)?;
        let json = stored(&tokenizer, model).map_err(|error| {
            Error::Input(format!(
                "the tokenizer cannot be stored: {error}; save it with the `tokenizers` library"
            ))
        })?;
        limits::check(&json)?;
        let added_tokens = added_tokens(&tokenizer)?;
        // A vocabulary of the texts of a table has special tokens of its own, which never occur within a text.
        if tokenizer.token_to_id(END).is_some_and(|end| added_tokens[0] == [end]) {
            tokenizer.set_encode_special_tokens(true);
        }
        if let Some(&id) = added_tokens.iter().flatten().find(|&&id| id as usize >= size) {
            return Err(Error::Input(format!(
                "the tokenizer's post_processor adds the token {id} to a text, but ids run from 0 to \
                 {largest}; correct the ids of its special tokens"
            )));
        }
        let end = TextEnd::of(&tokenizer, &added_tokens[1]);
        let cuts = Cuts::of(&tokenizer, &json);
        let (declared_end, known) = (None, Mutex::default());
        Ok(Self { tokenizer, json, size, end, declared_end, cuts, added_tokens, known })
    }

    /// Returns the first word that cannot be encoded because the model has neither a token for it nor an unknown token.
    pub fn word_without_token<'t>(&self, texts: &[&'t str]) -> Option<&'t str> {
        let lacks = |word: &&str| {
            let encoded = self.tokenizer.encode_fast(*word, false);
            encoded.is_err_and(|error| error.to_string().to_lowercase().contains("missing"))
        };
        texts.iter().flat_map(|text| text.split_whitespace()).find(lacks)
    }

    /// Returns true for a special token, such as an end-of-text token.
    pub fn is_special(&self, id: u32) -> bool {
        self.tokenizer
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .get(&id)
            .is_some_and(|token| token.special)
    }

    /// Returns the id of the unknown token, which the tokenizer uses for text without a token.
    pub fn unknown_token(&self) -> Option<u32> {
        // The last code point for private use is in no vocabulary.
        let tokens = self.tokenizer.get_model().tokenize("\u{10fffd}").ok()?;
        match &tokens[..] {
            [token] if !token.value.contains('\u{10fffd}') => Some(token.id),
            _ => None,
        }
    }

    /// Returns the byte offset and the value of the first character that encoding would drop. Byte pair encoding
    /// without an unknown token drops all characters without tokens.
    pub fn dropped(&self, text: &str) -> Option<(usize, char)> {
        let model = match self.tokenizer.get_model() {
            ModelWrapper::BPE(model) if model.unk_token.is_none() => model,
            _ => return None,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.resize(char::MAX as usize + 1, false);
        text.char_indices().find(|&(byte, character)| {
            let is_known = &mut known[character as usize];
            *is_known = *is_known || !self.lacks_token(model, character);
            !*is_known && !self.is_in_added_token(text, byte, character)
        })
    }

    /// Returns true if the normalizer and the pre-tokenizer turn a character into something for which the model lacks a
    /// token.
    fn lacks_token(&self, model: &BPE, character: char) -> bool {
        let mut words = NormalizedString::from(character.to_string());
        if self.tokenizer.get_normalizer().is_some_and(|normalizer| normalizer.normalize(&mut words).is_err())
        {
            return false;
        }
        let mut words = PreTokenizedString::from(words);
        let pre_tokenizer = self.tokenizer.get_pre_tokenizer();
        if pre_tokenizer.is_some_and(|pre_tokenizer| pre_tokenizer.pre_tokenize(&mut words).is_err()) {
            return false;
        }
        // Three copies cover the beginning, the middle and the end of a word.
        let is_unknown = |part: char| {
            let word = part.to_string().repeat(3);
            model.tokenize(&word).is_ok_and(|tokens| tokens.is_empty())
        };
        let words = words.get_splits(OffsetReferential::Normalized, OffsetType::None);
        words.into_iter().any(|(word, ..)| word.chars().any(is_unknown))
    }

    /// Returns true if the character at a byte offset is part of an added token. Added tokens are matched before the
    /// model encodes the text between them.
    fn is_in_added_token(&self, text: &str, byte: usize, character: char) -> bool {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder().values();
        added.map(|token| token.content.as_str()).any(|token| {
            let mut starts = token.match_indices(character).filter_map(|(at, _)| byte.checked_sub(at));
            starts.any(|start| text.get(start..).is_some_and(|text| text.starts_with(token)))
        })
    }

    /// Returns the bytes that the name of a byte-level token represents, with one printable character for each byte (as
    /// in GPT-2).
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        match self.tokenizer.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => name.chars().map(byte).collect(),
            _ => None,
        }
    }
}

/// Returns the error for file contents that are not a tokenizer.
pub(super) fn not_a_tokenizer(problem: &str) -> Error {
    let problem = problem.replace("struct Tokenizer", "an object");
    Error::Input(format!("is not a tokenizer: {problem}; save it with the `tokenizers` library"))
}

/// Returns an error if two tokens share an id, because only one of them would be stored.
fn check_ids(tokens: &HashMap<String, u32>) -> Result<()> {
    let mut seen = HashSet::with_capacity(tokens.len());
    let Some(shared) = tokens.values().filter(|&&id| !seen.insert(id)).min() else { return Ok(()) };
    let mut names: Vec<_> = tokens.iter().filter(|(_, id)| *id == shared).map(|(name, _)| name).collect();
    names.sort_unstable();
    let names: Vec<_> = names.into_iter().take(2).map(|name| format!("`{}`", excerpt(name))).collect();
    Err(Error::Input(format!(
        "the tokenizer assigns the id {shared} to both {}; give each token its own id, or save the tokenizer \
         again",
        names.join(" and ")
    )))
}

/// Converts a tokenizer to the contents of its file. The library prints a warning to standard output when it serializes
/// a model with gaps in its ids; the given `model` part is then used instead.
fn stored(tokenizer: &Tokenizer, model: Option<&Value>) -> serde_json::Result<Value> {
    let ids = tokenizer.get_vocab(false);
    let has_gaps = |ids: &HashMap<String, u32>| ids.values().any(|&id| id as usize >= ids.len());
    let Some(model) = model.filter(|model| model.is_object() && has_gaps(&ids)) else {
        return serde_json::to_value(tokenizer);
    };
    let mut without_model = tokenizer.clone();
    without_model.with_model(BPE::default());
    let (mut json, mut model) = (serde_json::to_value(&without_model)?, model.clone());
    if model.get("dropout").is_some() {
        model["dropout"] = Value::Null;
    }
    json["model"] = model;
    Ok(json)
}

/// Returns the tokens that a tokenizer adds before and after a text, determined from a text of one token.
fn added_tokens(tokenizer: &Tokenizer) -> Result<[Vec<u32>; 2]> {
    let text = Encoding::from_tokens(vec![Token::new(0, "x".into(), (0, 1))], 0);
    let processed = tokenizer.post_process(text, None, true).map_err(|error| {
        Error::Input(format!(
            "the tokenizer's post_processor fails: {error}; correct `post_processor` in its file"
        ))
    })?;
    let (ids, is_added) = (processed.get_ids(), processed.get_special_tokens_mask());
    let before = is_added.iter().take_while(|&&is_added| is_added == 1).count();
    Ok([ids[..before].to_vec(), ids.get(before + 1..).unwrap_or_default().to_vec()])
}

/// Creates a byte-level BPE tokenizer as in GPT-2.
pub fn byte_level(model: BPE) -> Tokenizer {
    let mut tokenizer = Tokenizer::new(model);
    let bytes_as_characters = ByteLevel::new(false, true, true);
    tokenizer.with_pre_tokenizer(Some(bytes_as_characters)).with_decoder(Some(bytes_as_characters));
    tokenizer
}

/// Returns the byte that a character represents: printable bytes are represented by themselves, and all others by the
/// code points from 256 on.
fn byte(character: char) -> Option<u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(character) {
        Ok(byte) => Some(byte).filter(is_printable),
        Err(_) => (0..=u8::MAX).filter(|byte| !is_printable(byte)).nth(character as usize - 256),
    }
}
