//! Test helpers: an assertion of closeness, and reference operations in double precision.

/// Converts numbers to double precision.
pub(crate) fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Asserts that every number differs from the expected one by at most 1e-5 times the largest expected number.
#[track_caller]
pub(crate) fn assert_close(what: &str, actual: &[f32], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len(), "{what}: lengths");
    let largest = expected.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let difference = (f64::from(*actual) - expected).abs();
        assert!(
            difference <= 1e-5 * largest,
            "{what}[{index}] = {actual}, not {expected} (largest {largest})"
        );
    }
}

/// Computes the error function by its Maclaurin series, to within 2e-9 for arguments below 4.5.
pub(crate) fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..250 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// Computes `left [rows, inner] * right [inner, columns]` in double precision.
pub(crate) fn naive_product(left: &[f64], right: &[f64], inner: usize, columns: usize) -> Vec<f64> {
    (0..left.len() / inner * columns)
        .map(|index| {
            let (row, column) = (index / columns, index % columns);
            (0..inner).map(|k| left[row * inner + k] * right[k * columns + column]).sum()
        })
        .collect()
}

/// Transposes `matrix [rows, columns]`.
pub(crate) fn transposed<T: Copy>(matrix: &[T], columns: usize) -> Vec<T> {
    let rows = matrix.len() / columns;
    (0..matrix.len()).map(|index| matrix[index % rows * columns + index / rows]).collect()
}
