//! Attention in blocks of 64 queries, computed with the matrix product.

use std::ops::Range;

use super::piece::Piece;
use super::rows::{self, Block};
use super::{Attention, Saved, span};
use crate::matmul::{
    Destination::{AddTo, Overwrite},
    Right, product,
};
use crate::matrix::{Matrix, MatrixMut};
use crate::pool::{self, Buffer};
use crate::vector::LANES;

/// The number of queries in a block.
const BLOCK: usize = 64;

/// Iterates over the blocks of queries of each head, last block first.
fn blocks<'a>(piece: &'a Piece) -> impl Iterator<Item = Block<'a>> {
    let Attention { query_time, d_head, dropout, key_time, .. } = *piece.attention;
    let mask = dropout.map(|dropout| dropout.mask(key_time));
    let starts = (0..piece.attention.group())
        .flat_map(move |head| (0..query_time).step_by(BLOCK).rev().map(move |first| (head, first)));
    starts.map(move |(head, first)| {
        let queries = first..query_time.min(first + BLOCK);
        let query = piece.query.part(queries.clone(), columns(head, d_head));
        Block { piece, head, keys: keys_of(piece, queries.clone()), queries, query, mask }
    })
}

/// Returns the range of keys visible to any of these queries, starting at a multiple of [`BLOCK`]; the first key if
/// none is visible.
fn keys_of(piece: &Piece, queries: Range<usize>) -> Range<usize> {
    let visible = span(queries.map(|query| piece.attention.keys(piece.sequence, query))).unwrap_or(0..1);
    visible.start / BLOCK * BLOCK..visible.end
}

/// Takes a buffer for the scores of a block from the pool; returns it with its row length, a multiple of [`LANES`].
fn score_rows(attention: &Attention) -> (Buffer, usize) {
    let width = attention.key_time.next_multiple_of(LANES);
    (pool::take(BLOCK.min(attention.query_time) * width), width)
}

/// Computes the context and log-sum-exp of a piece.
pub(super) fn forward(piece: &Piece, context: &mut MatrixMut, log_sum_exp: &mut [f32]) {
    let Attention { query_time, d_head, precision, .. } = *piece.attention;
    let scale = piece.attention.scale();
    let (mut scores, width) = score_rows(piece.attention);
    let mut buffers = [None, None];
    let piece = piece.rotated(&mut buffers);
    let [keys, values] = [piece.key.transposed(), piece.value].map(|matrix| Right::new(precision, matrix));
    for block in blocks(&piece) {
        let (rows, queries) = (block.queries.len(), block.queries.clone());
        let mut matrix = MatrixMut::new(&mut scores, width);
        let mut used = matrix.part(0..rows, block.keys.clone());
        keys.product(&mut used, Overwrite, scale, block.query, [0, block.keys.start]);
        let mut inverse_sums = [0.0; BLOCK];
        rows::weights(
            &block,
            &mut matrix.part(0..rows, full_registers(&block.keys)),
            &mut inverse_sums[..rows],
            &mut log_sum_exp[block.head * query_time..][queries.clone()],
        );
        let mut context = context.part(queries, columns(block.head, d_head));
        let weights = Matrix::new(&scores, width).part(0..rows, block.keys.clone());
        values.product(&mut context, Overwrite, 1.0, weights, [block.keys.start, 0]);
        rows::scale_rows(&inverse_sums[..rows], &mut context);
    }
}

/// Computes the gradients of a piece; the gradients of queries and keys are still rotated.
pub(super) fn backward(
    piece: &Piece,
    saved: &Saved,
    [query_gradient, key_gradient, value_gradient]: &mut [MatrixMut; 3],
    mut bias: Option<&mut [f32]>,
) {
    let Attention { query_time, key_time, d_head, precision, .. } = *piece.attention;
    let scale = piece.attention.scale();
    let distances = piece.attention.distances();
    let ((mut scores, width), (mut score_gradients, _)) =
        (score_rows(piece.attention), score_rows(piece.attention));
    // The first block has the last queries. It overwrites the gradients of its keys; the other blocks add to them.
    let overwritten = keys_of(piece, (query_time - 1) / BLOCK * BLOCK..query_time);
    for others in [0..overwritten.start, overwritten.end..key_time] {
        key_gradient.part(others.clone(), 0..d_head).fill(0.0);
        value_gradient.part(others, 0..d_head).fill(0.0);
    }
    let mut destination = Overwrite;
    bias.iter_mut().for_each(|bias| bias.fill(0.0));
    let mut buffers = [None, None];
    let piece = piece.rotated(&mut buffers);
    let [for_scores, for_weights, for_queries] =
        [piece.key.transposed(), piece.value.transposed(), piece.key]
            .map(|matrix| Right::new(precision, matrix));
    for block in blocks(&piece) {
        let (rows, queries, keys) = (0..block.queries.len(), block.queries.clone(), block.keys.clone());
        let columns = columns(block.head, d_head);
        let [context, context_gradient] =
            [saved.context, saved.context_gradient].map(|part| part.part(queries.clone(), columns.clone()));
        let log_sum_exp = &saved.log_sum_exp[block.head * query_time..][queries.clone()];
        let saved = Saved { context, log_sum_exp, context_gradient };
        let (mut all_scores, mut all_score_gradients) =
            (MatrixMut::new(&mut scores, width), MatrixMut::new(&mut score_gradients, width));
        let mut used = all_scores.part(rows.clone(), keys.clone());
        for_scores.product(&mut used, Overwrite, scale, block.query, [0, keys.start]);
        let mut products = all_score_gradients.part(rows.clone(), keys.clone());
        for_weights.product(&mut products, Overwrite, 1.0, context_gradient, [0, keys.start]);
        let columns_of_registers = full_registers(&keys);
        rows::gradients(
            &block,
            &saved,
            &mut all_scores.part(rows.clone(), columns_of_registers.clone()),
            &mut all_score_gradients.part(rows.clone(), columns_of_registers),
        );
        if let Some(bias) = &mut bias {
            let bias = &mut bias[block.head * distances..][..distances];
            rows::add_to_bias(&block, &mut all_score_gradients.part(rows.clone(), keys.clone()), bias);
        }

        let weights = Matrix::new(&scores, width).part(rows.clone(), keys.clone()).transposed();
        let score_gradients = Matrix::new(&score_gradients, width).part(rows, keys.clone());
        let mut value_gradient = value_gradient.part(keys.clone(), 0..d_head);
        product(precision, &mut value_gradient, destination, 1.0, weights, context_gradient);
        let mut query_gradient = query_gradient.part(queries, columns);
        for_queries.product(&mut query_gradient, Overwrite, scale, score_gradients, [keys.start, 0]);
        let mut key_gradient = key_gradient.part(keys, 0..d_head);
        product(precision, &mut key_gradient, destination, scale, score_gradients.transposed(), block.query);
        destination = AddTo;
    }
}

/// Extends a range of keys to the end of a register.
fn full_registers(keys: &Range<usize>) -> Range<usize> {
    keys.start..keys.end.next_multiple_of(LANES)
}

/// Returns the columns of a head.
fn columns(head: usize, d_head: usize) -> Range<usize> {
    head * d_head..(head + 1) * d_head
}
