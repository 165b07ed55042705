//! Multi-head attention with one matrix each for queries, keys and values, whose outputs are
//! split into heads:
//!
//! ```text
//! Q = x W_q   [batch, time, d_model] -> [batch, time, heads, d_head] -> [batch, heads, time, d_head]
//! ```
//!
//! Column block `h` of `W_q` is the query matrix of head `h`: the same numbers as in single heads, in one matrix
//! product instead of one per head.

use burn::config::Config;
use burn::module::{Module, ParamId};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Tensor, backend::Backend};

use super::width_of_head;
use crate::attention::hooked::{self, HeadOutput, with_weights};
use crate::attention::{check_dropout, check_width, mask::Mask};
use crate::display::display_line;
use crate::ops::{self, AttentionOptions, Projections, ScorePosition};
use crate::role::{self, ParamRole, ParamRoles};
use crate::{Error, Result};

/// The configuration of [`SplitHeads`].
#[derive(Config, Debug)]
pub struct SplitHeadsConfig {
    /// The width of the input.
    pub d_in: usize,
    /// The width of the output.
    pub d_model: usize,
    /// The number of heads.
    pub heads: usize,
    /// The width of a head; `d_model / heads` if absent, which must then be an integer.
    pub d_head: Option<usize>,
    /// The probability of dropping an attention weight, and of dropping an element of the output.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// True if the projections of queries, keys and values have biases.
    #[config(default = false)]
    pub bias: bool,
    /// True if the output projection has a bias.
    #[config(default = true)]
    pub output_bias: bool,
}

/// Multi-head attention with separate projections.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct SplitHeads<B: Backend> {
    /// The query projection, `d_in` to `heads * d_head`.
    pub query: Linear<B>,
    /// The key projection, `d_in` to `heads * d_head`.
    pub key: Linear<B>,
    /// The value projection, `d_in` to `heads * d_head`.
    pub value: Linear<B>,
    /// The output projection, which mixes the heads: `heads * d_head` to `d_model`.
    pub output: Linear<B>,
    /// The dropout of the attention weights and of the output.
    pub dropout: Dropout,
    /// The number of heads.
    pub heads: usize,
}

display_line!(SplitHeads, self => {
    d_in: self.query.weight.lazy_shape().dims::<2>()[0],
    d_model: self.output.weight.lazy_shape().dims::<2>()[1],
    heads: self.heads,
    d_head: self.output.weight.lazy_shape().dims::<2>()[0] / self.heads,
    bias: self.query.bias.is_some(),
    output_bias: self.output.bias.is_some(),
    dropout: self.dropout.prob,
});

impl SplitHeadsConfig {
    /// Returns the module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// [`Error::Argument`] if a size is zero, `heads` does not divide `d_model` or the dropout is outside [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<SplitHeads<B>> {
        let width = self.heads * width_of_head(self.d_model, self.heads, self.d_head)?;
        check_dropout(self.dropout)?;
        Error::check(self.d_in > 0, "d_in", self.d_in, "must be at least 1")?;
        let projection = || LinearConfig::new(self.d_in, width).with_bias(self.bias).init(device);
        Ok(SplitHeads {
            query: projection(),
            key: projection(),
            value: projection(),
            output: LinearConfig::new(width, self.d_model).with_bias(self.output_bias).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            heads: self.heads,
        })
    }
}

impl<B: Backend> ParamRoles for SplitHeads<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { query, key, value, output, dropout: _, heads: _ } = self;
        for layer in [query, key, value] {
            let [_, width] = layer.weight.lazy_shape().dims();
            role::visit_reader(layer, vec![width], visit);
        }
        role::visit_writer(output, visit);
    }
}

impl<B: Backend> SplitHeads<B> {
    /// Lets each token attend to itself and the tokens before it.
    ///
    /// # Shapes
    /// `[batch, time, d_in]` to `[batch, time, d_model]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the input is not `d_in` wide.
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
        let [d_in, _] = self.query.weight.shape().dims();
        check_width("input", x.dims(), d_in)?;
        let project = |layer| ops::linear(layer, x.clone());
        let projections = Projections::Separate([&self.query, &self.key, &self.value].map(project));
        let output = self.head_output();
        with_weights(|mut hooks| {
            Ok(hooked::attend(projections, self.options(Mask::causal()), output, None, &mut hooks))
        })
    }

    /// Returns the last steps of the layer.
    pub(in crate::attention) fn head_output(&self) -> HeadOutput<'_, B> {
        HeadOutput { projection: &self.output, dropout: &self.dropout, gates: None, differential: None }
    }

    /// Returns the options of this attention for [`ops::attention()`].
    pub fn options(&self, mask: Mask<B>) -> AttentionOptions<B> {
        AttentionOptions {
            dropout: self.dropout.prob,
            ..AttentionOptions::new([self.heads; 2], mask, ScorePosition::None)
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    use super::*;

    #[test]
    fn attention_weights_are_dropped_in_training() {
        type B = Autodiff<NdArray>;
        let (device, [batch, time, heads]) = (Default::default(), [3, 11, 2]);
        let split = SplitHeadsConfig::new(6, 6, heads).with_dropout(0.5).init::<B>(&device).unwrap();
        let input = Tensor::<B, 3>::ones([batch, time, 6], &device);
        let (_, of_split) = split.forward_with_weights(input.clone()).unwrap();
        let fused = split.to_fused().unwrap();
        let (_, of_fused) = fused.forward_with_weights(input, &Mask::causal(), &ScorePosition::None).unwrap();
        for weights in [of_split, of_fused] {
            let visible = batch * heads * time * (time + 1) / 2;
            let kept = weights.greater_elem(0.0).int().sum().into_scalar() as f64 / visible as f64;
            // Six standard deviations of a binomial proportion.
            assert!((kept - 0.5).abs() < 6.0 * (0.25 / visible as f64).sqrt(), "{kept}");
        }
    }
}
