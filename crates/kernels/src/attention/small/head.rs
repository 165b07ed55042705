//! What is particular to a head: which keys are hidden, biases, and which weights are dropped.

use pulp::Simd;

use super::super::{Attention, piece::Piece};
use super::registers::{products_with_rows, transpose};
use super::{Rows, Square};
use crate::vector::{LANES, Vector, vectorized};

/// What is particular to a head, where it is wanted.
#[derive(Default)]
pub(super) struct Head {
    /// Added to the scores, for each key and query: bias, and negative infinity for hidden keys.
    addends: Square,
    /// What the weights of each key and query are multiplied by for dropout.
    pub(super) factors: Square,
}

vectorized! {
    /// Fills in what is wanted for a head of the piece.
    pub(super) fn fill(simd; piece: &Piece<'_>, index: usize, head: &mut Head) {
        let Attention { query_time, key_time, dropout, .. } = *piece.attention;
        let mut rows = [[0.0; LANES]; LANES];
        // The same keys are hidden from all heads.
        if piece.attention.adds_to_scores() && (index == 0 || piece.attention.bias.is_some()) {
            for (query, row) in rows.iter_mut().enumerate().take(query_time) {
                piece.attention.add_to_scores(simd, [piece.sequence, index, query], &mut row[..key_time]);
            }
            transpose(&rows, &mut head.addends);
        }
        if let Some(dropout) = dropout {
            // A row of the mask is as long as a row of this square, so that the rows of a head follow each other.
            let used = &mut rows.as_flattened_mut()[..query_time * LANES];
            dropout.mask(key_time).fill_row(simd, piece.mask_row(index, 0), 0, used);
            transpose(&rows, &mut head.factors);
        }
    }
}

impl Head {
    /// The scores of all keys; hidden ones are negative infinity.
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
        let Attention { key_time, scale, causal, first_query, .. } = *attention;
        products_with_rows(simd, query, key, key_time, scores);
        let position = Vector::load(simd, &COUNTING) + (first_query + first) as f32;
        for (j, score) in scores.iter_mut().enumerate().take(key_time) {
            *score = *score * scale;
            if attention.adds_to_scores() {
                *score = *score + Vector::load(simd, &self.addends[j][first..]);
            }
            if causal {
                *score = score.replace(position.less_than(j as f32), f32::NEG_INFINITY);
            }
        }
    }
}

const COUNTING: [f32; LANES] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
