//! Trainable self-attention: three matrices project each token to its query (what it looks for), key (what it is
//! matched by) and value (what it passes on).
//!
//! ```text
//! Q = x W_q,  K = x W_k,  V = x W_v
//! context = softmax(Q K^T / sqrt(d_out)) V
//! ```

use burn::config::Config;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Tensor, backend::Backend};

use super::check_width;
use super::score::{self, AttentionOutput};
use crate::display::display_line;
use crate::{Error, Result, ops};

/// The configuration of a [`TrainableAttention`].
#[derive(Config, Debug)]
pub struct TrainableAttentionConfig {
    /// The width of the input.
    pub d_in: usize,
    /// The width of queries, keys, values and context, which may differ from `d_in`.
    pub d_out: usize,
    /// True if the projections have biases.
    #[config(default = false)]
    pub bias: bool,
}

/// Scaled dot-product self-attention with learned projections.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct TrainableAttention<B: Backend> {
    /// The query projection, `d_in` to `d_out`.
    pub query: Linear<B>,
    /// The key projection, `d_in` to `d_out`.
    pub key: Linear<B>,
    /// The value projection, `d_in` to `d_out`.
    pub value: Linear<B>,
}

display_line!(TrainableAttention, self => {
    d_in: self.query.weight.lazy_shape().dims::<2>()[0],
    d_out: self.query.weight.lazy_shape().dims::<2>()[1],
    bias: self.query.bias.is_some(),
});

impl TrainableAttentionConfig {
    /// Returns the module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// [`Error::Argument`] if a width is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<TrainableAttention<B>> {
        let Self { d_in, d_out, bias } = *self;
        for (name, width) in [("d_in", d_in), ("d_out", d_out)] {
            Error::check(width > 0, name, width, "must be at least 1")?;
        }
        let linear = || LinearConfig::new(d_in, d_out).with_bias(bias).init(device);
        Ok(TrainableAttention { query: linear(), key: linear(), value: linear() })
    }
}

impl<B: Backend> TrainableAttention<B> {
    /// Returns the queries, keys and values of every token.
    ///
    /// # Shapes
    /// `[.., time, d_in]` to three tensors `[.., time, d_out]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the input is not `d_in` wide.
    pub fn project<const D: usize>(&self, x: Tensor<B, D>) -> Result<[Tensor<B, D>; 3]> {
        let [d_in, _] = self.query.weight.shape().dims();
        check_width("input", x.dims(), d_in)?;
        Ok([&self.query, &self.key, &self.value].map(|layer| ops::linear(layer, x.clone())))
    }

    /// Lets every token attend to every token.
    ///
    /// # Shapes
    /// `[.., time, d_in]`; scores and weights are `[.., time, time]`, the context
    /// `[.., time, d_out]`.
    ///
    /// # Errors
    /// Same as [`Self::project`].
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Result<AttentionOutput<B, D>> {
        let [query, key, value] = self.project(x)?;
        let [_, d_out] = self.key.weight.shape().dims();
        let scores = score::scores(query, key)?;
        let weights = score::weights(scores.clone(), d_out);
        let context = score::context(weights.clone(), value)?;
        Ok(AttentionOutput { scores, weights, context })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Distribution;
    use burn_ndarray::NdArray;

    #[test]
    fn widths_in_and_out_may_differ() {
        let device = Default::default();
        let attention = TrainableAttentionConfig::new(5, 3).with_bias(true).init::<NdArray>(&device).unwrap();
        assert_eq!(attention.num_params(), 3 * (5 * 3 + 3));
        let x = Tensor::random([2, 7, 5], Distribution::Default, &device);
        let attended = attention.forward(x).unwrap();
        assert_eq!(attended.weights.dims(), [2, 7, 7]);
        assert_eq!(attended.context.dims(), [2, 7, 3]);
    }

    #[test]
    fn wrong_input_width_reports_expected_width() {
        let device = Default::default();
        let attention = TrainableAttentionConfig::new(5, 3).init::<NdArray>(&device).unwrap();
        let error = attention.forward(Tensor::<NdArray, 3>::zeros([2, 7, 11], &device)).unwrap_err();
        assert_eq!(error.to_string(), "the input is [2, 7, 11], but its last axis must be 5");
        assert!(TrainableAttentionConfig::new(5, 0).init::<NdArray>(&device).is_err());
    }
}
