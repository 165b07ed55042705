//! GELU, the activation of the feed-forward layers (Hendrycks and Gimpel, 2016, arXiv 1606.08415).
//!
//! `gelu(x) = x Phi(x)`, with `Phi` the distribution function of the normal distribution; the
//! tanh form approximates it and is what GPT-2 was trained with.

use burn::tensor::{Tensor, backend::Backend};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernels;

/// Which form of GELU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gelu {
    /// The exact form, `x (1 + erf(x / sqrt 2)) / 2`: the definition, and PyTorch's default.
    #[default]
    Erf,
    /// GPT-2's approximation, `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
    Tanh,
}

impl From<Gelu> for kernels::gelu::Gelu {
    fn from(form: Gelu) -> Self {
        match form {
            Gelu::Erf => Self::Erf,
            Gelu::Tanh => Self::Tanh,
        }
    }
}

/// GELU, elementwise, with the gradient of the very form that is computed.
///
/// Burn's own `gelu` is not used: on backends that take its default gradient (ndarray among
/// them) it pairs the erf form with the derivative of the tanh form, which is off by 2e-4.
pub fn gelu<B: Backend, const D: usize>(input: Tensor<B, D>, form: Gelu) -> Tensor<B, D> {
    let squashed = match form {
        Gelu::Erf => (input.clone() * std::f64::consts::FRAC_1_SQRT_2).erf(),
        Gelu::Tanh => {
            let inner = input.clone() + input.clone() * input.clone() * input.clone() * 0.044715;
            (inner * (2.0 / std::f64::consts::PI).sqrt()).tanh()
        }
    };
    input * (squashed + 1.0) * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::DType;
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    type B = Autodiff<NdArray<f64>>;

    #[test]
    fn the_gradient_belongs_to_the_form_that_is_computed() {
        let points: Vec<f64> = (-30..=30).map(|i| f64::from(i) / 7.0).collect();
        for form in [Gelu::Erf, Gelu::Tanh] {
            let at = |points: &[f64]| Tensor::<B, 1>::from_data(points, (&Default::default(), DType::F64));
            let input = at(&points).require_grad();
            let gradients = gelu(input.clone(), form).sum().backward();
            let gradient = input.grad(&gradients).unwrap().into_data().to_vec::<f64>().unwrap();
            let step = 1e-5;
            for (i, &point) in points.iter().enumerate() {
                let value = |x: f64| gelu(at(&[x]), form).into_scalar();
                let difference = (value(point + step) - value(point - step)) / (2.0 * step);
                assert!((gradient[i] - difference).abs() < 1e-8, "{form:?} at {point}");
            }
        }
    }

    #[test]
    fn both_forms_give_the_values_of_their_definition() {
        let input =
            Tensor::<NdArray<f64>, 1>::from_data([-1.0f64, 0.0, 2.0], (&Default::default(), DType::F64));
        let values = |form| gelu(input.clone(), form).into_data().to_vec::<f64>().unwrap();
        // Phi(-1) = 0.158655253931, Phi(2) = 0.977249868052.
        for (value, expected) in values(Gelu::Erf).into_iter().zip([-0.158655253931, 0.0, 1.954499736104]) {
            assert!((value - expected).abs() < 1e-9, "{value} {expected}");
        }
        // tanh(0.797884560803 (1 + 0.044715)) = 0.682383956...
        for (value, expected) in values(Gelu::Tanh).into_iter().zip([-0.158808009, 0.0, 1.954597694]) {
            assert!((value - expected).abs() < 1e-8, "{value} {expected}");
        }
    }
}
