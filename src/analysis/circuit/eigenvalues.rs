//! Eigenvalues of a square complex matrix by the shifted QR algorithm on its Hessenberg form (Golub and Van Loan,
//! "Matrix Computations", chapter 7).

use std::ops::Range;

use num_complex::Complex64;

/// Returns `|z|`, which num-complex provides only with its `std` feature.
pub(super) fn modulus(z: Complex64) -> f64 {
    z.re.hypot(z.im)
}

/// Returns the square root of `z` with a non-negative real part.
fn root(z: Complex64) -> Complex64 {
    let (re, im) = (((modulus(z) + z.re) / 2.0).max(0.0).sqrt(), ((modulus(z) - z.re) / 2.0).max(0.0).sqrt());
    Complex64::new(re, im.copysign(z.im))
}

/// Returns the eigenvalues of a matrix, given as rows.
pub(super) fn eigenvalues(mut a: Vec<Vec<Complex64>>) -> Vec<Complex64> {
    reduce_to_hessenberg(&mut a);
    let (mut rows, mut steps) = (a.len(), 0);
    let mut found = Vec::with_capacity(rows);
    while rows > 0 {
        let last = rows - 1;
        let start = (1..rows).rev().find(|&at| is_decoupled(&a, at)).unwrap_or(0);
        // In practice, finite matrices converge in fewer steps.
        if start == last || steps > 60 {
            found.push(a[last][last]);
            (rows, steps) = (last, 0);
            continue;
        }
        steps += 1;
        let near = wilkinson_shift(&a, last);
        // An occasional exceptional shift breaks a cycle of Wilkinson shifts.
        let shift = if steps % 11 == 10 { near + modulus(a[last][last - 1]) } else { near };
        qr_step(&mut a, start..rows, shift);
    }
    found
}

/// Eliminates the elements below the subdiagonal by similarity transformations.
fn reduce_to_hessenberg(a: &mut [Vec<Complex64>]) {
    let rows = a.len();
    for column in 0..rows.saturating_sub(2) {
        let below = column + 1;
        let pivot = (below..rows).max_by(|&i, &j| modulus(a[i][column]).total_cmp(&modulus(a[j][column])));
        let Some(pivot) = pivot.filter(|&pivot| modulus(a[pivot][column]) > 0.0) else { continue };
        a.swap(below, pivot);
        a.iter_mut().for_each(|row| row.swap(below, pivot));
        for row in below + 1..rows {
            let (above, under) = a.split_at_mut(row);
            let factor = under[0][column] / above[below][column];
            under[0].iter_mut().zip(&above[below]).for_each(|(x, pivot)| *x -= factor * pivot);
            a.iter_mut().for_each(|line| {
                let change = factor * line[row];
                line[below] += change;
            });
        }
    }
}

/// Returns true if the subdiagonal element of row `at` is negligible, so that the eigenvalues of the block from this
/// row on can be computed separately.
fn is_decoupled(a: &[Vec<Complex64>], at: usize) -> bool {
    modulus(a[at][at - 1]) <= f64::EPSILON * (modulus(a[at][at]) + modulus(a[at - 1][at - 1]))
}

/// Returns the eigenvalue of the 2×2 block ending at `last` that is closer to the last element.
fn wilkinson_shift(a: &[Vec<Complex64>], last: usize) -> Complex64 {
    let (p, q, r, s) = (a[last - 1][last - 1], a[last - 1][last], a[last][last - 1], a[last][last]);
    let (half, root) = ((p + s) / 2.0, root((p - s) * (p - s) / 4.0 + q * r));
    if modulus(half + root - s) < modulus(half - root - s) { half + root } else { half - root }
}

/// Applies a QR step to the block `rows`: `A - shift = QR` becomes `RQ + shift`, with one Givens rotation per pair of
/// rows.
fn qr_step(a: &mut [Vec<Complex64>], rows: Range<usize>, shift: Complex64) {
    let Range { start, end } = rows;
    let last = end - 1;
    (start..end).for_each(|i| a[i][i] -= shift);
    let mut rotations = Vec::with_capacity(last);
    for k in start..last {
        let (x, y) = (a[k][k], a[k + 1][k]);
        let length = modulus(x).hypot(modulus(y)).max(f64::MIN_POSITIVE);
        let (c, s) = (x / length, y / length);
        let (above, under) = a.split_at_mut(k + 1);
        for (upper, lower) in above[k][k..end].iter_mut().zip(&mut under[0][k..end]) {
            (*upper, *lower) = (c.conj() * *upper + s.conj() * *lower, c * *lower - s * *upper);
        }
        rotations.push((k, c, s));
    }
    for (k, c, s) in rotations {
        for row in &mut a[start..=(k + 1).min(last)] {
            let (left, right) = (row[k], row[k + 1]);
            row[k] = left * c + right * s;
            row[k + 1] = right * c.conj() - left * s.conj();
        }
    }
    (start..end).for_each(|i| a[i][i] += shift);
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::data::seed::{Purpose, generator};

    fn complex(rows: &[Vec<f64>]) -> Vec<Vec<Complex64>> {
        rows.iter().map(|row| row.iter().map(|&x| x.into()).collect()).collect()
    }

    fn sorted(mut values: Vec<Complex64>) -> Vec<Complex64> {
        values.sort_by(|a, b| (a.re, a.im).partial_cmp(&(b.re, b.im)).unwrap());
        values
    }

    #[test]
    fn eigenvalues_match_known_matrices() {
        // A cyclic shift has the fifth roots of unity; a triangular matrix its diagonal; a rotation a conjugate pair.
        let mut shift = vec![vec![0.0; 5]; 5];
        (0..5).for_each(|i| shift[i][(i + 1) % 5] = 1.0);
        let roots = (0..5)
            .map(|k| (f64::from(k) * std::f64::consts::TAU / 5.0).sin_cos())
            .map(|(im, re)| Complex64::new(re, im));
        let triangle = vec![vec![2.0, 5.0, -1.0], vec![0.0, -3.0, 4.0], vec![0.0, 0.0, 0.5]];
        let rotation = vec![vec![3.0, -4.0], vec![4.0, 3.0]];
        let cases = [
            (shift, roots.collect()),
            (triangle, vec![2.0.into(), (-3.0).into(), 0.5.into()]),
            (rotation, vec![Complex64::new(3.0, 4.0), Complex64::new(3.0, -4.0)]),
            (vec![vec![0.0; 3]; 3], vec![0.0.into(); 3]),
        ];
        for (matrix, expected) in cases {
            let found = sorted(eigenvalues(complex(&matrix)));
            for (found, expected) in found.iter().zip(sorted(expected)) {
                // The real parts of a pair, by which the values are sorted, differ in the last digit.
                assert!((found.re - expected.re).abs() < 1e-6, "{found} {expected}");
                assert!((found.im.abs() - expected.im.abs()).abs() < 1e-6, "{found} {expected}");
            }
        }
    }

    #[test]
    fn eigenvalue_sums_match_traces() {
        let rows = 24;
        let mut random = generator(3, Purpose::Expectation, [0, 0]);
        let a: Vec<Vec<f64>> =
            (0..rows).map(|_| (0..rows).map(|_| random.random_range(-1.0..1.0)).collect()).collect();
        let found = eigenvalues(complex(&a));
        let trace = (0..rows).map(|i| a[i][i]).sum::<f64>();
        let square: f64 =
            (0..rows).flat_map(|i| (0..rows).map(move |j| (i, j))).map(|(i, j)| a[i][j] * a[j][i]).sum();
        let sum: Complex64 = found.iter().sum();
        let squares: Complex64 = found.iter().map(|value| value * value).sum();
        assert!(
            modulus(sum - trace) < 1e-9 && modulus(squares - square) < 1e-9,
            "{sum} {trace} {squares} {square}"
        );
    }
}
