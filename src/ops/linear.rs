//! The linear layer `y = x W + b`, with what usually follows it in one operation.

use burn::nn::{Dropout, Embedding, Linear};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use super::dropout::{self, draw};
use super::precision::{Precision, matmul, precision};
use super::{Backend, Floats, Gelu, HostAccess, IntoFloat, Operation, float, gelu};
use crate::kernels::linear::{self as kernel, After, Followed, WeightLayout};
use crate::kernels::pool::{self, Buffer};
use crate::kernels::{self, dropout::Dropout as DropoutMask};

/// A linear layer over the last axis.
///
/// # Shapes
/// `[batch, time, d_input]` to `[batch, time, d_output]`, for any leading axes.
pub fn linear<B: Backend, const D: usize>(layer: &Linear<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    float(activated::<B>(input.into_float(), Layer::of(layer), None))
}

/// A linear layer followed by GELU: the first half of a feed-forward layer.
///
/// # Shapes
/// As [`linear`].
pub fn linear_gelu<B: Backend, const D: usize>(
    layer: &Linear<B>,
    form: Gelu,
    input: Tensor<B, D>,
) -> Tensor<B, D> {
    float(activated::<B>(input.into_float(), Layer::of(layer), Some(form)))
}

/// `residual + dropout(linear(input))`: how a sub-layer returns to the residual stream.
///
/// # Shapes
/// `input` `[batch, time, d_input]`, `residual` and the result `[batch, time, d_output]`.
pub fn linear_residual<B: Backend, const D: usize>(
    layer: &Linear<B>,
    dropout: &Dropout,
    input: Tensor<B, D>,
    residual: Tensor<B, D>,
) -> Tensor<B, D> {
    float(added::<B>(input.into_float(), Layer::of(layer), residual.into_float(), dropout.prob))
}

/// The output layer of a model that ties it to its embedding: the dot product of each place with
/// each row of the table (Press and Wolf, 2017, arXiv 1608.05859).
///
/// # Shapes
/// `[batch, time, d_model]` to `[batch, time, vocab]`.
pub fn tied_linear<B: Backend, const D: usize>(table: &Embedding<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    let weight = table.weight.val().transpose().into_float();
    float(activated::<B>(input.into_float(), Layer { weight, bias: None }, None))
}

/// The parameters of a linear layer.
#[derive(Debug, Clone)]
pub(super) struct Layer<B: Backend> {
    /// `[d_input, d_output]`.
    pub weight: FloatTensor<B>,
    /// `[d_output]`.
    pub bias: Option<FloatTensor<B>>,
}

impl<B: Backend> Layer<B> {
    pub fn of(layer: &Linear<B>) -> Self {
        let bias = layer.bias.as_ref().map(|bias| bias.val().into_float());
        Self { weight: layer.weight.val().into_float(), bias }
    }
}

/// `activation(input weight + bias)`.
pub(super) fn activated<B: Backend>(
    input: FloatTensor<B>,
    layer: Layer<B>,
    activation: Option<Gelu>,
) -> FloatTensor<B> {
    let then = match activation {
        None => Then::Nothing,
        Some(form) => Then::Gelu { form: form.into(), pre_activation: None },
    };
    match Fused::new::<B>(&input, &layer, then) {
        Some(operation) => B::run(operation, &[Some(input), Some(layer.weight), layer.bias]),
        None => composed(input, layer, activation),
    }
}

/// `residual + dropout(input weight + bias)`.
pub(super) fn added<B: Backend>(
    input: FloatTensor<B>,
    layer: Layer<B>,
    residual: FloatTensor<B>,
    dropout: f64,
) -> FloatTensor<B> {
    let held = Floats::new(B::host(&residual));
    let then = held.map(|residual| Then::Residual { residual: Some(residual), dropout: None });
    match then.and_then(|then| Fused::new::<B>(&input, &layer, then)) {
        Some(mut operation) => {
            operation.drop(draw::<B>(dropout, &B::float_device(&input)));
            B::run(operation, &[Some(input), Some(layer.weight), layer.bias, Some(residual)])
        }
        None => B::float_add(residual, dropout::composed::<B>(composed(input, layer, None), dropout)),
    }
}

/// All leading axes are folded into rows first: one matrix product each for the result and for
/// the gradients, instead of one a batch entry and a sum over them.
fn composed<B: Backend>(input: FloatTensor<B>, layer: Layer<B>, activation: Option<Gelu>) -> FloatTensor<B> {
    let mut shape = input.shape();
    let last = shape.num_dims() - 1;
    let (d_input, d_output) = (shape[last], layer.weight.shape()[1]);
    let rows = shape.num_elements() / d_input;
    shape[last] = d_output;
    let input = float::<B, 2>(B::float_reshape(input, [rows, d_input].into()));
    let (weight, bias) = (float(layer.weight), layer.bias.map(float::<B, 1>));
    let output = match (precision(), bias) {
        (Precision::F32, bias) => burn::tensor::module::linear(input, weight, bias),
        (_, Some(bias)) => matmul(input, weight) + bias.unsqueeze(),
        (_, None) => matmul(input, weight),
    };
    let output = match activation {
        Some(form) => gelu(output, form),
        None => output,
    };
    B::float_reshape(output.into_float(), shape)
}

#[derive(Debug, Clone)]
struct Fused<B: HostAccess> {
    input: Option<Floats<B>>,
    parameters: Parameters<B>,
    then: Then<B>,
}

/// What follows the layer.
#[derive(Debug, Clone)]
enum Then<B: HostAccess> {
    Nothing,
    Gelu { form: kernels::gelu::Gelu, pre_activation: Option<Floats<B>> },
    Residual { residual: Option<Floats<B>>, dropout: Option<DropoutMask> },
}

impl<B: HostAccess> Fused<B> {
    fn new<A: Backend<Host = B>>(input: &FloatTensor<A>, layer: &Layer<A>, then: Then<B>) -> Option<Self> {
        let (input, parameters) = (Some(Floats::new(A::host(input))?), Parameters::new(layer)?);
        Some(Self { input, parameters, then })
    }

    fn drop(&mut self, mask: Option<DropoutMask>) {
        if let Then::Residual { dropout, .. } = &mut self.then {
            *dropout = mask;
        }
    }
}

impl<B: HostAccess> Operation<B> for Fused<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let layer = self.parameters.layer();
        let input = self.input.as_ref().expect("forward runs once");
        let mut shape = input.shape();
        let last = shape.num_dims() - 1;
        shape[last] = layer.d_out;
        let mut output = pool::take(shape.num_elements());
        let mut kept = None;
        let after = match &self.then {
            Then::Nothing => After::Nothing,
            Then::Gelu { form, .. } => {
                kept = keep.then(|| pool::take(shape.num_elements()));
                After::Gelu { form: *form, pre_activation: kept.as_deref_mut() }
            }
            Then::Residual { residual, dropout } => {
                let residual = residual.as_ref().expect("forward runs once");
                After::Residual { residual: residual.slice(), dropout: *dropout }
            }
        };
        kernel::forward(&layer, input.slice(), after, &mut output);
        let kept = kept.map(|kept| input.keep(kept, shape.clone()));
        let output = input.place(output, shape);
        match &mut self.then {
            Then::Nothing => {}
            Then::Gelu { pre_activation, .. } => *pre_activation = kept,
            Then::Residual { residual, .. } => *residual = None,
        }
        output
    }

    fn first_input(&mut self) -> Option<&mut Option<Floats<B>>> {
        Some(&mut self.input)
    }

    fn backward(self, gradient: &Floats<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let input = self.input.expect("the input was taken back");
        let followed = match &self.then {
            Then::Gelu { form, pre_activation } => Followed::Gelu {
                form: *form,
                pre_activation: pre_activation.as_ref().expect("forward has run").slice(),
            },
            Then::Residual { dropout: Some(dropout), .. } => Followed::Dropout(*dropout),
            Then::Nothing | Then::Residual { dropout: None, .. } => Followed::Nothing,
        };
        let mut gradients = self.parameters.backward(&input, followed, gradient.slice(), wanted);
        match self.then {
            Then::Residual { .. } => gradients.push(Some(gradient.tensor())),
            Then::Gelu { pre_activation, .. } => pre_activation.into_iter().for_each(Floats::recycle),
            Then::Nothing => {}
        }
        input.recycle();
        gradients
    }
}

/// The parameters of a layer, as the kernels read them.
#[derive(Debug, Clone)]
pub(super) struct Parameters<B: HostAccess> {
    weight: Floats<B>,
    layout: WeightLayout,
    bias: Option<Floats<B>>,
}

impl<B: HostAccess> Parameters<B> {
    /// Those that the kernels serve, whose products are in single precision.
    pub fn new<A: Backend<Host = B>>(layer: &Layer<A>) -> Option<Self> {
        if precision() != Precision::F32 {
            return None;
        }
        let weight = A::host(&layer.weight);
        // A transposed table is read as it lies.
        let (weight, layout) = match B::floats(weight) {
            Some(_) => (Floats::new(weight)?, WeightLayout::InputOutput),
            None => (Floats::new(&B::float_transpose(weight.clone()))?, WeightLayout::OutputInput),
        };
        Some(Self { weight, layout, bias: Floats::optional(layer.bias.as_ref().map(A::host))? })
    }

    /// As the kernels read them.
    pub fn layer(&self) -> kernel::Linear<'_> {
        let weight = self.weight.shape();
        let (d_in, d_out) = match self.layout {
            WeightLayout::InputOutput => (weight[0], weight[1]),
            WeightLayout::OutputInput => (weight[1], weight[0]),
        };
        let bias = self.bias.as_ref().map(Floats::slice);
        kernel::Linear { weight: self.weight.slice(), layout: self.layout, bias, d_in, d_out }
    }

    /// How many tensors they are.
    pub fn count(&self) -> usize {
        1 + usize::from(self.bias.is_some())
    }

    /// The gradients of the layer's input and parameters, for that of its result.
    pub fn backward(
        &self,
        input: &Floats<B>,
        followed: Followed<'_>,
        gradient: &[f32],
        wanted: &[bool],
    ) -> Vec<Option<FloatTensor<B>>> {
        let mut for_input = wanted[0].then(|| pool::take(input.slice().len()));
        let parameters = self.gradients(&wanted[1..], |weight, bias| {
            let gradients = kernel::Gradients { input: for_input.as_deref_mut(), weight, bias };
            kernel::backward(&self.layer(), input.slice(), followed, gradient, gradients);
        });
        let for_input = for_input.map(|values| input.place(values, input.shape()));
        std::iter::once(for_input).chain(parameters).collect()
    }

    /// The gradients of the parameters that are wanted, as `fill` computes them.
    pub fn gradients(
        &self,
        wanted: &[bool],
        fill: impl FnOnce(Option<&mut [f32]>, Option<&mut [f32]>),
    ) -> Vec<Option<FloatTensor<B>>> {
        let layer = self.layer();
        let mut weight: Option<Buffer> = wanted[0].then(|| pool::take(layer.weight.len()));
        let mut bias = (self.bias.is_some() && wanted[1]).then(|| pool::take(layer.d_out));
        fill(weight.as_deref_mut(), bias.as_deref_mut());
        let weight = weight.map(|values| {
            let gradient = self.weight.place(values, self.weight.shape());
            match self.layout {
                WeightLayout::InputOutput => gradient,
                WeightLayout::OutputInput => B::float_transpose(gradient),
            }
        });
        let mut gradients = vec![weight];
        if let Some(parameter) = &self.bias {
            gradients.push(bias.map(|values| parameter.place(values, parameter.shape())));
        }
        gradients
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn::nn::DropoutConfig;
    use burn_flex::Flex;
    use burn_ndarray::NdArray;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::AutodiffBackend;
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
        let output = linear_residual(&layer(), &dropout, tensor::<2>([[1.0, 2.0]]), residual);
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
        fn layer<B: Backend>(weight: &Tensor<B, 2>, bias: &Option<Tensor<B, 1>>) -> Layer<B> {
            let bias = bias.clone().map(IntoFloat::into_float);
            Layer { weight: weight.clone().into_float(), bias }
        }
        let inputs = || leaf::<B, 3>(seed + 2, [1, rows, d_in]).require_grad();
        let parameters = || {
            let weight = leaf::<B, 2>(seed, [d_in, d_out]).require_grad();
            let bias = bias.then(|| leaf::<B, 1>(seed + 1, [d_out]).require_grad());
            let inner_bias = bias.clone().map(Tensor::inner);
            let inner = layer(&weight.clone().inner(), &inner_bias);
            (layer(&weight, &bias), inner, weight, bias)
        };
        for form in [None, Some(Gelu::Erf), Some(Gelu::Tanh)] {
            check(&format!("linear with {form:?}"), || {
                let ((layer, inner, weight, bias), input) = (parameters(), inputs());
                let output = float::<B, 3>(activated(input.clone().into_float(), layer, form));
                let inner = activated::<B::InnerBackend>(input.clone().inner().into_float(), inner, form);
                let inner = float::<B::InnerBackend, 3>(inner);
                match &bias {
                    Some(bias) => outcome!(output, inner, [input, weight, bias]),
                    None => outcome!(output, inner, [input, weight]),
                }
            });
        }
        check("linear with residual", || {
            let ((layer, inner, weight, bias), input) = (parameters(), inputs());
            let residual = leaf::<B, 3>(seed + 3, [1, rows, d_out]).require_grad();
            let [x, y] = [&input, &residual].map(|tensor| tensor.clone().into_float());
            let output = float::<B, 3>(added(x, layer, y, 0.0));
            let [x, y] = [&input, &residual].map(|tensor| tensor.clone().inner().into_float());
            let inner = float::<B::InnerBackend, 3>(added::<B::InnerBackend>(x, inner, y, 0.0));
            match &bias {
                Some(bias) => outcome!(output, inner, [input, weight, bias, residual]),
                None => outcome!(output, inner, [input, weight, residual]),
            }
        });
        check("tied linear", || {
            let input = inputs();
            let table = leaf::<B, 2>(seed + 4, [d_out, d_in]).require_grad();
            let transposed = table.clone().transpose().into_float();
            let layer = Layer::<B> { weight: transposed, bias: None };
            let output = float::<B, 3>(activated(input.clone().into_float(), layer, None));
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
    fn in_half_precision_products_alone_are_composed() {
        let is_served = || {
            let weight = leaf::<Flex, 2>(1, [5, 5]).into_float();
            let layer = Layer::<Flex> { weight: weight.clone(), bias: None };
            (Floats::<Flex>::new(&weight).is_some(), Parameters::new(&layer).is_some())
        };
        assert_eq!(Precision::F32.run(is_served), (true, true));
        assert_eq!(Precision::Bf16.run(is_served), (true, false));
    }

    #[test]
    fn the_gradient_of_a_bias_counts_what_dropout_keeps() {
        fn agrees<B: AutodiffBackend>() {
            let device = Default::default();
            // The layer's output is its bias where it is kept, so the bias's gradient counts what is kept.
            let bias = Tensor::<B, 1>::ones([103], &device).require_grad();
            let zeros = |shape| Tensor::<B, 2>::zeros(shape, &device).into_float();
            let layer = Layer::<B> { weight: zeros([5, 103]), bias: Some(bias.clone().into_float()) };
            let output = float::<B, 2>(added(zeros([211, 5]), layer, zeros([211, 103]), 0.25));
            let gradient = numbers(bias.grad(&output.clone().sum().backward()).unwrap());
            for (sum, gradient) in numbers(output.sum_dim(0)).into_iter().zip(gradient) {
                assert!((sum - gradient).abs() < 1e-3 && sum > 100.0, "{sum} {gradient}");
            }
        }
        agrees::<Ndarray>();
        agrees::<Flexible>();
    }
}
