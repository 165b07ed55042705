//! Walks over slices, a register at a time; the last one may be filled in part.
//!
//! Each calls its closure in one place only, so that it is sure to be compiled into the body that has the
//! instruction set.

use std::ops::Range;

use pulp::Simd;

use super::Vector;

/// The ranges of `length` numbers that fill a register each, the last one perhaps in part.
#[inline(always)]
fn registers<S: Simd>(length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length).step_by(S::F32_LANES).map(move |start| start..length.min(start + S::F32_LANES))
}

/// The same range of several slices.
#[inline(always)]
fn load_all<S: Simd, const N: usize>(simd: S, slices: &[&[f32]; N], range: &Range<usize>) -> [Vector<S>; N] {
    let mut vectors = [Vector::splat(simd, 0.0); N];
    for n in 0..N {
        vectors[n] = Vector::load(simd, &slices[n][range.clone()]);
    }
    vectors
}

/// `output[i] = f(output[i], [inputs[0][i], ..])`.
#[inline(always)]
pub(crate) fn update<S: Simd, const N: usize>(
    simd: S,
    output: &mut [f32],
    inputs: [&[f32]; N],
    f: impl Fn(Vector<S>, [Vector<S>; N]) -> Vector<S>,
) {
    let inputs = inputs.map(|input| &input[..output.len()]);
    for range in registers::<S>(output.len()) {
        let values = load_all(simd, &inputs, &range);
        let output = &mut output[range];
        f(Vector::load(simd, output), values).store(output);
    }
}

/// `output[i] = f([inputs[0][i], ..])`; what `output` held does not matter.
#[inline(always)]
pub(crate) fn map_into<S: Simd, const N: usize>(
    simd: S,
    output: &mut [f32],
    inputs: [&[f32]; N],
    f: impl Fn([Vector<S>; N]) -> Vector<S>,
) {
    let inputs = inputs.map(|input| &input[..output.len()]);
    for range in registers::<S>(output.len()) {
        f(load_all(simd, &inputs, &range)).store(&mut output[range]);
    }
}

/// `(a[i], b[i]) = f(a[i], b[i], [inputs[0][i], ..])`.
#[inline(always)]
pub(crate) fn update_pairs<S: Simd, const N: usize>(
    simd: S,
    a: &mut [f32],
    b: &mut [f32],
    inputs: [&[f32]; N],
    f: impl Fn(Vector<S>, Vector<S>, [Vector<S>; N]) -> (Vector<S>, Vector<S>),
) {
    let inputs = inputs.map(|input| &input[..a.len()]);
    let b = &mut b[..a.len()];
    for range in registers::<S>(a.len()) {
        let values = load_all(simd, &inputs, &range);
        let (a, b) = (&mut a[range.clone()], &mut b[range]);
        let (new_a, new_b) = f(Vector::load(simd, a), Vector::load(simd, b), values);
        new_a.store(a);
        new_b.store(b);
    }
}

/// `values[i] = f(values[i])` and the sum of the results, for a slice of whole registers.
#[inline(always)]
pub(crate) fn update_and_sum<S: Simd>(
    simd: S,
    values: &mut [f32],
    f: impl Fn(Vector<S>) -> Vector<S>,
) -> f32 {
    debug_assert!(values.len().is_multiple_of(S::F32_LANES));
    let mut sum = Vector::splat(simd, 0.0);
    for values in values.chunks_exact_mut(S::F32_LANES) {
        let result = f(Vector::load(simd, values));
        result.store(values);
        sum = sum + result;
    }
    sum.sum()
}

/// The sum over `i` of `f([inputs[0][i], ..])`.
#[inline(always)]
pub(crate) fn sum_map<S: Simd, const N: usize>(
    simd: S,
    inputs: [&[f32]; N],
    f: impl Fn([Vector<S>; N]) -> Vector<S>,
) -> f32 {
    let length = inputs[0].len();
    let inputs = inputs.map(|input| &input[..length]);
    // Several sums at once hide the latency of the addition.
    let mut sums = [Vector::splat(simd, 0.0); 4];
    for range in registers::<S>(length) {
        let mut value = f(load_all(simd, &inputs, &range));
        if range.len() < S::F32_LANES {
            // `f` of the zeros behind the rest need not be zero.
            value = value.up_to(range.len(), 0.0);
        }
        sums = [sums[1], sums[2], sums[3], sums[0] + value];
    }
    ((sums[0] + sums[1]) + (sums[2] + sums[3])).sum()
}

/// The largest number of a slice, negative infinity of an empty one; what is no number is passed over.
#[inline(always)]
pub(crate) fn max<S: Simd>(simd: S, values: &[f32]) -> f32 {
    let mut best = [Vector::splat(simd, f32::NEG_INFINITY); 2];
    for range in registers::<S>(values.len()) {
        let mut value = Vector::load(simd, &values[range.clone()]);
        if range.len() < S::F32_LANES {
            value = value.up_to(range.len(), f32::NEG_INFINITY);
        }
        best = [best[1], best[0].larger(value)];
    }
    best[0].larger(best[1]).max()
}
