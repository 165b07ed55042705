//! Attention by blocks of 64 queries, whose products are left to the matrix product.

use super::super::matmul::{Destination, product};
use super::super::matrix::{Matrix, MatrixMut};
use super::super::pool::{self, Buffer};
use super::super::vector::LANES;
use super::heads::{Inputs, PieceGradients, PieceSaved};
use super::rows::{self, Block};
use super::{Attention, Rotary};

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
            let queries = block.first..block.first + rows;
            let query = inputs.query.part(queries.clone(), columns.clone());
            let query = turned(rotary, first_query + block.first, query, &mut turned_query);
            let key = key.part(0..block.keys, 0..d_head);
            let value = inputs.value.part(0..block.keys, 0..d_head);

            let used = block.keys.next_multiple_of(LANES);
            let mut matrix = MatrixMut::new(&mut scores, width);
            let mut block_scores = matrix.part(0..rows, 0..used);
            product(
                &mut block_scores.part(0..rows, 0..block.keys),
                Destination::Overwrite,
                scale,
                query,
                key.transposed(),
            );

            let mut inverse_sums = [0.0; BLOCK];
            let log_sum_exp = &mut log_sum_exp[head * query_time..][queries.clone()];
            rows::weights(&block, &mut block_scores, &mut inverse_sums[..rows], log_sum_exp);

            let mut context = context.part(queries, columns.clone());
            let weights = Matrix::new(&scores, width).part(0..rows, 0..block.keys);
            product(&mut context, Destination::Overwrite, 1.0, weights, value);
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
    let all_keys = turned(rotary, 0, inputs.key, &mut turned_key);
    // The last block reaches the most keys: it comes first and overwrites, the others add.
    let reached = attention.visible(query_time - 1);
    for row in reached..key_time {
        gradients.key.row(row).fill(0.0);
        gradients.value.row(row).fill(0.0);
    }
    let mut destination = Destination::Overwrite;
    if let Some(bias) = &mut gradients.bias {
        bias.fill(0.0);
    }
    for head in 0..attention.group() {
        let columns = head * d_head..(head + 1) * d_head;
        for (rows, block) in blocks(attention, piece, head).rev() {
            let queries = block.first..block.first + rows;
            let query = inputs.query.part(queries.clone(), columns.clone());
            let query = turned(rotary, first_query + block.first, query, &mut turned_query);
            let context = saved.context.part(queries.clone(), columns.clone());
            let context_gradient = saved.context_gradient.part(queries.clone(), columns.clone());
            let key = all_keys.part(0..block.keys, 0..d_head);
            let value = inputs.value.part(0..block.keys, 0..d_head);

            let used = block.keys.next_multiple_of(LANES);
            let (mut score_matrix, mut slope_matrix) =
                (MatrixMut::new(&mut scores, width), MatrixMut::new(&mut slopes, width));
            let (mut block_scores, mut block_slopes) =
                (score_matrix.part(0..rows, 0..used), slope_matrix.part(0..rows, 0..used));
            let keys = 0..block.keys;
            product(
                &mut block_scores.part(0..rows, keys.clone()),
                Destination::Overwrite,
                scale,
                query,
                key.transposed(),
            );
            product(
                &mut block_slopes.part(0..rows, keys.clone()),
                Destination::Overwrite,
                1.0,
                context_gradient,
                value.transposed(),
            );

            let log_sum_exp = &saved.log_sum_exp[head * query_time..][queries.clone()];
            rows::gradients(
                &block,
                context,
                context_gradient,
                log_sum_exp,
                &mut block_scores,
                &mut block_slopes,
            );
            if let Some(bias) = &mut gradients.bias {
                let distances = attention.distances();
                rows::add_to_bias(
                    &block,
                    rows,
                    &mut block_slopes,
                    &mut bias[head * distances..][..distances],
                );
            }

            let weights = Matrix::new(&scores, width).part(0..rows, keys.clone());
            let slopes = Matrix::new(&slopes, width).part(0..rows, keys.clone());
            let mut value_gradient = gradients.value.part(keys.clone(), 0..d_head);
            product(&mut value_gradient, destination, 1.0, weights.transposed(), context_gradient);
            let mut query_gradient = gradients.query.part(queries, columns.clone());
            product(&mut query_gradient, Destination::Overwrite, scale, slopes, key);
            let mut key_gradient = gradients.key.part(keys, 0..d_head);
            product(&mut key_gradient, destination, scale, slopes.transposed(), query);
            if let Some(rotary) = rotary {
                rotary.turn_back(first_query + block.first, &mut query_gradient);
            }
            destination = Destination::AddTo;
        }
    }
    if let Some(rotary) = rotary {
        rotary.turn_back(0, gradients.key);
    }
}
