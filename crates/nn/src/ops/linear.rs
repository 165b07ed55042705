//! The linear layer `y = x W + b`, fused with the operations that usually follow it.

use burn::nn::{Dropout, Embedding, Linear};
use burn::tensor::{Tensor, backend::Backend};

use super::dropout::{self, draw};
use super::fused::{self, fused};
use super::host::Floats;
use super::operation::{Input, Operation, gradients, inputs};
use super::precision::{Precision, matmul, precision};
use crate::kernels::dropout::Dropout as DropoutMask;
use crate::kernels::linear::{self as kernel, Epilogue, WeightLayout};
use crate::kernels::{self, pool};

/// Applies a linear layer to the last axis.
///
/// # Shapes
/// `[batch, time, d_input]` to `[batch, time, d_output]`, for any leading axes.
pub fn linear<B: Backend, const D: usize>(layer: &Linear<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    Layer::of(layer).apply(input, None)
}

/// Returns `residual + dropout(linear(input))`, the form in which a sub-layer's output is added to the residual stream.
/// Without a residual, returns `dropout(linear(input))`.
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

/// Applies the output layer of a model with tied embeddings: the dot product of each position with each row of the
/// table (Press and Wolf, 2017, arXiv 1608.05859).
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
    /// The weight, `[d_input, d_output]` or transposed, as `layout` states.
    pub weight: Tensor<B, 2>,
    pub layout: WeightLayout,
    /// The bias, `[d_output]`.
    pub bias: Option<Tensor<B, 1>>,
}

impl<B: Backend> Layer<B> {
    pub fn of(layer: &Linear<B>) -> Self {
        let bias = layer.bias.as_ref().map(|bias| bias.val());
        Self { weight: layer.weight.val(), layout: WeightLayout::InputOutput, bias }
    }

    /// Returns `input weight + bias`, or `residual + dropout(input weight + bias)` if a residual and a probability are
    /// given.
    pub fn apply<const D: usize>(
        self,
        input: Tensor<B, D>,
        residual: Option<(Tensor<B, D>, f64)>,
    ) -> Tensor<B, D> {
        let (residual, probability) =
            residual.map_or((None, 0.0), |(it, probability)| (Some(it), probability));
        let inputs = || {
            let (bias, residual) = (self.bias.as_ref(), residual.as_ref());
            LinearInputs {
                input: fused::input(&input),
                weight: fused::input(&self.weight),
                bias: bias.and_then(fused::input),
                residual: residual.and_then(fused::input),
            }
        };
        let settings = |precision| {
            let dropout = draw::<B>(probability, &input.device());
            Fused { layout: self.layout, dropout, precision }
        };
        if let Some(precision) = precision().kernel_precision()
            && let Some(output) = fused(inputs(), |_| Some(settings(precision)))
        {
            return output;
        }
        let output = self.reference(input);
        match residual {
            Some(residual) => residual + dropout::reference(output, probability),
            None => output,
        }
    }

    /// Applies the layer with Burn's operations. All leading axes are first folded into rows: one matrix product each
    /// for result and gradients, instead of one per batch entry and a sum over them.
    pub fn reference<const D: usize>(self, input: Tensor<B, D>) -> Tensor<B, D> {
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

/// Returns the kernels' view of a layer.
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

inputs!(LinearInputs<4> { input, weight, bias, residual });

#[derive(Debug, Clone)]
struct Fused {
    layout: WeightLayout,
    dropout: Option<DropoutMask>,
    precision: kernels::Precision,
}

impl Operation<4> for Fused {
    type Inputs<T> = LinearInputs<T>;
    type Saved = ();

    const BACKWARD_INPUTS: LinearInputs<bool> =
        LinearInputs { input: true, weight: true, bias: true, residual: false };

    fn forward(&self, inputs: &LinearInputs<Input>) -> (Floats, ()) {
        let LinearInputs { input, weight, bias, residual } = inputs;
        let layer = kernel_layer(weight, self.layout, bias.numbers(), self.precision);
        let mut shape = input.shape();
        let last = shape.num_dims() - 1;
        shape[last] = layer.d_out;
        let mut output = pool::take(shape.num_elements());
        let after = match residual.numbers() {
            Some(residual) => Epilogue::Residual { residual, dropout: self.dropout },
            None => Epilogue::None,
        };
        kernel::forward(&layer, input.slice(), after, &mut output);
        (input.with_values(output, shape), ())
    }

    fn backward(
        &self,
        inputs: &LinearInputs<Input>,
        (): (),
        gradient: &Floats,
    ) -> LinearInputs<Option<Floats>> {
        let layer = kernel_layer(&inputs.weight, self.layout, inputs.bias.numbers(), self.precision);
        let found = gradients::<Self, 4>(inputs, |LinearInputs { input, weight, bias, .. }| {
            let gradients = kernel::Gradients { input, weight, bias };
            kernel::backward(&layer, inputs.input.slice(), self.dropout, gradient.slice(), gradients);
        });
        LinearInputs { residual: inputs.residual.needs_gradient.then(|| gradient.clone()), ..found }
    }
}

#[cfg(test)]
mod tests;
