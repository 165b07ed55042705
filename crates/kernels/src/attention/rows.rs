//! Row-wise operations on the scores of a block of queries, between its matrix products.

use std::ops::Range;

use pulp::Simd;

use super::{Saved, piece::Piece};
use crate::dropout::DropoutMask;
use crate::matrix::{Matrix, MatrixMut};
use crate::vector::{LANES, Vector, max, sum_map, update, update_all, update_and_sum, vectorized};

/// The number of columns for which dropout factors are generated at once.
const PART_LENGTH: usize = 8 * LANES;

/// A block of queries of one head.
pub(super) struct Block<'a> {
    pub piece: &'a Piece<'a>,
    /// The index of the head within the piece.
    pub head: usize,
    pub queries: Range<usize>,
    /// The keys visible to any query of the block, starting at a multiple of [`LANES`]: the columns of scores in use.
    pub keys: Range<usize>,
    /// The queries of the block, `[queries, d_head]`.
    pub query: Matrix<'a>,
    /// The attention's dropout mask.
    pub mask: Option<DropoutMask>,
}

impl Block<'_> {
    /// Returns the sink of the block's head; negative infinity if there is none.
    fn sink(&self) -> f32 {
        let sinks = self.piece.attention.scores.sinks;
        sinks.map_or(f32::NEG_INFINITY, |sinks| sinks[self.piece.first_head + self.head])
    }

    /// Adds the bias, bounds the scores and hides keys, up to the last visible key rounded up to a multiple of
    /// [`LANES`]; returns the rounded number of keys.
    #[inline(always)]
    fn finish_scores<S: Simd>(&self, simd: S, query: usize, scores: &mut [f32]) -> usize {
        let Piece { attention, sequence, first_head, .. } = *self.piece;
        let (keys, start) = (attention.keys(sequence, query), self.keys.start);
        // An empty range may start anywhere, even outside the block's keys.
        let [first, end] = if keys.is_empty() { [0; 2] } else { [keys.start - start, keys.end - start] };
        let index = [sequence, first_head + self.head, query];
        attention.add_to_scores(simd, index, start + first, &mut scores[first..end]);
        let rounded = end.next_multiple_of(LANES);
        scores[..first].fill(f32::NEG_INFINITY);
        scores[end..rounded].fill(f32::NEG_INFINITY);
        rounded
    }
}

/// Returns `d p` and `p (d g . v - g . c)` for scores, products `g . v`, dropout factors `d` and the dot product `g . c`.
#[inline(always)]
fn weight_and_gradient<S: Simd>(
    [score, product, factor]: [Vector<S>; 3],
    log_sum_exp: f32,
    dot: f32,
) -> [Vector<S>; 2] {
    let weight = (score - log_sum_exp).exp();
    [factor * weight, weight * (factor * product - dot)]
}

vectorized! {
    /// Replaces scores by unnormalised weights with dropout, and computes the log-sum-exp of the rows.
    ///
    /// The context is divided by the sum of a row later, because it is shorter than a row of weights. For a query that
    /// sees no key, `inverse_sums` is zero and the log-sum-exp infinite.
    pub(super) fn weights(
        simd;
        block: &Block<'_>,
        scores: &mut MatrixMut<'_>,
        inverse_sums: &mut [f32],
        log_sum_exp: &mut [f32],
    ) {
        let sink = block.sink();
        for row in 0..log_sum_exp.len() {
            let query = block.queries.start + row;
            let scores = scores.row(row);
            let visible = block.finish_scores(simd, query, scores);
            let (scores, hidden) = scores.split_at_mut(visible);
            hidden.fill(0.0);
            let largest = max(simd, scores).max(sink);
            // `max` skips NaN scores, which must not be treated as hidden.
            if largest == f32::NEG_INFINITY && scores.iter().all(|score| *score == largest) {
                scores.fill(0.0);
                (inverse_sums[row], log_sum_exp[row]) = (0.0, f32::INFINITY);
                continue;
            }
            let sum = update_and_sum(simd, scores, |score| (score - largest).exp()) + (sink - largest).exp();
            (inverse_sums[row], log_sum_exp[row]) = (1.0 / sum, largest + sum.ln());
            if let Some(mask) = &block.mask {
                let mut factors = [0.0; PART_LENGTH];
                for (part, weights) in scores.chunks_mut(PART_LENGTH).enumerate() {
                    let factors = &mut factors[..weights.len()];
                    let column = block.keys.start + part * PART_LENGTH;
                    mask.fill_row(simd, block.piece.mask_row(block.head, query), column, factors);
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

    /// Replaces the scores `s` by the weights with dropout `d p`, and the products `g . v` by `ds`.
    pub(super) fn gradients(
        simd;
        block: &Block<'_>,
        saved: &Saved<'_>,
        scores: &mut MatrixMut<'_>,
        products: &mut MatrixMut<'_>,
    ) {
        let softcap = block.piece.attention.scores.softcap;
        for (row, &log_sum_exp) in saved.log_sum_exp.iter().enumerate() {
            let query = block.queries.start + row;
            let (scores, products) = (scores.row(row), products.row(row));
            let visible = block.finish_scores(simd, query, scores);
            let ((scores, hidden), (products, hidden_products)) =
                (scores.split_at_mut(visible), products.split_at_mut(visible));
            hidden.fill(0.0);
            hidden_products.fill(0.0);
            let context = [saved.context.row(row), saved.context_gradient.row(row)];
            let dot = sum_map(simd, context, |[c, g]| c * g);
            let mut factors = [1.0; PART_LENGTH];
            let parts = scores.chunks_mut(PART_LENGTH).zip(products.chunks_mut(PART_LENGTH));
            for (part, (scores, products)) in parts.enumerate() {
                if let Some(mask) = &block.mask {
                    let column = block.keys.start + part * PART_LENGTH;
                    mask.fill_row(simd, block.piece.mask_row(block.head, query), column, &mut factors);
                }
                match softcap {
                    None => update_all(simd, [scores, products], [&factors], |[score, product], [factor]| {
                        weight_and_gradient([score, product, factor], log_sum_exp, dot)
                    }),
                    Some(cap) => update_all(simd, [scores, products], [&factors], |[score, product], [factor]| {
                        let [weight, gradient] = weight_and_gradient([score, product, factor], log_sum_exp, dot);
                        // A hidden key has a score of negative infinity.
                        let ratio = (score * (1.0 / cap)).larger(Vector::splat(simd, -1.0));
                        [weight, gradient * (1.0 - ratio * ratio)]
                    }),
                }
            }
        }
    }

    /// Adds the rows of `ds` to the bias gradient, by distance.
    pub(super) fn add_to_bias(simd; block: &Block<'_>, score_gradients: &mut MatrixMut<'_>, bias: &mut [f32]) {
        for row in 0..score_gradients.rows() {
            let first = block.piece.attention.query_time - 1 - block.queries.start - row;
            let bias = &mut bias[first..][block.keys.clone()];
            update(simd, bias, [score_gradients.row(row)], |sum, [gradient]| sum + gradient);
        }
    }
}
