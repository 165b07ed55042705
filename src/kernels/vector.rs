//! Vector code for every instruction set from one body, chosen at run time.
//!
//! A function inside [`vectorized!`] is written over [`Vector`], a register of as many numbers as the instruction
//! set holds: 16 with AVX-512, 8 with AVX2, 4 with NEON, 1 where there is none of them. The macro compiles the
//! body for each (through the `pulp` crate) and calls the widest that this machine has. [`map_into`], [`update`]
//! and [`sum_map`] walk slices register by register; the last one may be filled in part.

use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::OnceLock;

use pulp::{Arch, Simd};

/// The most numbers that a register holds. Lengths rounded up to it are whole registers everywhere.
pub(super) const LANES: usize = 16;

/// The environment variable that holds kernels to a smaller instruction set: `portable` or `avx2`.
///
/// It serves comparison and doubt; matrix products, which the `gemm` crate dispatches by itself, stay as they
/// are.
pub const INSTRUCTION_SET_VARIABLE: &str = "CAUSAL_ATTENTION_INSTRUCTION_SET";

/// The instruction set that the kernels run on, found once in a process.
pub(super) fn instruction_set() -> Arch {
    static CHOSEN: OnceLock<Arch> = OnceLock::new();
    *CHOSEN.get_or_init(|| match std::env::var(INSTRUCTION_SET_VARIABLE).as_deref() {
        Ok("portable") => Arch::Scalar,
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Ok("avx2") => pulp::x86::V3::try_new().map_or(Arch::Scalar, Arch::V3),
        _ => Arch::new(),
    })
}

/// Defines functions whose bodies are compiled for each instruction set.
///
/// `fn name(simd; arguments)` gives the body `simd`, the token of the instruction set `S`, which makes vectors.
macro_rules! vectorized {
    (@result) => { () };
    (@result $result:ty) => { $result };
    ($($(#[$attribute:meta])* $visibility:vis fn $name:ident($simd:ident $(; $($argument:ident: $type:ty),* $(,)?)?)
        $(-> $result:ty)? $body:block)*) => {$(
        $(#[$attribute])*
        $visibility fn $name($($($argument: $type),*)?) $(-> $result)? {
            struct Call<Arguments>(Arguments);
            impl pulp::WithSimd for Call<($($($type,)*)?)> {
                type Output = $crate::kernels::vector::vectorized!(@result $($result)?);
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, $simd: S) -> Self::Output {
                    let Call(($($($argument,)*)?)) = self;
                    $body
                }
            }
            $crate::kernels::vector::instruction_set().dispatch(Call(($($($argument,)*)?)))
        }
    )*};
}
pub(super) use vectorized;

/// A register of numbers.
#[derive(Clone, Copy)]
pub(super) struct Vector<S: Simd> {
    simd: S,
    lanes: S::f32s,
}

/// For each number of a register, whether something holds.
#[derive(Clone, Copy)]
pub(super) struct Mask<S: Simd>(S::m32s);

impl<S: Simd> Mask<S> {
    #[inline(always)]
    pub(super) fn new(mask: S::m32s) -> Self {
        Self(mask)
    }
}

impl<S: Simd> Vector<S> {
    /// Numbers in a register.
    pub(super) const LANES: usize = S::F32_LANES;

    #[inline(always)]
    pub(super) fn splat(simd: S, value: f32) -> Self {
        Self { simd, lanes: simd.splat_f32s(value) }
    }

    /// The first numbers of a slice, with zeros behind it where it is too short.
    #[inline(always)]
    pub(super) fn load(simd: S, slice: &[f32]) -> Self {
        let lanes = match S::as_simd_f32s(slice).0 {
            [first, ..] => *first,
            [] => simd.partial_load_f32s(slice),
        };
        Self { simd, lanes }
    }

    /// Writes to the front of a slice, as far as it goes.
    #[inline(always)]
    pub(super) fn store(self, slice: &mut [f32]) {
        if slice.len() >= Self::LANES {
            S::as_mut_simd_f32s(slice).0[0] = self.lanes;
        } else {
            self.simd.partial_store_f32s(slice, self.lanes);
        }
    }

    /// `self * factor + addend`, rounded once where the instruction set fuses it.
    #[inline(always)]
    pub(super) fn mul_add(self, factor: impl Operand<S>, addend: impl Operand<S>) -> Self {
        let (factor, addend) = (factor.vector(self.simd), addend.vector(self.simd));
        self.with(self.simd.mul_add_e_f32s(self.lanes, factor.lanes, addend.lanes))
    }

    #[inline(always)]
    pub(super) fn abs(self) -> Self {
        self.with(self.simd.abs_f32s(self.lanes))
    }

    #[inline(always)]
    pub(super) fn sqrt(self) -> Self {
        self.with(self.simd.sqrt_f32s(self.lanes))
    }

    #[inline(always)]
    pub(super) fn less_than(self, other: impl Operand<S>) -> Mask<S> {
        Mask(self.simd.less_than_f32s(self.lanes, other.vector(self.simd).lanes))
    }

    #[inline(always)]
    pub(super) fn greater_than(self, other: impl Operand<S>) -> Mask<S> {
        Mask(self.simd.greater_than_f32s(self.lanes, other.vector(self.simd).lanes))
    }

    #[inline(always)]
    pub(super) fn is_nan(self) -> Mask<S> {
        Mask(self.simd.not_m32s(self.simd.equal_f32s(self.lanes, self.lanes)))
    }

    #[inline(always)]
    pub(super) fn equals(self, other: impl Operand<S>) -> Mask<S> {
        Mask(self.simd.equal_f32s(self.lanes, other.vector(self.simd).lanes))
    }

    /// `value` where the mask holds, `self` elsewhere.
    #[inline(always)]
    pub(super) fn replace(self, mask: Mask<S>, value: impl Operand<S>) -> Self {
        self.with(self.simd.select_f32s(mask.0, value.vector(self.simd).lanes, self.lanes))
    }

    /// The larger numbers; those of `self` where `other` holds what is no number.
    #[inline(always)]
    pub(super) fn larger(self, other: Self) -> Self {
        self.replace(self.less_than(other), other)
    }

    /// The numbers' bits, worked on as integers.
    #[inline(always)]
    pub(super) fn map_bits(self, f: impl FnOnce(S, S::u32s) -> S::u32s) -> Self {
        self.with(self.simd.transmute_f32s_u32s(f(self.simd, self.simd.transmute_u32s_f32s(self.lanes))))
    }

    /// The sum of all numbers.
    #[inline(always)]
    pub(super) fn sum(self) -> f32 {
        self.simd.reduce_sum_f32s(self.lanes)
    }

    /// The largest number.
    #[inline(always)]
    pub(super) fn max(self) -> f32 {
        self.simd.reduce_max_f32s(self.lanes)
    }

    #[inline(always)]
    fn with(self, lanes: S::f32s) -> Self {
        Self { lanes, ..self }
    }
}

/// What a vector is combined with: another one, or one number for all lanes.
pub(super) trait Operand<S: Simd> {
    fn vector(self, simd: S) -> Vector<S>;
}

impl<S: Simd> Operand<S> for Vector<S> {
    #[inline(always)]
    fn vector(self, _: S) -> Self {
        self
    }
}

impl<S: Simd> Operand<S> for f32 {
    #[inline(always)]
    fn vector(self, simd: S) -> Vector<S> {
        Vector::splat(simd, self)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $instruction:ident;)*) => {$(
        impl<S: Simd, O: Operand<S>> $trait<O> for Vector<S> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: O) -> Self {
                self.with(self.simd.$instruction(self.lanes, other.vector(self.simd).lanes))
            }
        }
        impl<S: Simd> $trait<Vector<S>> for f32 {
            type Output = Vector<S>;
            #[inline(always)]
            fn $method(self, other: Vector<S>) -> Vector<S> {
                Vector::splat(other.simd, self).$method(other)
            }
        }
    )*};
}
operators! {
    Add add add_f32s;
    Sub sub sub_f32s;
    Mul mul mul_f32s;
    Div div div_f32s;
}

impl<S: Simd> Neg for Vector<S> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.with(self.simd.neg_f32s(self.lanes))
    }
}

/// Register `index` of each slice; `rest` numbers (zeros behind them) if that is not zero.
///
/// The walks below call their closure in one place only, so that it is sure to be compiled into the body that
/// has the instruction set.
#[inline(always)]
fn load_all<S: Simd, const N: usize>(
    simd: S,
    slices: &[&[f32]; N],
    index: usize,
    rest: usize,
) -> [Vector<S>; N] {
    let mut vectors = [Vector::splat(simd, 0.0); N];
    for n in 0..N {
        let slice = &slices[n][index * S::F32_LANES..];
        vectors[n].lanes = if rest == 0 {
            S::as_simd_f32s(&slice[..S::F32_LANES]).0[0]
        } else {
            simd.partial_load_f32s(&slice[..rest])
        };
    }
    vectors
}

/// `output[i] = f(output[i], [inputs[0][i], ..])`.
#[inline(always)]
pub(super) fn update<S: Simd, const N: usize>(
    simd: S,
    output: &mut [f32],
    inputs: [&[f32]; N],
    f: impl Fn(Vector<S>, [Vector<S>; N]) -> Vector<S>,
) {
    let inputs = inputs.map(|input| &input[..output.len()]);
    for (index, output) in output.chunks_mut(S::F32_LANES).enumerate() {
        let rest = output.len() % S::F32_LANES;
        let [old] = load_all(simd, &[output], 0, rest);
        f(old, load_all(simd, &inputs, index, rest)).store(output);
    }
}

/// `output[i] = f([inputs[0][i], ..])`; what `output` held does not matter.
#[inline(always)]
pub(super) fn map_into<S: Simd, const N: usize>(
    simd: S,
    output: &mut [f32],
    inputs: [&[f32]; N],
    f: impl Fn([Vector<S>; N]) -> Vector<S>,
) {
    let inputs = inputs.map(|input| &input[..output.len()]);
    for (index, output) in output.chunks_mut(S::F32_LANES).enumerate() {
        f(load_all(simd, &inputs, index, output.len() % S::F32_LANES)).store(output);
    }
}

/// `(a[i], b[i]) = f(a[i], b[i], [inputs[0][i], ..])`.
#[inline(always)]
pub(super) fn update_pairs<S: Simd, const N: usize>(
    simd: S,
    a: &mut [f32],
    b: &mut [f32],
    inputs: [&[f32]; N],
    f: impl Fn(Vector<S>, Vector<S>, [Vector<S>; N]) -> (Vector<S>, Vector<S>),
) {
    let inputs = inputs.map(|input| &input[..a.len()]);
    let b = &mut b[..a.len()];
    for (index, (a, b)) in a.chunks_mut(S::F32_LANES).zip(b.chunks_mut(S::F32_LANES)).enumerate() {
        let rest = a.len() % S::F32_LANES;
        let [old_a, old_b] = load_all(simd, &[a, b], 0, rest);
        let (new_a, new_b) = f(old_a, old_b, load_all(simd, &inputs, index, rest));
        new_a.store(a);
        new_b.store(b);
    }
}

/// `values[i] = f(values[i])` and the sum of the results, for a slice of whole registers.
#[inline(always)]
pub(super) fn update_and_sum<S: Simd>(
    simd: S,
    values: &mut [f32],
    f: impl Fn(Vector<S>) -> Vector<S>,
) -> f32 {
    let mut sum = Vector::splat(simd, 0.0);
    for lanes in S::as_mut_simd_f32s(values).0 {
        let result = f(Vector { simd, lanes: *lanes });
        *lanes = result.lanes;
        sum = sum + result;
    }
    sum.sum()
}

/// The sum over `i` of `f([inputs[0][i], ..])`.
#[inline(always)]
pub(super) fn sum_map<S: Simd, const N: usize>(
    simd: S,
    inputs: [&[f32]; N],
    f: impl Fn([Vector<S>; N]) -> Vector<S>,
) -> f32 {
    let length = inputs[0].len();
    let inputs = inputs.map(|input| &input[..length]);
    // Several sums at once hide the latency of the addition.
    let mut sums = [Vector::splat(simd, 0.0); 4];
    for index in 0..length.div_ceil(S::F32_LANES) {
        let rest = (length - index * S::F32_LANES).min(S::F32_LANES) % S::F32_LANES;
        let mut value = f(load_all(simd, &inputs, index, rest));
        if rest != 0 {
            // `f` of the zeros behind the rest need not be zero.
            let used = Mask(simd.mask_between_m32s(0, rest as u32).mask());
            value = Vector::splat(simd, 0.0).replace(used, value);
        }
        sums = [sums[1], sums[2], sums[3], sums[0] + value];
    }
    ((sums[0] + sums[1]) + (sums[2] + sums[3])).sum()
}

/// The largest number of a slice, negative infinity of an empty one; what is no number is passed over.
#[inline(always)]
pub(super) fn max<S: Simd>(simd: S, values: &[f32]) -> f32 {
    let (whole, rest) = S::as_simd_f32s(values);
    let mut best = [Vector::splat(simd, f32::NEG_INFINITY); 2];
    for (index, lanes) in whole.iter().enumerate() {
        best[index % 2] = best[index % 2].larger(Vector { simd, lanes: *lanes });
    }
    if !rest.is_empty() {
        let used = simd.mask_between_m32s(0, rest.len() as u32).mask();
        let last = Vector { simd, lanes: simd.partial_load_f32s(rest) };
        best[0] = best[0].larger(Vector::splat(simd, f32::NEG_INFINITY).replace(Mask(used), last));
    }
    best[0].larger(best[1]).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    vectorized! {
        fn total(simd; values: &[f32]) -> f32 { sum_map(simd, [values], |[x]| x + 1.0) }
        fn largest(simd; values: &[f32]) -> f32 { max(simd, values) }
        fn scaled_difference(simd; output: &mut [f32], a: &[f32], b: &[f32]) {
            map_into(simd, output, [a, b], |[a, b]| a.mul_add(2.0, -b));
        }
        fn add(simd; output: &mut [f32], a: &[f32]) {
            update(simd, output, [a], |x, [a]| x + a);
        }
        fn load_and_store(simd; output: &mut [f32], values: &[f32]) { Vector::load(simd, values).store(output) }
    }

    #[test]
    fn every_length_is_walked_exactly_once() {
        for length in 0..150 {
            let values: Vec<f32> = (0..length).map(|i| (i * i % 37) as f32 - 40.0).collect();
            assert_eq!(total(&values), values.iter().map(|x| x + 1.0).sum::<f32>(), "sum of {length}");
            assert_eq!(largest(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let other: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let mut output = vec![f32::NAN; length];
            scaled_difference(&mut output, &values, &other);
            add(&mut output, &values);
            for i in 0..length {
                assert_eq!(output[i], 3.0 * values[i] - other[i], "{i} of {length}");
            }
        }
    }

    #[test]
    fn loads_and_stores_stop_at_the_end_of_a_slice() {
        for length in 0..20 {
            let values: Vec<f32> = (1..=length).map(|i| i as f32).collect();
            let mut output = [f32::NAN; 20];
            load_and_store(&mut output[..length], &values);
            for (i, value) in output.iter().enumerate() {
                assert!(*value == (i + 1) as f32 || i >= length.min(1), "{i} of {length}: {value}");
                assert!(i < length || value.is_nan());
            }
        }
    }
}
