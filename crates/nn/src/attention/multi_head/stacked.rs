//! Multi-head attention as a list of single heads, whose contexts are concatenated:
//!
//! ```text
//! output = [head_1(x) | .. | head_n(x)] W_output
//! ```
//!
//! This is the clearest and the slowest form: every head has its own matrix products.

use burn::config::Config;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Tensor, backend::Backend};

use crate::attention::causal::{CausalAttention, CausalAttentionConfig, Masking};
use crate::display::display_tree;
use crate::{Error, Result, ops};

/// The configuration of [`StackedHeads`].
#[derive(Config, Debug)]
pub struct StackedHeadsConfig {
    /// The width of the input.
    pub d_in: usize,
    /// The width of each head's context.
    pub d_head: usize,
    /// The number of heads.
    pub heads: usize,
    /// The longest sequence.
    pub context: usize,
    /// The width of the output projection; no projection if absent.
    pub d_out: Option<usize>,
    /// The probability of dropping an attention weight, and of dropping an element of the projection's output.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// True if the projections of queries, keys and values have biases; the output projection always has one.
    #[config(default = false)]
    pub bias: bool,
}

/// Single causal heads in parallel.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct StackedHeads<B: Backend> {
    /// The heads, all of the same widths.
    pub heads: Vec<CausalAttention<B>>,
    /// The output projection, which mixes the heads: `heads * d_head` to `d_out`.
    pub output: Option<Linear<B>>,
    /// The dropout of the projection's output.
    pub dropout: Dropout,
}

display_tree!(StackedHeads);

impl StackedHeadsConfig {
    /// Returns the module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// [`Error::Argument`] if a size is zero or the dropout is outside [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<StackedHeads<B>> {
        for (name, size) in [("heads", self.heads), ("d_out", self.d_out.unwrap_or(1))] {
            Error::check(size > 0, name, size, "must be at least 1")?;
        }
        let head = CausalAttentionConfig::new(self.d_in, self.d_head, self.context)
            .with_dropout(self.dropout)
            .with_bias(self.bias);
        Ok(StackedHeads {
            heads: (0..self.heads).map(|_| head.init(device)).collect::<Result<_>>()?,
            output: self.d_out.map(|d_out| LinearConfig::new(self.heads * self.d_head, d_out).init(device)),
            dropout: DropoutConfig::new(self.dropout).init(),
        })
    }
}

impl<B: Backend> StackedHeads<B> {
    /// Lets each token attend to itself and the tokens before it, head after head.
    ///
    /// # Shapes
    /// `[batch, time, d_in]` to `[batch, time, d_out]`, or `[batch, time, heads * d_head]`
    /// without a projection.
    ///
    /// # Errors
    /// [`Error::Shape`] if the input is not `d_in` wide or is longer than the context.
    pub fn forward(&self, x: Tensor<B, 3>) -> Result<Tensor<B, 3>> {
        Ok(self.forward_with_weights(x)?.0)
    }

    /// Like [`Self::forward`], and also returns the attention weights as applied.
    ///
    /// # Shapes
    /// Same as [`Self::forward`]; the weights are `[batch, heads, time, time]`.
    ///
    /// # Errors
    /// Same as [`Self::forward`].
    pub fn forward_with_weights(&self, x: Tensor<B, 3>) -> Result<(Tensor<B, 3>, Tensor<B, 4>)> {
        let (mut contexts, mut weights) = (Vec::new(), Vec::new());
        for head in &self.heads {
            let attended = head.forward(x.clone(), Masking::Scores)?;
            contexts.push(attended.context);
            weights.push(attended.weights);
        }
        let context = Tensor::cat(contexts, 2); // [batch, time, heads * d_head]
        let output = match &self.output {
            Some(output) => ops::linear_residual(output, &self.dropout, context, None),
            None => context,
        };
        Ok((output, Tensor::stack(weights, 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn output_width_follows_heads_or_projection() {
        let device = Default::default();
        let config = StackedHeadsConfig::new(5, 3, 7, 11);
        let x = Tensor::<NdArray, 3>::ones([2, 11, 5], &device);
        let (output, weights) = config.init(&device).unwrap().forward_with_weights(x.clone()).unwrap();
        assert_eq!(output.dims(), [2, 11, 21]);
        assert_eq!(weights.dims(), [2, 7, 11, 11]);
        let output = config.with_d_out(Some(13)).init(&device).unwrap().forward(x).unwrap();
        assert_eq!(output.dims(), [2, 11, 13]);
    }
}
