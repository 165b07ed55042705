//! The merges of a SentencePiece vocabulary, which stores only the scores of its pieces.

use std::cmp::Reverse;
use std::collections::HashMap;

/// A piece of a vocabulary, with its id and score.
#[derive(Debug)]
pub(super) struct Piece {
    pub id: usize,
    pub text: String,
    pub score: f64,
}

/// Returns the pairs of pieces that concatenate to a piece, in the order in which byte pair encoding applies them: the
/// highest score of the result first, then the longest parts.
pub(super) fn merges(pieces: &[Piece]) -> Vec<[&str; 2]> {
    let ids: HashMap<&str, usize> = pieces.iter().map(|piece| (piece.text.as_str(), piece.id)).collect();
    let mut pairs = Vec::new();
    for piece in pieces {
        for (at, _) in piece.text.char_indices().skip(1) {
            let (left, right) = piece.text.split_at(at);
            if let (Some(first), Some(second)) = (ids.get(left), ids.get(right)) {
                let length = |part: &str| Reverse(part.chars().count());
                pairs.push((piece, (length(left), length(right), piece.id, *first, *second), [left, right]));
            }
        }
    }
    pairs.sort_by(|(a, a_order, _), (b, b_order, _)| b.score.total_cmp(&a.score).then(a_order.cmp(b_order)));
    pairs.into_iter().map(|(.., pair)| pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_follow_scores_then_lengths() {
        let pieces =
            [("a", -9.0), ("b", -9.0), ("ab", -2.0), ("abb", -1.0), ("bb", -2.0), ("é", 0.0), ("aé", -3.0)];
        let piece =
            |(id, (text, score)): (usize, &(&str, f64))| Piece { id, text: text.to_string(), score: *score };
        let pieces: Vec<_> = pieces.iter().enumerate().map(piece).collect();
        assert_eq!(merges(&pieces), [["ab", "b"], ["a", "bb"], ["a", "b"], ["b", "b"], ["a", "é"]]);
    }
}
