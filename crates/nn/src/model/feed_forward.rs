//! The feed-forward layer, a two-layer network applied to each position separately:
//! `dropout(f(x W_up + b_up) W_down + b_down)` (Vaswani et al., 2017, arXiv 1706.03762, section 3.3, with ReLU for `f`;
//! see [`Activation`] for other functions).

use burn::module::{Module, ParamId};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Tensor, backend::Backend};

use super::config::ModelConfig;
use crate::Result;
use crate::attention::{check_residual, check_width};
use crate::display::display_line;
use crate::hooks::{BlockHooks, HookPoint, ReplacedOutput};
use crate::ops::{self, Activation};
use crate::role::{self, ParamRole, ParamRoles};

/// Two linear layers with an activation between them and dropout after them.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct FeedForward<B: Backend> {
    /// The first layer, `d_model` to `d_inner`; if gated, to `2 * d_inner`, with the columns of the gate first.
    pub up: Linear<B>,
    /// The second layer, `d_inner` to `d_model`.
    pub down: Linear<B>,
    /// The dropout of the output.
    pub dropout: Dropout,
    /// The activation between the layers.
    #[module(skip)]
    pub activation: Activation,
}

display_line!(FeedForward, self => {
    d_model: self.up.weight.lazy_shape().dims::<2>()[0],
    d_inner: self.down.weight.lazy_shape().dims::<2>()[0],
    activation: self.activation,
    bias: self.up.bias.is_some(),
    dropout: self.dropout.prob,
});

impl<B: Backend> ParamRoles for FeedForward<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { up, down, dropout: _, activation: _ } = self;
        let ([_, width], [inner, _]) = (up.weight.lazy_shape().dims(), down.weight.lazy_shape().dims());
        role::visit_reader(up, vec![inner; width / inner], visit);
        role::visit_writer(down, visit);
    }
}

impl<B: Backend> FeedForward<B> {
    /// Creates a layer with Burn's lazy initialisation.
    pub fn new(config: &ModelConfig, device: &B::Device) -> Self {
        let linear =
            |d_input, d_output| LinearConfig::new(d_input, d_output).with_bias(config.bias).init(device);
        Self {
            up: linear(config.d_model, config.up_width()),
            down: linear(config.inner_width(), config.d_model),
            dropout: DropoutConfig::new(config.dropout).init(),
            activation: config.activation,
        }
    }

    /// Returns the output for `input`, added to the `residual` if there is one. This is one fused operation if the backend
    /// supports it and no hook wants an activation.
    ///
    /// # Shapes
    /// All `[batch, time, d_model]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the input is not `d_model` wide, or if the residual has another shape.
    pub fn forward_hooked(
        &self,
        residual: Option<Tensor<B, 3>>,
        input: Tensor<B, 3>,
        mut hooks: BlockHooks<'_, B>,
    ) -> Result<Tensor<B, 3>> {
        use HookPoint::{FeedForwardHidden, FeedForwardOutput};
        let [d_model, _] = self.up.weight.shape().dims();
        check_width("input", input.dims(), d_model)?;
        check_residual(residual.as_ref(), input.dims())?;
        let residual = residual.unwrap_or_else(|| input.zeros_like());
        let fused = |input, residual| {
            ops::feed_forward([&self.up, &self.down], self.activation, &self.dropout, input, residual)
        };
        let [batch, time, _] = input.dims();
        if let Some(ReplacedOutput { computed, sum }) =
            hooks.replaced_output(FeedForwardOutput, [batch, 1, time])
        {
            let replaced = residual + sum;
            return Ok(match computed {
                Some(computed) => fused(input, replaced.zeros_like()) * computed.unsqueeze_dim(2) + replaced,
                None => replaced,
            });
        }
        let output = match [FeedForwardHidden, FeedForwardOutput].map(|point| hooks.wants(point)) {
            [false, false] => return Ok(fused(input, residual)),
            [false, true] => fused(input, residual.zeros_like()),
            [true, _] => {
                let hidden = self.activation.forward(ops::linear(&self.up, input));
                let hidden = hooks.apply(FeedForwardHidden, hidden); // [batch, time, d_inner]
                ops::linear_residual(&self.down, &self.dropout, hidden, None)
            }
        };
        Ok(residual + hooks.apply(FeedForwardOutput, output))
    }
}
