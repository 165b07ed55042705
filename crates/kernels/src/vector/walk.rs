//! Loops over slices, one register at a time; the last register may be partial.
//!
//! Each function calls its closure at only one point, so that the closure is inlined into the code for the instruction
//! set. The same loop therefore processes a partial register, as a slice of one register.

use std::ops::Deref;

use pulp::Simd;

use super::Vector;

/// Splits the first `length` numbers of several slices into full registers and at most one partial register, which is
/// stored in `partial`, padded with zeros.
#[inline(always)]
fn parts<'a, S: Simd, const N: usize>(
    simd: S,
    slices: [&'a [f32]; N],
    length: usize,
    partial: &'a mut [[S::f32s; 1]; N],
) -> [[&'a [S::f32s]; N]; 2] {
    let mut parts = [[&[][..]; N]; 2];
    for (n, partial) in partial.iter_mut().enumerate() {
        let (full, rest) = S::as_simd_f32s(&slices[n][..length]);
        partial[0] = simd.partial_load_f32s(rest);
        (parts[0][n], parts[1][n]) = (full, &partial[..usize::from(!rest.is_empty())]);
    }
    parts
}

/// Loads the same register of several slices.
#[inline(always)]
fn load_all<S: Simd, const N: usize>(
    simd: S,
    slices: &[impl Deref<Target = [S::f32s]>; N],
    register: usize,
) -> [Vector<S>; N] {
    let mut vectors = [Vector::splat(simd, 0.0); N];
    for n in 0..N {
        vectors[n].lanes = slices[n][register];
    }
    vectors
}

/// Computes `[outputs[0][i], ..] = f([outputs[0][i], ..], [inputs[0][i], ..])`.
#[inline(always)]
pub(crate) fn update_all<S: Simd, const M: usize, const N: usize>(
    simd: S,
    outputs: [&mut [f32]; M],
    inputs: [&[f32]; N],
    f: impl Fn([Vector<S>; M], [Vector<S>; N]) -> [Vector<S>; M],
) {
    let length = outputs[0].len();
    let mut partial = [[simd.splat_f32s(0.0)]; N];
    let inputs = parts(simd, inputs, length, &mut partial);
    let mut outputs = outputs.map(|output| S::as_mut_simd_f32s(&mut output[..length]));
    let mut last = [[simd.splat_f32s(0.0)]; M];
    for m in 0..M {
        last[m][0] = simd.partial_load_f32s(outputs[m].1);
    }
    let used = usize::from(!outputs[0].1.is_empty());
    let full = outputs.each_mut().map(|(full, _)| &mut **full);
    for (outputs, inputs) in [full, last.each_mut().map(|last| &mut last[..used])].into_iter().zip(inputs) {
        let count = outputs[0].len();
        let (outputs, inputs) =
            (outputs.map(|output| &mut output[..count]), inputs.map(|input| &input[..count]));
        for register in 0..count {
            let new = f(load_all(simd, &outputs, register), load_all(simd, &inputs, register));
            for m in 0..M {
                outputs[m][register] = new[m].lanes;
            }
        }
    }
    for m in 0..M {
        simd.partial_store_f32s(outputs[m].1, last[m][0]);
    }
}

/// Computes `output[i] = f(output[i], [inputs[0][i], ..])`.
#[inline(always)]
pub(crate) fn update<S: Simd, const N: usize>(
    simd: S,
    output: &mut [f32],
    inputs: [&[f32]; N],
    f: impl Fn(Vector<S>, [Vector<S>; N]) -> Vector<S>,
) {
    update_all(
        simd,
        [output],
        inputs,
        #[inline(always)]
        |[x], inputs| [f(x, inputs)],
    );
}

/// Computes `values[i] = f(values[i])` for a slice without a partial register, and returns the sum of the results.
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

/// Folds `f` over the registers of the inputs. `f` also receives the number of lanes in use; the other lanes are zero.
#[inline(always)]
fn fold<S: Simd, const N: usize, T>(
    simd: S,
    inputs: [&[f32]; N],
    mut state: T,
    f: impl Fn(T, [Vector<S>; N], usize) -> T,
) -> T {
    let length = inputs[0].len();
    let mut partial = [[simd.splat_f32s(0.0)]; N];
    let lanes = [S::F32_LANES, length % S::F32_LANES];
    for (inputs, lanes) in parts(simd, inputs, length, &mut partial).into_iter().zip(lanes) {
        let count = inputs[0].len();
        let inputs = inputs.map(|input| &input[..count]);
        for register in 0..count {
            state = f(state, load_all(simd, &inputs, register), lanes);
        }
    }
    state
}

/// Returns the sum over `i` of `f([inputs[0][i], ..])`.
#[inline(always)]
pub(crate) fn sum_map<S: Simd, const N: usize>(
    simd: S,
    inputs: [&[f32]; N],
    f: impl Fn([Vector<S>; N]) -> Vector<S>,
) -> f32 {
    // Four independent sums hide the latency of the addition.
    let sums = fold(simd, inputs, [Vector::splat(simd, 0.0); 4], |sums, values, lanes| {
        let mut value = f(values);
        if lanes < S::F32_LANES {
            // `f` of the zero padding need not be zero.
            value = value.up_to(lanes, 0.0);
        }
        [sums[1], sums[2], sums[3], sums[0] + value]
    });
    ((sums[0] + sums[1]) + (sums[2] + sums[3])).sum()
}

/// Returns the maximum of a slice, or negative infinity if it is empty; NaN is skipped.
#[inline(always)]
pub(crate) fn max<S: Simd>(simd: S, values: &[f32]) -> f32 {
    let lowest = Vector::splat(simd, f32::NEG_INFINITY);
    let best = fold(simd, [values], [lowest; 2], |best, [mut value], lanes| {
        if lanes < S::F32_LANES {
            value = value.up_to(lanes, f32::NEG_INFINITY);
        }
        [best[1], best[0].larger(value)]
    });
    best[0].larger(best[1]).max()
}
