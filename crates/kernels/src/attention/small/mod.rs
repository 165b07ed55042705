//! Attention over sequences of up to 16 tokens, without calls to the matrix product.
//!
//! A register holds one number for several queries of a head, with one query per lane. Softmax then reduces over keys
//! in different registers, never within a register. Queries and gradients are transposed on entry and exit.

mod gradients;
mod head;
mod registers;
mod visible;

use super::{Attention, Saved, piece::Piece};
use crate::matrix::MatrixMut;
use crate::vector::{LANES, Vector, vectorized};
use gradients::{KeysAndValues, WeightsAndScoreGradients};
use head::Head;
use registers::{
    add_over_queries, load_columns, load_rows, products_with_rows, softmax, store_columns, store_rows,
    sum_over_keys, transpose,
};

/// The rows of one head, `[time, d_head]`, padded with zero rows.
type Rows<const D: usize> = [[f32; D]; LANES];

/// Transposed rows, with one query per lane.
type Columns<const D: usize> = [[f32; LANES]; D];

/// One number for each key and query.
type Square = [[f32; LANES]; LANES];

/// Returns true if this kernel supports the shape. It computes in f32 at any precision, because rounding would cost
/// more time than it saves.
pub(super) fn supports(attention: &Attention) -> bool {
    attention.query_time <= LANES
        && attention.key_time <= LANES
        && matches!(attention.d_head, 8 | 16 | 32 | 64)
        && attention.scores.softcap.is_none()
        && attention.scores.sinks.is_none()
}

/// Returns the cost of a head in multiply-adds. Partially used registers cost as much as full ones; 64 accounts for
/// exponentials and transposes.
pub(super) fn head_work(d_head: usize, products: usize) -> usize {
    LANES * LANES * (d_head * products + 64)
}

/// Computes the context and log-sum-exp of a sequence.
pub(super) fn forward(piece: &Piece, context: &mut MatrixMut, log_sum_exp: &mut [f32]) {
    match piece.attention.d_head {
        8 => forward_wide::<8>(piece, context, log_sum_exp),
        16 => forward_wide::<16>(piece, context, log_sum_exp),
        32 => forward_wide::<32>(piece, context, log_sum_exp),
        _ => forward_wide::<64>(piece, context, log_sum_exp),
    }
}

/// Computes the gradients of a sequence; the gradients of queries and keys are still rotated.
pub(super) fn backward(
    piece: &Piece,
    saved: &Saved,
    gradients: &mut [MatrixMut; 3],
    bias: Option<&mut [f32]>,
) {
    match piece.attention.d_head {
        8 => backward_wide::<8>(piece, saved, gradients, bias),
        16 => backward_wide::<16>(piece, saved, gradients, bias),
        32 => backward_wide::<32>(piece, saved, gradients, bias),
        _ => backward_wide::<64>(piece, saved, gradients, bias),
    }
}

vectorized! {
    fn forward_wide<const D: usize>(
        simd; piece: &Piece<'_>, context: &mut MatrixMut<'_>, log_sum_exp: &mut [f32],
    ) {
        let attention = piece.attention;
        let Attention { query_time, key_time, dropout, rotary, .. } = *attention;
        let has_options = attention.adds_to_scores() || dropout.is_some();
        let first_query = rotary.map_or(0, |rotary| rotary.first_query);
        let (mut key, mut value, mut query) = ([[0.0; D]; LANES], [[0.0; D]; LANES], [[0.0; D]; LANES]);
        let (mut query_columns, mut context_columns) = ([[0.0; LANES]; D], [[0.0; LANES]; D]);
        let mut head = Head::new(piece);
        for index in 0..attention.heads {
            if index % attention.group() == 0 {
                load_rows(piece.key, index / attention.group() * D, rotary, 0, &mut key);
                load_rows(piece.value, index / attention.group() * D, None, 0, &mut value);
            }
            if has_options {
                head::fill(piece, index, &mut head);
            }
            load_rows(piece.query, index * D, rotary, first_query, &mut query);
            transpose(&query, &mut query_columns);
            for first in (0..query_time).step_by(Vector::<S>::LANES) {
                let mut weights = [Vector::splat(simd, 0.0); LANES];
                let columns = load_columns(simd, &query_columns, first);
                head.scores(simd, attention, &columns, &key, first, &mut weights);
                let (inverse_sums, log_sums) = softmax(simd, &mut weights[..key_time]);
                let used = first..query_time.min(first + Vector::<S>::LANES);
                log_sums.store(&mut log_sum_exp[index * query_time..][used]);
                if dropout.is_some() {
                    for (weight, factors) in weights.iter_mut().zip(&head.factors).take(key_time) {
                        *weight = *weight * Vector::load(simd, &factors[first..]);
                    }
                }
                let sums = sum_over_keys(simd, &weights[..key_time], &value);
                store_columns(&sums, inverse_sums, first, &mut context_columns);
            }
            store_rows(&context_columns, index * D, context);
        }
    }

    fn backward_wide<const D: usize>(
        simd;
        piece: &Piece<'_>,
        saved: &Saved<'_>,
        gradients: &mut [MatrixMut<'_>; 3],
        bias: Option<&mut [f32]>,
    ) {
        let attention = piece.attention;
        let Attention { query_time, key_time, dropout, rotary, .. } = *attention;
        let has_options = attention.adds_to_scores() || dropout.is_some();
        let (scale, first_query) = (attention.scale(), rotary.map_or(0, |rotary| rotary.first_query));
        let ([for_query, for_key, for_value], mut bias) = (gradients, bias);
        let (mut query, mut gradient) = ([[0.0; D]; LANES], [[0.0; D]; LANES]);
        let (mut query_columns, mut gradient_columns) = ([[0.0; LANES]; D], [[0.0; LANES]; D]);
        let mut for_query_columns = [[0.0; LANES]; D];
        let (mut shared, mut squares) = (KeysAndValues::<D>::new(), WeightsAndScoreGradients::new());
        let mut head = Head::new(piece);
        for index in 0..attention.heads {
            let key_column = index / attention.group() * D;
            if index % attention.group() == 0 {
                shared.load(piece, key_column);
            }
            if has_options {
                head::fill(piece, index, &mut head);
            }
            load_rows(piece.query, index * D, rotary, first_query, &mut query);
            load_rows(saved.context_gradient, index * D, None, 0, &mut gradient);
            transpose(&query, &mut query_columns);
            transpose(&gradient, &mut gradient_columns);
            for first in (0..query_time).step_by(Vector::<S>::LANES) {
                let used = first..query_time.min(first + Vector::<S>::LANES);
                let log_sums = Vector::load(simd, &saved.log_sum_exp[index * query_time..][used]);
                let mut scores = [Vector::splat(simd, 0.0); LANES];
                let columns = load_columns(simd, &query_columns, first);
                head.scores(simd, attention, &columns, &shared.key, first, &mut scores);
                let mut products = [Vector::splat(simd, 0.0); LANES];
                let columns = load_columns(simd, &gradient_columns, first);
                products_with_rows(simd, &columns, &shared.value, key_time, &mut products);
                let factors = dropout.is_some().then_some(&head.factors);
                let (scores, score_gradients) = (&mut scores[..key_time], &mut products[..key_time]);
                squares.fill(simd, (first, log_sums), factors, [scores, score_gradients]);
                let sums = sum_over_keys(simd, score_gradients, &shared.key);
                store_columns(&sums, Vector::splat(simd, scale), first, &mut for_query_columns);
            }
            store_rows(&for_query_columns, index * D, for_query);
            if let Some(bias) = &mut bias {
                let bias = &mut bias[index * attention.distances()..][..attention.distances()];
                squares.sum_by_distance([query_time, key_time], bias);
            }
            add_over_queries(simd, &head.visible, &squares.score_gradients, &query, &mut shared.key_gradient);
            add_over_queries(simd, &head.visible, &squares.weights, &gradient, &mut shared.value_gradient);
            if (index + 1) % attention.group() == 0 {
                shared.write_gradients(piece, key_column, [for_key, for_value]);
            }
        }
    }
}
