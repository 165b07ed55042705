//! Vector code that is compiled for every instruction set and dispatched at run time.
//!
//! A function inside [`vectorized!`] computes with [`Vector`], a register of the instruction set: 16 numbers with
//! AVX-512, 8 with AVX2, 4 with NEON, 1 otherwise. The macro compiles the function for each instruction set (with the
//! `pulp` crate) and calls the version for the widest one that this machine supports. [`update`], [`sum_map`] and
//! others iterate over slices register by register; the last register may be partial.

mod register;
mod walk;

use std::ffi::OsString;
use std::fmt;
use std::sync::OnceLock;

use pulp::Arch;

pub(super) use register::Vector;
pub(super) use walk::{max, sum_map, update, update_all, update_and_sum};

/// The maximum number of lanes of a register. Slices whose length is a multiple of it have no partial register on any
/// machine.
pub(super) const LANES: usize = 16;

/// The environment variable that limits kernels to a smaller instruction set: `portable`, `avx2`, or `avx512` without
/// the matrix unit.
///
/// It is meant for comparisons and debugging. It does not affect matrix products in f32, for which the `gemm` crate
/// chooses the instruction set.
pub const INSTRUCTION_SET_VARIABLE: &str = "CAUSAL_ATTENTION_INSTRUCTION_SET";

/// Returns the instruction set requested by [`INSTRUCTION_SET_VARIABLE`], or `None` if it is unset.
///
/// # Errors
/// Returns [`UnknownInstructionSet`] if the variable has any other value.
pub fn requested_instruction_set() -> Result<Option<&'static str>, UnknownInstructionSet> {
    let Some(requested) = std::env::var_os(INSTRUCTION_SET_VARIABLE) else { return Ok(None) };
    let set = INSTRUCTION_SETS.into_iter().find(|&set| requested == set);
    set.map(Some).ok_or(UnknownInstructionSet { requested })
}

/// The values of [`INSTRUCTION_SET_VARIABLE`].
const INSTRUCTION_SETS: [&str; 3] = ["portable", "avx2", "avx512"];

/// The error of an unknown value of [`INSTRUCTION_SET_VARIABLE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownInstructionSet {
    /// The value of the variable.
    pub requested: OsString,
}

impl fmt::Display for UnknownInstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{INSTRUCTION_SET_VARIABLE} = {:?} must be one of {}; unset it to use the widest instruction set",
            self.requested,
            INSTRUCTION_SETS.join(", ")
        )
    }
}

impl std::error::Error for UnknownInstructionSet {}

/// Returns the instruction set of the kernels, detected once per process.
pub(super) fn instruction_set() -> Arch {
    static CHOSEN: OnceLock<Arch> = OnceLock::new();
    *CHOSEN.get_or_init(|| match requested_instruction_set() {
        Ok(Some("portable")) => Arch::Scalar,
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Ok(Some("avx2")) => pulp::x86::V3::try_new().map_or(Arch::Scalar, Arch::V3),
        _ => Arch::new(),
    })
}

/// Defines functions whose bodies are compiled for each instruction set.
///
/// `fn name(simd; arguments)` passes `simd`, the token of the instruction set `S` that creates vectors, to the body.
macro_rules! vectorized {
    (@result) => { () };
    (@result $result:ty) => { $result };
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $(<const $size:ident: usize>)?
        ($simd:ident $(; $($argument:ident: $type:ty),* $(,)?)?) $(-> $result:ty)? $body:block
    )*) => {$(
        $(#[$attribute])*
        $visibility fn $name $(<const $size: usize>)? ($($($argument: $type),*)?) $(-> $result)? {
            struct Call<Arguments $(, const $size: usize)?>(Arguments);
            impl $(<const $size: usize>)? pulp::WithSimd for Call<($($($type,)*)?) $(, $size)?> {
                type Output = $crate::vector::vectorized!(@result $($result)?);
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, $simd: S) -> Self::Output {
                    let Call(($($($argument,)*)?)) = self;
                    $body
                }
            }
            $crate::vector::instruction_set().dispatch(Call::<_ $(, $size)?>(($($($argument,)*)?)))
        }
    )*};
}
pub(super) use vectorized;

#[cfg(test)]
mod tests {
    use super::*;

    vectorized! {
        fn total(simd; values: &[f32]) -> f32 { sum_map(simd, [values], |[x]| x + 1.0) }
        fn largest(simd; values: &[f32]) -> f32 { max(simd, values) }
        fn scaled_difference(simd; output: &mut [f32], a: &[f32], b: &[f32]) {
            update(simd, output, [a, b], |_, [a, b]| a.mul_add(2.0, -b));
        }
        fn add(simd; output: &mut [f32], a: &[f32]) {
            update(simd, output, [a], |x, [a]| x + a);
        }
        fn load_and_store(simd; output: &mut [f32], values: &[f32]) {
            Vector::load(simd, values).store(output);
        }
    }

    #[test]
    fn loops_visit_every_number_exactly_once() {
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
    fn loads_and_stores_stop_at_slice_end() {
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
