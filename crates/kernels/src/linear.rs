//! The linear layer `y = x W + b`, fused with its epilogue: an activation, or dropout and the residual addition.
//!
//! The backward pass, for a gradient `g` of `x W + b`:
//! `dx = g W^T`, `dW = x^T g`, and `db` is the sum of the rows of `g`.

use rayon::prelude::*;

use super::activation::{self, Activation};
use super::dropout::{self, Dropout, DropoutMask};
use super::few_rows;
use super::matmul::{Factors, Precision, has_few_tiles, tile_size, tiled_product};
use super::matrix::{Matrix, MatrixMut};
use super::parallel::{both, for_each};
use super::sums::sum_rows;
use super::vector::{LANES, update, vectorized};

/// The memory layout of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightLayout {
    /// `[d_in, d_out]`, row-major: Burn's `Linear`.
    InputOutput,
    /// `[d_out, d_in]`, row-major: an embedding table tied to the output layer.
    OutputInput,
}

/// The parameters of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// The weight, with `d_in * d_out` numbers.
    pub weight: &'a [f32],
    /// The layout of the weight.
    pub layout: WeightLayout,
    /// The bias `[d_out]`.
    pub bias: Option<&'a [f32]>,
    /// The width of the input.
    pub d_in: usize,
    /// The width of the output.
    pub d_out: usize,
    /// The precision of the products, forward and backward.
    pub precision: Precision,
}

/// The operation fused with `x W + b` in the forward pass.
#[derive(Debug)]
pub enum Epilogue<'a> {
    /// No operation.
    None,
    /// An activation. `pre_activation` (`[rows, d_out]`), if any, receives `x W + b` for the backward pass.
    Activation {
        /// The activation function.
        form: Activation,
        /// The destination of `x W + b`.
        pre_activation: Option<&'a mut [f32]>,
    },
    /// `residual + dropout(x W + b)`.
    Residual {
        /// The residual, `[rows, d_out]`.
        residual: &'a [f32],
        /// Dropout before the addition.
        dropout: Option<Dropout>,
    },
}

/// The gradients to compute, which are overwritten; `None` skips a gradient.
#[derive(Debug, Default)]
pub struct Gradients<'a> {
    /// The gradient of the input, `[rows, d_in]`.
    pub input: Option<&'a mut [f32]>,
    /// The gradient of the weight, in the layout of the weight.
    pub weight: Option<&'a mut [f32]>,
    /// The gradient of the bias, `[d_out]`.
    pub bias: Option<&'a mut [f32]>,
}

impl<'a> Linear<'a> {
    /// Returns the weight as a matrix `[d_in, d_out]`.
    pub(super) fn weight_matrix(&self) -> Matrix<'a> {
        assert_eq!(self.weight.len(), self.d_in * self.d_out, "weight of [{}, {}]", self.d_in, self.d_out);
        match self.layout {
            WeightLayout::InputOutput => Matrix::new(self.weight, self.d_out),
            WeightLayout::OutputInput => Matrix::new(self.weight, self.d_in).transposed(),
        }
    }

    /// Returns true if the rows are so few that reading the weight in place is faster than a matrix product.
    fn has_few_rows(&self, rows: usize) -> bool {
        self.precision == Precision::F32 && (1..=few_rows::MAX_ROWS).contains(&rows)
    }
}

/// Computes `output = epilogue(input W + b)`.
///
/// # Shapes
/// `input` `[rows, d_in]`, `output` `[rows, d_out]`.
///
/// # Panics
/// Panics if the lengths do not match.
pub fn forward(layer: &Linear, input: &[f32], mut epilogue: Epilogue, output: &mut [f32]) {
    let (rows, d_in, d_out, bias) = (input.len() / layer.d_in, layer.d_in, layer.d_out, layer.bias);
    assert_eq!(output.len(), rows * d_out, "output of [{rows}, {d_out}]");
    assert!(bias.is_none_or(|bias| bias.len() == d_out), "bias of [{d_out}]");
    let saved = match &mut epilogue {
        Epilogue::Activation { pre_activation, .. } => pre_activation.take(),
        _ => None,
    };
    let saved_length = saved.as_ref().map_or(rows * d_out, |saved| saved.len());
    assert_eq!(saved_length, rows * d_out, "pre-activation of [{rows}, {d_out}]");

    let (input, weight) = (Matrix::new(input, d_in), layer.weight_matrix());
    let is_small = layer.has_few_rows(rows);
    if is_small {
        few_rows::product(input, weight, output);
    }
    let factors = Factors::new(layer.precision, input, [weight]);
    let (tile_rows, tile_columns) =
        if is_small { (rows, d_out) } else { tile_size(layer.precision, [rows, d_out], d_in) };
    let cut = |matrix| MatrixMut::new(matrix, d_out).tiles(tile_rows, tile_columns).into_iter();
    let mut saved = saved.into_iter().flat_map(cut);
    let tiles = cut(output).map(|tile| (tile, saved.next())).collect::<Vec<_>>();
    // The epilogue follows each tile, while the tile is still in a cache.
    for_each(tiles.into_par_iter(), tile_rows * tile_columns * d_in, |(mut tile, mut saved)| {
        if !is_small {
            factors.product_tiles([&mut tile]);
        }
        let bias = bias.map(|bias| &bias[tile.columns.clone()]);
        match epilogue {
            Epilogue::None => bias.into_iter().for_each(|bias| add_bias(bias, &mut tile.numbers)),
            Epilogue::Activation { form, .. } => {
                let saved = saved.as_mut().map(|saved| &mut saved.numbers);
                activation::add_bias_and_activate(form, bias, &mut tile.numbers, saved);
            }
            Epilogue::Residual { residual, dropout } => {
                let start = (tile.rows.start, tile.columns.start);
                let residual = Matrix::new(residual, d_out).part(tile.rows, tile.columns);
                let mask = dropout.map(|dropout| dropout.mask(d_out));
                add_bias_and_residual(bias, residual, mask, start, &mut tile.numbers);
            }
        }
    });
}

/// Computes `output = f(gate) * up` for a layer whose first half of columns is the gate of the second half.
/// `pre_activation` receives both halves for the backward pass.
///
/// # Shapes
/// `input` `[rows, d_in]`, `pre_activation` `[rows, d_out]`, `output` `[rows, d_out / 2]`.
///
/// # Panics
/// Panics if the lengths do not match.
pub fn forward_gated(
    layer: &Linear,
    input: &[f32],
    form: Activation,
    pre_activation: &mut [f32],
    output: &mut [f32],
) {
    let (rows, d_in, d_out, width) = (input.len() / layer.d_in, layer.d_in, layer.d_out, layer.d_out / 2);
    assert_eq!(
        [pre_activation.len(), output.len()],
        [rows * 2 * width, rows * width],
        "pre-activation and output of {rows} rows of {width}"
    );
    assert!(layer.bias.is_none_or(|bias| bias.len() == d_out), "bias of [{d_out}]");
    let (input, weight) = (Matrix::new(input, d_in), layer.weight_matrix());
    let is_small = layer.has_few_rows(rows);
    if is_small {
        few_rows::product(input, weight, pre_activation);
    }
    let weights = [0..width, width..d_out].map(|columns| weight.part(0..d_in, columns));
    let factors = Factors::new(layer.precision, input, weights);
    let (tile_rows, tile_columns) =
        if is_small { (rows, width) } else { tile_size(layer.precision, [rows, width], 2 * d_in) };
    let (gates, ups) = MatrixMut::new(pre_activation, d_out).split_columns(width);
    let [gates, ups, outputs] = [gates, ups, MatrixMut::new(output, width)]
        .map(|matrix| matrix.tiles(tile_rows, tile_columns).into_par_iter());
    let tiles = gates.zip(ups).zip(outputs);
    for_each(tiles, 2 * tile_rows * tile_columns * d_in, |((mut gate, mut up), mut output)| {
        if !is_small {
            factors.product_tiles([&mut gate, &mut up]);
        }
        let bias = layer.bias.map(|bias| bias.split_at(width));
        let bias = bias.map(|(gate, up)| [gate, up].map(|bias| &bias[output.columns.clone()]));
        let products = [&mut gate.numbers, &mut up.numbers];
        activation::add_bias_and_gate(form, bias, products, &mut output.numbers);
    });
}

/// Computes the gradients of `x W + b`, or of `dropout(x W + b)`, for `output_gradient`. The gradient of a residual is
/// `output_gradient` itself.
///
/// # Shapes
/// `input` `[rows, d_in]`, `output_gradient` `[rows, d_out]`.
///
/// # Panics
/// Panics if the lengths do not match.
pub fn backward(
    layer: &Linear,
    input: &[f32],
    dropout: Option<Dropout>,
    output_gradient: &[f32],
    gradients: Gradients,
) {
    let (d_in, d_out) = (layer.d_in, layer.d_out);
    let Gradients { input: input_gradient, weight: weight_gradient, bias: bias_gradient } = gradients;
    let masked = dropout::masked(dropout, d_out, output_gradient);
    let gradient = Matrix::new(masked.as_deref().unwrap_or(output_gradient), d_out);
    let input = Matrix::new(input, d_in);
    let for_input = || {
        if let Some(input_gradient) = input_gradient {
            let output = MatrixMut::new(input_gradient, d_in);
            tiled_product(layer.precision, output, gradient, layer.weight_matrix().transposed());
        }
    };
    let for_parameters = || {
        if let Some(weight_gradient) = weight_gradient {
            match layer.layout {
                WeightLayout::InputOutput => {
                    let output = MatrixMut::new(weight_gradient, d_out);
                    tiled_product(layer.precision, output, input.transposed(), gradient);
                }
                WeightLayout::OutputInput => {
                    let output = MatrixMut::new(weight_gradient, d_in);
                    tiled_product(layer.precision, output, gradient.transposed(), input);
                }
            }
        }
        if let Some(bias_gradient) = bias_gradient {
            sum_rows(gradient, bias_gradient);
        }
    };
    let work = gradient.rows() * d_in * d_out;
    if has_few_tiles(work) {
        both(work, for_input, for_parameters);
    } else {
        for_input();
        for_parameters();
    }
}

vectorized! {
    /// Computes `tile = residual + mask(tile + bias)` for a tile that begins at `start` (row, column).
    pub(super) fn add_bias_and_residual(
        simd;
        bias: Option<&[f32]>,
        residual: Matrix<'_>,
        mask: Option<DropoutMask>,
        start: (usize, usize),
        tile: &mut MatrixMut<'_>,
    ) {
        const PART_LENGTH: usize = 8 * LANES;
        let mut factors = [1.0; PART_LENGTH];
        for row in 0..tile.rows() {
            let (residual, tile) = (residual.row(row), tile.row(row));
            for (part, (tile, residual)) in tile.chunks_mut(PART_LENGTH).zip(residual.chunks(PART_LENGTH)).enumerate() {
                let factors = &mut factors[..tile.len()];
                if let Some(mask) = &mask {
                    mask.fill_row(simd, start.0 + row, start.1 + part * PART_LENGTH, factors);
                }
                match bias.map(|bias| &bias[part * PART_LENGTH..]) {
                    Some(bias) => update(simd, tile, [residual, factors, bias], |x, [r, keep, b]| {
                        (x + b).mul_add(keep, r)
                    }),
                    None => update(simd, tile, [residual, factors], |x, [r, keep]| x.mul_add(keep, r)),
                }
            }
        }
    }

    pub(super) fn add_bias(simd; bias: &[f32], product: &mut MatrixMut<'_>) {
        for row in 0..product.rows() {
            update(simd, product.row(row), [bias], |x, [b]| x + b);
        }
    }
}

#[cfg(test)]
mod tests;
