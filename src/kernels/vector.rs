//! Vector code from plain loops: one body, compiled once for each instruction set and chosen at run time.
//!
//! A function inside [`vectorized!`] is written over `f32` slices and blocks of [`LANES`] numbers. The macro
//! compiles its body for AVX-512, AVX2 with FMA, NEON and the portable baseline, and calls the widest one that
//! this machine has. [`map_into`], [`update`] and [`sum_map`] walk slices in blocks of [`LANES`] and pad the
//! last block, so that a width of 10 runs as vector code like a width of 64.
//!
//! All sums have a fixed order that does not depend on the instruction set's width.

use std::sync::OnceLock;

use pulp::Arch;

/// Numbers in a block: one AVX-512 register, two of AVX2, four of NEON.
pub(super) const LANES: usize = 16;

/// A block of numbers that the compiler keeps in vector registers.
pub(super) type Lanes = [f32; LANES];

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
/// `fn name<FMA>(...)` gives the body the constant `FMA: bool`, which says whether a multiply and an add fuse
/// into one instruction (see [`mul_add`]).
macro_rules! vectorized {
    (@result) => { () };
    (@result $result:ty) => { $result };
    ($($(#[$attribute:meta])* $visibility:vis fn $name:ident<$fma:ident>(
        $($argument:ident: $type:ty),* $(,)?
    ) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$attribute])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body<const $fma: bool>($($argument: $type),*) $(-> $result)? $body
            // A closure would stay a call of its own, compiled without the instruction set.
            struct Call<Arguments>(Arguments);
            impl pulp::NullaryFnOnce for Call<($($type,)*)> {
                type Output = $crate::kernels::vector::vectorized!(@result $($result)?);
                #[inline(always)]
                fn call(self) -> Self::Output {
                    let Call(($($argument,)*)) = self;
                    body::<true>($($argument),*)
                }
            }
            match $crate::kernels::vector::instruction_set() {
                pulp::Arch::Scalar => body::<false>($($argument),*),
                wide => wide.dispatch(Call(($($argument,)*))),
            }
        }
    )*};
}
pub(super) use vectorized;

/// `a * b + c`, rounded once where the instruction set fuses it.
///
/// Without such an instruction a fused multiply-add would be a slow call into the system's library.
#[inline(always)]
pub(super) fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Splits each input into whole blocks and the rest; all inputs are as long as the first.
#[inline(always)]
fn blocks<'a, const N: usize>(length: usize, inputs: [&'a [f32]; N]) -> ([&'a [Lanes]; N], [&'a [f32]; N]) {
    (
        inputs.map(|input| input[..length].as_chunks().0),
        inputs.map(|input| input[..length].as_chunks::<LANES>().1),
    )
}

/// A rest of fewer than [`LANES`] numbers, filled up with zeros.
#[inline(always)]
fn padded(rest: &[f32]) -> Lanes {
    let mut block = [0.0; LANES];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// `output[i] = f(output[i], [inputs[0][i], ..])`.
#[inline(always)]
pub(super) fn update<const N: usize>(
    output: &mut [f32],
    inputs: [&[f32]; N],
    f: impl Fn(f32, [f32; N]) -> f32,
) {
    let (whole, rests) = blocks(output.len(), inputs);
    let (output, output_rest) = output.as_chunks_mut::<LANES>();
    for (index, output) in output.iter_mut().enumerate() {
        *output = map_lanes(*output, std::array::from_fn(|n| whole[n][index]), &f);
    }
    if !output_rest.is_empty() {
        let last = map_lanes(padded(output_rest), rests.map(padded), &f);
        output_rest.copy_from_slice(&last[..output_rest.len()]);
    }
}

/// `f` of each lane. The blocks come by value: through references the compiler would have to suppose that they
/// overlap, and would not use vectors.
#[inline(always)]
fn map_lanes<const N: usize>(
    mut output: Lanes,
    inputs: [Lanes; N],
    f: impl Fn(f32, [f32; N]) -> f32,
) -> Lanes {
    for lane in 0..LANES {
        output[lane] = f(output[lane], std::array::from_fn(|n| inputs[n][lane]));
    }
    output
}

/// `output[i] = f([inputs[0][i], ..])`; what `output` held does not matter.
#[inline(always)]
pub(super) fn map_into<const N: usize>(output: &mut [f32], inputs: [&[f32]; N], f: impl Fn([f32; N]) -> f32) {
    update(output, inputs, |_, values| f(values));
}

/// The sum over `i` of `f([inputs[0][i], ..])`.
#[inline(always)]
pub(super) fn sum_map<const N: usize>(inputs: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    let (whole, rests) = blocks(inputs[0].len(), inputs);
    // Two sums at once hide the latency of the addition.
    let mut sums = [[0.0; LANES]; 2];
    let add = |sum, values| sum + f(values);
    for index in 0..whole[0].len() / 2 {
        for half in 0..2 {
            let block = std::array::from_fn(|n| whole[n][2 * index + half]);
            sums[half] = map_lanes(sums[half], block, add);
        }
    }
    if !whole[0].len().is_multiple_of(2) {
        sums[0] = map_lanes(sums[0], std::array::from_fn(|n| whole[n][whole[0].len() - 1]), add);
    }
    let rest = rests[0].len();
    if rest > 0 {
        let values = map_lanes([0.0; LANES], rests.map(padded), |_, values| f(values));
        for lane in 0..LANES {
            sums[1][lane] += if lane < rest { values[lane] } else { 0.0 };
        }
    }
    sum_lanes(map_lanes(sums[0], [sums[1]], |a, [b]| a + b))
}

/// The sum of a block, by halves.
#[inline(always)]
pub(super) fn sum_lanes(mut block: Lanes) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            block[lane] += block[lane + half];
        }
        half /= 2;
    }
    block[0]
}

/// The largest number of a block; one that is not a number is passed over.
#[inline(always)]
pub(super) fn max_lanes(mut block: Lanes) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            block[lane] = larger(block[lane], block[lane + half]);
        }
        half /= 2;
    }
    block[0]
}

/// The larger of two numbers, as one instruction: `best` where `value` is not a number.
#[inline(always)]
pub(super) fn larger(best: f32, value: f32) -> f32 {
    if value > best { value } else { best }
}

/// The largest number of a slice, negative infinity of an empty one.
#[inline(always)]
pub(super) fn max(values: &[f32]) -> f32 {
    let (whole, rest) = values.as_chunks::<LANES>();
    let mut best = [f32::NEG_INFINITY; LANES];
    for block in whole {
        for lane in 0..LANES {
            best[lane] = larger(best[lane], block[lane]);
        }
    }
    for (best, &value) in best.iter_mut().zip(rest) {
        *best = larger(*best, value);
    }
    max_lanes(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    vectorized! {
        fn total<FMA>(values: &[f32]) -> f32 { sum_map([values], |[x]| x) }
        fn largest<FMA>(values: &[f32]) -> f32 { max(values) }
        fn scaled_difference<FMA>(output: &mut [f32], a: &[f32], b: &[f32]) {
            map_into(output, [a, b], |[a, b]| mul_add::<FMA>(2.0, a, -b));
        }
    }

    #[test]
    fn every_length_is_walked_exactly_once() {
        for length in 0..100 {
            let values: Vec<f32> = (0..length).map(|i| (i * i % 37) as f32).collect();
            assert_eq!(total(&values), values.iter().sum::<f32>(), "sum of {length}");
            assert_eq!(largest(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let other: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let mut output = vec![f32::NAN; length];
            scaled_difference(&mut output, &values, &other);
            for i in 0..length {
                assert_eq!(output[i], 2.0 * values[i] - other[i], "{i} of {length}");
            }
        }
    }
}
