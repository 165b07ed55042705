//! A tokenizer as a vocabulary needs it: the same ids each time, dense ones, and no character of a text
//! left out without a word.

use std::sync::{Mutex, PoisonError};

use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    DecoderWrapper, Encoding, Model, ModelWrapper, NormalizedString, Normalizer, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer, Token, Tokenizer,
};

use crate::error::{Error, Result};
use crate::terminal::counted;

/// The token that GPT-2's texts end with.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Names of the token that ends a text in common tokenizers.
const TEXT_ENDS: [&str; 5] = [END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", super::END];

/// A tokenizer, and what stands in its file.
#[derive(Debug)]
pub(super) struct TextTokenizer {
    pub tokenizer: Tokenizer,
    pub json: serde_json::Value,
    /// The number that all ids are below.
    pub size: usize,
    pub end: Option<u32>,
    /// The tokens that it puts before a text and behind it, as Llama's puts one that begins it.
    pub around: [Vec<u32>; 2],
    /// Whether a character, by its code point, is known to have tokens.
    known: Mutex<Vec<bool>>,
}

impl TextTokenizer {
    /// Takes from a tokenizer what belongs to the training of another model: padding, truncation, and the
    /// dropout of merges, by which a text would read differently each time.
    pub fn new(mut tokenizer: Tokenizer) -> Result<Self> {
        // Texts are read whole; how long a sequence is, the model says.
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
            return Err(Error::Input("the tokenizer has no tokens".into()));
        };
        // Some holes are usual, and a model has room for them. The library goes through all ids when it stores them.
        let (count, size) = (tokens.len(), largest as usize + 1);
        if size > 2 * count {
            return Err(Error::Input(format!(
                "the tokenizer numbers its {} up to {largest}: a model would have room for all that is between, \
                 so number them from 0 without holes",
                counted(count, "token")
            )));
        }
        let json = serde_json::to_value(&tokenizer)
            .map_err(|error| Error::Input(format!("the tokenizer cannot be stored: {error}")))?;
        let end = TEXT_ENDS.iter().find_map(|name| tokens.get(*name).copied());
        let around = around(&tokenizer)?;
        Ok(Self { tokenizer, json, size, end, around, known: Mutex::default() })
    }

    /// Whether an id is that of a special token, which is no part of a text.
    pub fn is_special(&self, id: u32) -> bool {
        self.tokenizer
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .get(&id)
            .is_some_and(|token| token.special)
    }

    /// The first character of a text that is left out, and its byte: byte pair encoding without a token for the
    /// unknown drops what it has no token for.
    pub fn dropped(&self, text: &str) -> Option<(usize, char)> {
        let model = match self.tokenizer.get_model() {
            ModelWrapper::BPE(model) if model.unk_token.is_none() => model,
            _ => return None,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.resize(char::MAX as usize + 1, false);
        text.char_indices().find(|&(byte, character)| {
            let is_known = &mut known[character as usize];
            *is_known = *is_known || !self.is_without_token(model, character);
            !*is_known && !self.is_of_added(text, byte, character)
        })
    }

    /// Whether the model has no token for something that normalizer and pre-tokenizer leave of a character.
    fn is_without_token(&self, model: &BPE, character: char) -> bool {
        let mut words = NormalizedString::from(character.to_string());
        if self.tokenizer.get_normalizer().is_some_and(|normalizer| normalizer.normalize(&mut words).is_err())
        {
            return false;
        }
        let mut words = PreTokenizedString::from(words);
        if self.tokenizer.get_pre_tokenizer().is_some_and(|cutter| cutter.pre_tokenize(&mut words).is_err()) {
            return false;
        }
        // Three of them: as the beginning, the middle and the end of a word.
        let is_unknown = |part: char| {
            let word = part.to_string().repeat(3);
            model.tokenize(&word).is_ok_and(|tokens| tokens.is_empty())
        };
        let words = words.get_splits(OffsetReferential::Normalized, OffsetType::None);
        words.into_iter().any(|(word, ..)| word.chars().any(is_unknown))
    }

    /// Whether the character at a byte of a text stands within an added token: these are found before the model
    /// reads what is between them.
    fn is_of_added(&self, text: &str, byte: usize, character: char) -> bool {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder().values();
        added.map(|token| token.content.as_str()).any(|token| {
            let mut starts = token.match_indices(character).filter_map(|(at, _)| byte.checked_sub(at));
            starts.any(|start| text.get(start..).is_some_and(|text| text.starts_with(token)))
        })
    }

    /// The bytes that a byte-level tokenizer means by the name of a token, in which a printable character
    /// stands for each (as in GPT-2).
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        match self.tokenizer.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => name.chars().map(byte).collect(),
            _ => None,
        }
    }
}

/// What a tokenizer puts before a text and behind it, seen by what it makes of a text of one token.
fn around(tokenizer: &Tokenizer) -> Result<[Vec<u32>; 2]> {
    let text = Encoding::from_tokens(vec![Token::new(0, "x".into(), (0, 1))], 0);
    let whole = tokenizer
        .post_process(text, None, true)
        .map_err(|error| Error::Input(format!("the tokenizer's post_processor fails: {error}")))?;
    let (ids, is_put) = (whole.get_ids(), whole.get_special_tokens_mask());
    let before = is_put.iter().take_while(|&&is_put| is_put == 1).count();
    Ok([ids[..before].to_vec(), ids.get(before + 1..).unwrap_or_default().to_vec()])
}

/// A tokenizer by byte pair encoding whose tokens are names of bytes, as GPT-2's is.
pub fn byte_level(model: BPE) -> Tokenizer {
    let mut tokenizer = Tokenizer::new(model);
    let bytes_as_characters = ByteLevel::new(false, true, true);
    tokenizer.with_pre_tokenizer(Some(bytes_as_characters)).with_decoder(Some(bytes_as_characters));
    tokenizer
}

/// The byte that a character stands for: printable bytes stand for themselves, the others count from 256.
fn byte(character: char) -> Option<u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(character) {
        Ok(byte) => Some(byte).filter(is_printable),
        Err(_) => (0..=u8::MAX).filter(|byte| !is_printable(byte)).nth(character as usize - 256),
    }
}
