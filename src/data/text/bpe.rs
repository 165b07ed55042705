//! Byte pair encoding, trained on the user's text.
//!
//! Text is cut into words, words into bytes, and the pair of neighbours that stands most often is
//! merged into a token, again and again, until the vocabulary is full (Sennrich et al. 2016; on
//! bytes as in GPT-2, Radford et al. 2019, so that no text is unknown).

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use super::pieces::{Text, pieces};
use crate::error::{Error, Result};

/// Stands between texts, in the vocabulary of GPT-2.
const END_OF_TEXT: &str = "<|endoftext|>";

/// Learns `vocab` tokens from the first `bytes` of the texts, of which a token that ends a text is
/// one where there are several. There are fewer where the text has too few pairs that stand
/// twice.
pub(super) fn train(texts: &[Text], bytes: u64, vocab: usize) -> Result<Tokenizer> {
    let special = if texts.len() > 1 { vec![AddedToken::from(END_OF_TEXT, true)] } else { vec![] };
    let trainer = BpeTrainer::builder()
        .vocab_size(vocab)
        // A pair that stands once is no pattern.
        .min_frequency(2)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(special)
        .show_progress(false)
        .build();
    let mut tokenizer = Tokenizer::new(BPE::default());
    let bytes_as_characters = ByteLevel::new(false, true, true);
    tokenizer.with_pre_tokenizer(Some(bytes_as_characters)).with_decoder(Some(bytes_as_characters));
    let mut failed = None;
    let pieces = pieces(texts, bytes).flatten().map_while(|piece| match piece {
        Ok((text, _)) => Some(text),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let trained = tokenizer.train(&mut TrainerWrapper::from(trainer), pieces).map(drop);
    match (failed, trained) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(Error::Failed(format!("cannot train a tokenizer: {error}"))),
        (None, Ok(())) => Ok(tokenizer),
    }
}
