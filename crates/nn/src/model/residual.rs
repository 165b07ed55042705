//! The placement of the norm around a residual connection.
//!
//! ```text
//! pre:  x + f(norm(x))     the residual stream is never normalised: deep stacks train without warm-up
//! post: norm(x + f(x))     the original form, which needs warm-up
//! ```
//!
//! Xiong et al., 2020 (arXiv 2002.04745) compare the two.

use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::attention::check_width;
use crate::choices;
use crate::ops::Norm;

choices! {
    /// The placement of the norm around a residual connection.
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
}

impl NormPlacement {
    /// Returns the input of a sub-layer that reads the residual stream `x`.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if `x` is not as wide as the norm.
    pub fn input<B: Backend>(self, norm: &Norm<B>, x: Tensor<B, 3>) -> Result<Tensor<B, 3>> {
        let [d_model] = norm.gamma.shape().dims();
        check_width("input", x.dims(), d_model)?;
        Ok(match self {
            NormPlacement::Pre => norm.forward(x),
            NormPlacement::Post => x,
        })
    }

    /// Returns the residual stream after a sub-layer, given the sum of the residual stream and the sub-layer's output.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    pub fn output<B: Backend>(self, norm: &Norm<B>, sum: Tensor<B, 3>) -> Tensor<B, 3> {
        match self {
            NormPlacement::Pre => sum,
            NormPlacement::Post => norm.forward(sum),
        }
    }
}
