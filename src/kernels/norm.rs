//! Layer normalisation (Ba, Kiros and Hinton, *Layer normalization*, 2016).
//!
//! The residual addition before a norm is part of the [linear layer](super::linear) that makes it, so that
//! the sum is written once and nothing but the norm is left here.
//!
//! For each row `x` of width `d`: `y = gamma * h + beta` with `h = (x - mean) / sqrt(variance + epsilon)`.
//! Backward, with `g = gamma * dy` and `r = 1 / sqrt(variance + epsilon)`: `dx = r * (g - mean(g) - h *
//! mean(g * h))`, and over all rows `dgamma = sum of dy * h`, `dbeta = sum of dy`.

use super::parallel::{for_each_piece, rows_in_a_piece};
use super::pool;
use super::tiles::Tiles;
use super::vector::{map_into, sum_map, update, vectorized};

/// The parameters of a layer normalisation.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    /// Scale `[d_model]`.
    pub gamma: &'a [f32],
    /// Shift `[d_model]`.
    pub beta: Option<&'a [f32]>,
    /// Keeps the root from zero.
    pub epsilon: f32,
}

/// What the backward pass needs of each row.
#[derive(Debug)]
pub struct Statistics<'a> {
    /// `[rows]`.
    pub mean: &'a mut [f32],
    /// `1 / sqrt(variance + epsilon)`, `[rows]`.
    pub inverse_deviation: &'a mut [f32],
}

/// Where the gradients go; all are overwritten.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// `[rows, d_model]`.
    pub input: &'a mut [f32],
    /// `[d_model]`.
    pub gamma: &'a mut [f32],
    /// `[d_model]`; `None` where the norm has no shift.
    pub beta: Option<&'a mut [f32]>,
}

/// `output = norm(input)`.
///
/// # Shapes
/// `input` and `output` `[rows, d_model]`.
///
/// # Panics
/// If the lengths do not fit each other.
pub fn forward(norm: &LayerNorm, input: &[f32], statistics: Statistics, output: &mut [f32]) {
    let width = norm.gamma.len();
    let rows = input.len() / width;
    assert_eq!(rows * width, input.len(), "rows of {width}");
    assert_eq!(output.len(), input.len(), "input and output");
    assert!(norm.beta.is_none_or(|beta| beta.len() == width), "beta of [{width}]");
    assert!(
        statistics.mean.len() == rows && statistics.inverse_deviation.len() == rows,
        "statistics of [{rows}]"
    );
    let piece_rows = rows_in_a_piece(rows, width);
    let mean = Tiles::rows(statistics.mean, 1, piece_rows);
    let inverse_deviation = Tiles::rows(statistics.inverse_deviation, 1, piece_rows);
    let output = Tiles::rows(output, width, piece_rows);
    for_each_piece(output.count(), piece_rows * width * 2, |piece| {
        let rows = output.place(piece).0;
        let values = rows.start * width..rows.end * width;
        let (mut mean, mut inverse_deviation) = (mean.take(piece), inverse_deviation.take(piece));
        let statistics =
            &mut Statistics { mean: mean.contiguous(), inverse_deviation: inverse_deviation.contiguous() };
        normalise_rows(norm, &input[values], statistics, output.take(piece).contiguous());
    });
}

/// The gradients of [`forward`] for `output_gradient`.
///
/// # Shapes
/// `input`, `output_gradient` `[rows, d_model]`; `mean`, `inverse_deviation` `[rows]`.
///
/// # Panics
/// If the lengths do not fit each other.
pub fn backward(
    norm: &LayerNorm,
    input: &[f32],
    (mean, inverse_deviation): (&[f32], &[f32]),
    output_gradient: &[f32],
    gradients: Gradients,
) {
    let width = norm.gamma.len();
    let rows = mean.len();
    let Gradients { input: input_gradient, gamma, beta } = gradients;
    assert!(
        [input.len(), output_gradient.len(), input_gradient.len()]
            .iter()
            .all(|length| *length == rows * width),
        "input and gradients of [{rows}, {width}]"
    );
    assert_eq!(inverse_deviation.len(), rows, "statistics of [{rows}]");
    assert!(
        gamma.len() == width && beta.as_ref().is_none_or(|beta| beta.len() == width),
        "gradients of [{width}]"
    );
    let piece_rows = rows_in_a_piece(rows, width);
    let input_gradient = Tiles::rows(input_gradient, width, piece_rows);
    // For each piece its part of dgamma, then of dbeta.
    let mut partial = pool::take(input_gradient.count() * 2 * width);
    let partials = Tiles::rows(&mut partial, 2 * width, 1);
    for_each_piece(input_gradient.count(), piece_rows * width * 4, |piece| {
        let rows = input_gradient.place(piece).0;
        let values = rows.start * width..rows.end * width;
        let rows = BackwardRows {
            gamma: norm.gamma,
            input: &input[values.clone()],
            mean: &mean[rows.clone()],
            inverse_deviation: &inverse_deviation[rows],
            output_gradient: &output_gradient[values],
        };
        backward_rows(&rows, input_gradient.take(piece).contiguous(), partials.take(piece).contiguous());
    });
    drop(partials);
    add_up(&partial, gamma, beta);
}

/// A piece of the backward pass.
struct BackwardRows<'a> {
    gamma: &'a [f32],
    input: &'a [f32],
    mean: &'a [f32],
    inverse_deviation: &'a [f32],
    output_gradient: &'a [f32],
}

vectorized! {
    fn normalise_rows(
        simd; norm: &LayerNorm<'_>, input: &[f32], statistics: &mut Statistics<'_>, output: &mut [f32],
    ) {
        let width = norm.gamma.len();
        let rows = input.chunks_exact(width).zip(output.chunks_exact_mut(width));
        for (row, (x, y)) in rows.enumerate() {
            let mean = sum_map(simd, [x], |[x]| x) / width as f32;
            let variance = sum_map(simd, [x], |[x]| (x - mean) * (x - mean)) / width as f32;
            let inverse = 1.0 / (variance + norm.epsilon).sqrt();
            match norm.beta {
                Some(beta) => map_into(simd, y, [x, norm.gamma, beta], |[x, g, b]| {
                    ((x - mean) * inverse).mul_add(g, b)
                }),
                None => map_into(simd, y, [x, norm.gamma], |[x, g]| (x - mean) * inverse * g),
            }
            statistics.mean[row] = mean;
            statistics.inverse_deviation[row] = inverse;
        }
    }

    fn backward_rows(simd; rows: &BackwardRows<'_>, input_gradient: &mut [f32], partial: &mut [f32]) {
        let (gamma, width) = (rows.gamma, rows.gamma.len());
        partial.fill(0.0);
        let (dgamma, dbeta) = partial.split_at_mut(width);
        for (row, dx) in input_gradient.chunks_exact_mut(width).enumerate() {
            let here = row * width..(row + 1) * width;
            let (x, dy) = (&rows.input[here.clone()], &rows.output_gradient[here]);
            let (mean, inverse) = (rows.mean[row], rows.inverse_deviation[row]);
            let mean_g = sum_map(simd, [dy, gamma], |[dy, g]| dy * g) / width as f32;
            let sum_gh = sum_map(simd, [dy, gamma, x], |[dy, g, x]| dy * g * (x - mean)) * inverse;
            let mean_gh = sum_gh / width as f32;
            map_into(simd, dx, [dy, gamma, x], |[dy, g, x]| {
                let h = (x - mean) * inverse;
                inverse * h.mul_add(-mean_gh, dy * g - mean_g)
            });
            update(simd, dgamma, [dy, x], |sum, [dy, x]| dy.mul_add((x - mean) * inverse, sum));
            update(simd, dbeta, [dy], |sum, [dy]| sum + dy);
        }
    }

    fn add_up(simd; partial: &[f32], gamma: &mut [f32], beta: Option<&mut [f32]>) {
        let width = gamma.len();
        gamma.fill(0.0);
        for part in partial.chunks_exact(2 * width) {
            update(simd, gamma, [&part[..width]], |sum, [x]| sum + x);
        }
        if let Some(beta) = beta {
            beta.fill(0.0);
            for part in partial.chunks_exact(2 * width) {
                update(simd, beta, [&part[width..]], |sum, [x]| sum + x);
            }
        }
    }
}

#[cfg(test)]
mod tests;
