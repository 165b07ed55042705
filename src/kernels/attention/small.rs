//! Attention of sequences up to 16 tokens long, without calls of the matrix product.
//!
//! A register holds one number of several queries of a head, a query in each lane. Softmax then runs from
//! register to register over the keys, and never within one. Queries and gradients are transposed on the way in
//! and out.

use std::ops::Range;

use pulp::Simd;

use super::super::dropout::Dropout;
use super::super::matrix::{Matrix, MatrixMut};
use super::super::vector::{LANES, Vector, vectorized};
use super::Attention;
use super::heads::{Inputs, PieceGradients, PieceSaved};
use super::rotary::{Rotary, Turn, turn_row};

/// Rows of one head, `[time, d_head]`, filled up with zero rows.
type Rows<const D: usize> = [[f32; D]; LANES];

/// A number for each key and query.
type Square = [[f32; LANES]; LANES];

/// Whether this kernel serves the shape.
pub(super) fn serves(attention: &Attention) -> bool {
    attention.query_time <= LANES
        && attention.key_time <= LANES
        && matches!(attention.d_head, 8 | 16 | 32 | 64)
}

vectorized! {
    /// Context and log-sum-exp of a sequence.
    pub(super) fn forward(
        simd;
        attention: &Attention<'_>,
        sequence: usize,
        inputs: &Inputs<'_>,
        context: &mut MatrixMut<'_>,
        log_sum_exp: &mut [f32],
    ) {
        match attention.d_head {
            8 => forward_wide::<S, 8>(simd, attention, sequence, inputs, context, log_sum_exp),
            16 => forward_wide::<S, 16>(simd, attention, sequence, inputs, context, log_sum_exp),
            32 => forward_wide::<S, 32>(simd, attention, sequence, inputs, context, log_sum_exp),
            _ => forward_wide::<S, 64>(simd, attention, sequence, inputs, context, log_sum_exp),
        }
    }

    /// The gradients of a sequence.
    pub(super) fn backward(
        simd;
        attention: &Attention<'_>,
        sequence: usize,
        inputs: &Inputs<'_>,
        saved: &PieceSaved<'_>,
        gradients: &mut PieceGradients<'_, '_>,
    ) {
        match attention.d_head {
            8 => backward_wide::<S, 8>(simd, attention, sequence, inputs, saved, gradients),
            16 => backward_wide::<S, 16>(simd, attention, sequence, inputs, saved, gradients),
            32 => backward_wide::<S, 32>(simd, attention, sequence, inputs, saved, gradients),
            _ => backward_wide::<S, 64>(simd, attention, sequence, inputs, saved, gradients),
        }
    }
}

#[inline(always)]
fn forward_wide<S: Simd, const D: usize>(
    simd: S,
    attention: &Attention,
    sequence: usize,
    inputs: &Inputs,
    context: &mut MatrixMut,
    log_sum_exp: &mut [f32],
) {
    let Attention { query_time, key_time, rotary, first_query, .. } = *attention;
    let (mut key, mut value, mut query) = ([[0.0; D]; LANES], [[0.0; D]; LANES], [[0.0; D]; LANES]);
    let mut squares = Squares::default();
    for index in 0..attention.heads {
        if index % attention.group() == 0 {
            load(inputs.key, index / attention.group() * D, rotary, 0, &mut key);
            load(inputs.value, index / attention.group() * D, None, 0, &mut value);
        }
        let head = Head::new(attention, sequence, index, &mut squares);
        load(inputs.query, index * D, rotary, first_query, &mut query);
        for first in (0..query_time).step_by(Vector::<S>::LANES) {
            let columns = to_columns(simd, &query, first);
            let mut weights = [Vector::splat(simd, 0.0); LANES];
            head.scores(simd, &columns, &key, first, &mut weights);
            let (inverse_sums, log_sums) = softmax(simd, &mut weights[..key_time]);
            let used = first..query_time.min(first + Vector::<S>::LANES);
            log_sums.store(&mut log_sum_exp[index * query_time..][used.clone()]);
            if let Some(factors) = &head.factors {
                for j in 0..key_time {
                    weights[j] = weights[j] * Vector::load(simd, &factors[j][first..]);
                }
            }
            let mut columns = sum_over_keys(simd, &weights[..key_time], &value);
            for column in &mut columns {
                *column = *column * inverse_sums;
            }
            store_columns(&columns, used, index * D, context);
        }
    }
}

#[inline(always)]
fn backward_wide<S: Simd, const D: usize>(
    simd: S,
    attention: &Attention,
    sequence: usize,
    inputs: &Inputs,
    saved: &PieceSaved,
    gradients: &mut PieceGradients,
) {
    let Attention { query_time, key_time, scale, rotary, first_query, .. } = *attention;
    let (mut key, mut value) = ([[0.0; D]; LANES], [[0.0; D]; LANES]);
    let (mut query, mut gradient) = ([[0.0; D]; LANES], [[0.0; D]; LANES]);
    let (mut key_gradient, mut value_gradient) = ([[0.0; D]; LANES], [[0.0; D]; LANES]);
    let (mut all_weights, mut all_slopes): (Square, Square) = ([[0.0; LANES]; LANES], [[0.0; LANES]; LANES]);
    let mut squares = Squares::default();
    for index in 0..attention.heads {
        let key_columns = index / attention.group() * D..(index / attention.group() + 1) * D;
        if index % attention.group() == 0 {
            load(inputs.key, key_columns.start, rotary, 0, &mut key);
            load(inputs.value, key_columns.start, None, 0, &mut value);
            (key_gradient, value_gradient) = ([[0.0; D]; LANES], [[0.0; D]; LANES]);
        }
        let head = Head::new(attention, sequence, index, &mut squares);
        load(inputs.query, index * D, rotary, first_query, &mut query);
        load(saved.context_gradient, index * D, None, 0, &mut gradient);
        for first in (0..query_time).step_by(Vector::<S>::LANES) {
            let used = first..query_time.min(first + Vector::<S>::LANES);
            let log_sums = Vector::load(simd, &saved.log_sum_exp[index * query_time..][used.clone()]);
            let mut weights = [Vector::splat(simd, 0.0); LANES];
            head.scores(simd, &to_columns(simd, &query, first), &key, first, &mut weights);
            let mut slopes = [Vector::splat(simd, 0.0); LANES];
            products_with_rows(simd, &to_columns(simd, &gradient, first), &value, key_time, &mut slopes);
            // The sum over keys of d p (g . v) is g . c.
            let mut dots = Vector::splat(simd, 0.0);
            for j in 0..key_time {
                weights[j] = (weights[j] - log_sums).exp();
                if let Some(factors) = &head.factors {
                    slopes[j] = slopes[j] * Vector::load(simd, &factors[j][first..]);
                }
                dots = weights[j].mul_add(slopes[j], dots);
            }
            for j in 0..key_time {
                slopes[j] = weights[j] * (slopes[j] - dots);
                slopes[j].store(&mut all_slopes[j][first..]);
                let factor = match &head.factors {
                    Some(factors) => Vector::load(simd, &factors[j][first..]),
                    None => Vector::splat(simd, 1.0),
                };
                (weights[j] * factor).store(&mut all_weights[j][first..]);
            }
            let mut columns = sum_over_keys(simd, &slopes[..key_time], &key);
            for column in &mut columns {
                *column = *column * scale;
            }
            store_columns(&columns, used, index * D, gradients.query);
        }
        if let Some(rotary) = rotary {
            let columns = index * D..(index + 1) * D;
            rotary.turn_back(first_query, &mut gradients.query.part(0..query_time, columns));
        }
        if let Some(bias) = &mut gradients.bias {
            let bias = &mut bias[index * attention.distances()..][..attention.distances()];
            bias.fill(0.0);
            for j in 0..key_time {
                for i in 0..query_time {
                    bias[query_time - 1 - i + j] += all_slopes[j][i];
                }
            }
        }
        add_over_queries(simd, attention, &all_slopes, &query, &mut key_gradient);
        add_over_queries(simd, attention, &all_weights, &gradient, &mut value_gradient);
        if (index + 1) % attention.group() == 0 {
            for j in 0..key_time {
                let key_row = &mut gradients.key.row(j)[key_columns.clone()];
                key_row.iter_mut().zip(&key_gradient[j]).for_each(|(x, sum)| *x = scale * sum);
                gradients.value.row(j)[key_columns.clone()].copy_from_slice(&value_gradient[j]);
            }
            if let Some(rotary) = rotary {
                rotary.turn_back(0, &mut gradients.key.part(0..key_time, key_columns));
            }
        }
    }
}

/// Room for what a [`Head`] holds.
#[derive(Default)]
struct Squares {
    addends: Square,
    factors: Square,
}

/// A query head.
struct Head<'a> {
    attention: &'a Attention<'a>,
    /// Added to the scores, for each key and query: bias, and negative infinity for hidden keys. `None` where
    /// only causality hides.
    addends: Option<&'a Square>,
    /// What the weights of each key and query are multiplied by for dropout.
    factors: Option<&'a Square>,
}

impl<'a> Head<'a> {
    fn new(attention: &'a Attention, sequence: usize, head: usize, squares: &'a mut Squares) -> Self {
        let plain = attention.bias.is_none() && attention.key_padding.is_none() && attention.mask.is_none();
        if !plain {
            squares.addends = addends(attention, sequence, head);
        }
        if let Some(dropout) = attention.dropout {
            factors(attention, dropout, sequence * attention.heads + head, &mut squares.factors);
        }
        Self {
            attention,
            addends: (!plain).then_some(&squares.addends),
            factors: attention.dropout.map(|_| &squares.factors),
        }
    }

    /// The scores of all keys; hidden ones are negative infinity.
    #[inline(always)]
    fn scores<S: Simd, const D: usize>(
        &self,
        simd: S,
        query: &[Vector<S>; D],
        key: &Rows<D>,
        first: usize,
        scores: &mut [Vector<S>; LANES],
    ) {
        let Attention { key_time, scale, causal, first_query, .. } = *self.attention;
        products_with_rows(simd, query, key, key_time, scores);
        let position = Vector::load(simd, &COUNTING) + (first_query + first) as f32;
        for j in 0..key_time {
            scores[j] = scores[j] * scale;
            if let Some(addends) = &self.addends {
                scores[j] = scores[j] + Vector::load(simd, &addends[j][first..]);
            }
            if causal {
                scores[j] = scores[j].replace(position.less_than(j as f32), f32::NEG_INFINITY);
            }
        }
    }
}

const COUNTING: [f32; LANES] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Bias and hidden keys of a head.
fn addends(attention: &Attention, sequence: usize, head: usize) -> Square {
    let Attention { query_time, key_time, bias, key_padding, mask, .. } = *attention;
    let bias = bias.map(|bias| &bias[head * attention.distances()..][..attention.distances()]);
    let mut addends = [[0.0; LANES]; LANES];
    for (j, addends) in addends.iter_mut().enumerate().take(key_time) {
        let padded = key_padding.is_some_and(|padding| padding[sequence * key_time + j] != 0);
        for (i, addend) in addends.iter_mut().enumerate().take(query_time) {
            let masked = mask.is_some_and(|mask| {
                let own = if mask.len() == query_time * key_time { 0 } else { sequence * query_time };
                mask[(own + i) * key_time + j] != 0
            });
            let bias = bias.map_or(0.0, |bias| bias[query_time - 1 - i + j]);
            *addend = if padded || masked { f32::NEG_INFINITY } else { bias };
        }
    }
    addends
}

vectorized! {
    /// Dropout factors of a head, which is counted over all sequences.
    fn factors(simd; attention: &Attention<'_>, dropout: Dropout, head: usize, factors: &mut Square) {
        // A row of the mask is as long as a row of this square, so that the rows of a head follow each other.
        let mut rows = [[0.0; LANES]; LANES];
        let used = &mut rows.as_flattened_mut()[..attention.query_time * LANES];
        dropout.mask(attention.key_time).fill_row(simd, head * attention.query_time, 0, used);
        transpose(&rows, factors);
    }
}

/// Replaces scores by `e^(score - largest)`; returns the inverse of their sums (zero where all keys are hidden)
/// and the log-sum-exp.
#[inline(always)]
fn softmax<S: Simd>(simd: S, scores: &mut [Vector<S>]) -> (Vector<S>, Vector<S>) {
    let mut largest = Vector::splat(simd, f32::NEG_INFINITY);
    for score in scores.iter() {
        largest = largest.larger(*score);
    }
    // Where all keys are hidden, any finite number makes all weights zero.
    largest = largest.replace(largest.less_than(f32::MIN), 0.0);
    let mut sums = Vector::splat(simd, 0.0);
    for score in scores {
        *score = (*score - largest).exp();
        sums = sums + *score;
    }
    let hidden = sums.equals(0.0);
    ((1.0 / sums).replace(hidden, 0.0), (largest + sums.ln()).replace(hidden, f32::INFINITY))
}

/// For each key, the products of its row with every query.
#[inline(always)]
fn products_with_rows<S: Simd, const D: usize>(
    simd: S,
    columns: &[Vector<S>; D],
    rows: &Rows<D>,
    count: usize,
    products: &mut [Vector<S>; LANES],
) {
    /// Sums that run side by side, to hide the latency of the multiply-add.
    const AT_ONCE: usize = 4;
    for first in (0..count).step_by(AT_ONCE) {
        let mut sums = [Vector::splat(simd, 0.0); AT_ONCE];
        for c in 0..D {
            for k in 0..AT_ONCE {
                sums[k] = columns[c].mul_add(rows[first + k][c], sums[k]);
            }
        }
        products[first..first + AT_ONCE].copy_from_slice(&sums);
    }
}

/// For each query, the sum over the keys of weight times row.
#[inline(always)]
fn sum_over_keys<S: Simd, const D: usize>(simd: S, weights: &[Vector<S>], rows: &Rows<D>) -> [Vector<S>; D] {
    const AT_ONCE: usize = 8;
    let mut columns = [Vector::splat(simd, 0.0); D];
    for first in (0..D).step_by(AT_ONCE) {
        let mut sums = [Vector::splat(simd, 0.0); AT_ONCE];
        for (weight, row) in weights.iter().zip(rows) {
            for c in 0..AT_ONCE {
                sums[c] = weight.mul_add(row[first + c], sums[c]);
            }
        }
        columns[first..first + AT_ONCE].copy_from_slice(&sums);
    }
    columns
}

/// Adds to each key's row the sum, over the queries that may see it, of weight times the query's row.
#[inline(always)]
fn add_over_queries<S: Simd, const D: usize>(
    simd: S,
    attention: &Attention,
    weights: &Square,
    queries: &Rows<D>,
    sums: &mut Rows<D>,
) {
    let Attention { query_time, key_time, first_query, causal, .. } = *attention;
    for j in 0..key_time {
        let first = if causal { j.saturating_sub(first_query).min(query_time) } else { 0 };
        let seeing = weights[j][first..query_time].iter().zip(&queries[first..query_time]);
        if D < Vector::<S>::LANES {
            // Shorter than a register: left to the compiler, which knows how short.
            let mut sum = sums[j];
            for (weight, query) in seeing {
                for c in 0..D {
                    sum[c] += weight * query[c];
                }
            }
            sums[j] = sum;
        } else {
            for c in (0..D).step_by(Vector::<S>::LANES) {
                let mut sum = Vector::load(simd, &sums[j][c..]);
                for (weight, query) in seeing.clone() {
                    sum = Vector::load(simd, &query[c..]).mul_add(*weight, sum);
                }
                sum.store(&mut sums[j][c..]);
            }
        }
    }
}

/// The rows of one head, turned by rotary positions.
#[inline(always)]
fn load<const D: usize>(
    matrix: Matrix,
    column: usize,
    rotary: Option<Rotary>,
    first: usize,
    rows: &mut Rows<D>,
) {
    for (index, row) in rows.iter_mut().enumerate().take(matrix.rows()) {
        row.copy_from_slice(&matrix.row(index)[column..column + D]);
        if let Some(rotary) = rotary {
            let (cosines, sines) = rotary.angles(first + index, D / 2);
            turn_row(Turn::Forth, cosines, sines, row);
        }
    }
}

/// The columns of as many rows as a register holds.
#[inline(always)]
fn to_columns<S: Simd, const D: usize>(simd: S, rows: &Rows<D>, first: usize) -> [Vector<S>; D] {
    let mut transposed = [[0.0; LANES]; D];
    transpose(rows, &mut transposed);
    let mut columns = [Vector::splat(simd, 0.0); D];
    for c in 0..D {
        columns[c] = Vector::load(simd, &transposed[c][first..]);
    }
    columns
}

/// Exchanges rows and columns, by blocks of four that the compiler keeps in registers.
#[inline(always)]
fn transpose<const ROWS: usize, const COLUMNS: usize>(
    input: &[[f32; COLUMNS]; ROWS],
    output: &mut [[f32; ROWS]; COLUMNS],
) {
    for row in (0..ROWS).step_by(4) {
        for column in (0..COLUMNS).step_by(4) {
            let mut block = [[0.0; 4]; 4];
            for k in 0..4 {
                block[k].copy_from_slice(&input[row + k][column..column + 4]);
            }
            let [a, b, c, d] = block;
            for k in 0..4 {
                output[column + k][row..row + 4].copy_from_slice(&[a[k], b[k], c[k], d[k]]);
            }
        }
    }
}

/// Writes columns back as rows.
#[inline(always)]
fn store_columns<S: Simd, const D: usize>(
    columns: &[Vector<S>; D],
    rows: Range<usize>,
    column: usize,
    matrix: &mut MatrixMut,
) {
    let mut transposed = [[0.0; LANES]; D];
    for c in 0..D {
        columns[c].store(&mut transposed[c]);
    }
    let mut result = [[0.0; D]; LANES];
    transpose(&transposed, &mut result);
    for (lane, row) in rows.enumerate() {
        matrix.row(row)[column..column + D].copy_from_slice(&result[lane]);
    }
}
