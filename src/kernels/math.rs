//! Elementary functions for vector code: without branches, exact to a few units in the last place.

use std::f32::consts::LOG2_E;

use super::vector::mul_add;

/// Below this the exponential is smaller than the smallest normal number and counts as zero.
const EXP_LOWEST: f32 = -87.33;
/// Above this (just under the largest number's logarithm, 88.72) the exponential counts as infinite.
const EXP_HIGHEST: f32 = 88.37;

/// `e^x`, with an error below two units in the last place.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`, then `2^n` times a polynomial in `r` (Cephes, `expf.c`). Results
/// too small for a normal number are zero, infinities and NaN come out as they should.
#[inline(always)]
pub(super) fn exp<const FMA: bool>(x: f32) -> f32 {
    /// 1.5 * 2^23: adding it leaves the nearest integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has so few bits that its product with `n` is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x < EXP_LOWEST { EXP_LOWEST } else { x };
    let clamped = if clamped > EXP_HIGHEST { EXP_HIGHEST } else { clamped };
    let shifted = mul_add::<FMA>(clamped, LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = mul_add::<FMA>(n, -LN_2_LOW, mul_add::<FMA>(n, -LN_2_HIGH, clamped));
    let mut p = 1.987_569_1e-4;
    p = mul_add::<FMA>(p, r, 1.398_2e-3);
    p = mul_add::<FMA>(p, r, 8.333_452e-3);
    p = mul_add::<FMA>(p, r, 4.166_579_6e-2);
    p = mul_add::<FMA>(p, r, 1.666_666_5e-1);
    p = mul_add::<FMA>(p, r, 0.5);
    let p = mul_add::<FMA>(p * r, r, r) + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    let result = p * f32::from_bits(exponent);
    let result = if x < EXP_LOWEST { 0.0 } else { result };
    if x > EXP_HIGHEST { f32::INFINITY } else { result }
}

/// The cumulative distribution `(1 + erf(x / sqrt 2)) / 2` and the density of the standard normal law at `x`.
///
/// The upper tail is `e^(-x^2/2) t P(t) / 2` with `t = 1 / (1 + 0.37 |x| / sqrt 2)`, where `P` is the polynomial
/// of degree 8 with the least relative error (2e-8) against `e^(z^2) erfc(z) / t` for `z` in 0..10.
#[inline(always)]
pub(super) fn normal<const FMA: bool>(x: f32) -> (f32, f32) {
    /// 0.37 / sqrt 2
    const SLOPE: f32 = 0.261_629_5;
    /// 1 / sqrt(2 pi)
    const DENSITY_AT_ZERO: f32 = 0.398_942_3;
    let bell = exp::<FMA>(-0.5 * x * x);
    let t = 1.0 / mul_add::<FMA>(SLOPE, x.abs(), 1.0);
    let mut p = 0.061_246_294;
    p = mul_add::<FMA>(p, t, -0.299_984_75);
    p = mul_add::<FMA>(p, t, 0.480_044_35);
    p = mul_add::<FMA>(p, t, -0.277_519_98);
    p = mul_add::<FMA>(p, t, 0.305_396_73);
    p = mul_add::<FMA>(p, t, 0.108_839_08);
    p = mul_add::<FMA>(p, t, 0.205_654_48);
    p = mul_add::<FMA>(p, t, 0.207_515_14);
    p = mul_add::<FMA>(p, t, 0.208_808_64);
    let tail = 0.5 * bell * t * p;
    (if x < 0.0 { tail } else { 1.0 - tail }, bell * DENSITY_AT_ZERO)
}

/// The logistic function `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

#[cfg(test)]
mod tests {
    use super::super::testing::erf;
    use super::super::vector::{map_into, vectorized};
    use super::*;

    vectorized! {
        fn exp_all<FMA>(output: &mut [f32], x: &[f32]) { map_into(output, [x], |[x]| exp::<FMA>(x)) }
        fn cdf_all<FMA>(output: &mut [f32], x: &[f32]) { map_into(output, [x], |[x]| normal::<FMA>(x).0) }
    }

    fn grid(from: f32, to: f32) -> Vec<f32> {
        (0..=100_000).map(|i| from + (to - from) * i as f32 / 100_000.0).collect()
    }

    #[test]
    fn exponential_agrees_with_f64_to_two_units_in_the_last_place() {
        let x = grid(-87.3, 88.3);
        let mut y = vec![0.0; x.len()];
        exp_all(&mut y, &x);
        for (&x, &y) in x.iter().zip(&y) {
            let expected = f64::from(x).exp();
            assert!((f64::from(y) - expected).abs() <= 2.5e-7 * expected, "exp({x}) = {y}, not {expected}");
        }
    }

    #[test]
    fn exponential_is_zero_infinite_or_nan_where_it_must_be() {
        let mut y = [1.0; 5];
        exp_all(&mut y, &[f32::NEG_INFINITY, -1e30, f32::INFINITY, 0.0, f32::NAN]);
        assert_eq!(y[..4], [0.0, 0.0, f32::INFINITY, 1.0]);
        assert!(y[4].is_nan());
    }

    #[test]
    fn normal_distribution_agrees_with_the_series_of_erf_to_rounding() {
        let x = grid(-5.0, 5.0);
        let mut y = vec![0.0; x.len()];
        cdf_all(&mut y, &x);
        for (&x, &y) in x.iter().zip(&y) {
            let expected = 0.5 * (1.0 + erf(f64::from(x) * std::f64::consts::FRAC_1_SQRT_2));
            assert!((f64::from(y) - expected).abs() <= 2.0e-7, "Phi({x}) = {y}, not {expected}");
        }
    }
}
