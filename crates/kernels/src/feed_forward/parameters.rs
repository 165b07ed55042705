//! Weight and bias gradients of a layer in bf16, computed strip by strip. A strip rounds its rows while they are in the
//! cache of its core, so only the rounded factors are stored in memory.

use std::ops::Range;

use crate::bf16::{Factor, Side, Source, Strip};
use crate::linear::Linear;
use crate::matmul::Factors;
use crate::matrix::{Matrix, MatrixMut};
use crate::pool::{self, Buffer};
use crate::sums::add_up_rows;

/// The number of gradient rows that are summed into one term of the bias gradient.
const ROWS_PER_TERM: usize = 32;

/// The factors of a weight gradient, and the partial sums of a bias gradient, filled in by strips.
pub struct ParameterGradients {
    rows: usize,
    input: Factor,
    gradient: Factor,
    sums: Buffer,
}

impl ParameterGradients {
    /// Allocates the factors and sums of a layer with `rows` rows of input.
    pub fn new(layer: &Linear, rows: usize) -> Self {
        let [input, gradient] = [layer.d_in, layer.d_out].map(|lines| Factor::uninitialised(lines, rows));
        Self { rows, input, gradient, sums: pool::take(rows.div_ceil(ROWS_PER_TERM) * layer.d_out) }
    }

    /// Splits the factors and sums into strips of `rows` rows.
    pub fn strips(&mut self, rows: usize) -> impl Iterator<Item = ParameterStrip<'_>> {
        let (all, d_out) = (self.rows, self.gradient.lines());
        let sums = MatrixMut::new(&mut self.sums, d_out).tiles(rows / ROWS_PER_TERM, d_out);
        let factors = self.input.strips(rows).into_iter().zip(self.gradient.strips(rows));
        factors.zip(sums).enumerate().map(move |(index, ((input, gradient), sums))| ParameterStrip {
            rows: index * rows..all.min((index + 1) * rows),
            input,
            gradient,
            sums: sums.numbers,
        })
    }

    /// Writes the gradients of weight and bias once all strips are filled.
    pub fn write(self, weight: Option<&mut [f32]>, bias: Option<&mut [f32]>) {
        let d_out = self.gradient.lines();
        if let Some(weight) = weight {
            let [input, gradient] = [self.input, self.gradient].map(Source::Rounded);
            Factors::Bf16(input, [gradient]).product(MatrixMut::new(weight, d_out));
        }
        if let Some(bias) = bias {
            add_up_rows(Matrix::new(&self.sums, d_out), bias);
        }
    }
}

/// The contribution of a range of rows to the gradients of a weight and a bias.
pub struct ParameterStrip<'a> {
    /// The rows of the strip.
    pub rows: Range<usize>,
    input: Strip<'a>,
    gradient: Strip<'a>,
    sums: MatrixMut<'a>,
}

impl ParameterStrip<'_> {
    /// Returns the rows of the strip in a matrix.
    pub fn rows_of<'a>(&self, matrix: Matrix<'a>) -> Matrix<'a> {
        matrix.part(self.rows.clone(), 0..matrix.columns())
    }

    /// Adds columns of the layer's input, from `first` on, for all rows of the strip.
    pub fn add_input(&mut self, first: usize, input: Matrix) {
        self.input.fill(Side::Left, first, input.transposed());
    }

    /// Adds columns of the gradient of the layer's output, from `first` on, and returns them as a left factor.
    pub fn add_gradient(&mut self, first: usize, gradient: Matrix) -> Factor {
        let (rows, columns) = (gradient.rows(), gradient.columns());
        self.gradient.fill(Side::Right, first, gradient.transposed());
        for (group, start) in (0..rows).step_by(ROWS_PER_TERM).enumerate() {
            let part = gradient.part(start..rows.min(start + ROWS_PER_TERM), 0..columns);
            add_up_rows(part, &mut self.sums.row(group)[first..first + columns]);
        }
        Factor::new(Side::Left, gradient)
    }
}
