//! A few rows times a weight: what a model multiplies when it writes token by token.
//!
//! Each number of the weight serves once a row, so the time is that of reading the weight. It is read in
//! the order in which it lies, in pieces of whole rows, several of them at once, and never copied, as a
//! product of many rows would.

use super::linear::{Linear, WeightLayout, add_up_rows};
use super::matrix::{Matrix, MatrixMut, Tiles};
use super::parallel::for_each_piece;
use super::pool;
use super::vector::{Vector, sum_map, update, vectorized};

/// Up to so many rows, reading the weight is what takes the time.
pub(super) const MOST_ROWS: usize = 8;

/// Rows of the weight that are read side by side: one alone does not keep the memory busy, and more than a
/// processor follows ahead of the reading are slower again.
const TOGETHER: usize = 8;

/// The most parts of a sum: each has as many numbers as the output, and one thread adds them up.
const MOST_PARTS: usize = 16;

/// Rows of the weight in a piece: half a mebibyte, long enough to hand over, short enough to share out.
fn rows_in_a_piece(width: usize) -> usize {
    (1usize << 17).div_ceil(width).next_multiple_of(TOGETHER)
}

/// `output = input W`.
///
/// # Shapes
/// `input` `[rows, d_in]`, `output` `[rows, d_out]`.
pub(super) fn product(layer: &Linear, input: &[f32], output: &mut [f32]) {
    let (d_in, d_out) = (layer.d_in, layer.d_out);
    let rows = input.len() / d_in;
    match layer.layout {
        // Each piece of the weight gives a part of every sum.
        WeightLayout::InputOutput => {
            let least = d_in.div_ceil(MOST_PARTS).next_multiple_of(TOGETHER);
            let piece_rows = rows_in_a_piece(d_out).max(least);
            let mut parts = pool::take(d_in.div_ceil(piece_rows) * rows * d_out);
            let tiles = Tiles::rows(&mut parts, rows * d_out, 1);
            for_each_piece(tiles.count(), piece_rows * d_out * rows, |piece| {
                let first = piece * piece_rows;
                let weight = &layer.weight[first * d_out..d_in.min(first + piece_rows) * d_out];
                add_weighted_rows(
                    Matrix::new(weight, d_out),
                    &input[first..],
                    d_in,
                    tiles.take(piece).contiguous(),
                );
            });
            drop(tiles);
            add_up_rows(Matrix::new(&parts, rows * d_out), output);
        }
        // Each row of the weight gives one number a row.
        WeightLayout::OutputInput => {
            let piece_rows = rows_in_a_piece(d_in);
            let tiles = Tiles::new(MatrixMut::new(output, d_out), rows, piece_rows);
            for_each_piece(tiles.count(), piece_rows * d_in * rows, |piece| {
                let columns = tiles.place(piece).1;
                let weight = &layer.weight[columns.start * d_in..columns.end * d_in];
                dot_products(Matrix::new(weight, d_in), Matrix::new(input, d_in), &mut tiles.take(piece));
            });
        }
    }
}

vectorized! {
    /// `sums[row] = ` the sum of `weight[k]` times `input[row * stride + k]`.
    fn add_weighted_rows(simd; weight: Matrix<'_>, input: &[f32], stride: usize, sums: &mut [f32]) {
        sums.fill(0.0);
        let (count, d_out) = (weight.rows(), weight.columns());
        for k in (0..count - count % TOGETHER).step_by(TOGETHER) {
            let mut rows: [&[f32]; TOGETHER] = [&[]; TOGETHER];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = weight.row(k + i);
            }
            for (row, sums) in sums.chunks_exact_mut(d_out).enumerate() {
                let x = &input[row * stride + k..][..TOGETHER];
                update(simd, sums, rows, |mut sum, weights| {
                    for i in 0..TOGETHER {
                        sum = weights[i].mul_add(x[i], sum);
                    }
                    sum
                });
            }
        }
        for k in count - count % TOGETHER..count {
            for (row, sums) in sums.chunks_exact_mut(d_out).enumerate() {
                let x = input[row * stride + k];
                update(simd, sums, [weight.row(k)], |sum, [a]| a.mul_add(x, sum));
            }
        }
    }

    /// `output[row, column] = ` the dot product of row `column` of the weight and row `row` of the input.
    fn dot_products(simd; weight: Matrix<'_>, input: Matrix<'_>, output: &mut MatrixMut<'_>) {
        let (count, d_in) = (weight.rows(), weight.columns());
        for column in (0..count - count % TOGETHER).step_by(TOGETHER) {
            let mut rows: [&[f32]; TOGETHER] = [&[]; TOGETHER];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = &weight.row(column + i)[..d_in];
            }
            for row in 0..input.rows() {
                let x = &input.row(row)[..d_in];
                let mut sums = [Vector::splat(simd, 0.0); TOGETHER];
                for start in (0..d_in).step_by(Vector::lanes(simd)) {
                    // Behind the end of a row stand zeros.
                    let x = Vector::load(simd, &x[start..]);
                    for i in 0..TOGETHER {
                        sums[i] = Vector::load(simd, &rows[i][start..]).mul_add(x, sums[i]);
                    }
                }
                for (output, sum) in output.row(row)[column..].iter_mut().zip(sums) {
                    *output = sum.sum();
                }
            }
        }
        for column in count - count % TOGETHER..count {
            for row in 0..input.rows() {
                let product = sum_map(simd, [weight.row(column), input.row(row)], |[w, x]| w * x);
                output.row(row)[column] = product;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{
        assert_close, assert_same_on_any_number_of_threads, naive_product, random, transposed, widened,
    };
    use super::*;

    #[test]
    fn a_few_rows_agree_with_the_textbook_in_both_layouts() {
        for (rows, d_in, d_out) in [(1, 1, 1), (1, 5, 7), (3, 301, 401), (8, 67, 1999), (1, 2003, 131)] {
            let (input, weight) = (random(1, rows * d_in), random(2, d_in * d_out));
            let expected = naive_product(&widened(&input), &widened(&weight), d_in, d_out);
            let turned = transposed(&weight, d_out);
            for (layout, weight) in
                [(WeightLayout::InputOutput, &weight), (WeightLayout::OutputInput, &turned)]
            {
                let layer = Linear { weight, layout, bias: None, d_in, d_out };
                let mut output = vec![f32::NAN; rows * d_out];
                product(&layer, &input, &mut output);
                assert_close(&format!("{layout:?} [{rows}, {d_in}, {d_out}]"), &output, &expected);
            }
        }
    }

    #[test]
    fn the_bits_are_the_same_on_any_number_of_threads() {
        let (input, weight) = (random(3, 2 * 701), random(4, 701 * 997));
        assert_same_on_any_number_of_threads(|| {
            let results = [WeightLayout::InputOutput, WeightLayout::OutputInput].map(|layout| {
                let layer = Linear { weight: &weight, layout, bias: None, d_in: 701, d_out: 997 };
                let mut output = vec![0.0; 2 * 997];
                product(&layer, &input, &mut output);
                output
            });
            results.to_vec()
        });
    }
}
