//! The feed-forward layer: the same small network at every place,
//! `dropout(gelu(x W_up + b_up) W_down + b_down)` (Vaswani et al., 2017, arXiv 1706.03762,
//! section 3.3; with GELU instead of ReLU as in GPT-2).

use burn::config::Config;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Tensor, backend::Backend};

use crate::Result;
use crate::attention::{check_dropout, check_residual, check_width};
use crate::ops::{self, Gelu};

/// What a [`FeedForward`] is built from.
#[derive(Config, Debug)]
pub struct FeedForwardConfig {
    /// Width of input and output.
    pub d_model: usize,
    /// Width between the two layers.
    pub d_inner: usize,
    /// Form of the activation.
    #[config(default = "Gelu::Erf")]
    pub gelu: Gelu,
    /// Probability of dropping an element of the output.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether the layers have biases.
    #[config(default = true)]
    pub bias: bool,
}

/// Two linear layers with GELU between them and dropout at the end.
#[derive(Module, Debug)]
pub struct FeedForward<B: Backend> {
    /// `d_model` to `d_inner`.
    pub up: Linear<B>,
    /// `d_inner` to `d_model`.
    pub down: Linear<B>,
    /// On the output.
    pub dropout: Dropout,
    /// Form of the activation.
    #[module(skip)]
    pub gelu: Gelu,
}

impl FeedForwardConfig {
    /// The module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// [`crate::Error::Key`] where the dropout lies outside [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<FeedForward<B>> {
        check_dropout(self.dropout)?;
        let linear =
            |d_input, d_output| LinearConfig::new(d_input, d_output).with_bias(self.bias).init(device);
        Ok(FeedForward {
            up: linear(self.d_model, self.d_inner),
            down: linear(self.d_inner, self.d_model),
            dropout: DropoutConfig::new(self.dropout).init(),
            gelu: self.gelu,
        })
    }

    /// How many parameters [`Self::init`] makes.
    pub fn parameters(&self) -> usize {
        let bias = usize::from(self.bias);
        (self.d_model + bias) * self.d_inner + (self.d_inner + bias) * self.d_model
    }
}

impl<B: ops::Backend> FeedForward<B> {
    /// Applies the network at every place.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where the input is not `d_model` wide.
    pub fn forward(&self, input: Tensor<B, 3>) -> Result<Tensor<B, 3>> {
        self.check(&input)?;
        let inner = ops::linear_gelu(&self.up, self.gelu, input); // [batch, time, d_inner]
        Ok(ops::dropout(&self.dropout, ops::linear(&self.down, inner)))
    }

    /// `residual + forward(input)`, in one operation where the backend has it.
    ///
    /// # Shapes
    /// All `[batch, time, d_model]`.
    ///
    /// # Errors
    /// As [`Self::forward`], and where the residual has another shape than the input.
    pub fn forward_onto(&self, residual: Tensor<B, 3>, input: Tensor<B, 3>) -> Result<Tensor<B, 3>> {
        check_residual(residual.dims(), input.dims())?;
        self.check(&input)?;
        Ok(ops::feed_forward([&self.up, &self.down], self.gelu, &self.dropout, input, residual))
    }

    fn check(&self, input: &Tensor<B, 3>) -> Result<()> {
        let [d_model, _] = self.up.weight.shape().dims();
        check_width("input", input.dims(), d_model)
    }
}
