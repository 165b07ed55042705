//! The parts of the computation that differ between sequences or heads: visible keys, biases and dropout.

use pulp::Simd;

use super::super::{Attention, piece::Piece};
use super::registers::{products_with_rows, transpose};
use super::visible::VisibleKeys;
use super::{Rows, Square};
use crate::vector::{LANES, Vector, vectorized};

/// The visible keys, score addends and dropout factors of a head; addends and factors are zero unless they are used.
pub(super) struct Head {
    pub(super) visible: VisibleKeys,
    /// The addends of the scores for each key and query: the bias, and negative infinity for hidden pairs.
    addends: Square,
    /// The dropout factors of the weights for each key and query.
    pub(super) factors: Square,
}

vectorized! {
    /// Fills in the addends and dropout factors that a head of the piece uses.
    pub(super) fn fill(simd; piece: &Piece<'_>, index: usize, head: &mut Head) {
        let Attention { query_time, key_time, dropout, .. } = *piece.attention;
        let mut rows = [[0.0; LANES]; LANES];
        // Hidden pairs are the same for all heads.
        if piece.attention.adds_to_scores() && (index == 0 || piece.attention.scores.bias.is_some()) {
            for (query, row) in rows.iter_mut().enumerate().take(query_time) {
                piece.attention.add_to_scores(simd, [piece.sequence, index, query], 0, &mut row[..key_time]);
            }
            transpose(&rows, &mut head.addends);
        }
        if let Some(dropout) = dropout {
            // The rows of the mask are as long as the rows of this square, so the rows of a head are contiguous.
            let used = &mut rows.as_flattened_mut()[..query_time * LANES];
            dropout.mask(key_time).fill_row(simd, piece.mask_row(index, 0), 0, used);
            transpose(&rows, &mut head.factors);
        }
    }
}

impl Head {
    /// Creates a head with the visible keys of its sequence, without addends and factors.
    pub(super) fn new(piece: &Piece) -> Self {
        let visible = VisibleKeys::new(piece.attention, piece.sequence);
        Self { visible, addends: Square::default(), factors: Square::default() }
    }

    /// Computes the scores of all keys; scores of hidden keys are negative infinity.
    #[inline(always)]
    pub(super) fn scores<S: Simd, const D: usize>(
        &self,
        simd: S,
        attention: &Attention,
        query: &[Vector<S>; D],
        key: &Rows<D>,
        first: usize,
        scores: &mut [Vector<S>; LANES],
    ) {
        let (key_time, scale) = (attention.key_time, attention.scale());
        products_with_rows(simd, query, key, key_time, scores);
        let VisibleKeys { last, negative_first, is_cut: [ends_early, begins_late], .. } = &self.visible;
        let [last, negative_first] = [last, negative_first].map(|lanes| Vector::load(simd, &lanes[first..]));
        for (j, score) in scores.iter_mut().enumerate().take(key_time) {
            *score = *score * scale;
            if attention.adds_to_scores() {
                *score = *score + Vector::load(simd, &self.addends[j][first..]);
            }
            if *ends_early {
                *score = score.replace(last.less_than(j as f32), f32::NEG_INFINITY);
            }
            if *begins_late {
                *score = score.replace(negative_first.less_than(-(j as f32)), f32::NEG_INFINITY);
            }
        }
    }
}
