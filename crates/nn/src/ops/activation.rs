//! The activations of feed-forward layers, each with the gradient of exactly the form it computes.
//!
//! `gelu(x) = x Phi(x)`, with `Phi` the cumulative distribution function of the standard normal distribution (Hendrycks
//! and Gimpel, 2016, arXiv 1606.08415). A gated layer multiplies the two halves of its inner layer, `f(gate) * up`
//! (Shazeer, 2020, arXiv 2002.05202).

use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::choices;
use crate::kernels::activation::Activation as Form;

choices! {
    /// The activation of a feed-forward layer.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Activation {
        /// GELU, `x (1 + erf(x / sqrt 2)) / 2`: the definition, and PyTorch's default.
        #[default]
        Gelu,
        /// The approximation of GELU in GPT-2, `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
        GeluTanh,
        /// `max(x, 0)`, as in the original Transformer.
        Relu,
        /// `max(x, 0)^2` (So et al., 2021, arXiv 2109.08668).
        Relu2,
        /// `x / (1 + e^-x)`, also named swish (Elfwing et al., 2017, arXiv 1702.03118).
        Silu,
        /// SiLU as a gate, `silu(gate) * up`, as in Llama. The layer has 1.5 times as many weights as without a gate.
        Swiglu,
        /// GELU as a gate, `gelu(gate) * up`.
        Geglu,
        /// The approximation of GELU as a gate, as in Gemma.
        GegluTanh,
    }
}

impl Activation {
    /// Returns true if the activation is gated. The inner layer is then twice as wide as its output: half of its
    /// columns are the gate of the other half.
    pub fn is_gated(self) -> bool {
        match self {
            Self::Gelu | Self::GeluTanh | Self::Relu | Self::Relu2 | Self::Silu => false,
            Self::Swiglu | Self::Geglu | Self::GegluTanh => true,
        }
    }

    /// Returns the elementwise function of the activation.
    pub(super) fn form(self) -> Form {
        match self {
            Self::Gelu | Self::Geglu => Form::Gelu,
            Self::GeluTanh | Self::GegluTanh => Form::GeluTanh,
            Self::Relu => Form::Relu,
            Self::Relu2 => Form::Relu2,
            Self::Silu | Self::Swiglu => Form::Silu,
        }
    }

    /// Applies the activation to an inner layer, halving its width if gated.
    ///
    /// # Shapes
    /// `[batch, time, width]`, or `[batch, time, 2 * width]` if gated, to `[batch, time, width]`.
    pub fn forward<B: Backend, const D: usize>(self, input: Tensor<B, D>) -> Tensor<B, D> {
        if self.is_gated() {
            let width = input.dims()[D - 1] / 2;
            let part = |start| input.clone().narrow(D - 1, start, width);
            return elementwise(self.form(), part(0)) * part(width);
        }
        elementwise(self.form(), input)
    }
}

/// Applies the elementwise function. Burn's `gelu` is not used: backends with its default gradient, such as ndarray,
/// combine the erf form with the derivative of the tanh form, which is off by 2e-4.
fn elementwise<B: Backend, const D: usize>(form: Form, input: Tensor<B, D>) -> Tensor<B, D> {
    match form {
        Form::Gelu => {
            let squashed = (input.clone() * std::f64::consts::FRAC_1_SQRT_2).erf();
            input * (squashed + 1.0) * 0.5
        }
        Form::GeluTanh => {
            let inner = input.clone() + input.clone() * input.clone() * input.clone() * 0.044715;
            let squashed = (inner * (2.0 / std::f64::consts::PI).sqrt()).tanh();
            input * (squashed + 1.0) * 0.5
        }
        Form::Relu => input.clamp_min(0.0),
        Form::Relu2 => {
            let positive = input.clamp_min(0.0);
            positive.clone() * positive
        }
        // The sigmoid is computed through tanh, which never overflows; Burn's sigmoid rounds to single precision.
        Form::Silu => input.clone() * ((input * 0.5).tanh() + 1.0) * 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::DType;
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    type B = Autodiff<NdArray<f64>>;

    #[test]
    fn gradients_match_finite_differences_for_every_activation() {
        // The points avoid zero, where ReLU is not differentiable; their number is even, as gated forms need.
        let points: Vec<f64> = (-30..30).map(|i| (f64::from(i) + 0.5) / 7.0).collect();
        for form in Activation::ALL {
            let at = |points: &[f64]| Tensor::<B, 1>::from_data(points, (&Default::default(), DType::F64));
            let input = at(&points).require_grad();
            let gradients = form.forward(input.clone()).sum().backward();
            let gradient = input.grad(&gradients).unwrap().into_data().to_vec::<f64>().unwrap();
            let step = 1e-5;
            for i in 0..points.len() {
                let moved = |step: f64| {
                    let mut points = points.clone();
                    points[i] += step;
                    form.forward(at(&points)).sum().into_scalar()
                };
                let difference = (moved(step) - moved(-step)) / (2.0 * step);
                assert!((gradient[i] - difference).abs() < 1e-7, "{form:?} at {}", points[i]);
            }
        }
    }

    #[test]
    fn activations_match_their_definitions() {
        let input =
            Tensor::<NdArray<f64>, 1>::from_data([-1.0f64, 0.0, 2.0, 3.0], (&Default::default(), DType::F64));
        // Phi(-1) = 0.158655253931, Phi(2) = 0.977249868052, Phi(3) = 0.998650101968;
        // tanh(0.797884560803 (1 + 0.044715)) = 0.682383956...; 1 / (1 + e) = 0.268941421370.
        for (form, expected) in [
            (Activation::Gelu, &[-0.158655253931, 0.0, 1.954499736104, 2.995950305904][..]),
            (Activation::GeluTanh, &[-0.158808009, 0.0, 1.954597694, 2.996362607]),
            (Activation::Relu, &[0.0, 0.0, 2.0, 3.0]),
            (Activation::Relu2, &[0.0, 0.0, 4.0, 9.0]),
            (Activation::Silu, &[-0.268941421370, 0.0, 1.761594155956, 2.857722380414]),
            (Activation::Swiglu, &[-0.268941421370 * 2.0, 0.0]),
            (Activation::Geglu, &[-0.158655253931 * 2.0, 0.0]),
            (Activation::GegluTanh, &[-0.158808009 * 2.0, 0.0]),
        ] {
            let values = form.forward(input.clone()).into_data().to_vec::<f64>().unwrap();
            assert_eq!(values.len(), expected.len());
            for (value, expected) in values.into_iter().zip(expected) {
                assert!((value - expected).abs() < 1e-8, "{form:?}: {value} {expected}");
            }
        }
    }
}
