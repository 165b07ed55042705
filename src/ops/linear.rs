//! The linear layer `y = x W + b`, with what usually follows it in one operation.

use burn::nn::{Dropout, Embedding, Linear};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use super::precision::{Precision, matmul, precision};
use super::{Backend, Gelu, IntoFloat, float, gelu};

/// The parameters of a linear layer.
#[derive(Debug, Clone, Copy)]
pub struct Layer<T> {
    /// `[d_input, d_output]`.
    pub weight: T,
    /// `[d_output]`.
    pub bias: Option<T>,
}

impl<T> Layer<T> {
    /// The parameters, borrowed and seen in some way.
    pub(super) fn map<U>(&self, f: impl Fn(&T) -> &U) -> Layer<&U> {
        Layer { weight: f(&self.weight), bias: self.bias.as_ref().map(f) }
    }
}

/// A linear layer over the last axis.
///
/// # Shapes
/// `[batch, time, d_input]` to `[batch, time, d_output]`, for any leading axes.
pub fn linear<B: Backend, const D: usize>(layer: &Linear<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    let (weight, bias) = parameters(layer);
    float(B::linear_activation(input.into_float(), weight, bias, None))
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
    let (weight, bias) = parameters(layer);
    float(B::linear_activation(input.into_float(), weight, bias, Some(form)))
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
    let (weight, bias) = parameters(layer);
    float(B::linear_residual(input.into_float(), weight, bias, residual.into_float(), dropout.prob))
}

/// The output layer of a model that ties it to its embedding: the dot product of each place with
/// each row of the table (Press and Wolf, 2017, arXiv 1608.05859).
///
/// # Shapes
/// `[batch, time, d_model]` to `[batch, time, vocab]`.
pub fn tied_linear<B: Backend, const D: usize>(table: &Embedding<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    let weight = table.weight.val().transpose().into_float();
    float(B::linear_activation(input.into_float(), weight, None, None))
}

/// The feed-forward layer with its residual connection: `residual + dropout(linear(down, gelu(linear(up,
/// input))))`, which keeps less for its gradient than the two layers apart.
///
/// # Shapes
/// `input` `[batch, time, d_model]`, as `residual` and the result.
pub fn feed_forward<B: Backend, const D: usize>(
    [up, down]: [&Linear<B>; 2],
    form: Gelu,
    dropout: &Dropout,
    input: Tensor<B, D>,
    residual: Tensor<B, D>,
) -> Tensor<B, D> {
    let [up, down] = [up, down].map(|layer| {
        let (weight, bias) = parameters(layer);
        Layer { weight, bias }
    });
    float(B::feed_forward(input.into_float(), up, form, down, residual.into_float(), dropout.prob))
}

fn parameters<B: Backend>(layer: &Linear<B>) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
    (layer.weight.val().into_float(), layer.bias.as_ref().map(|bias| bias.val().into_float()))
}

/// All leading axes are folded into rows first: one matrix product each for the result and for
/// the gradients, instead of one a batch entry and a sum over them.
pub(super) fn composed<B: Backend>(
    input: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    activation: Option<Gelu>,
) -> FloatTensor<B> {
    let mut shape = input.shape();
    let last = shape.num_dims() - 1;
    let (d_input, d_output) = (shape[last], weight.shape()[1]);
    let rows = shape.num_elements() / d_input;
    shape[last] = d_output;
    let input = float::<B, 2>(B::float_reshape(input, [rows, d_input].into()));
    let (weight, bias) = (float(weight), bias.map(float::<B, 1>));
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

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::nn::DropoutConfig;
    use burn_ndarray::NdArray;

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
}
