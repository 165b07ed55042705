//! Sums of the rows of a matrix, and of tensors.

use rayon::prelude::*;

use super::matrix::Matrix;
use super::parallel::{for_each, rows_in_a_piece};
use super::pool;
use super::vector::{update, vectorized};

/// `sums[i] += values[i]`.
///
/// # Panics
/// If they are not equally long.
pub fn add(sums: &mut [f32], values: &[f32]) {
    const PIECE: usize = 1 << 15;
    assert_eq!(sums.len(), values.len(), "numbers to add");
    let pieces = sums.par_chunks_mut(PIECE).zip(values.par_chunks(PIECE));
    for_each(pieces, PIECE, |(sums, values)| add_piece(sums, values));
}

vectorized! {
    /// The same on the calling thread.
    pub(super) fn add_piece(simd; sums: &mut [f32], values: &[f32]) {
        update(simd, sums, [values], |sum, [x]| sum + x);
    }
}

/// `sums[column] = ` the sum of `matrix[.., column]`, by pieces of rows.
pub(super) fn sum_rows(matrix: Matrix, sums: &mut [f32]) {
    let (rows, columns) = (matrix.rows(), matrix.columns());
    assert_eq!(sums.len(), columns, "sums of [{columns}]");
    let piece_rows = rows_in_a_piece(rows, columns);
    let mut partial = pool::take(rows.div_ceil(piece_rows) * columns);
    for_each(partial.par_chunks_mut(columns).enumerate(), piece_rows * columns, |(piece, sums)| {
        add_up_rows(matrix.tile(piece, piece_rows, columns), sums);
    });
    add_up_rows(Matrix::new(&partial, columns), sums);
}

vectorized! {
    /// The same on the calling thread.
    pub(super) fn add_up_rows(simd; matrix: Matrix<'_>, sums: &mut [f32]) {
        sums.fill(0.0);
        let rows = matrix.rows();
        for row in (0..rows - rows % 4).step_by(4) {
            let four = [0, 1, 2, 3].map(|k| matrix.row(row + k));
            update(simd, sums, four, |sum, [a, b, c, d]| sum + ((a + b) + (c + d)));
        }
        for row in rows - rows % 4..rows {
            update(simd, sums, [matrix.row(row)], |sum, [x]| sum + x);
        }
    }
}
