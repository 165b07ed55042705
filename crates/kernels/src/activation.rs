//! Activation functions of feed-forward layers, and the gated activations built from them.
//!
//! | form | `f(x)` | source |
//! |---|---|---|
//! | GELU | `x Phi(x)`, with `Phi` the standard normal distribution function | Hendrycks and Gimpel, 2016 |
//! | GELU by tanh | `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2` | Hendrycks and Gimpel, 2016 |
//! | ReLU | `max(x, 0)` | Nair and Hinton, 2010 |
//! | squared ReLU | `max(x, 0)^2` | So et al., *Primer*, 2021 |
//! | SiLU | `x / (1 + e^-x)` | Elfwing et al., 2017 |
//!
//! A gated layer computes `f(gate) * up` from the two halves of its columns (Shazeer, *GLU variants improve
//! Transformer*, 2020).

use pulp::Simd;
use rayon::prelude::*;

use super::matrix::MatrixMut;
use super::parallel::for_each;
use super::vector::{Vector, update, update_all, vectorized};

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The exact GELU, by the error function.
    Gelu,
    /// GELU approximated by tanh, as in GPT-2.
    GeluTanh,
    /// The positive part of `x`.
    Relu,
    /// The square of the positive part.
    Relu2,
    /// `x` times its logistic function, also called swish.
    Silu,
}

/// 2 sqrt(2 / pi): `(1 + tanh u) / 2` is the logistic function of `2 u`.
const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769_2;
const CUBIC: f32 = 0.044_715;

impl Activation {
    /// Returns the activation at `x` and its derivative.
    #[inline(always)]
    fn value_and_derivative<S: Simd>(self, x: Vector<S>) -> (Vector<S>, Vector<S>) {
        match self {
            Activation::Gelu => {
                let (cdf, density) = x.normal();
                (x * cdf, x.mul_add(density, cdf))
            }
            Activation::GeluTanh => {
                // Outside this range, GELU is 0 or `x`; clamping keeps the cube from overflowing.
                let near = x.replace(x.less_than(-30.0), -30.0).replace(x.greater_than(30.0), 30.0);
                let square = near * near;
                let s = (TWICE_SQRT_2_OVER_PI * near * square.mul_add(CUBIC, 1.0)).sigmoid();
                let slope = TWICE_SQRT_2_OVER_PI * square.mul_add(3.0 * CUBIC, 1.0);
                (x * s, (near * s * (1.0 - s)).mul_add(slope, s))
            }
            Activation::Relu => {
                let is_positive = x.greater_than(0.0);
                (x.replace(x.less_than(0.0), 0.0), (x * 0.0).replace(is_positive, 1.0))
            }
            Activation::Relu2 => {
                let positive = x.replace(x.less_than(0.0), 0.0);
                (positive * positive, 2.0 * positive)
            }
            Activation::Silu => {
                let s = x.sigmoid();
                (x * s, (x * s).mul_add(1.0 - s, s))
            }
        }
    }
}

/// Computes the activation of a layer and its backward pass in place. `pre_activation` becomes the activation.
/// `gradient` is the gradient of the activation on entry, and becomes the gradient of the pre-activation.
///
/// # Panics
/// Panics if the lengths differ.
pub fn activate_and_differentiate(form: Activation, pre_activation: &mut [f32], gradient: &mut [f32]) {
    const PIECE_LENGTH: usize = 1 << 13;
    assert_eq!(pre_activation.len(), gradient.len(), "pre-activation and gradient");
    let pieces = pre_activation.par_chunks_mut(PIECE_LENGTH).zip(gradient.par_chunks_mut(PIECE_LENGTH));
    for_each(pieces, PIECE_LENGTH * 4, |(values, gradients)| value_and_gradient(form, values, gradients));
}

/// Computes a gated layer of `width` columns and its backward pass in place. `pre_activation` is `[rows, 2 * width]`,
/// with the gate in the first half of each row, and becomes its gradient. `gradient` is the gradient of `f(gate) * up`
/// on entry, and becomes `f(gate) * up`.
///
/// # Panics
/// Panics if `pre_activation` is not twice as long as `gradient`.
pub fn gate_and_differentiate(
    form: Activation,
    width: usize,
    pre_activation: &mut [f32],
    gradient: &mut [f32],
) {
    assert_eq!(pre_activation.len(), 2 * gradient.len(), "pre-activation and gradient");
    let rows = pre_activation.par_chunks_exact_mut(2 * width).zip(gradient.par_chunks_exact_mut(width));
    for_each(rows, width * 6, |(row, gradient)| {
        let (gate, up) = row.split_at_mut(width);
        gated_value_and_gradient(form, gate, up, gradient);
    });
}

/// Instantiates the body once per activation, as a constant, so that the loops of the body contain no branch.
macro_rules! with_form {
    ($form:expr, |$known:ident| $body:expr) => {
        with_form!($form, |$known| $body, Gelu GeluTanh Relu Relu2 Silu)
    };
    ($form:expr, |$known:ident| $body:expr, $($name:ident)*) => {
        match $form {
            $(Activation::$name => {
                const $known: Activation = Activation::$name;
                $body
            })*
        }
    };
}

vectorized! {
    /// See [`activate_and_differentiate`].
    pub(super) fn value_and_gradient(simd; form: Activation, values: &mut [f32], gradients: &mut [f32]) {
        with_form!(form, |FORM| update_all(simd, [values, gradients], [], |[x, g], []| {
            let (value, slope) = FORM.value_and_derivative(x);
            [value, g * slope]
        }));
    }

    /// See [`gate_and_differentiate`].
    pub(super) fn gated_value_and_gradient(
        simd; form: Activation, gate: &mut [f32], up: &mut [f32], gradient: &mut [f32],
    ) {
        with_form!(form, |FORM| update_all(simd, [gate, up, gradient], [], |[x, up, g], []| {
            let (value, slope) = FORM.value_and_derivative(x);
            [g * up * slope, g * value, value * up]
        }));
    }

    /// Adds the bias to the rows of a product and activates them in place; `saved` receives the pre-activation.
    pub(super) fn add_bias_and_activate(
        simd;
        form: Activation,
        bias: Option<&[f32]>,
        product: &mut MatrixMut<'_>,
        saved: Option<&mut MatrixMut<'_>>,
    ) {
        let mut saved = saved;
        with_form!(form, |FORM| for row in 0..product.rows() {
            let activate = |x| FORM.value_and_derivative(x).0;
            let (saved, row) = (saved.as_mut().map(|saved| saved.row(row)), product.row(row));
            match (saved, bias) {
                (None, None) => update(simd, row, [], |x, []| activate(x)),
                (None, Some(bias)) => update(simd, row, [bias], |x, [b]| activate(x + b)),
                (Some(saved), None) => update_all(simd, [row, saved], [], |[x, _], []| [activate(x), x]),
                (Some(saved), Some(bias)) => update_all(simd, [row, saved], [bias], |[x, _], [b]| {
                    [activate(x + b), x + b]
                }),
            }
        });
    }

    /// Adds the bias to the rows of both products of a gated layer; `output` receives `f(gate) * up`.
    pub(super) fn add_bias_and_gate(
        simd;
        form: Activation,
        bias: Option<[&[f32]; 2]>,
        products: [&mut MatrixMut<'_>; 2],
        output: &mut MatrixMut<'_>,
    ) {
        let [gate, up] = products;
        with_form!(form, |FORM| for row in 0..output.rows() {
            let rows = [gate.row(row), up.row(row), output.row(row)];
            let gated = |gate, up| [gate, up, FORM.value_and_derivative(gate).0 * up];
            match bias {
                None => update_all(simd, rows, [], |[x, up, _], []| gated(x, up)),
                Some(bias) => update_all(simd, rows, bias, |[x, up, _], [a, b]| gated(x + a, up + b)),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, erf, random};

    const ALL: [Activation; 5] =
        [Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::Relu2, Activation::Silu];

    fn naive(form: Activation, x: f64) -> f64 {
        match form {
            Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Activation::GeluTanh => {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + u.tanh())
            }
            Activation::Relu => x.max(0.0),
            Activation::Relu2 => x.max(0.0).powi(2),
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }

    fn difference(form: Activation, x: f32) -> f64 {
        let (x, h) = (f64::from(x), 1e-5);
        (naive(form, x + h) - naive(form, x - h)) / (2.0 * h)
    }

    #[test]
    fn all_forms_and_their_derivatives_agree_with_f64() {
        for form in ALL {
            let x: Vec<f32> = random(1, 1_009).iter().map(|x| 5.0 * x).collect();
            let (mut y, mut slope) = (x.clone(), vec![1.0; x.len()]);
            activate_and_differentiate(form, &mut y, &mut slope);
            assert_close("activation", &y, &x.iter().map(|&x| naive(form, f64::from(x))).collect::<Vec<_>>());
            assert_close("derivative", &slope, &x.iter().map(|&x| difference(form, x)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn fused_activation_and_gradient_match_separate_passes() {
        for form in ALL {
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
    fn gate_and_gradient_agree_with_f64() {
        let (rows, width) = (7, 37);
        for form in ALL {
            let pre: Vec<f32> = random(4, rows * 2 * width).iter().map(|x| 3.0 * x).collect();
            let g = random(5, rows * width);
            let (mut gradients, mut values) = (pre.clone(), g.clone());
            gate_and_differentiate(form, width, &mut gradients, &mut values);
            let (mut expected, mut expected_gradients) = (Vec::new(), vec![0.0; pre.len()]);
            for (row, column) in (0..rows).flat_map(|row| (0..width).map(move |column| (row, column))) {
                let at = row * 2 * width + column;
                let (gate, up) = (f64::from(pre[at]), f64::from(pre[at + width]));
                let g = f64::from(g[row * width + column]);
                expected.push(naive(form, gate) * up);
                expected_gradients[at] = g * up * difference(form, pre[at]);
                expected_gradients[at + width] = g * naive(form, gate);
            }
            assert_close("gated", &values, &expected);
            assert_close("gradient of gate and gated", &gradients, &expected_gradients);
        }
    }

    #[test]
    fn activations_are_zero_or_identity_far_from_zero() {
        for form in ALL.into_iter().filter(|form| *form != Activation::Relu2) {
            let x = [-1e30, -100.0, -0.0, 100.0, 1e10];
            let mut y = x;
            add_bias_and_activate(form, None, &mut MatrixMut::new(&mut y, 5), None);
            assert_eq!(y, [0.0, 0.0, 0.0, 100.0, 1e10], "{form:?}");
            let (mut y, mut slope) = (x, [1.0; 5]);
            activate_and_differentiate(form, &mut y, &mut slope);
            let at_zero = if form == Activation::Relu { 0.0 } else { 0.5 };
            assert_eq!(slope, [0.0, 0.0, at_zero, 1.0, 1.0], "{form:?}");
        }
    }
}
