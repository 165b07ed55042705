//! What happens to the scores of a block of queries between its matrix products, row by row.

use std::ops::Range;

use pulp::Simd;

use super::{Saved, piece::Piece};
use crate::dropout::Mask;
use crate::matrix::{Matrix, MatrixMut};
use crate::vector::{LANES, max, sum_map, update, update_all, update_and_sum, vectorized};

/// Columns whose dropout factors are made at once.
const PART: usize = 8 * LANES;

/// A block of queries of one head.
pub(super) struct Block<'a> {
    pub piece: &'a Piece<'a>,
    /// Counted within the piece.
    pub head: usize,
    pub queries: Range<usize>,
    /// Keys that some query of the block may see: the used columns of its scores.
    pub keys: Range<usize>,
    /// `[queries, d_head]`.
    pub query: Matrix<'a>,
    /// The attention's dropout, ready to be asked.
    pub mask: Option<Mask>,
}

impl Block<'_> {
    /// Adds the bias and hides keys, so that `visible` scores rounded up to whole blocks of lanes can be
    /// used; returns their number after rounding.
    #[inline(always)]
    fn finish_scores<S: Simd>(&self, simd: S, query: usize, scores: &mut [f32]) -> usize {
        let attention = self.piece.attention;
        let visible = attention.visible(query).min(self.keys.end);
        let place = [self.piece.sequence, self.piece.first_head + self.head, query];
        attention.add_to_scores(simd, place, &mut scores[..visible]);
        let rounded = visible.next_multiple_of(LANES);
        scores[visible..rounded].fill(f32::NEG_INFINITY);
        rounded
    }
}

vectorized! {
    /// Turns scores into weights times `sums`, with dropout, and finds the rows' log-sum-exp.
    ///
    /// The weights lack the division by their sum: it is left to the context, which is shorter.
    /// `inverse_sums` is zero, and the log-sum-exp infinite, for a query that sees no key.
    pub(super) fn weights(
        simd;
        block: &Block<'_>,
        scores: &mut MatrixMut<'_>,
        inverse_sums: &mut [f32],
        log_sum_exp: &mut [f32],
    ) {
        for row in 0..log_sum_exp.len() {
            let query = block.queries.start + row;
            let scores = scores.row(row);
            let visible = block.finish_scores(simd, query, scores);
            let (scores, behind) = scores.split_at_mut(visible);
            behind.fill(0.0);
            let largest = max(simd, scores);
            // Scores that are not numbers have no largest one, and must not pass for hidden ones.
            if largest == f32::NEG_INFINITY && scores.iter().all(|score| *score == largest) {
                scores.fill(0.0);
                (inverse_sums[row], log_sum_exp[row]) = (0.0, f32::INFINITY);
                continue;
            }
            let sum = update_and_sum(simd, scores, |score| (score - largest).exp());
            (inverse_sums[row], log_sum_exp[row]) = (1.0 / sum, largest + sum.ln());
            if let Some(mask) = &block.mask {
                let mut factors = [0.0; PART];
                for (part, weights) in scores.chunks_mut(PART).enumerate() {
                    let factors = &mut factors[..weights.len()];
                    mask.fill_row(simd, block.piece.mask_row(block.head, query), part * PART, factors);
                    update(simd, weights, [factors], |weight, [factor]| weight * factor);
                }
            }
        }
    }

    /// Scales the rows of the context.
    pub(super) fn scale_rows(simd; factors: &[f32], rows: &mut MatrixMut<'_>) {
        for (row, factor) in factors.iter().enumerate() {
            update(simd, rows.row(row), [], |x, []| x * *factor);
        }
    }

    /// From scores `s` and products `g . v` to dropped weights `d p` (in place of the scores) and `ds` (in
    /// place of the products).
    pub(super) fn gradients(
        simd;
        block: &Block<'_>,
        saved: &Saved<'_>,
        scores: &mut MatrixMut<'_>,
        products: &mut MatrixMut<'_>,
    ) {
        for (row, &log_sum_exp) in saved.log_sum_exp.iter().enumerate() {
            let query = block.queries.start + row;
            let (scores, products) = (scores.row(row), products.row(row));
            let visible = block.finish_scores(simd, query, scores);
            let ((scores, behind), (products, products_behind)) =
                (scores.split_at_mut(visible), products.split_at_mut(visible));
            behind.fill(0.0);
            products_behind.fill(0.0);
            let context = [saved.context.row(row), saved.context_gradient.row(row)];
            let dot = sum_map(simd, context, |[c, g]| c * g);
            let mut factors = [1.0; PART];
            let parts = scores.chunks_mut(PART).zip(products.chunks_mut(PART));
            for (part, (scores, products)) in parts.enumerate() {
                if let Some(mask) = &block.mask {
                    mask.fill_row(simd, block.piece.mask_row(block.head, query), part * PART, &mut factors);
                }
                update_all(simd, [scores, products], [&factors], |[score, product], [factor]| {
                    let weight = (score - log_sum_exp).exp();
                    [factor * weight, weight * (factor * product - dot)]
                });
            }
        }
    }

    /// Adds the rows of `ds` to the bias gradient of their distances.
    pub(super) fn add_to_bias(simd; block: &Block<'_>, slopes: &mut MatrixMut<'_>, bias: &mut [f32]) {
        for row in 0..slopes.rows() {
            let first = block.piece.attention.query_time - 1 - block.queries.start - row;
            let bias = &mut bias[first..][block.keys.clone()];
            update(simd, bias, [slopes.row(row)], |sum, [slope]| sum + slope);
        }
    }
}
