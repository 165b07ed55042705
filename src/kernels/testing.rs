//! What the kernels' tests share: random numbers, closeness, threads.

/// Numbers between -1 and 1 that follow from the seed alone (SplitMix64).
pub(crate) fn random(seed: u64, length: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..length)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// The same numbers in double precision.
pub(super) fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Every number within 1e-5 of the largest expected one.
#[track_caller]
pub(super) fn assert_close(what: &str, actual: &[f32], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len(), "{what}: lengths");
    let largest = expected.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    for (place, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let difference = (f64::from(*actual) - expected).abs();
        assert!(
            difference <= 1e-5 * largest,
            "{what}[{place}] = {actual}, not {expected} (largest {largest})"
        );
    }
}

/// Runs `compute` on 1, 2 and 3 threads: the results must have the same bits.
#[track_caller]
pub(crate) fn assert_same_on_any_number_of_threads(compute: impl Fn() -> Vec<Vec<f32>> + Sync + Send) {
    let bits = |threads| -> Vec<Vec<u32>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
        let results = pool.install(&compute);
        results.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect()
    };
    let one = bits(1);
    for threads in [2, 3] {
        assert!(one == bits(threads), "results differ between 1 and {threads} threads");
    }
}

/// The error function by its Maclaurin series, exact to 1e-10 below 4.5.
pub(super) fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..250 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// `left [rows, inner] * right [inner, columns]` in double precision.
pub(super) fn naive_product(left: &[f64], right: &[f64], inner: usize, columns: usize) -> Vec<f64> {
    (0..left.len() / inner * columns)
        .map(|place| {
            let (row, column) = (place / columns, place % columns);
            (0..inner).map(|k| left[row * inner + k] * right[k * columns + column]).sum()
        })
        .collect()
}

/// `matrix [rows, columns]` with rows and columns exchanged.
pub(super) fn transposed<T: Copy>(matrix: &[T], columns: usize) -> Vec<T> {
    let rows = matrix.len() / columns;
    (0..matrix.len()).map(|place| matrix[place % rows * columns + place / rows]).collect()
}
