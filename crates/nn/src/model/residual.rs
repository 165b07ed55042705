//! The placement of norms around a residual connection.
//!
//! ```text
//! pre:       x + f(norm(x))          the residual stream is never normalised: deep stacks train without warm-up
//! post:      norm(x + f(x))          the original form, which needs warm-up
//! sandwich:  x + norm(f(norm(x)))    bounds what a sub-layer adds, as in Gemma 2
//! output:    x + norm(f(x))          the same without a norm of the input, as in OLMo 2
//! ```
//!
//! Xiong et al., 2020 (arXiv 2002.04745) compare the first two. The sandwich is from Ding et al., 2021 (arXiv 2105.13290);
//! the norm of the output from Liu et al., 2022 (arXiv 2111.09883), used in OLMo 2 (arXiv 2501.00656).

use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::attention::check_width;
use crate::choices;
use crate::ops::Norm;

choices! {
    /// The placement of norms around a residual connection.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum NormPlacement {
        /// `x + f(norm(x))`, with one more norm after the last block.
        #[default]
        Pre,
        /// `norm(x + f(x))`.
        Post,
        /// `x + norm(f(norm(x)))`, with one more norm after the last block.
        Sandwich,
        /// `x + norm(f(x))`, with one more norm after the last block.
        Output,
    }
}

impl NormPlacement {
    /// Returns true if a norm follows the last block.
    pub fn has_final_norm(self) -> bool {
        self != Self::Post
    }

    /// Returns true if a sub-layer reads a norm of the residual stream.
    pub fn has_input_norm(self) -> bool {
        matches!(self, Self::Pre | Self::Sandwich)
    }

    /// Returns true if the residual stream is a sum of what sub-layers add, without a norm of the sum.
    pub fn is_sum(self) -> bool {
        self != Self::Post
    }

    /// Returns true if the residual stream is the sum of the sub-layers' outputs, without a norm between them.
    pub fn adds_outputs(self) -> bool {
        self == Self::Pre
    }
}

/// A sub-layer's norms.
#[derive(Debug, Clone)]
pub struct SublayerNorms<'a, B: Backend> {
    /// The placement of the norms.
    pub placement: NormPlacement,
    /// The only norm, or the norm of the input in a sandwich.
    pub norm: &'a Norm<B>,
    /// The norm of the output in a sandwich.
    pub output: Option<&'a Norm<B>>,
}

impl<B: Backend> SublayerNorms<'_, B> {
    /// Returns the input of the sub-layer, which reads the residual stream `x`.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if `x` is not as wide as the norm.
    pub fn input(&self, x: Tensor<B, 3>) -> Result<Tensor<B, 3>> {
        let [d_model] = self.norm.gamma.shape().dims();
        check_width("input", x.dims(), d_model)?;
        Ok(if self.placement.has_input_norm() { self.norm.forward(x) } else { x })
    }

    /// Returns the residual stream `x` for a sub-layer that adds its output to it, or else for [`output`](Self::output).
    pub fn split(&self, x: Tensor<B, 3>) -> [Option<Tensor<B, 3>>; 2] {
        match self.placement {
            NormPlacement::Pre | NormPlacement::Post => [Some(x), None],
            NormPlacement::Sandwich | NormPlacement::Output => [None, Some(x)],
        }
    }

    /// Returns the residual stream after the sub-layer, given both results of [`split`](Self::split), of which the sub-layer
    /// took the first.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    pub fn output(&self, x: Option<Tensor<B, 3>>, output: Tensor<B, 3>) -> Tensor<B, 3> {
        let output = match self.placement {
            NormPlacement::Pre => output,
            NormPlacement::Post | NormPlacement::Output => self.norm.forward(output),
            NormPlacement::Sandwich => self.output.unwrap_or(self.norm).forward(output),
        };
        match x {
            Some(x) => x + output,
            None => output,
        }
    }
}
