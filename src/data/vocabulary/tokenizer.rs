//! A tokenizer as a vocabulary needs it: the same ids each time, dense ones, and no character of a text
//! left out without a word.

use tokenizers::models::bpe::BPE;
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizedString, Normalizer, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer, Tokenizer,
};

use crate::error::{Error, Result};

/// Takes from a tokenizer what belongs to the training of another model: padding, truncation, and the
/// dropout of merges, by which a text would read differently each time.
pub(super) fn prepare(tokenizer: &mut Tokenizer) -> Result<()> {
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
    Ok(())
}

/// The number that all ids are below, of a tokenizer with `count` tokens of which one has the id
/// `largest`. Some holes are usual, and a model has room for them.
pub(super) fn size(count: usize, largest: u32) -> Result<usize> {
    let size = largest as usize + 1;
    if size > 2 * count {
        return Err(Error::Input(format!(
            "the tokenizer numbers its {count} tokens up to {largest}: a model would have room for all that is between, so \
             number them from 0 without holes"
        )));
    }
    Ok(size)
}

/// Finds the characters that a tokenizer leaves out: byte pair encoding without a token for the unknown
/// drops what it has no token for.
pub(crate) struct Dropped<'a> {
    tokenizer: &'a Tokenizer,
    model: &'a BPE,
    /// Whether a character, by its code point, is known not to be dropped.
    known: Vec<bool>,
    /// The texts of added tokens: these are found before the model reads what is between them.
    added: Vec<String>,
}

impl<'a> Dropped<'a> {
    /// None where nothing is ever dropped.
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Option<Self> {
        let model = match tokenizer.get_model() {
            ModelWrapper::BPE(model) if model.unk_token.is_none() => model,
            _ => return None,
        };
        let added = tokenizer.get_added_tokens_decoder().into_values().map(|token| token.content);
        Some(Self { tokenizer, model, known: vec![false; char::MAX as usize + 1], added: added.collect() })
    }

    /// Whether the `character` at this byte of the text is left out.
    pub(super) fn is_dropped(&mut self, text: &str, byte: usize, character: char) -> bool {
        let place = character as usize;
        self.known[place] = self.known[place] || !self.is_without_token(character);
        !self.known[place] && !self.is_of_added(text, byte, character)
    }

    /// Whether the `character` at this byte of the text stands within an added token.
    fn is_of_added(&self, text: &str, byte: usize, character: char) -> bool {
        let stands = |token: &String, at: usize| {
            byte.checked_sub(at)
                .and_then(|start| text.get(start..))
                .is_some_and(|text| text.starts_with(token))
        };
        self.added.iter().any(|token| token.match_indices(character).any(|(at, _)| stands(token, at)))
    }

    /// Whether the model has no token for something that normalizer and pre-tokenizer leave of it.
    fn is_without_token(&self, character: char) -> bool {
        let mut text = NormalizedString::from(character.to_string());
        let normalizer = self.tokenizer.get_normalizer();
        if normalizer.is_some_and(|normalizer| normalizer.normalize(&mut text).is_err()) {
            return false;
        }
        let mut words = PreTokenizedString::from(text);
        let cutter = self.tokenizer.get_pre_tokenizer();
        if cutter.is_some_and(|cutter| cutter.pre_tokenize(&mut words).is_err()) {
            return false;
        }
        let words = words.get_splits(OffsetReferential::Normalized, OffsetType::None);
        // Three of them: as the beginning, the middle and the end of a word.
        let is_unknown = |part: char| {
            let word = part.to_string().repeat(3);
            self.model.tokenize(&word).is_ok_and(|tokens| tokens.is_empty())
        };
        words.into_iter().any(|(word, ..)| word.chars().any(is_unknown))
    }
}

/// The bytes that a byte-level tokenizer means by the name of a token, in which a printable character stands
/// for each (as in GPT-2).
pub(super) fn bytes(tokenizer: &Tokenizer, name: &str) -> Option<Vec<u8>> {
    match tokenizer.get_decoder() {
        Some(DecoderWrapper::ByteLevel(_)) => name.chars().map(byte).collect(),
        _ => None,
    }
}

/// The byte that a character stands for: printable bytes stand for themselves, the others count from 256.
fn byte(character: char) -> Option<u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(character) {
        Ok(byte) => Some(byte).filter(is_printable),
        Err(_) => (0..=u8::MAX).filter(|byte| !is_printable(byte)).nth(character as usize - 256),
    }
}
