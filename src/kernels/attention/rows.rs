//! What happens to the scores of a block of queries between its matrix products, row by row.

use super::super::dropout::Mask;
use super::super::math::exp;
use super::super::matrix::{Matrix, MatrixMut};
use super::super::vector::{LANES, Lanes, larger, max_lanes, sum_lanes, sum_map, update, vectorized};
use super::Attention;

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

    /// Adds the bias and hides keys, so that `visible` scores rounded up to whole blocks of lanes can be used;
    /// returns their number after rounding.
    #[inline(always)]
    fn finish_scores(&self, query: usize, scores: &mut [f32]) -> usize {
        let Attention { query_time, key_time, .. } = *self.attention;
        let visible = self.attention.visible(query).min(self.keys);
        if let Some(bias) = self.bias(query) {
            update(&mut scores[..visible], [&bias[..visible]], |score, [bias]| score + bias);
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

/// Whole blocks of lanes.
#[inline(always)]
fn lanes_of(row: &mut [f32]) -> &mut [Lanes] {
    row.as_chunks_mut().0
}

vectorized! {
    /// Turns scores into weights times `sums`, with dropout, and finds the rows' log-sum-exp.
    ///
    /// The weights lack the division by their sum: it is left to the context, which is shorter. `inverse_sums`
    /// is zero, and the log-sum-exp infinite, for a query that sees no key.
    pub(super) fn weights<FMA>(
        block: &Block<'_>, scores: &mut MatrixMut<'_>, inverse_sums: &mut [f32], log_sum_exp: &mut [f32],
    ) {
        for row in 0..log_sum_exp.len() {
            let query = block.first + row;
            let scores = scores.row(row);
            let visible = block.finish_scores(query, scores);
            let (scores, behind) = scores.split_at_mut(visible);
            behind.fill(0.0);
            let largest = max_of_blocks(lanes_of(scores));
            // Scores that are not numbers have no largest one, and must not pass for hidden ones.
            if largest == f32::NEG_INFINITY && scores.iter().all(|score| *score == largest) {
                scores.fill(0.0);
                (inverse_sums[row], log_sum_exp[row]) = (0.0, f32::INFINITY);
                continue;
            }
            let mut sums = [0.0; LANES];
            for block in lanes_of(scores) {
                let mut weights = *block;
                for lane in 0..LANES {
                    weights[lane] = exp::<FMA>(weights[lane] - largest);
                }
                for lane in 0..LANES {
                    sums[lane] += weights[lane];
                }
                *block = weights;
            }
            let sum = sum_lanes(sums);
            (inverse_sums[row], log_sum_exp[row]) = (1.0 / sum, largest + sum.ln());
            if let Some(mask) = &block.mask {
                drop_weights(mask, block.mask_row(query), scores);
            }
        }
    }

    /// Scales the rows of the context.
    pub(super) fn scale_rows<FMA>(factors: &[f32], rows: &mut MatrixMut<'_>) {
        for (row, factor) in factors.iter().enumerate() {
            update(rows.row(row), [], |x, []| x * factor);
        }
    }

    /// From scores `s` and products `g . v` to dropped weights `d p` (in place of the scores) and `ds` (in place
    /// of the products).
    pub(super) fn gradients<FMA>(
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
            let visible = block.finish_scores(query, scores);
            let ((scores, behind), (products, products_behind)) =
                (scores.split_at_mut(visible), products.split_at_mut(visible));
            behind.fill(0.0);
            products_behind.fill(0.0);
            let dot = sum_map([context.row(row), context_gradient.row(row)], |[c, g]| c * g);
            let log_sum_exp = log_sum_exp[row];
            let mut factors = [1.0; 4 * LANES];
            let parts = scores.chunks_mut(4 * LANES).zip(products.chunks_mut(4 * LANES));
            for (part, (scores, products)) in parts.enumerate() {
                if let Some(mask) = &block.mask {
                    mask.fill_row(block.mask_row(query), part * 4 * LANES, &mut factors);
                }
                let factors = factors.as_chunks::<LANES>().0;
                let blocks = lanes_of(scores).iter_mut().zip(lanes_of(products)).zip(factors);
                for ((scores, products), factors) in blocks {
                    let (mut weights, mut slopes) = (*scores, *products);
                    for lane in 0..LANES {
                        let weight = exp::<FMA>(weights[lane] - log_sum_exp);
                        slopes[lane] = weight * (factors[lane] * slopes[lane] - dot);
                        weights[lane] = factors[lane] * weight;
                    }
                    (*scores, *products) = (weights, slopes);
                }
            }
        }
    }

    /// Adds the rows of `ds` to the bias gradient of their distances.
    pub(super) fn add_to_bias<FMA>(block: &Block<'_>, rows: usize, slopes: &mut MatrixMut<'_>, bias: &mut [f32]) {
        for row in 0..rows {
            let bias = &mut bias[block.attention.query_time - 1 - block.first - row..][..block.keys];
            update(bias, [&slopes.row(row)[..block.keys]], |sum, [slope]| sum + slope);
        }
    }
}

#[inline(always)]
fn max_of_blocks(blocks: &[Lanes]) -> f32 {
    let mut largest = [f32::NEG_INFINITY; LANES];
    for block in blocks {
        let block = *block;
        for lane in 0..LANES {
            largest[lane] = larger(largest[lane], block[lane]);
        }
    }
    max_lanes(largest)
}

#[inline(always)]
fn drop_weights(mask: &Mask, row: usize, weights: &mut [f32]) {
    let mut factors = [0.0; 4 * LANES];
    for (part, weights) in weights.chunks_mut(4 * LANES).enumerate() {
        let factors = &mut factors[..weights.len()];
        mask.fill_row(row, part * 4 * LANES, factors);
        update(weights, [factors], |weight, [factor]| weight * factor);
    }
}
