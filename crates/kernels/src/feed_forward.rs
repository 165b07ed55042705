//! The feed-forward layer `residual + dropout(f(x W_up + b_up) W_down + b_down)`, whose first product may be gated.
//!
//! In bf16, each thread computes both products of a strip of rows, one chunk of inner columns at a time, in both
//! passes. Values between the products are rounded while they are in the cache of a core. The activation is not stored
//! in memory, and its gradient only in bf16.

mod parameters;

use std::ops::Range;

use super::activation::{self, Activation};
use super::bf16::{self, Factor, Side, Update, amx};
use super::dropout::{self, Dropout};
use super::linear::{self, Epilogue, Linear, WeightLayout};
use super::matmul::{Precision, strip};
use super::matrix::{Matrix, MatrixMut};
use super::parallel::for_each;
use super::pool::{self, Buffer};
use super::team;
use parameters::ParameterGradients;
use rayon::prelude::*;

/// The two linear layers, the activation between them, and dropout.
#[derive(Clone, Copy, Debug)]
pub struct FeedForward<'a> {
    /// The first layer: `[d_model, d_inner]`, or `[d_model, 2 * d_inner]` if the first half is the gate of the second.
    pub up: Linear<'a>,
    /// The second layer: `[d_inner, d_model]`.
    pub down: Linear<'a>,
    /// The activation of the first layer's output.
    pub activation: Activation,
    /// Dropout of the result, before the residual addition.
    pub dropout: Option<Dropout>,
}

impl FeedForward<'_> {
    fn is_gated(&self) -> bool {
        self.up.d_out > self.down.d_in
    }

    fn uses_strips(&self, rows: usize) -> bool {
        let are_plain = [self.up, self.down].iter().all(|layer| layer.layout == WeightLayout::InputOutput);
        are_plain && uses_strips(self.up.precision, rows, [self.up.d_in, self.down.d_in])
    }

    fn assert_fit(&self, rows: usize, pre_activation: Option<&[f32]>, others: &[&[f32]]) {
        let Self { up, down, .. } = self;
        assert_eq!(up.precision, down.precision, "the precision of both layers");
        let length = pre_activation.map_or(rows * up.d_out, <[f32]>::len);
        assert_eq!(length, rows * up.d_out, "pre-activation of [{rows}, {}]", up.d_out);
        let fit = |numbers: &&[f32]| numbers.len() == rows * up.d_in && up.d_in == down.d_out;
        assert!(others.iter().all(fit), "inputs and outputs of [{rows}, {}]", up.d_in);
    }

    /// Iterates over the chunks of inner columns that a strip processes at a time.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> {
        const MAX_CHUNK_COLUMNS: usize = 192;
        let width = self.down.d_in;
        (0..width).step_by(MAX_CHUNK_COLUMNS).map(move |start| start..width.min(start + MAX_CHUNK_COLUMNS))
    }

    /// Returns the columns of the first layer that produce a range of inner columns: one range, or two with a gate, the
    /// gate first.
    fn sources(&self, inner: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (width, Range { start, end }) = (self.down.d_in, inner.clone());
        (0..if self.is_gated() { 2 } else { 1 }).map(move |half| half * width + start..half * width + end)
    }

    /// Computes some columns of `x W_up + b_up` for the rows of a strip.
    fn pre_activation(&self, input: &Factor, weight: &Factor, columns: &Range<usize>) -> Buffer {
        let mut numbers = pool::take(input.lines() * columns.len());
        let mut product = MatrixMut::new(&mut numbers, columns.len());
        let weight = weight.part(columns.start, 0..self.up.d_in);
        bf16::product(&mut product, Update::Set(1.0), [input.all(), weight]);
        if let Some(bias) = self.up.bias {
            linear::add_bias(&bias[columns.clone()], &mut product);
        }
        numbers
    }
}

/// Returns true if both layers are computed strip by strip. The choice changes the order of sums, so it depends only on
/// precision and shapes, not on the number of threads. There must be enough rows for the strips of 16 threads, a width
/// at which strips were measured to be faster, and complete blocks of inner columns.
fn uses_strips(precision: Precision, rows: usize, [d_model, d_inner]: [usize; 2]) -> bool {
    const MIN_ROWS: usize = 512;
    const MIN_WIDTH: usize = 128;
    let is_large = rows >= MIN_ROWS && d_model >= MIN_WIDTH;
    precision == Precision::Bf16 && is_large && d_inner.is_multiple_of(2 * bf16::SIDE)
}

/// Returns true if the backward pass reads a stored pre-activation of `rows` rows. A matrix unit recomputes the
/// pre-activation in less time than storing and loading it takes. `widths` are `d_model` and `d_inner`.
pub fn keeps_pre_activation(precision: Precision, rows: usize, widths: [usize; 2]) -> bool {
    !(uses_strips(precision, rows, widths) && amx::is_used())
}

/// Computes `output`. If given, `pre_activation` receives `x W_up + b_up`, which the backward pass needs if
/// [`keeps_pre_activation`] returns true.
///
/// # Shapes
/// `input`, `residual` and `output` `[rows, d_model]`, `pre_activation` `[rows, d_up]`.
///
/// # Panics
/// Panics if the lengths do not match.
pub fn forward(
    layer: &FeedForward,
    input: &[f32],
    residual: &[f32],
    pre_activation: Option<&mut [f32]>,
    output: &mut [f32],
) {
    let FeedForward { up, down, activation: form, dropout } = *layer;
    let rows = input.len() / up.d_in;
    layer.assert_fit(rows, pre_activation.as_deref(), &[input, residual, output]);
    if layer.uses_strips(rows) {
        return forward_by_strips(layer, input, residual, pre_activation, output);
    }
    let mut inner = pool::take(rows * down.d_in);
    if layer.is_gated() {
        let mut unused = pre_activation.is_none().then(|| pool::take(rows * up.d_out));
        let pre_activation = pre_activation.or(unused.as_deref_mut()).expect("a given or an unused buffer");
        linear::forward_gated(&up, input, form, pre_activation, &mut inner);
    } else {
        linear::forward(&up, input, Epilogue::Activation { form, pre_activation }, &mut inner);
    }
    linear::forward(&down, &inner, Epilogue::Residual { residual, dropout }, output);
}

/// Computes the gradients of the parameters of both layers and of the input. The gradient of the residual is
/// `output_gradient` itself.
///
/// # Shapes
/// `input` and `output_gradient` `[rows, d_model]`, `pre_activation` `[rows, d_up]`.
///
/// # Panics
/// Panics if the lengths do not match, or if `pre_activation` is needed but missing.
pub fn backward(
    layer: &FeedForward,
    input: &[f32],
    pre_activation: Option<Buffer>,
    output_gradient: &[f32],
    [for_up, for_down]: [linear::Gradients; 2],
) {
    let FeedForward { up, down, activation: form, dropout } = *layer;
    let rows = input.len() / up.d_in;
    layer.assert_fit(rows, pre_activation.as_deref(), &[input, output_gradient]);
    layer.assert_fit(rows, None, for_up.input.as_deref().as_slice());
    let masked = dropout::masked(dropout, down.d_out, output_gradient);
    let gradient = masked.as_deref().unwrap_or(output_gradient);
    if layer.uses_strips(rows) {
        return backward_by_strips(layer, input, pre_activation.as_deref(), gradient, [for_up, for_down]);
    }
    let mut for_inner = pool::take(rows * down.d_in);
    // Only the gradient of the weight reads the layer's input.
    let gradients = linear::Gradients { input: Some(&mut for_inner), ..Default::default() };
    linear::backward(&down, &[], None, gradient, gradients);
    let mut pre_activation = pre_activation.expect("the pre-activation is kept");
    let (inner, for_pre_activation) = if layer.is_gated() {
        activation::gate_and_differentiate(form, down.d_in, &mut pre_activation, &mut for_inner);
        (for_inner, pre_activation)
    } else {
        activation::activate_and_differentiate(form, &mut pre_activation, &mut for_inner);
        (pre_activation, for_inner)
    };
    linear::backward(&down, &inner, None, gradient, for_down);
    drop(inner);
    linear::backward(&up, input, None, &for_pre_activation, for_up);
}

fn forward_by_strips(
    layer: &FeedForward,
    input: &[f32],
    residual: &[f32],
    pre_activation: Option<&mut [f32]>,
    output: &mut [f32],
) {
    let FeedForward { up, down, activation: form, dropout } = *layer;
    let (input, residual) = (Matrix::new(input, up.d_in), Matrix::new(residual, down.d_out));
    let strip_rows = strip(input.rows(), team::threads());
    let [up_weight, down_weight] = [up, down].map(|layer| Factor::new(Side::Right, layer.weight_matrix()));
    let saved = pre_activation.map(|saved| MatrixMut::new(saved, up.d_out).tiles(strip_rows, up.d_out));
    let mut saved = saved.into_iter().flatten();
    let tiles = MatrixMut::new(output, down.d_out).tiles(strip_rows, down.d_out).into_iter();
    let strips = tiles.map(|tile| (tile, saved.next())).collect::<Vec<_>>();
    for_each(strips.into_par_iter(), strip_rows * up.d_in * up.d_out, |(mut tile, mut saved)| {
        let input = Factor::new(Side::Left, input.part(tile.rows.clone(), 0..up.d_in));
        let mut update = Update::Set(1.0);
        for chunk in layer.chunks() {
            let sources = layer.sources(&chunk);
            let mut parts = sources.map(|columns| {
                let part = layer.pre_activation(&input, &up_weight, &columns);
                if let Some(saved) = &mut saved {
                    let part = Matrix::new(&part, columns.len());
                    saved.numbers.part(0..tile.rows.len(), columns).copy_from(part);
                }
                part
            });
            let mut part = parts.next().expect("at least one source");
            let mut matrix = MatrixMut::new(&mut part, chunk.len());
            let inner = if let Some(mut gated) = parts.next() {
                let mut inner = pool::take(gated.len());
                let [mut gated, mut result] =
                    [&mut gated, &mut inner].map(|numbers| MatrixMut::new(numbers, chunk.len()));
                activation::add_bias_and_gate(form, None, [&mut matrix, &mut gated], &mut result);
                inner
            } else {
                activation::add_bias_and_activate(form, None, &mut matrix, None);
                part
            };
            let inner = Factor::new(Side::Left, Matrix::new(&inner, chunk.len()));
            bf16::product(&mut tile.numbers, update, [inner.all(), down_weight.part(0, chunk)]);
            update = Update::Continue;
        }
        let residual = residual.part(tile.rows.clone(), 0..down.d_out);
        let mask = dropout.map(|dropout| dropout.mask(down.d_out));
        linear::add_bias_and_residual(down.bias, residual, mask, (tile.rows.start, 0), &mut tile.numbers);
    });
}

fn backward_by_strips(
    layer: &FeedForward,
    input: &[f32],
    pre_activation: Option<&[f32]>,
    gradient: &[f32],
    [for_up, for_down]: [linear::Gradients; 2],
) {
    let FeedForward { up, down, activation: form, .. } = *layer;
    let (input, gradient) = (Matrix::new(input, up.d_in), Matrix::new(gradient, down.d_out));
    let saved = pre_activation.map(|saved| Matrix::new(saved, up.d_out));
    let (rows, strip_rows) = (input.rows(), strip(input.rows(), team::threads()));
    let up_weight = saved.is_none().then(|| Factor::new(Side::Right, up.weight_matrix()));
    let [up_transposed, down_transposed] =
        [up, down].map(|layer| Factor::new(Side::Right, layer.weight_matrix().transposed()));
    let [mut up_gradients, mut down_gradients] =
        [up, down].map(|layer| ParameterGradients::new(&layer, rows));
    let tiles = for_up.input.map(|input| MatrixMut::new(input, up.d_in).tiles(strip_rows, up.d_in));
    let mut tiles = tiles.into_iter().flatten();
    let strips = up_gradients.strips(strip_rows).zip(down_gradients.strips(strip_rows));
    let strips = strips.map(|strips| (strips, tiles.next())).collect::<Vec<_>>();
    for_each(
        strips.into_par_iter(),
        2 * strip_rows * up.d_in * up.d_out,
        |((mut up_gradients, mut down_gradients), mut tile)| {
            up_gradients.add_input(0, up_gradients.rows_of(input));
            let input = saved.is_none().then(|| Factor::new(Side::Left, up_gradients.rows_of(input)));
            let gradient = down_gradients.add_gradient(0, down_gradients.rows_of(gradient));
            let rows = up_gradients.rows.clone();
            let mut update = Update::Set(1.0);
            for chunk in layer.chunks() {
                let mut for_inner = pool::take(rows.len() * chunk.len());
                let mut product = MatrixMut::new(&mut for_inner, chunk.len());
                let weight = down_transposed.part(chunk.start, 0..down.d_out);
                bf16::product(&mut product, Update::Set(1.0), [gradient.all(), weight]);
                let sources = layer.sources(&chunk).collect::<Vec<_>>();
                let mut parts = sources.iter().map(|columns| match (saved, &input, &up_weight) {
                    (None, Some(input), Some(weight)) => layer.pre_activation(input, weight, columns),
                    (saved, ..) => {
                        let saved = saved.expect("a stored or recomputed pre-activation");
                        copied(saved.part(rows.clone(), columns.clone()))
                    }
                });
                let (inner, for_parts) = activated(form, &mut parts, for_inner);
                down_gradients.add_input(chunk.start, Matrix::new(&inner, chunk.len()));
                for (for_part, columns) in for_parts.iter().zip(sources) {
                    let for_part =
                        up_gradients.add_gradient(columns.start, Matrix::new(for_part, columns.len()));
                    if let Some(tile) = &mut tile {
                        let weight = up_transposed.part(0, columns);
                        bf16::product(&mut tile.numbers, update, [for_part.all(), weight]);
                        update = Update::Continue;
                    }
                }
            }
        },
    );
    down_gradients.write(for_down.weight, for_down.bias);
    up_gradients.write(for_up.weight, for_up.bias);
}

/// Returns the inner values of a chunk and the gradients of its pre-activations, from the pre-activations (two with a
/// gate, the gate first) and the gradient of the inner values.
fn activated(
    form: Activation,
    parts: &mut dyn Iterator<Item = Buffer>,
    mut for_inner: Buffer,
) -> (Buffer, Vec<Buffer>) {
    let mut part = parts.next().expect("at least one source");
    if let Some(mut gated) = parts.next() {
        activation::gated_value_and_gradient(form, &mut part, &mut gated, &mut for_inner);
        (for_inner, vec![part, gated])
    } else {
        activation::value_and_gradient(form, &mut part, &mut for_inner);
        (part, vec![for_inner])
    }
}

/// Copies a matrix into a contiguous buffer.
fn copied(matrix: Matrix) -> Buffer {
    let mut numbers = pool::take(matrix.rows() * matrix.columns());
    MatrixMut::new(&mut numbers, matrix.columns()).copy_from(matrix);
    numbers
}

#[cfg(test)]
mod tests;
