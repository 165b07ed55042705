//! Gates of head outputs (Qiu et al., 2025, arXiv 2505.06708): each head's output is multiplied by a sigmoid of a linear
//! function of the layer's input, before the output projection:
//!
//! ```text
//! head_h = sigmoid(x W_gate)_h * softmax(..) V
//! ```
//!
//! A gate lets a query ignore what a head has read, which a softmax alone cannot do.

use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::choices;

choices! {
    /// The gates of head outputs: the values of `attention_gate`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum AttentionGate {
        /// No gate.
        #[default]
        None,
        /// One gate for each head.
        Head,
        /// One gate for each element of each head.
        Elementwise,
    }
}

impl AttentionGate {
    /// Creates the projection from the layer's input, of width `d_model`, to its gates; `None` without gates.
    pub(super) fn projection<B: Backend>(
        self,
        [d_model, heads, d_head]: [usize; 3],
        bias: bool,
        device: &B::Device,
    ) -> Option<Linear<B>> {
        let width = match self {
            Self::None => return None,
            Self::Head => heads,
            Self::Elementwise => heads * d_head,
        };
        Some(LinearConfig::new(d_model, width).with_bias(bias).init(device))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tensor, Tolerance};
    use burn_ndarray::NdArray;

    use super::*;
    use crate::attention::{Mask, MultiHeadAttentionConfig};
    use crate::ops::ScorePosition;

    #[test]
    fn gates_of_zero_halve_the_output() {
        let device = Default::default();
        for (kind, width) in [(AttentionGate::Head, 2), (AttentionGate::Elementwise, 8)] {
            let config = MultiHeadAttentionConfig::new(6, 2).with_d_head(Some(4)).with_bias(false);
            let mut attention = config.with_gate(kind).init::<NdArray>(&device).unwrap();
            let gate = attention.gate.as_mut().unwrap();
            assert_eq!(gate.weight.dims(), [6, width]);
            gate.weight = gate.weight.clone().map(|weight| weight.zeros_like());
            let input = Tensor::random([2, 5, 6], Distribution::Default, &device);
            let mut forward = || {
                let output = attention.forward(input.clone(), &Mask::causal(), &ScorePosition::None);
                attention.gate = None;
                output.unwrap()
            };
            let [gated, plain] = [forward() * 2.0, forward()].map(Tensor::into_data);
            gated.assert_approx_eq::<f32>(&plain, Tolerance::absolute(1e-6));
        }
    }
}
