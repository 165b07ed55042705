//! A vector register with arithmetic operators.

use std::ops::{Add, Div, Mul, Neg, Sub};

use pulp::Simd;

/// A register of `f32` lanes.
#[derive(Clone, Copy)]
pub(crate) struct Vector<S: Simd> {
    simd: S,
    pub(super) lanes: S::f32s,
}

impl<S: Simd> Vector<S> {
    /// The number of lanes of a register.
    pub(crate) const LANES: usize = S::F32_LANES;

    #[inline(always)]
    pub(crate) fn splat(simd: S, value: f32) -> Self {
        Self { simd, lanes: simd.splat_f32s(value) }
    }

    /// Loads the first `LANES` numbers of a slice, padded with zeros if the slice is too short.
    #[inline(always)]
    pub(crate) fn load(simd: S, slice: &[f32]) -> Self {
        let lanes = match S::as_simd_f32s(slice).0 {
            [first, ..] => *first,
            [] => simd.partial_load_f32s(slice),
        };
        Self { simd, lanes }
    }

    /// Stores the register at the front of a slice, truncated to the slice's length.
    #[inline(always)]
    pub(crate) fn store(self, slice: &mut [f32]) {
        if slice.len() >= Self::LANES {
            S::as_mut_simd_f32s(slice).0[0] = self.lanes;
        } else {
            self.simd.partial_store_f32s(slice, self.lanes);
        }
    }

    /// Returns `self * factor + addend`, rounded once if the instruction set has a fused multiply-add.
    #[inline(always)]
    pub(crate) fn mul_add(self, factor: impl Operand<S>, addend: impl Operand<S>) -> Self {
        let (factor, addend) = (factor.vector(self.simd), addend.vector(self.simd));
        self.with(self.simd.mul_add_e_f32s(self.lanes, factor.lanes, addend.lanes))
    }

    #[inline(always)]
    pub(crate) fn abs(self) -> Self {
        self.with(self.simd.abs_f32s(self.lanes))
    }

    #[inline(always)]
    pub(crate) fn sqrt(self) -> Self {
        self.with(self.simd.sqrt_f32s(self.lanes))
    }

    #[inline(always)]
    pub(crate) fn less_than(self, other: impl Operand<S>) -> S::m32s {
        self.simd.less_than_f32s(self.lanes, other.vector(self.simd).lanes)
    }

    #[inline(always)]
    pub(crate) fn greater_than(self, other: impl Operand<S>) -> S::m32s {
        self.simd.greater_than_f32s(self.lanes, other.vector(self.simd).lanes)
    }

    #[inline(always)]
    pub(crate) fn is_nan(self) -> S::m32s {
        self.simd.not_m32s(self.equals(self))
    }

    #[inline(always)]
    pub(crate) fn equals(self, other: impl Operand<S>) -> S::m32s {
        self.simd.equal_f32s(self.lanes, other.vector(self.simd).lanes)
    }

    /// Returns the register with `value` in all but the first `count` lanes.
    #[inline(always)]
    pub(super) fn up_to(self, count: usize, value: f32) -> Self {
        let first = self.simd.mask_between_m32s(0, count as u32).mask();
        Self::splat(self.simd, value).replace(first, self)
    }

    /// Returns `value` where the mask is true, and `self` elsewhere.
    #[inline(always)]
    pub(crate) fn replace(self, mask: S::m32s, value: impl Operand<S>) -> Self {
        self.with(self.simd.select_f32s(mask, value.vector(self.simd).lanes, self.lanes))
    }

    /// Returns the larger number per lane, or `self` where `other` is NaN.
    #[inline(always)]
    pub(crate) fn larger(self, other: Self) -> Self {
        self.replace(self.less_than(other), other)
    }

    /// Applies a function to the lanes, reinterpreted as integers.
    #[inline(always)]
    pub(crate) fn map_bits(self, f: impl FnOnce(S, S::u32s) -> S::u32s) -> Self {
        self.with(self.simd.transmute_f32s_u32s(f(self.simd, self.simd.transmute_u32s_f32s(self.lanes))))
    }

    /// Returns the sum of all lanes.
    #[inline(always)]
    pub(crate) fn sum(self) -> f32 {
        self.simd.reduce_sum_f32s(self.lanes)
    }

    /// Returns the maximum of all lanes.
    #[inline(always)]
    pub(crate) fn max(self) -> f32 {
        self.simd.reduce_max_f32s(self.lanes)
    }

    #[inline(always)]
    fn with(self, lanes: S::f32s) -> Self {
        Self { lanes, ..self }
    }
}

/// An operand of vector arithmetic: another vector, or a number for all lanes.
pub(crate) trait Operand<S: Simd> {
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
