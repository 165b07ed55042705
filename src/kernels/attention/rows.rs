//! What happens to the scores of a block of queries between its matrix products, row by row.

use pulp::Simd;

use super::Attention;
use crate::dropout::Mask;
use crate::matrix::{Matrix, MatrixMut};
use crate::vector::{LANES, max, sum_map, update, update_and_sum, update_pairs, vectorized};

/// Columns whose dropout factors are made at once.
const PART: usize = 8 * LANES;

/// A block of queries of one head.
pub(super) struct Block<'a> {
    pub attention: &'a Attention<'a>,
    pub sequence: usize,
    pub head: usize,
    /// The block's first query.
    pub first: usize,
    /// Keys that some query of the block may see: the used columns of its scores.
    pub keys: usize,
    /// The attention's dropout, ready to be asked.
    pub mask: Option<Mask>,
}

impl Block<'_> {
    /// The bias of the query's scores.
    #[inline(always)]
    fn bias(&self, query: usize) -> Option<&[f32]> {
        let Attention { query_time, key_time, .. } = *self.attention;
        let distances = self.attention.distances();
        let bias = &self.attention.bias?[self.head * distances..][..distances];
        Some(&bias[query_time - 1 - query..][..key_time])
    }

    /// The row of the dropout mask, which counts queries over all heads and sequences.
    #[inline(always)]
    fn mask_row(&self, query: usize) -> usize {
        (self.sequence * self.attention.heads + self.head) * self.attention.query_time + query
    }

    /// Adds the bias and hides keys, so that `visible` scores rounded up to whole blocks of lanes can be
    /// used; returns their number after rounding.
    #[inline(always)]
    fn finish_scores<S: Simd>(&self, simd: S, query: usize, scores: &mut [f32]) -> usize {
        let Attention { query_time, key_time, .. } = *self.attention;
        let visible = self.attention.visible(query).min(self.keys);
        if let Some(bias) = self.bias(query) {
            update(simd, &mut scores[..visible], [&bias[..visible]], |score, [bias]| score + bias);
        }
        if let Some(padding) = self.attention.key_padding {
            hide(&mut scores[..visible], &padding[self.sequence * key_time..]);
        }
        if let Some(mask) = self.attention.mask {
            let own = if mask.len() == query_time * key_time { 0 } else { self.sequence * query_time };
            hide(&mut scores[..visible], &mask[(own + query) * key_time..]);
        }
        let rounded = visible.next_multiple_of(LANES);
        scores[visible..rounded].fill(f32::NEG_INFINITY);
        rounded
    }
}

#[inline(always)]
fn hide(scores: &mut [f32], hidden: &[u8]) {
    for (score, hidden) in scores.iter_mut().zip(hidden) {
        *score = if *hidden != 0 { f32::NEG_INFINITY } else { *score };
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
            let query = block.first + row;
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
                    mask.fill_row(simd, block.mask_row(query), part * PART, factors);
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
        context: Matrix<'_>,
        context_gradient: Matrix<'_>,
        log_sum_exp: &[f32],
        scores: &mut MatrixMut<'_>,
        products: &mut MatrixMut<'_>,
    ) {
        for row in 0..log_sum_exp.len() {
            let query = block.first + row;
            let (scores, products) = (scores.row(row), products.row(row));
            let visible = block.finish_scores(simd, query, scores);
            let ((scores, behind), (products, products_behind)) =
                (scores.split_at_mut(visible), products.split_at_mut(visible));
            behind.fill(0.0);
            products_behind.fill(0.0);
            let dot = sum_map(simd, [context.row(row), context_gradient.row(row)], |[c, g]| c * g);
            let log_sum_exp = log_sum_exp[row];
            let mut factors = [1.0; PART];
            let parts = scores.chunks_mut(PART).zip(products.chunks_mut(PART));
            for (part, (scores, products)) in parts.enumerate() {
                if let Some(mask) = &block.mask {
                    mask.fill_row(simd, block.mask_row(query), part * PART, &mut factors);
                }
                update_pairs(simd, scores, products, [&factors], |score, product, [factor]| {
                    let weight = (score - log_sum_exp).exp();
                    (factor * weight, weight * (factor * product - dot))
                });
            }
        }
    }

    /// Adds the rows of `ds` to the bias gradient of their distances.
    pub(super) fn add_to_bias(simd; block: &Block<'_>, slopes: &mut MatrixMut<'_>, bias: &mut [f32]) {
        for row in 0..slopes.rows() {
            let bias = &mut bias[block.attention.query_time - 1 - block.first - row..][..block.keys];
            update(simd, bias, [slopes.row(row)], |sum, [slope]| sum + slope);
        }
    }
}
