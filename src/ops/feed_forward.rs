//! The feed-forward layer with its residual connection, `residual + dropout(gelu(x W_up + b_up) W_down + b_down)`.

use burn::nn::{Dropout, Linear};
use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;

use super::dropout::draw;
use super::linear::{Layer, Parameters, activated, added};
use super::{Backend, Floats, Gelu, HostAccess, IntoFloat, Operation, float};
use crate::kernels::linear::{After, Followed, Gradients, backward, forward};
use crate::kernels::{self, dropout::Dropout as DropoutMask, gelu, pool};

/// The feed-forward layer with its residual connection: `residual + dropout(linear(down, gelu(linear(up,
/// input))))`, which keeps less for its gradient than the two layers apart.
///
/// # Shapes
/// `input` `[batch, time, d_model]`, as `residual` and the result.
pub fn feed_forward<B: Backend, const D: usize>(
    layers: [&Linear<B>; 2],
    form: Gelu,
    dropout: &Dropout,
    input: Tensor<B, D>,
    residual: Tensor<B, D>,
) -> Tensor<B, D> {
    let layers = layers.map(Layer::of);
    float(run::<B>(input.into_float(), layers, form, residual.into_float(), dropout.prob))
}

pub(super) fn run<B: Backend>(
    input: FloatTensor<B>,
    [up, down]: [Layer<B>; 2],
    form: Gelu,
    residual: FloatTensor<B>,
    dropout: f64,
) -> FloatTensor<B> {
    let Some(mut operation) = Fused::new::<B>(&input, [&up, &down], form, &residual) else {
        return added(activated(input, up, Some(form)), down, residual, dropout);
    };
    operation.dropout = draw::<B>(dropout, &B::float_device(&input));
    let inputs = [Some(input), Some(up.weight), up.bias, Some(down.weight), down.bias, Some(residual)];
    B::run(operation, &inputs)
}

/// The widest tensor of a model is what GELU makes of the inner layer. It is not kept: the gradient has it
/// from the pre-activation, together with GELU's derivative.
#[derive(Debug, Clone)]
struct Fused<B: HostAccess> {
    input: Option<Floats<B>>,
    up: Parameters<B>,
    form: kernels::gelu::Gelu,
    /// `x W_up + b_up`.
    pre_activation: Option<Floats<B>>,
    down: Parameters<B>,
    residual: Option<Floats<B>>,
    dropout: Option<DropoutMask>,
}

impl<B: HostAccess> Fused<B> {
    fn new<A: Backend<Host = B>>(
        input: &FloatTensor<A>,
        [up, down]: [&Layer<A>; 2],
        form: Gelu,
        residual: &FloatTensor<A>,
    ) -> Option<Self> {
        Some(Self {
            input: Some(Floats::new(A::host(input))?),
            up: Parameters::new(up)?,
            form: form.into(),
            pre_activation: None,
            down: Parameters::new(down)?,
            residual: Some(Floats::new(A::host(residual))?),
            dropout: None,
        })
    }
}

impl<B: HostAccess> Operation<B> for Fused<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let (up, down) = (self.up.layer(), self.down.layer());
        let input = self.input.as_ref().expect("forward runs once").slice();
        let residual = self.residual.take().expect("forward runs once");
        let rows = input.len() / up.d_in;
        let mut inner = pool::take(rows * up.d_out);
        let mut pre_activation = keep.then(|| pool::take(rows * up.d_out));
        let after = After::Gelu { form: self.form, pre_activation: pre_activation.as_deref_mut() };
        forward(&up, input, after, &mut inner);
        let mut output = pool::take(rows * down.d_out);
        let after = After::Residual { residual: residual.slice(), dropout: self.dropout };
        forward(&down, &inner, after, &mut output);
        self.pre_activation = pre_activation.map(|values| residual.keep(values, [rows, up.d_out]));
        residual.place(output, residual.shape())
    }

    fn first_input(&mut self) -> Option<&mut Option<Floats<B>>> {
        Some(&mut self.input)
    }

    fn backward(self, gradient: &Floats<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let input = self.input.expect("the input was taken back");
        let mut inner = self.pre_activation.expect("forward has run").into_vec();
        let (down, values) = (self.down.layer(), gradient.slice());
        let followed = self.dropout.map_or(Followed::Nothing, Followed::Dropout);
        let (wanted_up, wanted_down) = wanted.split_at(1 + self.up.count());

        let mut for_inner = pool::take(inner.len());
        let only_inner = Gradients { input: Some(&mut for_inner), ..Gradients::default() };
        backward(&down, &inner, followed, values, only_inner);
        gelu::activate_and_differentiate(self.form, &mut inner, &mut for_inner);

        let for_down = self.down.gradients(wanted_down, |weight, bias| {
            backward(&down, &inner, followed, values, Gradients { input: None, weight, bias });
        });
        pool::give(inner);
        let mut gradients = self.up.backward(&input, Followed::Nothing, &for_inner, wanted_up);
        gradients.extend(for_down);
        gradients.push(Some(gradient.tensor()));
        input.recycle();
        gradients
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::AutodiffBackend;
    use crate::ops::agreement::*;

    fn feed_forward_agrees<B: AutodiffBackend>([rows, d_model, d_inner]: [usize; 3], bias: bool, seed: u64) {
        for form in [Gelu::Erf, Gelu::Tanh] {
            check(&format!("feed-forward with {form:?}"), || {
                let input = leaf::<B, 3>(seed, [1, rows, d_model]).require_grad();
                let residual = leaf::<B, 3>(seed + 1, [1, rows, d_model]).require_grad();
                let weights = [(seed + 2, [d_model, d_inner]), (seed + 3, [d_inner, d_model])];
                let [up, down] = weights.map(|(seed, shape)| leaf::<B, 2>(seed, shape).require_grad());
                let biases = [(seed + 4, d_inner), (seed + 5, d_model)];
                let biases = biases.map(|(seed, width)| leaf::<B, 1>(seed, [width]).require_grad());
                fn feed_forward<B: Backend>(
                    [input, residual]: [Tensor<B, 3>; 2],
                    weights: [Tensor<B, 2>; 2],
                    [up_bias, down_bias]: [Option<Tensor<B, 1>>; 2],
                    form: Gelu,
                ) -> Tensor<B, 3> {
                    let [up, down] = weights.map(IntoFloat::into_float);
                    let up = Layer { weight: up, bias: up_bias.map(IntoFloat::into_float) };
                    let down = Layer { weight: down, bias: down_bias.map(IntoFloat::into_float) };
                    float(run::<B>(input.into_float(), [up, down], form, residual.into_float(), 0.0))
                }
                let of_bias = |tensor: &Tensor<B, 1>| bias.then(|| tensor.clone());
                let output = feed_forward(
                    [input.clone(), residual.clone()],
                    [up.clone(), down.clone()],
                    biases.each_ref().map(of_bias),
                    form,
                );
                let inner = feed_forward(
                    [input.clone().inner(), residual.clone().inner()],
                    [up.clone().inner(), down.clone().inner()],
                    biases.each_ref().map(|bias| of_bias(bias).map(Tensor::inner)),
                    form,
                );
                let [up_bias, down_bias] = &biases;
                match bias {
                    true => outcome!(output, inner, [input, up, up_bias, down, down_bias, residual]),
                    false => outcome!(output, inner, [input, up, down, residual]),
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
            feed_forward_agrees::<Ndarray>(sizes, bias, seed);
            feed_forward_agrees::<Flexible>(sizes, bias, seed);
        }
    }

    #[test]
    fn the_gradient_of_a_bias_counts_what_dropout_keeps() {
        fn agrees<B: AutodiffBackend>() {
            let device = Default::default();
            // The layer's output is its bias where it is kept, so the bias's gradient counts what is kept.
            let bias = Tensor::<B, 1>::ones([103], &device).require_grad();
            let zeros = |shape| Tensor::<B, 2>::zeros(shape, &device).into_float();
            let up = Layer { weight: zeros([103, 7]), bias: None };
            let down = Layer { weight: zeros([7, 103]), bias: Some(bias.clone().into_float()) };
            let (input, residual) = (zeros([211, 103]), zeros([211, 103]));
            let output = float::<B, 2>(run::<B>(input, [up, down], Gelu::Erf, residual, 0.25));
            let gradient = numbers(bias.grad(&output.clone().sum().backward()).unwrap());
            for (sum, gradient) in numbers(output.sum_dim(0)).into_iter().zip(gradient) {
                assert!((sum - gradient).abs() < 1e-3 && (100.0..280.0).contains(&sum), "{sum} {gradient}");
            }
        }
        agrees::<Ndarray>();
        agrees::<Flexible>();
    }
}
