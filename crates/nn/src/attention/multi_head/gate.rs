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
