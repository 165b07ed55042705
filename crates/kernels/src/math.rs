//! Branch-free elementary functions for vector code.

use std::f32::consts::LOG2_E;

use pulp::Simd;

use super::vector::Vector;

/// ln 2 in two parts; the first part has so few bits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

impl<S: Simd> Vector<S> {
    /// Evaluates the polynomial with these coefficients, highest power first.
    #[inline(always)]
    fn polynomial<const N: usize>(self, coefficients: [f32; N]) -> Self {
        let mut sum = self * coefficients[0] + coefficients[1];
        for coefficient in &coefficients[2..] {
            sum = sum.mul_add(self, *coefficient);
        }
        sum
    }

    /// Returns `e^x` with an error below two units in the last place.
    ///
    /// With `x = n ln 2 + r` and `|r| <= ln 2 / 2`, the result is `2^n` times a polynomial in `r` (Cephes, `expf.c`).
    /// Results below the smallest normal number are zero, and results above `e^88.37` are infinite. NaN is preserved.
    #[inline(always)]
    pub(super) fn exp(self) -> Self {
        /// A lower bound: below it, the exponential is smaller than the smallest normal number.
        const LOWEST: f32 = -87.33;
        /// An upper bound, just below the logarithm of the largest number.
        const HIGHEST: f32 = 88.37;
        /// 1.5 * 2^23: adding it leaves the nearest integer in the low bits of the sum.
        const ROUND: f32 = 12_582_912.0;
        let (too_low, too_high) = (self.less_than(LOWEST), self.greater_than(HIGHEST));
        let x = self.replace(too_low, LOWEST).replace(too_high, HIGHEST);
        let shifted = x.mul_add(LOG2_E, ROUND);
        let n = shifted - ROUND;
        let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
        let p = r.polynomial([1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5]);
        let p = (p * r).mul_add(r, r) + 1.0;
        let power = shifted.map_bits(|simd, bits| {
            let exponent = simd.add_u32s(bits, simd.splat_u32s(127_u32.wrapping_sub(ROUND.to_bits())));
            simd.wrapping_dyn_shl_u32s(exponent, simd.splat_u32s(23))
        });
        (p * power).replace(too_low, 0.0).replace(too_high, f32::INFINITY)
    }

    /// Returns the natural logarithm of a normal, positive, finite number, with an error below 1.5e-7 times the larger
    /// of 1 and the result; NaN is preserved.
    ///
    /// With `x = 2^n (1 + f)` and `1 + f` between the square roots of 1/2 and 2, the result is `n ln 2` plus a
    /// polynomial in `f` (Cephes, `logf.c`).
    #[inline(always)]
    pub(super) fn ln(self) -> Self {
        /// The bits of the square root of 1/2. They are subtracted first, so that the exponent changes at that root.
        const ROOT_BITS: u32 = 0x3F35_04F3;
        /// 2^23; its low bits hold an integer, to which 256 is added to keep it positive.
        const INTEGER: f32 = 8_388_608.0;
        let n = self.map_bits(|simd, bits| {
            let shifted = simd.add_u32s(bits, simd.splat_u32s((256_u32 << 23).wrapping_sub(ROOT_BITS)));
            let exponent = simd.wrapping_dyn_shr_u32s(shifted, simd.splat_u32s(23));
            simd.or_u32s(exponent, simd.splat_u32s(INTEGER.to_bits()))
        }) - (INTEGER + 256.0);
        let f = self.map_bits(|simd, bits| {
            let fraction = simd.sub_u32s(bits, simd.splat_u32s(ROOT_BITS));
            let fraction = simd.and_u32s(fraction, simd.splat_u32s(0x007F_FFFF));
            simd.add_u32s(fraction, simd.splat_u32s(ROOT_BITS))
        }) - 1.0;
        let p = f.polynomial([
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_8e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_4e-1,
            -2.499_999_4e-1,
            0.333_333_3,
        ]);
        let square = f * f;
        let correction = n.mul_add(LN_2_LOW, (-0.5 * square) + f * square * p);
        let result = n.mul_add(LN_2_HIGH, f + correction);
        result.replace(self.is_nan(), self)
    }

    /// Returns the cumulative distribution `(1 + erf(x / sqrt 2)) / 2` and the density of the standard normal
    /// distribution at `x`.
    ///
    /// The upper tail is `e^(-x^2/2) t P(t) / 2` with `t = 1 / (1 + 0.37 |x| / sqrt 2)`, where `P` is the polynomial of
    /// degree 8 that minimises the relative error (2e-8) to `e^(z^2) erfc(z) / t` for `z` in 0..10.
    #[inline(always)]
    pub(super) fn normal(self) -> (Self, Self) {
        /// 0.37 / sqrt 2
        const SLOPE: f32 = 0.261_629_5;
        /// 1 / sqrt(2 pi)
        const DENSITY_AT_ZERO: f32 = 0.398_942_3;
        let bell = (-0.5 * self * self).exp();
        let t = 1.0 / self.abs().mul_add(SLOPE, 1.0);
        let p = t.polynomial([
            0.061_246_294,
            -0.299_984_75,
            0.480_044_35,
            -0.277_519_98,
            0.305_396_73,
            0.108_839_08,
            0.205_654_48,
            0.207_515_14,
            0.208_808_64,
        ]);
        let tail = 0.5 * bell * t * p;
        ((1.0 - tail).replace(self.less_than(0.0), tail), bell * DENSITY_AT_ZERO)
    }

    /// Returns the hyperbolic tangent, with an error below 3e-7 of the result.
    ///
    /// Near zero, where `1 - 2 / (e^2x + 1)` would cancel, it is a polynomial (Cephes, `tanhf.c`).
    #[inline(always)]
    pub(super) fn tanh(self) -> Self {
        let square = self * self;
        let p = square.polynomial([
            -5.704_988_7e-3,
            2.063_909e-2,
            -5.373_971_6e-2,
            1.333_144_2e-1,
            -3.333_328e-1,
        ]);
        let near = (p * square).mul_add(self, self);
        let far = 1.0 - 2.0 / ((2.0 * self).exp() + 1.0);
        far.replace(square.less_than(0.390_625), near)
    }

    /// Returns the logistic function `1 / (1 + e^-x)`.
    #[inline(always)]
    pub(super) fn sigmoid(self) -> Self {
        1.0 / ((-self).exp() + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::erf;
    use crate::vector::{update, vectorized};

    vectorized! {
        fn exp_all(simd; output: &mut [f32], x: &[f32]) { update(simd, output, [x], |_, [x]| x.exp()) }
        fn ln_all(simd; output: &mut [f32], x: &[f32]) { update(simd, output, [x], |_, [x]| x.ln()) }
        fn tanh_all(simd; output: &mut [f32], x: &[f32]) { update(simd, output, [x], |_, [x]| x.tanh()) }
        fn cdf_all(simd; output: &mut [f32], x: &[f32]) { update(simd, output, [x], |_, [x]| x.normal().0) }
    }

    fn grid(from: f32, to: f32) -> Vec<f32> {
        (0..=100_000).map(|i| from + (to - from) * i as f32 / 100_000.0).collect()
    }

    #[test]
    fn exp_matches_f64_within_two_ulps() {
        let x = grid(-87.3, 88.3);
        let mut y = vec![0.0; x.len()];
        exp_all(&mut y, &x);
        for (&x, &y) in x.iter().zip(&y) {
            let expected = f64::from(x).exp();
            assert!((f64::from(y) - expected).abs() <= 2.5e-7 * expected, "exp({x}) = {y}, not {expected}");
        }
    }

    #[test]
    fn exp_handles_infinities_and_nan() {
        let mut y = [1.0; 5];
        exp_all(&mut y, &[f32::NEG_INFINITY, -1e30, f32::INFINITY, 0.0, f32::NAN]);
        assert_eq!(y[..4], [0.0, 0.0, f32::INFINITY, 1.0]);
        assert!(y[4].is_nan());
    }

    #[test]
    fn tanh_agrees_with_f64() {
        let x: Vec<f32> =
            grid(-12.0, 12.0).into_iter().chain(grid(-1e-3, 1e-3)).chain([-1e30, 1e30]).collect();
        let mut y = vec![0.0; x.len()];
        tanh_all(&mut y, &x);
        for (&x, &y) in x.iter().zip(&y) {
            let expected = f64::from(x).tanh();
            assert!(
                (f64::from(y) - expected).abs() <= 3e-7 * expected.abs(),
                "tanh({x}) = {y}, not {expected}"
            );
        }
        tanh_all(&mut y[..1], &[f32::NAN]);
        assert!(y[0].is_nan());
    }

    #[test]
    fn logarithm_agrees_with_f64() {
        let x: Vec<f32> =
            grid(0.5, 20.0).into_iter().chain(grid(-87.0, 88.0).into_iter().map(f32::exp)).collect();
        let mut y = vec![0.0; x.len()];
        ln_all(&mut y, &x);
        for (&x, &y) in x.iter().zip(&y) {
            let expected = f64::from(x).ln();
            let error = (f64::from(y) - expected).abs();
            assert!(error <= 1e-7 * expected.abs().max(1.0) * 1.5, "ln({x}) = {y}, not {expected}");
        }
        let mut y = [0.0; 2];
        ln_all(&mut y, &[1.0, f32::NAN]);
        assert!(y[0] == 0.0 && y[1].is_nan());
    }

    #[test]
    fn normal_cdf_matches_erf_series() {
        let x = grid(-5.0, 5.0);
        let mut y = vec![0.0; x.len()];
        cdf_all(&mut y, &x);
        for (&x, &y) in x.iter().zip(&y) {
            let expected = 0.5 * (1.0 + erf(f64::from(x) * std::f64::consts::FRAC_1_SQRT_2));
            assert!((f64::from(y) - expected).abs() <= 2.0e-7, "Phi({x}) = {y}, not {expected}");
        }
    }
}
