//! Attention by blocks of 64 queries, whose products are left to the matrix product.

use super::heads::{Inputs, PieceGradients, PieceSaved};
use super::rows::{self, Block};
use super::{Attention, Rotary};
use crate::matmul::{
    Destination::{AddTo, Overwrite},
    product,
};
use crate::matrix::{Matrix, MatrixMut};
use crate::pool::{self, Buffer};
use crate::vector::LANES;

/// Queries in a block.
const BLOCK: usize = 64;

/// The blocks of queries of one head.
fn blocks<'a>(
    attention: &'a Attention,
    piece: usize,
    head_of_group: usize,
) -> impl DoubleEndedIterator<Item = (usize, Block<'a>)> {
    let Attention { query_time, key_value_heads, .. } = *attention;
    let (sequence, key_value_head) = (piece / key_value_heads, piece % key_value_heads);
    let mask = attention.dropout.map(|dropout| dropout.mask(attention.key_time));
    (0..query_time.div_ceil(BLOCK)).map(move |index| {
        let first = index * BLOCK;
        let rows = BLOCK.min(query_time - first);
        let block = Block {
            attention,
            sequence,
            head: key_value_head * attention.group() + head_of_group,
            first,
            keys: attention.visible(first + rows - 1),
            mask,
        };
        (rows, block)
    })
}

/// Room for the scores of a block. Its rows are whole blocks of lanes.
fn score_rows(attention: &Attention) -> (Buffer, usize) {
    let width = attention.key_time.next_multiple_of(LANES);
    (pool::take(BLOCK.min(attention.query_time) * width), width)
}

/// Rows as they are, or turned into `turned` by rotary positions.
fn turned<'a>(rotary: Option<Rotary>, first: usize, rows: Matrix<'a>, turned: &'a mut [f32]) -> Matrix<'a> {
    let Some(rotary) = rotary else { return rows };
    let turned = &mut turned[..rows.rows() * rows.columns()];
    rotary.turn(first, rows, &mut MatrixMut::new(turned, rows.columns()));
    Matrix::new(turned, rows.columns())
}

/// Context and log-sum-exp of a piece.
pub(super) fn forward(
    attention: &Attention,
    piece: usize,
    inputs: &Inputs,
    context: &mut MatrixMut,
    log_sum_exp: &mut [f32],
) {
    let Attention { query_time, key_time, d_head, scale, rotary, first_query, .. } = *attention;
    let (mut scores, width) = score_rows(attention);
    let room = |rows| pool::take(if rotary.is_some() { rows * d_head } else { 0 });
    let (mut turned_query, mut turned_key) = (room(BLOCK), room(key_time));
    let key = turned(rotary, 0, inputs.key, &mut turned_key);
    for head in 0..attention.group() {
        let columns = head * d_head..(head + 1) * d_head;
        for (rows, block) in blocks(attention, piece, head) {
            let (queries, keys) = (block.first..block.first + rows, 0..block.keys);
            let query = inputs.query.part(queries.clone(), columns.clone());
            let query = turned(rotary, first_query + block.first, query, &mut turned_query);
            let (key, value) =
                (key.part(keys.clone(), 0..d_head), inputs.value.part(keys.clone(), 0..d_head));

            let mut matrix = MatrixMut::new(&mut scores, width);
            product(&mut matrix.part(0..rows, keys.clone()), Overwrite, scale, query, key.transposed());
            let mut inverse_sums = [0.0; BLOCK];
            rows::weights(
                &block,
                &mut matrix.part(0..rows, 0..block.keys.next_multiple_of(LANES)),
                &mut inverse_sums[..rows],
                &mut log_sum_exp[head * query_time..][queries.clone()],
            );
            let mut context = context.part(queries, columns.clone());
            let weights = Matrix::new(&scores, width).part(0..rows, keys);
            product(&mut context, Overwrite, 1.0, weights, value);
            rows::scale_rows(&inverse_sums[..rows], &mut context);
        }
    }
}

/// The gradients of a piece.
pub(super) fn backward(
    attention: &Attention,
    piece: usize,
    inputs: &Inputs,
    saved: &PieceSaved,
    gradients: &mut PieceGradients,
) {
    let Attention { query_time, key_time, d_head, scale, rotary, first_query, .. } = *attention;
    let ((mut scores, width), (mut slopes, _)) = (score_rows(attention), score_rows(attention));
    let room = |rows| pool::take(if rotary.is_some() { rows * d_head } else { 0 });
    let (mut turned_query, mut turned_key) = (room(BLOCK), room(key_time));
    let key = turned(rotary, 0, inputs.key, &mut turned_key);
    // The last block reaches the most keys: it comes first and overwrites, the others add.
    for row in attention.visible(query_time - 1)..key_time {
        gradients.key.row(row).fill(0.0);
        gradients.value.row(row).fill(0.0);
    }
    let mut destination = Overwrite;
    if let Some(bias) = &mut gradients.bias {
        bias.fill(0.0);
    }
    for head in 0..attention.group() {
        let columns = head * d_head..(head + 1) * d_head;
        for (rows, block) in blocks(attention, piece, head).rev() {
            let (queries, keys) = (block.first..block.first + rows, 0..block.keys);
            let query = inputs.query.part(queries.clone(), columns.clone());
            let query = turned(rotary, first_query + block.first, query, &mut turned_query);
            let (key, value) =
                (key.part(keys.clone(), 0..d_head), inputs.value.part(keys.clone(), 0..d_head));
            let context = saved.context.part(queries.clone(), columns.clone());
            let context_gradient = saved.context_gradient.part(queries.clone(), columns.clone());

            let (mut all_scores, mut all_slopes) =
                (MatrixMut::new(&mut scores, width), MatrixMut::new(&mut slopes, width));
            product(&mut all_scores.part(0..rows, keys.clone()), Overwrite, scale, query, key.transposed());
            let mut products = all_slopes.part(0..rows, keys.clone());
            product(&mut products, Overwrite, 1.0, context_gradient, value.transposed());
            let whole_registers = 0..block.keys.next_multiple_of(LANES);
            rows::gradients(
                &block,
                context,
                context_gradient,
                &saved.log_sum_exp[head * query_time..][queries.clone()],
                &mut all_scores.part(0..rows, whole_registers.clone()),
                &mut all_slopes.part(0..rows, whole_registers),
            );
            if let Some(bias) = &mut gradients.bias {
                let bias = &mut bias[head * attention.distances()..][..attention.distances()];
                rows::add_to_bias(&block, &mut all_slopes.part(0..rows, keys.clone()), bias);
            }

            let weights = Matrix::new(&scores, width).part(0..rows, keys.clone());
            let slopes = Matrix::new(&slopes, width).part(0..rows, keys.clone());
            let mut value_gradient = gradients.value.part(keys.clone(), 0..d_head);
            product(&mut value_gradient, destination, 1.0, weights.transposed(), context_gradient);
            let mut query_gradient = gradients.query.part(queries, columns.clone());
            product(&mut query_gradient, Overwrite, scale, slopes, key);
            let mut key_gradient = gradients.key.part(keys, 0..d_head);
            product(&mut key_gradient, destination, scale, slopes.transposed(), query);
            if let Some(rotary) = rotary {
                rotary.turn_back(first_query + block.first, &mut query_gradient);
            }
            destination = AddTo;
        }
    }
    if let Some(rotary) = rotary {
        rotary.turn_back(0, gradients.key);
    }
}
