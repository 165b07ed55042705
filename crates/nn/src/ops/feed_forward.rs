//! The feed-forward layer with its residual connection, `residual + dropout(f(x W_up + b_up) W_down + b_down)`.

use burn::nn::{Dropout, Linear};
use burn::tensor::{Tensor, backend::Backend};

use super::Activation;
use super::dropout::draw;
use super::fused::{self, fused};
use super::host::Floats;
use super::linear::{Layer, kernel_layer};
use super::operation::{Input, Operation, OperationInputs, gradients, inputs};
use super::precision::precision;
use crate::kernels;
use crate::kernels::dropout::Dropout as DropoutMask;
use crate::kernels::feed_forward as kernel;
use crate::kernels::linear::{self, WeightLayout};
use crate::kernels::pool::{self, Buffer};

/// Applies a feed-forward layer with its residual connection,
/// `residual + dropout(linear(down, activation(linear(up, input))))`. This stores less for the backward pass than two
/// separate layers.
///
/// # Shapes
/// `input`, `residual` and the result are `[batch, time, d_model]`.
pub fn feed_forward<B: Backend, const D: usize>(
    layers: [&Linear<B>; 2],
    activation: Activation,
    dropout: &Dropout,
    input: Tensor<B, D>,
    residual: Tensor<B, D>,
) -> Tensor<B, D> {
    run(layers.map(Layer::of), activation, dropout.prob, input, residual)
}

pub(super) fn run<B: Backend, const D: usize>(
    [up, down]: [Layer<B>; 2],
    activation: Activation,
    probability: f64,
    input: Tensor<B, D>,
    residual: Tensor<B, D>,
) -> Tensor<B, D> {
    let inputs = || {
        let parts =
            |layer: &Layer<B>| (fused::input(&layer.weight), layer.bias.as_ref().and_then(fused::input));
        let [(up, up_bias), (down, down_bias)] = [&up, &down].map(parts);
        let [input, residual] = [&input, &residual].map(fused::input);
        FeedForwardInputs { input, up, up_bias, down, down_bias, residual }
    };
    let settings =
        |precision| Fused { activation, dropout: draw::<B>(probability, &input.device()), precision };
    if let Some(precision) = precision().kernel_precision()
        && let Some(output) = fused(inputs(), |_| Some(settings(precision)))
    {
        return output;
    }
    down.apply(activation.forward(up.apply(input, None)), Some((residual, probability)))
}

inputs!(FeedForwardInputs<6> { input, up, up_bias, down, down_bias, residual });

/// The fused layer. The activated inner layer, the widest tensor of a model, is not kept: the backward pass recomputes
/// it from the pre-activation, together with the activation's derivative.
#[derive(Debug, Clone)]
struct Fused {
    activation: Activation,
    dropout: Option<DropoutMask>,
    precision: kernels::Precision,
}

impl Fused {
    /// Returns the kernels' view of both layers.
    fn layers<'a>(&self, inputs: &'a FeedForwardInputs<Input>) -> kernel::FeedForward<'a> {
        let FeedForwardInputs { up, up_bias, down, down_bias, .. } = inputs;
        let [up, down] = [(up, up_bias), (down, down_bias)].map(|(weight, bias)| {
            kernel_layer(weight, WeightLayout::InputOutput, bias.numbers(), self.precision)
        });
        kernel::FeedForward { up, down, activation: self.activation.form(), dropout: self.dropout }
    }
}

impl Operation<6> for Fused {
    type Inputs<T> = FeedForwardInputs<T>;
    /// The pre-activation `x W_up + b_up`, if the backward pass reads it.
    type Saved = Option<Buffer>;

    const BACKWARD_INPUTS: FeedForwardInputs<bool> = FeedForwardInputs {
        input: true,
        up: true,
        up_bias: true,
        down: true,
        down_bias: true,
        residual: false,
    };

    fn forward(&self, inputs: &FeedForwardInputs<Input>) -> (Floats, Option<Buffer>) {
        let (layers, input, residual) = (self.layers(inputs), inputs.input.slice(), &inputs.residual);
        let rows = input.len() / layers.up.d_in;
        let is_kept = inputs.refs().iter().any(|input| input.needs_gradient)
            && kernel::keeps_pre_activation(self.precision, rows, [layers.up.d_in, layers.down.d_in]);
        let mut pre_activation = is_kept.then(|| pool::take(rows * layers.up.d_out));
        let mut output = pool::take(rows * layers.down.d_out);
        kernel::forward(&layers, input, residual.slice(), pre_activation.as_deref_mut(), &mut output);
        (residual.with_values(output, residual.shape()), pre_activation)
    }

    fn backward(
        &self,
        inputs: &FeedForwardInputs<Input>,
        pre_activation: Option<Buffer>,
        gradient: &Floats,
    ) -> FeedForwardInputs<Option<Floats>> {
        let found = gradients::<Self, 6>(inputs, |found| {
            let FeedForwardInputs { input, up, up_bias, down, down_bias, .. } = found;
            let gradients = [(input, up, up_bias), (None, down, down_bias)]
                .map(|(input, weight, bias)| linear::Gradients { input, weight, bias });
            let (layers, input) = (self.layers(inputs), inputs.input.slice());
            kernel::backward(&layers, input, pre_activation, gradient.slice(), gradients);
        });
        FeedForwardInputs { residual: inputs.residual.needs_gradient.then(|| gradient.clone()), ..found }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::agreement::*;

    fn feed_forward_agrees<B: AutodiffBackend>([rows, d_model, d_inner]: [usize; 3], bias: bool, seed: u64) {
        // ReLU is excluded, since rounding may move an input across the jump of its gradient at zero. The gradient of
        // squared ReLU is continuous.
        for activation in [
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Relu2,
            Activation::Silu,
            Activation::Swiglu,
            Activation::Geglu,
        ] {
            let d_up = if activation.is_gated() { 2 * d_inner } else { d_inner };
            check(&format!("feed-forward with {activation:?}"), || {
                let input = leaf::<B, 3>(seed, [1, rows, d_model]).require_grad();
                let residual = leaf::<B, 3>(seed + 1, [1, rows, d_model]).require_grad();
                let layer = |seed, [d_in, d_out]: [usize; 2]| {
                    let bias = bias.then(|| leaf::<B, 1>(seed + 2, [d_out]).require_grad());
                    layer_of(leaf::<B, 2>(seed, [d_in, d_out]).require_grad(), bias)
                };
                let (up, down) = (layer(seed + 2, [d_model, d_up]), layer(seed + 3, [d_inner, d_model]));
                let output =
                    run([up.clone(), down.clone()], activation, 0.0, input.clone(), residual.clone());
                let inner = [up.clone().inner(), down.clone().inner()];
                let inner = run(inner, activation, 0.0, input.clone().inner(), residual.clone().inner());
                let (up_weight, down_weight) = (up.weight, down.weight);
                match (up.bias, down.bias) {
                    (Some(up), Some(down)) => {
                        outcome!(output, inner, [input, up_weight, up, down_weight, down, residual])
                    }
                    _ => outcome!(output, inner, [input, up_weight, down_weight, residual]),
                }
            });
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn feed_forward_layers_agree(
            sizes in [1usize..131, 1usize..40, 1usize..150], bias: bool, seed in 0u64..1_000,
        ) {
            feed_forward_agrees::<AutodiffNdArray>(sizes, bias, seed);
            feed_forward_agrees::<AutodiffFlex>(sizes, bias, seed);
        }
    }

    #[test]
    fn bias_gradient_counts_elements_kept_by_dropout() {
        fn agrees<B: AutodiffBackend>() {
            let device = Default::default();
            // Where dropout keeps the output, it is the scaled bias, so the gradient of the bias counts the kept
            // elements.
            let bias = Tensor::<B, 1>::ones([103], &device).require_grad();
            let zeros = |shape| Tensor::<B, 2>::zeros(shape, &device);
            let layers = [layer_of(zeros([103, 7]), None), layer_of(zeros([7, 103]), Some(bias.clone()))];
            let output = run(layers, Activation::Gelu, 0.25, zeros([211, 103]), zeros([211, 103]));
            let gradient = numbers(bias.grad(&output.clone().sum().backward()).unwrap());
            for (sum, gradient) in numbers(output.sum_dim(0)).into_iter().zip(gradient) {
                assert!((sum - gradient).abs() < 1e-3 && (100.0..280.0).contains(&sum), "{sum} {gradient}");
            }
        }
        agrees::<AutodiffNdArray>();
        agrees::<AutodiffFlex>();
    }
}
