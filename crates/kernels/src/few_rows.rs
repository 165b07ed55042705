//! Products of a few rows with a weight, as in token-by-token generation.
//!
//! Each number of the weight is used once per row, so reading the weight dominates the run time. The weight is read in
//! memory order, in pieces of complete rows, several rows at a time. Unlike in a product of many rows, it is not
//! packed.

use rayon::prelude::*;

use super::matrix::{Matrix, MatrixMut};
use super::parallel::for_each;
use super::pool;
use super::sums::add_up_rows;
use super::vector::{Vector, sum_map, update, vectorized};

/// The maximum number of rows for which reading the weight dominates the run time.
pub(super) const MAX_ROWS: usize = 8;

/// The number of weight rows read in parallel. A single row does not saturate memory, and hardware prefetchers track
/// only a limited number of streams.
const PARALLEL_ROWS: usize = 8;

/// The maximum number of partial sums. Each is as long as the output, and a single thread adds them up.
const MAX_PARTS: usize = 16;

/// The minimum number of weight elements of a task.
const MIN_PIECE_LENGTH: usize = 1 << 15;

/// The cost of reading a number from memory, in multiply-adds.
const READ_COST: usize = 4;

/// Returns the number of weight rows in a piece of half a mebibyte, a suitable size for a task.
fn rows_per_piece(width: usize) -> usize {
    (1usize << 17).div_ceil(width).next_multiple_of(PARALLEL_ROWS)
}

/// Computes `output = input weight`.
///
/// # Shapes
/// `input` `[rows, d_in]`, `weight` `[d_in, d_out]`, `output` `[rows, d_out]`.
pub(super) fn product(input: Matrix, weight: Matrix, output: &mut [f32]) {
    let (rows, d_in, d_out) = (input.rows(), weight.rows(), weight.columns());
    if weight.is_transposed() {
        // Each row in memory yields one output per input row.
        let weight = weight.transposed();
        let piece_rows = rows_per_piece(d_in);
        let tiles = MatrixMut::new(output, d_out).tiles(rows, piece_rows).into_par_iter();
        for_each(tiles, piece_rows * d_in * rows.max(READ_COST), |mut tile| {
            dot_products(weight.part(tile.columns, 0..d_in), input, &mut tile.numbers);
        });
    } else {
        // Each piece of the weight yields a partial sum. There are enough pieces to balance the load.
        let pieces = (d_in * d_out / MIN_PIECE_LENGTH).clamp(1, MAX_PARTS);
        let piece_rows = d_in.div_ceil(pieces).next_multiple_of(PARALLEL_ROWS);
        let mut parts = pool::take(d_in.div_ceil(piece_rows) * rows * d_out);
        for_each(
            parts.par_chunks_mut(rows * d_out).enumerate(),
            piece_rows * d_out * rows.max(READ_COST),
            |(piece, sums)| {
                let inner = piece * piece_rows..d_in.min((piece + 1) * piece_rows);
                add_weighted_rows(input.part(0..rows, inner.clone()), weight.part(inner, 0..d_out), sums);
            },
        );
        add_up_rows(Matrix::new(&parts, rows * d_out), output);
    }
}

vectorized! {
    /// Sets `sums[row]` to the sum over `k` of `input[row, k]` times row `k` of the weight.
    fn add_weighted_rows(simd; input: Matrix<'_>, weight: Matrix<'_>, sums: &mut [f32]) {
        sums.fill(0.0);
        let (count, d_out) = (weight.rows(), weight.columns());
        for k in (0..count - count % PARALLEL_ROWS).step_by(PARALLEL_ROWS) {
            let mut rows: [&[f32]; PARALLEL_ROWS] = [&[]; PARALLEL_ROWS];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = weight.row(k + i);
            }
            for (row, sums) in sums.chunks_exact_mut(d_out).enumerate() {
                let x = &input.row(row)[k..][..PARALLEL_ROWS];
                update(simd, sums, rows, |mut sum, weights| {
                    for i in 0..PARALLEL_ROWS {
                        sum = weights[i].mul_add(x[i], sum);
                    }
                    sum
                });
            }
        }
        for k in count - count % PARALLEL_ROWS..count {
            for (row, sums) in sums.chunks_exact_mut(d_out).enumerate() {
                let x = input.row(row)[k];
                update(simd, sums, [weight.row(k)], |sum, [a]| a.mul_add(x, sum));
            }
        }
    }

    /// Sets `output[row, column]` to the dot product of row `column` of the weight and row `row` of the input.
    fn dot_products(simd; weight: Matrix<'_>, input: Matrix<'_>, output: &mut MatrixMut<'_>) {
        let (count, d_in) = (weight.rows(), weight.columns());
        for column in (0..count - count % PARALLEL_ROWS).step_by(PARALLEL_ROWS) {
            let mut rows: [&[f32]; PARALLEL_ROWS] = [&[]; PARALLEL_ROWS];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = &weight.row(column + i)[..d_in];
            }
            for row in 0..input.rows() {
                let x = &input.row(row)[..d_in];
                let mut sums = [Vector::splat(simd, 0.0); PARALLEL_ROWS];
                for start in (0..d_in).step_by(Vector::<S>::LANES) {
                    // Loads beyond the end of a row are filled with zeros.
                    let x = Vector::load(simd, &x[start..]);
                    for i in 0..PARALLEL_ROWS {
                        sums[i] = Vector::load(simd, &rows[i][start..]).mul_add(x, sums[i]);
                    }
                }
                for (output, sum) in output.row(row)[column..].iter_mut().zip(sums) {
                    *output = sum.sum();
                }
            }
        }
        for column in count - count % PARALLEL_ROWS..count {
            for row in 0..input.rows() {
                let product = sum_map(simd, [weight.row(column), input.row(row)], |[w, x]| w * x);
                output.row(row)[column] = product;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_close, assert_same_on_any_number_of_threads, naive_product, random, transposed, widened,
    };

    #[test]
    fn products_match_naive_reference_in_both_layouts() {
        for (rows, d_in, d_out) in [(1, 1, 1), (1, 5, 7), (3, 301, 401), (8, 67, 1999), (1, 2003, 131)] {
            let (input, weight) = (random(1, rows * d_in), random(2, d_in * d_out));
            let expected = naive_product(&widened(&input), &widened(&weight), d_in, d_out);
            let transposed_weight = transposed(&weight, d_out);
            let layouts = [Matrix::new(&weight, d_out), Matrix::new(&transposed_weight, d_in).transposed()];
            for (layout, weight) in layouts.into_iter().enumerate() {
                let mut output = vec![f32::NAN; rows * d_out];
                product(Matrix::new(&input, d_in), weight, &mut output);
                assert_close(&format!("layout {layout} [{rows}, {d_in}, {d_out}]"), &output, &expected);
            }
        }
    }

    #[test]
    fn products_are_bitwise_equal_across_thread_counts() {
        let (input, weight) = (random(3, 2 * 701), random(4, 701 * 997));
        assert_same_on_any_number_of_threads(|| {
            let results = [Matrix::new(&weight, 997), Matrix::new(&weight, 701).transposed()].map(|weight| {
                let mut output = vec![0.0; 2 * 997];
                product(Matrix::new(&input, 701), weight, &mut output);
                output
            });
            results.to_vec()
        });
    }
}
