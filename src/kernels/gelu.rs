//! The activation GELU: `x Phi(x)` with the distribution function `Phi` of the standard normal law, exact
//! or by the tanh approximation `Phi(x) ~ (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2` (Hendrycks and
//! Gimpel, *Gaussian error linear units*, 2016).

use pulp::Simd;
use rayon::prelude::*;

use super::matrix::MatrixMut;
use super::parallel::for_each;
use super::vector::{Vector, update, update_all, vectorized};

/// Which form of GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// The exact form, through the error function.
    Erf,
    /// The approximation through tanh that GPT-2 uses.
    Tanh,
}

/// 2 sqrt(2 / pi): `(1 + tanh u) / 2` is the logistic function of `2 u`.
const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769_2;
const CUBIC: f32 = 0.044_715;

impl Gelu {
    /// GELU at `x`, and its derivative.
    #[inline(always)]
    fn value_and_derivative<S: Simd>(self, x: Vector<S>) -> (Vector<S>, Vector<S>) {
        match self {
            Gelu::Erf => {
                let (cdf, density) = x.normal();
                (x * cdf, x.mul_add(density, cdf))
            }
            Gelu::Tanh => {
                // Farther out the curve is straight, and a cube could overflow.
                let near = x.replace(x.less_than(-30.0), -30.0).replace(x.greater_than(30.0), 30.0);
                let square = near * near;
                let s = (TWICE_SQRT_2_OVER_PI * near * square.mul_add(CUBIC, 1.0)).sigmoid();
                let slope = TWICE_SQRT_2_OVER_PI * square.mul_add(3.0 * CUBIC, 1.0);
                (x * s, (near * s * (1.0 - s)).mul_add(slope, s))
            }
        }
    }
}

/// Of a whole layer, by its pre-activation: `pre_activation` becomes GELU of it, and `gradient`, which comes
/// as that of the activation, the one of the pre-activation.
///
/// # Panics
/// If the lengths differ.
pub fn activate_and_differentiate(form: Gelu, pre_activation: &mut [f32], gradient: &mut [f32]) {
    const PIECE: usize = 1 << 13;
    assert_eq!(pre_activation.len(), gradient.len(), "pre-activation and gradient");
    let pieces = pre_activation.par_chunks_mut(PIECE).zip(gradient.par_chunks_mut(PIECE));
    for_each(pieces, PIECE * 4, |(values, gradients)| value_and_gradient(form, values, gradients));
}

// What training computes has a closure of its own for each form: without a branch within the loop.
vectorized! {
    /// See [`activate_and_differentiate`].
    fn value_and_gradient(simd; form: Gelu, values: &mut [f32], gradients: &mut [f32]) {
        match form {
            Gelu::Erf => update_all(simd, [values, gradients], [], |[x, g], []| {
                let (value, slope) = Gelu::Erf.value_and_derivative(x);
                [value, g * slope]
            }),
            Gelu::Tanh => update_all(simd, [values, gradients], [], |[x, g], []| {
                let (value, slope) = Gelu::Tanh.value_and_derivative(x);
                [value, g * slope]
            }),
        }
    }

    /// Adds the bias to the rows of a product and applies GELU in place; `saved` receives what it is applied to.
    pub(super) fn add_bias_and_activate(
        simd;
        form: Gelu,
        bias: Option<&[f32]>,
        product: &mut MatrixMut<'_>,
        saved: Option<&mut MatrixMut<'_>>,
    ) {
        let activate = |x| form.value_and_derivative(x).0;
        let mut saved = saved;
        for row in 0..product.rows() {
            let (saved, row) = (saved.as_mut().map(|saved| saved.row(row)), product.row(row));
            match (saved, bias, form) {
                (None, None, _) => update(simd, row, [], |x, []| activate(x)),
                (None, Some(bias), _) => update(simd, row, [bias], |x, [b]| activate(x + b)),
                (Some(saved), None, _) => update_all(simd, [row, saved], [], |[x, _], []| [activate(x), x]),
                (Some(saved), Some(bias), Gelu::Erf) => update_all(simd, [row, saved], [bias], |[x, _], [b]| {
                    [Gelu::Erf.value_and_derivative(x + b).0, x + b]
                }),
                (Some(saved), Some(bias), Gelu::Tanh) => update_all(simd, [row, saved], [bias], |[x, _], [b]| {
                    [Gelu::Tanh.value_and_derivative(x + b).0, x + b]
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, erf, random};

    fn naive(form: Gelu, x: f64) -> f64 {
        match form {
            Gelu::Erf => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Gelu::Tanh => {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + u.tanh())
            }
        }
    }

    #[test]
    fn both_forms_and_their_derivatives_agree_with_f64() {
        for form in [Gelu::Erf, Gelu::Tanh] {
            let x: Vec<f32> = random(1, 1_009).iter().map(|x| 5.0 * x).collect();
            let (mut y, mut slope) = (x.clone(), vec![1.0; x.len()]);
            activate_and_differentiate(form, &mut y, &mut slope);
            assert_close("gelu", &y, &x.iter().map(|&x| naive(form, f64::from(x))).collect::<Vec<_>>());
            let difference = |x: f32| {
                let (x, h) = (f64::from(x), 1e-5);
                (naive(form, x + h) - naive(form, x - h)) / (2.0 * h)
            };
            assert_close("gelu's derivative", &slope, &x.iter().map(|&x| difference(x)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn activating_and_differentiating_at_once_is_both_apart() {
        for form in [Gelu::Erf, Gelu::Tanh] {
            let x: Vec<f32> = random(2, 30_011).iter().map(|x| 5.0 * x).collect();
            let g = random(3, x.len());
            let mut activated = x.clone();
            add_bias_and_activate(form, None, &mut MatrixMut::new(&mut activated, 30_011), None);
            let mut slope = vec![1.0; x.len()];
            for (x, slope) in x.iter().zip(&mut slope) {
                activate_and_differentiate(form, &mut [*x], std::slice::from_mut(slope));
            }
            let expected_gradient: Vec<f32> = g.iter().zip(&slope).map(|(g, slope)| g * slope).collect();
            let (mut values, mut gradients) = (x, g);
            activate_and_differentiate(form, &mut values, &mut gradients);
            assert!(values == activated && gradients == expected_gradient, "{form:?}");
        }
    }

    #[test]
    fn far_from_zero_gelu_is_zero_or_the_identity() {
        for form in [Gelu::Erf, Gelu::Tanh] {
            let x = [-1e30, -40.0, -0.0, 40.0, 1e10];
            let mut y = x;
            add_bias_and_activate(form, None, &mut MatrixMut::new(&mut y, 5), None);
            assert_eq!(y, [0.0, 0.0, 0.0, 40.0, 1e10]);
            let (mut y, mut slope) = (x, [1.0; 5]);
            activate_and_differentiate(form, &mut y, &mut slope);
            assert_eq!(slope, [0.0, 0.0, 0.5, 1.0, 1.0]);
        }
    }
}
