//! Muon: momentum with orthogonalised updates for matrices (Jordan et al., *Muon: an optimizer for hidden layers in
//! neural networks*, 2024, <https://kellerjordan.github.io/posts/muon>).
//!
//! With gradients `G` scaled by `c` as in [`optimizer`](super::optimizer): `M = mu M + (1 - mu) c G`, `U = mu M + (1 -
//! mu) c G` (Nesterov), `W = (1 - rate decay) W - rate 0.2 sqrt(max(rows, columns)) O(U)`, where `O(U)` approximates
//! the `A B^T` of the singular value decomposition `U = A S B^T`: the singular values of `O(U)` lie between 0.7 and
//! 1.2. The factor `0.2 sqrt(max(rows, columns))` makes the updates as large as AdamW's, so that the same learning rate
//! and weight decay apply (Liu et al., *Muon is scalable for LLM training*, 2025, arXiv 2502.16982, section 2.2).

use rayon::prelude::*;

use super::matmul::{Destination, Precision, product};
use super::matrix::{Matrix, MatrixMut};
use super::optimizer::{clip, global_norm};
use super::parallel::for_each;
use super::pool;
use super::vector::{update, update_all, vectorized};

/// The settings of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The decay of the momentum.
    pub momentum: f64,
    /// The global norm above which gradients are clipped.
    pub max_norm: Option<f64>,
    /// The precision of the products that orthogonalise a matrix; Jordan et al. use bf16.
    pub precision: Precision,
}

/// A parameter `[rows, sum of widths]` made of adjacent matrices, which are orthogonalised independently.
#[derive(Debug)]
pub struct Matrices<'a> {
    /// The values, which may still be read elsewhere.
    pub values: &'a [f32],
    /// The gradient, which is replaced by the new values.
    pub gradient: &'a mut [f32],
    /// The momentum, zero before the first step.
    pub momentum: &'a mut [f32],
    /// The number of columns of each matrix.
    pub widths: &'a [usize],
    /// The weight decay.
    pub weight_decay: f64,
}

/// The coefficients of the polynomial `a x + b x^3 + c x^5`. Five iterations bring the singular values close to one.
pub const COEFFICIENTS: [f32; 3] = [3.4445, -4.7750, 2.0315];
/// The number of iterations of the polynomial.
pub const ITERATIONS: usize = 5;
/// A small number that keeps the denominator above zero.
pub const EPSILON: f32 = 1e-7;

/// Returns the factor of a matrix's orthogonalised momentum, in addition to the learning rate.
pub fn scale(rows: usize, columns: usize) -> f64 {
    0.2 * (rows.max(columns) as f64).sqrt()
}

/// Performs one step. `norm` is the global gradient norm, which may include other parameters.
///
/// # Panics
/// Panics if the slices of a parameter differ in length, or if its widths do not fill its rows.
pub fn step(settings: &Muon, norm: f64, parameters: &mut [Matrices]) {
    let clip = clip(settings.max_norm, norm);
    let mut tasks = Vec::new();
    for Matrices { values, gradient, momentum, widths, weight_decay } in parameters {
        let columns = widths.iter().sum::<usize>();
        assert_eq!(
            [gradient.len(), momentum.len()],
            [values.len(); 2],
            "gradient and momentum of a parameter"
        );
        let keep = (1.0 - settings.learning_rate * *weight_decay) as f32;
        let values = Matrix::new(values, columns);
        let (mut gradient, mut momentum) =
            (MatrixMut::new(gradient, columns), MatrixMut::new(momentum, columns));
        let mut start = 0;
        for &width in *widths {
            let (this_gradient, other_gradients) = gradient.split_columns(width);
            let (this_momentum, other_momenta) = momentum.split_columns(width);
            let this = values.part(0..values.rows(), start..start + width);
            tasks.push((this, this_gradient, this_momentum, keep));
            (gradient, momentum, start) = (other_gradients, other_momenta, start + width);
        }
    }
    // The longest tasks come first, so that no thread starts a long task last.
    let work = |values: &Matrix| values.rows() * values.columns() * values.rows().min(values.columns());
    tasks.sort_by_key(|(values, ..)| std::cmp::Reverse(work(values)));
    let mean_work = tasks.iter().map(|(values, ..)| work(values)).sum::<usize>() / tasks.len().max(1);
    for_each(tasks.into_par_iter(), 15 * mean_work, |(values, mut gradient, mut momentum, keep)| {
        let (rows, columns) = (values.rows(), values.columns());
        let mut update = pool::take(rows * columns);
        let mu = settings.momentum as f32;
        for (row, update) in update.chunks_mut(columns).enumerate() {
            update_row([clip, mu, keep], values.row(row), [update, momentum.row(row), gradient.row(row)]);
        }
        orthogonalize(settings.precision, &mut update, columns);
        let rate = (settings.learning_rate * scale(rows, columns)) as f32;
        for (row, update) in update.chunks(columns).enumerate() {
            subtract(rate, update, gradient.row(row));
        }
    });
}

/// Computes `matrix = O(matrix)` with the Newton-Schulz iteration, on the calling thread.
fn orthogonalize(precision: Precision, matrix: &mut pool::Buffer, columns: usize) {
    let rows = matrix.len() / columns;
    let side = rows.min(columns);
    let norm = global_norm(&[&**matrix]) as f32;
    multiply(1.0 / (norm + EPSILON), matrix);
    let [mut gram, mut polynomial] = [(); 2].map(|()| pool::take(side * side));
    let mut next = pool::take(rows * columns);
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..ITERATIONS {
        // X becomes a X + b X X' X + c X X' X X' X, with X' X instead of X X' if it is smaller.
        let x = Matrix::new(matrix, columns);
        let (left, right) = if rows <= columns { (x, x.transposed()) } else { (x.transposed(), x) };
        let product = |output: &mut [f32], columns, scale, [left, right]: [Matrix; 2]| {
            product(
                precision,
                &mut MatrixMut::new(output, columns),
                Destination::Overwrite,
                scale,
                left,
                right,
            );
        };
        product(&mut gram, side, 1.0, [left, right]);
        product(&mut polynomial, side, c, [Matrix::new(&gram, side); 2]);
        add(b, &gram, &mut polynomial);
        polynomial.iter_mut().step_by(side + 1).for_each(|diagonal| *diagonal += a);
        let polynomial = Matrix::new(&polynomial, side);
        product(&mut next, columns, 1.0, if rows <= columns { [polynomial, x] } else { [x, polynomial] });
        std::mem::swap(matrix, &mut next);
    }
}

vectorized! {
    /// Computes the update, adds the gradient to the momentum, and replaces the gradient by the decayed values.
    fn update_row(simd; factors: [f32; 3], values: &[f32], outputs: [&mut [f32]; 3]) {
        let [clip, momentum, keep] = factors;
        let rest = 1.0 - momentum;
        update_all(simd, outputs, [values], |[_, first, gradient], [value]| {
            let new = gradient * (clip * rest);
            let first = first.mul_add(momentum, new);
            [first.mul_add(momentum, new), first, value * keep]
        });
    }

    fn multiply(simd; factor: f32, values: &mut [f32]) { update(simd, values, [], |x, []| x * factor) }

    fn add(simd; factor: f32, values: &[f32], sums: &mut [f32]) {
        update(simd, sums, [values], |sum, [x]| x.mul_add(factor, sum));
    }

    fn subtract(simd; factor: f32, values: &[f32], from: &mut [f32]) {
        update(simd, from, [values], |value, [x]| x.mul_add(-factor, value));
    }
}

#[cfg(test)]
mod tests;
