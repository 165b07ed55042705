//! The linear layer `y = x W + b`, fused with what follows it: GELU, or dropout and the residual addition.
//!
//! Backward, for a gradient `g` of `x W + b`:
//! `dx = g W^T`, `dW = x^T g`, `db = ` the sum of the rows of `g`.

use super::dropout::{self, Dropout, Mask};
use super::few_rows;
use super::gelu::{self, Gelu};
use super::matmul::{for_each_product_tile, is_one_tile, tile_size, tiled_product};
use super::matrix::{Matrix, MatrixMut};
use super::parallel::{both, for_each_piece, rows_in_a_piece};
use super::pool;
use super::sums::sum_rows;
use super::tiles::Tiles;
use super::vector::{LANES, update, vectorized};

/// How a weight lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightLayout {
    /// `[d_in, d_out]`, row by row: Burn's `Linear`.
    InputOutput,
    /// `[d_out, d_in]`, row by row: an embedding table that also serves as the head.
    OutputInput,
}

/// The parameters of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// The weight, with `d_in * d_out` numbers.
    pub weight: &'a [f32],
    /// How the weight lies.
    pub layout: WeightLayout,
    /// The bias `[d_out]`.
    pub bias: Option<&'a [f32]>,
    /// Width of the input.
    pub d_in: usize,
    /// Width of the output.
    pub d_out: usize,
}

/// What follows `x W + b` in the forward pass.
#[derive(Debug)]
pub enum After<'a> {
    /// Nothing.
    Nothing,
    /// GELU. `pre_activation` (`[rows, d_out]`) receives `x W + b` for the backward pass, where there is one.
    Gelu {
        /// Which form.
        form: Gelu,
        /// Receives `x W + b`.
        pre_activation: Option<&'a mut [f32]>,
    },
    /// `residual + dropout(x W + b)`.
    Residual {
        /// What is added, `[rows, d_out]`.
        residual: &'a [f32],
        /// Dropout before the addition.
        dropout: Option<Dropout>,
    },
}

/// What followed `x W + b`, as the backward pass needs it.
#[derive(Clone, Copy, Debug)]
pub enum Followed<'a> {
    /// Nothing, or a residual addition without dropout: the gradient passes unchanged.
    Nothing,
    /// GELU of the `pre_activation` that the forward pass left.
    Gelu {
        /// Which form.
        form: Gelu,
        /// `x W + b`, `[rows, d_out]`.
        pre_activation: &'a [f32],
    },
    /// Dropout, and then perhaps a residual addition.
    Dropout(Dropout),
}

/// Where the gradients go; one that is not wanted is not computed. All are overwritten.
#[derive(Debug, Default)]
pub struct Gradients<'a> {
    /// `[rows, d_in]`.
    pub input: Option<&'a mut [f32]>,
    /// Laid out like the weight.
    pub weight: Option<&'a mut [f32]>,
    /// `[d_out]`.
    pub bias: Option<&'a mut [f32]>,
}

impl<'a> Linear<'a> {
    /// The weight as a matrix `[d_in, d_out]`.
    fn weight_matrix(&self) -> Matrix<'a> {
        assert_eq!(self.weight.len(), self.d_in * self.d_out, "weight of [{}, {}]", self.d_in, self.d_out);
        match self.layout {
            WeightLayout::InputOutput => Matrix::new(self.weight, self.d_out),
            WeightLayout::OutputInput => Matrix::new(self.weight, self.d_in).transposed(),
        }
    }
}

/// `output = after(input W + b)`.
///
/// # Shapes
/// `input` `[rows, d_in]`, `output` `[rows, d_out]`.
///
/// # Panics
/// If the lengths do not fit each other.
pub fn forward(layer: &Linear, input: &[f32], after: After, output: &mut [f32]) {
    let (rows, d_out, bias) = (input.len() / layer.d_in, layer.d_out, layer.bias);
    assert_eq!(output.len(), rows * d_out, "output of [{rows}, {d_out}]");
    assert!(bias.is_none_or(|bias| bias.len() == d_out), "bias of [{d_out}]");
    let (tile_rows, tile_columns) = match is_few(rows) {
        true => (rows, d_out),
        false => tile_size(rows, d_out, layer.d_in),
    };
    let cut = |matrix| Tiles::new(MatrixMut::new(matrix, d_out), tile_rows, tile_columns);
    let output = cut(output);
    let bias_part = |index| bias.map(|bias| &bias[output.place(index).1]);
    match after {
        After::Nothing => multiply(layer, input, &output, |index, tile| {
            if let Some(bias) = bias_part(index) {
                add_bias(bias, tile);
            }
        }),
        After::Gelu { form, pre_activation: None } => {
            multiply(layer, input, &output, |index, tile| {
                gelu::add_bias_and_activate(form, bias_part(index), tile);
            });
        }
        After::Gelu { form, pre_activation: Some(pre_activation) } => {
            assert_eq!(pre_activation.len(), rows * d_out, "pre-activation of [{rows}, {d_out}]");
            multiply(layer, input, &cut(pre_activation), |index, tile| {
                gelu::add_bias_and_activate_into(form, bias_part(index), tile, &mut output.take(index));
            });
        }
        After::Residual { residual, dropout } => {
            let residual = Matrix::new(residual, d_out);
            assert_eq!(residual.rows(), rows, "residual of [{rows}, {d_out}]");
            let mask = dropout.map(|dropout| dropout.mask(d_out));
            multiply(layer, input, &output, |index, tile| {
                let (rows, columns) = output.place(index);
                let residual = residual.part(rows.clone(), columns.clone());
                add_bias_and_residual(bias_part(index), residual, mask, (rows.start, columns.start), tile);
            });
        }
    }
}

/// Whether the weight is better read as it lies than by a product of matrices.
fn is_few(rows: usize) -> bool {
    (1..=few_rows::MOST_ROWS).contains(&rows)
}

/// `output = input W` for each of the output's tiles, then `finish(index, tile)` while the tile is in cache.
/// A few rows are one tile.
fn multiply(
    layer: &Linear,
    input: &[f32],
    output: &Tiles,
    finish: impl Fn(usize, &mut MatrixMut) + Sync + Send,
) {
    let (matrix, weight) = (Matrix::new(input, layer.d_in), layer.weight_matrix());
    if is_few(matrix.rows()) {
        let mut tile = output.take(0);
        few_rows::product(matrix, weight, tile.contiguous());
        finish(0, &mut tile);
    } else {
        for_each_product_tile(output, matrix, weight, finish);
    }
}

/// The gradients of [`forward`] for `output_gradient`; the residual's gradient is `output_gradient` itself.
///
/// # Shapes
/// `input` `[rows, d_in]`, `output_gradient` `[rows, d_out]`.
///
/// # Panics
/// If the lengths do not fit each other.
pub fn backward(
    layer: &Linear,
    input: &[f32],
    followed: Followed,
    output_gradient: &[f32],
    gradients: Gradients,
) {
    let (d_in, d_out) = (layer.d_in, layer.d_out);
    let Gradients { input: input_gradient, weight: weight_gradient, bias: bias_gradient } = gradients;
    let inner_gradient;
    let gradient = match followed {
        Followed::Nothing => output_gradient,
        Followed::Gelu { form, pre_activation } => {
            inner_gradient = through_gelu(form, d_out, pre_activation, output_gradient);
            &inner_gradient
        }
        Followed::Dropout(dropout) => {
            let mut masked = pool::take(output_gradient.len());
            dropout::apply(dropout, d_out, output_gradient, &mut masked);
            inner_gradient = masked;
            &inner_gradient
        }
    };
    let (input, gradient) = (Matrix::new(input, d_in), Matrix::new(gradient, d_out));
    let for_input = || {
        if let Some(input_gradient) = input_gradient {
            let output = MatrixMut::new(input_gradient, d_in);
            tiled_product(output, gradient, layer.weight_matrix().transposed());
        }
    };
    let for_parameters = || {
        if let Some(weight_gradient) = weight_gradient {
            match layer.layout {
                WeightLayout::InputOutput => {
                    tiled_product(MatrixMut::new(weight_gradient, d_out), input.transposed(), gradient);
                }
                WeightLayout::OutputInput => {
                    tiled_product(MatrixMut::new(weight_gradient, d_in), gradient.transposed(), input);
                }
            }
        }
        if let Some(bias_gradient) = bias_gradient {
            sum_rows(gradient, bias_gradient);
        }
    };
    let work = gradient.rows() * d_in * d_out;
    if is_one_tile(work) {
        both(work, for_input, for_parameters);
    } else {
        for_input();
        for_parameters();
    }
}

/// The gradient before GELU.
fn through_gelu(form: Gelu, d_out: usize, pre_activation: &[f32], output_gradient: &[f32]) -> pool::Buffer {
    assert_eq!(pre_activation.len(), output_gradient.len(), "pre-activation and gradient");
    let mut gradient = pool::take(output_gradient.len());
    let piece_rows = rows_in_a_piece(output_gradient.len() / d_out, d_out);
    let tiles = Tiles::rows(&mut gradient, d_out, piece_rows);
    for_each_piece(tiles.count(), piece_rows * d_out * 4, |piece| {
        let rows = tiles.place(piece).0;
        let range = rows.start * d_out..rows.end * d_out;
        let mut tile = tiles.take(piece);
        gelu::gradient(form, &pre_activation[range.clone()], &output_gradient[range], tile.contiguous());
    });
    drop(tiles);
    gradient
}

vectorized! {
    /// `tile = residual + mask(tile + bias)`, for a tile that begins at `start` (row, column).
    fn add_bias_and_residual(
        simd;
        bias: Option<&[f32]>,
        residual: Matrix<'_>,
        mask: Option<Mask>,
        start: (usize, usize),
        tile: &mut MatrixMut<'_>,
    ) {
        const PART: usize = 8 * LANES;
        let mut factors = [1.0; PART];
        for row in 0..tile.rows() {
            let (residual, tile) = (residual.row(row), tile.row(row));
            for (part, (tile, residual)) in tile.chunks_mut(PART).zip(residual.chunks(PART)).enumerate() {
                let factors = &mut factors[..tile.len()];
                if let Some(mask) = &mask {
                    mask.fill_row(simd, start.0 + row, start.1 + part * PART, factors);
                }
                match bias.map(|bias| &bias[part * PART..]) {
                    Some(bias) => update(simd, tile, [residual, factors, bias], |x, [r, keep, b]| {
                        (x + b).mul_add(keep, r)
                    }),
                    None => update(simd, tile, [residual, factors], |x, [r, keep]| x.mul_add(keep, r)),
                }
            }
        }
    }

    fn add_bias(simd; bias: &[f32], product: &mut MatrixMut<'_>) {
        for row in 0..product.rows() {
            update(simd, product.row(row), [bias], |x, [b]| x + b);
        }
    }
}

#[cfg(test)]
mod tests;
