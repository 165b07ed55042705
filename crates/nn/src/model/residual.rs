//! Where the norm stands around a residual connection.
//!
//! ```text
//! pre:  x + f(norm(x))     the stream itself is never normalised: deep stacks train without warm-up
//! post: norm(x + f(x))     the original form, which needs warm-up
//! ```
//!
//! Xiong et al., 2020 (arXiv 2002.04745) compare the two.

use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::attention::check_width;
use crate::ops::Norm;

/// Where the norm stands around a residual connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NormPlacement {
    /// `x + f(norm(x))`, with one more norm after the last block.
    #[default]
    Pre,
    /// `norm(x + f(x))`.
    Post,
}

impl NormPlacement {
    /// Passes the stream `x` through a sub-layer, which is called with its input and the residual
    /// to add its output to.
    ///
    /// # Shapes
    /// `[batch, time, d_model]` everywhere.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where `x` is not as wide as the norm; and those of the sub-layer.
    pub fn apply<B: Backend>(
        self,
        norm: &Norm<B>,
        x: Tensor<B, 3>,
        sub_layer: impl FnOnce(Tensor<B, 3>, Tensor<B, 3>) -> Result<Tensor<B, 3>>,
    ) -> Result<Tensor<B, 3>> {
        let [d_model] = norm.gamma.shape().dims();
        check_width("input", x.dims(), d_model)?;
        match self {
            NormPlacement::Pre => sub_layer(norm.forward(x.clone()), x),
            NormPlacement::Post => Ok(norm.forward(sub_layer(x.clone(), x)?)),
        }
    }
}
