//! Sums and products of a head in registers, and the loads and stores around them.

use pulp::Simd;

use super::super::rotary::{RotaryTables, RotationDirection};
use super::visible::VisibleKeys;
use super::{Columns, Rows, Square};
use crate::matrix::{Matrix, MatrixMut};
use crate::vector::{LANES, Vector};

/// Replaces scores by `e^(score - largest)`. Returns the inverse of the sums, which is zero if all keys are hidden, and
/// the log-sum-exp.
#[inline(always)]
pub(super) fn softmax<S: Simd>(simd: S, scores: &mut [Vector<S>]) -> (Vector<S>, Vector<S>) {
    let mut largest = Vector::splat(simd, f32::NEG_INFINITY);
    for score in scores.iter() {
        largest = largest.larger(*score);
    }
    // If all keys are hidden, any finite maximum makes all weights zero.
    largest = largest.replace(largest.less_than(f32::MIN), 0.0);
    let mut sums = Vector::splat(simd, 0.0);
    for score in scores {
        *score = (*score - largest).exp();
        sums = sums + *score;
    }
    let hidden = sums.equals(0.0);
    ((1.0 / sums).replace(hidden, 0.0), (largest + sums.ln()).replace(hidden, f32::INFINITY))
}

/// Computes, for each key, the products of its row with every query.
#[inline(always)]
pub(super) fn products_with_rows<S: Simd, const D: usize>(
    simd: S,
    columns: &[Vector<S>; D],
    rows: &Rows<D>,
    count: usize,
    products: &mut [Vector<S>; LANES],
) {
    /// The number of independent sums, which hide the latency of the multiply-add.
    const ACCUMULATORS: usize = 4;
    for first in (0..count).step_by(ACCUMULATORS) {
        let mut sums = [Vector::splat(simd, 0.0); ACCUMULATORS];
        for c in 0..D {
            for k in 0..ACCUMULATORS {
                sums[k] = columns[c].mul_add(rows[first + k][c], sums[k]);
            }
        }
        products[first..first + ACCUMULATORS].copy_from_slice(&sums);
    }
}

/// Computes, for each query, the sum over the keys of weight times row.
#[inline(always)]
pub(super) fn sum_over_keys<S: Simd, const D: usize>(
    simd: S,
    weights: &[Vector<S>],
    rows: &Rows<D>,
) -> [Vector<S>; D] {
    const ACCUMULATORS: usize = 8;
    let mut columns = [Vector::splat(simd, 0.0); D];
    for first in (0..D).step_by(ACCUMULATORS) {
        let mut sums = [Vector::splat(simd, 0.0); ACCUMULATORS];
        for (weight, row) in weights.iter().zip(rows) {
            for c in 0..ACCUMULATORS {
                sums[c] = weight.mul_add(row[first + c], sums[c]);
            }
        }
        columns[first..first + ACCUMULATORS].copy_from_slice(&sums);
    }
    columns
}

/// Adds to the row of each key the sum of weight times query row, over the queries that can see the key.
#[inline(always)]
pub(super) fn add_over_queries<S: Simd, const D: usize>(
    simd: S,
    visible: &VisibleKeys,
    weights: &Square,
    queries: &Rows<D>,
    sums: &mut Rows<D>,
) {
    for (j, range) in visible.queries.iter().enumerate() {
        let pairs = weights[j][range.clone()].iter().zip(&queries[range.clone()]);
        if D < Vector::<S>::LANES {
            // The compiler knows the length of rows shorter than a register, and vectorises the loop.
            let mut sum = sums[j];
            for (weight, query) in pairs {
                for c in 0..D {
                    sum[c] += weight * query[c];
                }
            }
            sums[j] = sum;
        } else {
            for c in (0..D).step_by(Vector::<S>::LANES) {
                let mut sum = Vector::load(simd, &sums[j][c..]);
                for (weight, query) in pairs.clone() {
                    sum = Vector::load(simd, &query[c..]).mul_add(*weight, sum);
                }
                sum.store(&mut sums[j][c..]);
            }
        }
    }
}

/// Loads the rows of one head, with rotary positions applied.
#[inline(always)]
pub(super) fn load_rows<const D: usize>(
    matrix: Matrix,
    column: usize,
    rotary: Option<RotaryTables>,
    first: usize,
    rows: &mut Rows<D>,
) {
    for (index, row) in rows.iter_mut().enumerate().take(matrix.rows()) {
        row.copy_from_slice(&matrix.row(index)[column..column + D]);
        if let Some(rotary) = rotary {
            rotary.rotate(RotationDirection::Forward, first + index, row);
        }
    }
}

/// Loads one register per column, with the queries from `first` on.
#[inline(always)]
pub(super) fn load_columns<S: Simd, const D: usize>(
    simd: S,
    columns: &Columns<D>,
    first: usize,
) -> [Vector<S>; D] {
    let mut registers = [Vector::splat(simd, 0.0); D];
    for c in 0..D {
        registers[c] = Vector::load(simd, &columns[c][first..]);
    }
    registers
}

/// Writes `factor * registers` to the queries from `first` on.
#[inline(always)]
pub(super) fn store_columns<S: Simd, const D: usize>(
    registers: &[Vector<S>; D],
    factor: Vector<S>,
    first: usize,
    columns: &mut Columns<D>,
) {
    for c in 0..D {
        (registers[c] * factor).store(&mut columns[c][first..]);
    }
}

/// Writes columns as the rows of one head.
#[inline(always)]
pub(super) fn store_rows<const D: usize>(columns: &Columns<D>, column: usize, matrix: &mut MatrixMut) {
    let mut rows = [[0.0; D]; LANES];
    transpose(columns, &mut rows);
    for (index, row) in rows.iter().enumerate().take(matrix.rows()) {
        matrix.row(index)[column..column + D].copy_from_slice(row);
    }
}

/// Transposes a matrix in 4 by 4 blocks, which the compiler keeps in registers.
#[inline(always)]
pub(super) fn transpose<const ROWS: usize, const COLUMNS: usize>(
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
