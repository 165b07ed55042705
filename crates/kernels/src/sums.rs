//! Sums of tensors and of the rows of a matrix.

use rayon::prelude::*;

use super::matrix::Matrix;
use super::parallel::{for_each, rows_per_piece};
use super::pool;
use super::vector::{update, vectorized};

/// Computes `sums[i] += values[i]`.
///
/// # Panics
/// Panics if the lengths differ.
pub fn add(sums: &mut [f32], values: &[f32]) {
    const PIECE_LENGTH: usize = 1 << 14;
    assert_eq!(sums.len(), values.len(), "numbers to add");
    let pieces = sums.par_chunks_mut(PIECE_LENGTH).zip(values.par_chunks(PIECE_LENGTH));
    for_each(pieces, PIECE_LENGTH, |(sums, values)| add_piece(sums, values));
}

/// Adds the `others` to `first` in their order along a binary tree, such as `(first + a) + (b + c)`. Each number is
/// read once, and only `first` is written.
///
/// # Panics
/// Panics if the lengths differ.
pub fn add_all(first: &mut [f32], others: &[&[f32]]) {
    const PIECE_LENGTH: usize = 1 << 12;
    if let [other] = others {
        return add(first, other);
    }
    others.iter().for_each(|other| assert_eq!(first.len(), other.len(), "numbers to add"));
    for_each(
        first.par_chunks_mut(PIECE_LENGTH).enumerate(),
        PIECE_LENGTH * others.len(),
        |(index, first)| {
            let range = index * PIECE_LENGTH..index * PIECE_LENGTH + first.len();
            let others = others.iter().map(|other| &other[range.clone()]).collect::<Vec<_>>();
            add_piece_along_tree(first, &others);
        },
    );
}

fn add_piece_along_tree(first: &mut [f32], others: &[&[f32]]) {
    if others.len() < 2 {
        return others.iter().for_each(|other| add_piece(first, other));
    }
    // The left subtree has half the leaves of the smallest full tree that contains all numbers, including `first`.
    let left = (others.len() + 1).next_power_of_two() / 2 - 1;
    add_piece_along_tree(first, &others[..left]);
    let mut right = pool::take(first.len());
    right.copy_from_slice(others[left]);
    add_piece_along_tree(&mut right, &others[left + 1..]);
    add_piece(first, &right);
}

vectorized! {
    /// Computes `sums[i] += values[i]` on the calling thread.
    pub(super) fn add_piece(simd; sums: &mut [f32], values: &[f32]) {
        update(simd, sums, [values], |sum, [x]| sum + x);
    }
}

/// Computes the sum of each column of a matrix, in pieces of rows.
pub(super) fn sum_rows(matrix: Matrix, sums: &mut [f32]) {
    let (rows, columns) = (matrix.rows(), matrix.columns());
    assert_eq!(sums.len(), columns, "sums of [{columns}]");
    let piece_rows = rows_per_piece(rows, columns);
    let mut partial = pool::take(rows.div_ceil(piece_rows) * columns);
    for_each(partial.par_chunks_mut(columns).enumerate(), piece_rows * columns, |(piece, sums)| {
        add_up_rows(matrix.tile(piece, piece_rows, columns), sums);
    });
    add_up_rows(Matrix::new(&partial, columns), sums);
}

vectorized! {
    /// Implements [`sum_rows`] on the calling thread, without pieces.
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
