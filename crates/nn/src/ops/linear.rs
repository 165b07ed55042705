//! The linear layer `y = x W + b`, with what usually follows it in one operation.

use burn::nn::{Dropout, Embedding, Linear};
use burn::tensor::{Tensor, backend::Backend};

use super::dropout::{self, draw};
use super::host::Floats;
use super::operation::{self, Gradients, Inputs, Operation, fused};
use super::precision::{Precision, matmul, precision};
use crate::kernels::dropout::Dropout as DropoutMask;
use crate::kernels::linear::{self as kernel, Epilogue, WeightLayout};
use crate::kernels::{self, pool};

/// A linear layer over the last axis.
///
/// # Shapes
/// `[batch, time, d_input]` to `[batch, time, d_output]`, for any leading axes.
pub fn linear<B: Backend, const D: usize>(layer: &Linear<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    Layer::of(layer).apply(input, None)
}

/// `residual + dropout(linear(input))`: how a sub-layer returns to the residual stream, if there is one.
///
/// # Shapes
/// `input` `[batch, time, d_input]`, `residual` and the result `[batch, time, d_output]`.
pub fn linear_residual<B: Backend, const D: usize>(
    layer: &Linear<B>,
    dropout: &Dropout,
    input: Tensor<B, D>,
    residual: Option<Tensor<B, D>>,
) -> Tensor<B, D> {
    match residual {
        Some(residual) => Layer::of(layer).apply(input, Some((residual, dropout.prob))),
        None => dropout::run(linear(layer, input), dropout.prob),
    }
}

/// The output layer of a model that ties it to its embedding: the dot product of each place with
/// each row of the table (Press and Wolf, 2017, arXiv 1608.05859).
///
/// # Shapes
/// `[batch, time, d_model]` to `[batch, time, vocab]`.
pub fn tied_linear<B: Backend, const D: usize>(table: &Embedding<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    let layer = Layer { weight: table.weight.val(), layout: WeightLayout::OutputInput, bias: None };
    layer.apply(input, None)
}

/// The parameters of a linear layer.
#[derive(Debug, Clone)]
pub(super) struct Layer<B: Backend> {
    /// `[d_input, d_output]`, or the other way round.
    pub weight: Tensor<B, 2>,
    pub layout: WeightLayout,
    /// `[d_output]`.
    pub bias: Option<Tensor<B, 1>>,
}

impl<B: Backend> Layer<B> {
    pub fn of(layer: &Linear<B>) -> Self {
        let bias = layer.bias.as_ref().map(|bias| bias.val());
        Self { weight: layer.weight.val(), layout: WeightLayout::InputOutput, bias }
    }

    /// `input weight + bias`, or with a residual and a probability `residual + dropout(input weight + bias)`.
    pub fn apply<const D: usize>(
        self,
        input: Tensor<B, D>,
        residual: Option<(Tensor<B, D>, f64)>,
    ) -> Tensor<B, D> {
        let (residual, probability) =
            residual.map_or((None, 0.0), |(it, probability)| (Some(it), probability));
        let inputs = || {
            let (bias, residual) = (self.bias.as_ref(), residual.as_ref());
            [
                operation::input(&input),
                operation::input(&self.weight),
                bias.and_then(operation::input),
                residual.and_then(operation::input),
            ]
        };
        let settings = |precision| {
            let dropout = draw::<B>(probability, &input.device());
            Fused { layout: self.layout, dropout, precision }
        };
        if let Some(precision) = precision().of_kernels()
            && let Some(output) = fused(inputs(), |_| Some(settings(precision)))
        {
            return output;
        }
        let output = self.composed(input);
        match residual {
            Some(residual) => residual + dropout::composed(output, probability),
            None => output,
        }
    }

    /// All leading axes are folded into rows first: one matrix product each for the result and for
    /// the gradients, instead of one a batch entry and a sum over them.
    pub fn composed<const D: usize>(self, input: Tensor<B, D>) -> Tensor<B, D> {
        let weight = match self.layout {
            WeightLayout::InputOutput => self.weight,
            WeightLayout::OutputInput => self.weight.transpose(),
        };
        let [d_input, d_output] = weight.dims();
        let mut shape = input.dims();
        shape[D - 1] = d_output;
        let rows = input.shape().num_elements() / d_input;
        let input = input.reshape([rows, d_input]);
        let output = match (precision(), self.bias) {
            (Precision::F32, bias) => burn::tensor::module::linear(input, weight, bias),
            (_, Some(bias)) => matmul(input, weight) + bias.unsqueeze(),
            (_, None) => matmul(input, weight),
        };
        output.reshape(shape)
    }
}

/// As the kernels read a layer.
pub(super) fn kernel_layer<'a>(
    weight: &'a Floats,
    layout: WeightLayout,
    bias: Option<&'a [f32]>,
    precision: kernels::Precision,
) -> kernel::Linear<'a> {
    let shape = weight.shape();
    let (d_in, d_out) = match layout {
        WeightLayout::InputOutput => (shape[0], shape[1]),
        WeightLayout::OutputInput => (shape[1], shape[0]),
    };
    kernel::Linear { weight: weight.slice(), layout, bias, d_in, d_out, precision }
}

/// Of input, weight, bias and residual.
#[derive(Debug, Clone)]
struct Fused {
    layout: WeightLayout,
    dropout: Option<DropoutMask>,
    precision: kernels::Precision,
}

impl Operation<4> for Fused {
    type Saved = ();

    const READS: usize = 3;

    fn forward(&self, inputs: &Inputs<4>) -> (Floats, ()) {
        let layer = kernel_layer(&inputs[1], self.layout, inputs.slice(2), self.precision);
        let mut shape = inputs[0].shape();
        let last = shape.num_dims() - 1;
        shape[last] = layer.d_out;
        let mut output = pool::take(shape.num_elements());
        let after = match inputs.slice(3) {
            Some(residual) => Epilogue::Residual { residual, dropout: self.dropout },
            None => Epilogue::None,
        };
        kernel::forward(&layer, inputs[0].slice(), after, &mut output);
        (inputs[0].place(output, shape), ())
    }

    fn backward(&self, inputs: &Inputs<4>, (): (), gradient: &Floats) -> Gradients<4> {
        let layer = kernel_layer(&inputs[1], self.layout, inputs.slice(2), self.precision);
        let mut found = inputs.gradients(|[input, weight, bias, _]| {
            let gradients = kernel::Gradients { input, weight, bias };
            kernel::backward(&layer, inputs[0].slice(), self.dropout, gradient.slice(), gradients);
        });
        found[3] = inputs.wanted[3].then(|| gradient.clone());
        found
    }
}

#[cfg(test)]
mod tests {
    use burn::{module::Param, nn::DropoutConfig};
    use burn_flex::Flex;
    use burn_ndarray::NdArray;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::agreement::*;

    type B = NdArray;

    fn tensor<const D: usize>(values: impl Into<burn::tensor::TensorData>) -> Tensor<B, D> {
        Tensor::from_floats(values, &Default::default())
    }

    fn layer() -> Linear<B> {
        Linear {
            weight: Param::from_tensor(tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 3.0]])),
            bias: Some(Param::from_tensor(tensor([10.0, 20.0, 30.0]))),
        }
    }

    #[test]
    fn a_linear_layer_works_on_the_last_axis_of_any_rank() {
        let expected: [f32; 6] = [11.0, 18.0, 38.0, 13.0, 16.0, 48.0];
        let output = linear(&layer(), tensor::<2>([[1.0, 2.0], [3.0, 4.0]]));
        assert_eq!(output.into_data().to_vec::<f32>().unwrap(), expected);
        let output = linear(&layer(), tensor::<4>([[[[1.0, 2.0], [3.0, 4.0]]]]));
        assert_eq!(output.dims(), [1, 1, 2, 3]);
        assert_eq!(output.into_data().to_vec::<f32>().unwrap(), expected);
    }

    #[test]
    fn the_residual_is_added() {
        let dropout = DropoutConfig::new(0.5).init();
        let residual = tensor::<2>([[100.0, 200.0, 300.0]]);
        let output = linear_residual(&layer(), &dropout, tensor::<2>([[1.0, 2.0]]), Some(residual));
        assert_eq!(output.into_data().to_vec::<f32>().unwrap(), [111.0, 218.0, 338.0]);
    }

    #[test]
    fn a_tied_head_scores_every_row_of_the_table() {
        let table = Embedding { weight: Param::from_tensor(tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])) };
        let scores = tied_linear(&table, tensor::<3>([[[1.0, 10.0]]]));
        assert_eq!(scores.into_data().to_vec::<f32>().unwrap(), [21.0, 43.0, 65.0]);
    }

    fn linear_agrees<B: AutodiffBackend>([rows, d_in, d_out]: [usize; 3], bias: bool, seed: u64) {
        // As parameters of a module lose their place in the graph, the operations are called themselves.
        let layer = || {
            let bias = bias.then(|| leaf::<B, 1>(seed + 1, [d_out]).require_grad());
            layer_of(leaf::<B, 2>(seed, [d_in, d_out]).require_grad(), bias)
        };
        let inputs = || leaf::<B, 3>(seed + 2, [1, rows, d_in]).require_grad();
        check("linear", || {
            let (layer, input) = (layer(), inputs());
            let output = layer.clone().apply(input.clone(), None);
            let inner = layer.clone().inner().apply(input.clone().inner(), None);
            match layer.bias {
                Some(bias) => outcome!(output, inner, [input, layer.weight, bias]),
                None => outcome!(output, inner, [input, layer.weight]),
            }
        });
        check("linear with residual", || {
            let (layer, input) = (layer(), inputs());
            let residual = leaf::<B, 3>(seed + 3, [1, rows, d_out]).require_grad();
            let output = layer.clone().apply(input.clone(), Some((residual.clone(), 0.0)));
            let inner =
                layer.clone().inner().apply(input.clone().inner(), Some((residual.clone().inner(), 0.0)));
            match layer.bias {
                Some(bias) => outcome!(output, inner, [input, layer.weight, bias, residual]),
                None => outcome!(output, inner, [input, layer.weight, residual]),
            }
        });
        check("tied linear", || {
            let input = inputs();
            let table = leaf::<B, 2>(seed + 4, [d_out, d_in]).require_grad();
            let layer = Layer { layout: WeightLayout::OutputInput, ..layer_of(table.clone(), None) };
            let output = layer.apply(input.clone(), None);
            let inner = Embedding { weight: Param::from_tensor(table.clone().inner()) };
            let inner = tied_linear(&inner, input.clone().inner());
            outcome!(output, inner, [input, table])
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn linear_layers_agree(sizes in [1usize..131, 1usize..70, 1usize..70], bias: bool, seed in 0u64..1_000) {
            linear_agrees::<Ndarray>(sizes, bias, seed);
            linear_agrees::<Flexible>(sizes, bias, seed);
        }
    }

    /// Products of this size are cut in two, and their gradients computed side by side.
    #[test]
    fn linear_layers_of_middling_size_agree() {
        linear_agrees::<Ndarray>([320, 64, 192], true, 1);
        linear_agrees::<Flexible>([257, 97, 131], true, 2);
    }

    #[test]
    fn in_half_precision_that_the_kernels_lack_products_alone_are_composed() {
        let is_served = || {
            let weight = leaf::<Flex, 2>(1, [5, 5]);
            let inputs = [operation::input(&weight), operation::input(&weight), None, None];
            let output = layer_of(weight.clone(), None).apply(weight.clone(), None);
            let precision = kernels::Precision::F32;
            let settings = Fused { layout: WeightLayout::InputOutput, dropout: None, precision };
            let fused: Tensor<Flex, 2> = fused(inputs, |_| Some(settings)).unwrap();
            numbers(output) == numbers(fused)
        };
        assert!(Precision::F32.run(is_served));
        assert!(!Precision::F16.run(is_served));
    }

    #[test]
    fn the_gradient_of_a_bias_counts_what_dropout_keeps() {
        fn agrees<B: AutodiffBackend>() {
            let device = Default::default();
            // The layer's output is its bias where it is kept, so the bias's gradient counts what is kept.
            let bias = Tensor::<B, 1>::ones([103], &device).require_grad();
            let zeros = |shape| Tensor::<B, 2>::zeros(shape, &device);
            let layer = layer_of(zeros([5, 103]), Some(bias.clone()));
            let output = layer.apply(zeros([211, 5]), Some((zeros([211, 103]), 0.25)));
            let gradient = numbers(bias.grad(&output.clone().sum().backward()).unwrap());
            for (sum, gradient) in numbers(output.sum_dim(0)).into_iter().zip(gradient) {
                assert!((sum - gradient).abs() < 1e-3 && sum > 100.0, "{sum} {gradient}");
            }
        }
        agrees::<Ndarray>();
        agrees::<Flexible>();
    }
}
