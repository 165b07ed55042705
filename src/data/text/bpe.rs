//! Byte pair encoding, trained on the user's text.
//!
//! Text is split into words, and words into bytes. The most frequent pair of adjacent tokens is merged into a new token
//! until the vocabulary is full (Sennrich et al., 2016). As in GPT-2 (Radford et al., 2019), the units are bytes, so
//! that any text can be encoded.

use tokenizers::Tokenizer;

use super::File;
use crate::data::vocabulary::{END_OF_TEXT, train_byte_pairs};
use crate::error::Result;

/// The maximum number of bytes on which a tokenizer is trained. More text hardly changes the most frequent pairs, and its
/// words would need memory in proportion.
const MAX_BYTES: usize = 1 << 30;

/// Trains a tokenizer with `vocab` tokens on the first `bytes` of the files. With several files, one of the tokens is
/// an end-of-text token. The vocabulary is smaller if the text has too few pairs that occur twice. A text of more than
/// [`MAX_BYTES`] bytes is sampled in evenly spaced pieces.
pub(super) fn train(files: &[File], bytes: usize, vocab: usize) -> Result<Tokenizer> {
    let special = if files.len() > 1 { &[END_OF_TEXT][..] } else { &[] };
    let every = bytes.div_ceil(MAX_BYTES).max(1);
    if every > 1 {
        log::info!(
            "byte pair encoding is trained on one of every {every} pieces of the text, which is large"
        );
    }
    train_byte_pairs(beginning(files, bytes).step_by(every), special, vocab)
}

/// Iterates over pieces of the first `bytes` of the files, or up to three bytes fewer so that no character is split. A
/// read error ends the iteration without a report, because the later encoding reports the error.
fn beginning(files: &[File], bytes: usize) -> impl Iterator<Item = String> + Send {
    let pieces = files.iter().filter_map(|file| file.text.pieces().ok()).flatten().map_while(Result::ok);
    pieces.scan(bytes, |remaining, mut piece| {
        let length = piece.len();
        piece.truncate(piece.floor_char_boundary(*remaining));
        *remaining = remaining.saturating_sub(length);
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Text;

    #[test]
    fn file_prefixes_are_cut_at_character_boundaries() {
        let file = || File {
            text: Text { path: "a".into(), stream: Some("x€".into()) },
            bytes: 4,
            is_closed: false,
        };
        let files = [file(), file()];
        let text = |bytes| beginning(&files, bytes).collect::<String>();
        assert_eq!([0, 1, 3, 4, 5, 99].map(text), ["", "x", "x", "x€", "x€x", "x€x€"]);
    }
}
