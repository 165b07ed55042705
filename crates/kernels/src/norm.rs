//! Layer normalisation (Ba, Kiros and Hinton, *Layer normalization*, 2016) and RMS normalisation, which omits the mean
//! (Zhang and Sennrich, *Root mean square layer normalization*, 2019).
//!
//! The residual addition before a norm is fused into the preceding [linear layer](super::linear), which writes the sum
//! only once.
//!
//! For each row `x` of width `d`: `y = gamma * h + beta` with `h = (x - mean) / sqrt(variance + epsilon)`. In the
//! backward pass, with `g = gamma * dy` and `r = 1 / sqrt(variance + epsilon)`:
//! `dx = r * (g - mean(g) - h * mean(g * h))`, without `mean(g)` in an RMS norm, and over all rows
//! `dgamma = sum of dy * h`, `dbeta = sum of dy`.

use rayon::prelude::*;

use super::parallel::{for_each, rows_per_piece};
use super::pool;
use super::sums::add_piece;
use super::vector::{sum_map, update, vectorized};

/// The parameters of a norm.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// True if the mean is subtracted, as in layer norm.
    pub is_centred: bool,
    /// The scale `[d_model]`.
    pub gamma: &'a [f32],
    /// The shift `[d_model]`.
    pub beta: Option<&'a [f32]>,
    /// A small number added to the variance, which keeps the denominator above zero.
    pub epsilon: f32,
}

/// Computes `output = norm(input)`, and for the backward pass the `mean` and the `inverse_deviation` of each row,
/// `1 / sqrt(variance + epsilon)`.
///
/// # Shapes
/// `input` and `output` `[rows, d_model]`; `mean`, `inverse_deviation` `[rows]`.
///
/// # Panics
/// Panics if the lengths do not match.
pub fn forward(norm: &Norm, input: &[f32], [mean, inverse_deviation]: [&mut [f32]; 2], output: &mut [f32]) {
    let (rows, width) = (mean.len(), norm.gamma.len());
    assert_eq!([input.len(), output.len()], [rows * width; 2], "input and output of [{rows}, {width}]");
    assert_eq!(inverse_deviation.len(), rows, "statistics of [{rows}]");
    assert!(norm.beta.is_none_or(|beta| beta.len() == width), "beta must have {width} values");
    let piece_rows = rows_per_piece(rows, width);
    let piece = piece_rows * width;
    let statistics = mean.par_chunks_mut(piece_rows).zip(inverse_deviation.par_chunks_mut(piece_rows));
    let values = input.par_chunks(piece).zip(output.par_chunks_mut(piece));
    for_each(statistics.zip(values), piece * 2, |((mean, inverse_deviation), (input, output))| {
        normalise_rows(norm, input, mean, inverse_deviation, output);
    });
}

/// Computes the gradients of [`forward`] for `output_gradient`, and overwrites the gradient slices. Without a shift,
/// `beta_gradient` is `None`.
///
/// # Shapes
/// `input`, `output_gradient`, `input_gradient` `[rows, d_model]`; `mean`, `inverse_deviation` `[rows]`; the gradients
/// of the parameters `[d_model]`.
///
/// # Panics
/// Panics if the lengths do not match.
pub fn backward(
    norm: &Norm,
    input: &[f32],
    [mean, inverse_deviation]: [&[f32]; 2],
    output_gradient: &[f32],
    input_gradient: &mut [f32],
    gamma_gradient: &mut [f32],
    beta_gradient: Option<&mut [f32]>,
) {
    let (rows, width) = (mean.len(), norm.gamma.len());
    let lengths = [input.len(), output_gradient.len(), input_gradient.len()];
    assert_eq!(lengths, [rows * width; 3], "input and gradients of [{rows}, {width}]");
    assert_eq!(inverse_deviation.len(), rows, "statistics of [{rows}]");
    let beta_length = beta_gradient.as_ref().map_or(width, |beta| beta.len());
    assert_eq!([gamma_gradient.len(), beta_length], [width; 2], "gradients of [{width}]");
    let piece_rows = rows_per_piece(rows, width);
    let piece = piece_rows * width;
    let pieces = rows.div_ceil(piece_rows);
    // For each piece, the partial sums of dgamma, then of dbeta.
    let mut partial = pool::take(pieces * 2 * width);
    let statistics = mean.par_chunks(piece_rows).zip(inverse_deviation.par_chunks(piece_rows));
    let read = input.par_chunks(piece).zip(output_gradient.par_chunks(piece)).zip(statistics);
    let written = input_gradient.par_chunks_mut(piece).zip(partial.par_chunks_mut(2 * width));
    for_each(read.zip(written), piece * 4, |(((x, dy), statistics), (dx, partial))| {
        partial.fill(0.0);
        backward_rows(norm, x, statistics, dy, dx, partial);
    });
    for (sums, first) in [(Some(gamma_gradient), 0), (beta_gradient, width)] {
        let Some(sums) = sums else { continue };
        sums.fill(0.0);
        partial.chunks_exact(2 * width).for_each(|piece| add_piece(sums, &piece[first..first + width]));
    }
}

/// Normalises each head of packed queries and keys, and copies the values.
///
/// # Shapes
/// `input` and `output` `[rows, (heads + 2 * key_value_heads) * d_head]`, queries first, then keys, then values. The
/// norms, of queries and of keys, have width `d_head`; the statistics are as in [`forward`],
/// `[rows, heads + key_value_heads]`.
///
/// # Panics
/// Panics if the lengths do not match.
pub fn forward_heads(
    norms: [&Norm; 2],
    heads: [usize; 2],
    input: &[f32],
    [mean, inverse_deviation]: [&mut [f32]; 2],
    output: &mut [f32],
) {
    let Heads { width, count, .. } = Heads::new(norms, heads);
    let rows = input.len() / width;
    assert_eq!([input.len(), output.len()], [rows * width; 2], "input and output of [{rows}, {width}]");
    assert_eq!([mean.len(), inverse_deviation.len()], [rows * count; 2], "statistics of [{rows}, {count}]");
    let piece_rows = rows_per_piece(rows, width);
    let [piece, statistics] = [width, count].map(|width| piece_rows * width);
    let statistics = mean.par_chunks_mut(statistics).zip(inverse_deviation.par_chunks_mut(statistics));
    let values = input.par_chunks(piece).zip(output.par_chunks_mut(piece));
    for_each(statistics.zip(values), piece * 2, |((mean, inverse_deviation), (input, output))| {
        let statistics = mean.chunks_mut(count).zip(inverse_deviation.chunks_mut(count));
        for ((mut mean, mut inverse), (mut x, mut y)) in
            statistics.zip(input.chunks(width).zip(output.chunks_mut(width)))
        {
            for (norm, heads) in norms.into_iter().zip(heads) {
                let length = heads * norm.gamma.len();
                let (inputs, outputs) = (x.split_at(length), y.split_at_mut(length));
                let (means, inverses) = (mean.split_at_mut(heads), inverse.split_at_mut(heads));
                normalise_rows(norm, inputs.0, means.0, inverses.0, outputs.0);
                (x, y, mean, inverse) = (inputs.1, outputs.1, means.1, inverses.1);
            }
            y.copy_from_slice(x);
        }
    });
}

/// Computes the gradients of [`forward_heads`] for `output_gradient`, and overwrites the gradient slices.
///
/// # Shapes
/// As in [`forward_heads`]; the gradients of the scales, of queries and of keys, are `[d_head]`.
///
/// # Panics
/// Panics if the lengths do not match.
pub fn backward_heads(
    norms: [&Norm; 2],
    heads: [usize; 2],
    input: &[f32],
    [mean, inverse_deviation]: [&[f32]; 2],
    output_gradient: &[f32],
    input_gradient: &mut [f32],
    gamma_gradients: [&mut [f32]; 2],
) {
    let Heads { width, count, d_head } = Heads::new(norms, heads);
    let rows = input.len() / width;
    let lengths = [input.len(), output_gradient.len(), input_gradient.len()];
    assert_eq!(lengths, [rows * width; 3], "input and gradients of [{rows}, {width}]");
    assert_eq!([mean.len(), inverse_deviation.len()], [rows * count; 2], "statistics of [{rows}, {count}]");
    let piece_rows = rows_per_piece(rows, width);
    let [piece, statistics] = [width, count].map(|width| piece_rows * width);
    // For each piece, the partial sums of dgamma and dbeta for queries, then for keys.
    let mut partial = pool::take(rows.div_ceil(piece_rows) * 4 * d_head);
    let statistics = mean.par_chunks(statistics).zip(inverse_deviation.par_chunks(statistics));
    let read = input.par_chunks(piece).zip(output_gradient.par_chunks(piece)).zip(statistics);
    let written = input_gradient.par_chunks_mut(piece).zip(partial.par_chunks_mut(4 * d_head));
    for_each(read.zip(written), piece * 4, |(((x, dy), (mean, inverse)), (dx, partial))| {
        partial.fill(0.0);
        let statistics = mean.chunks(count).zip(inverse.chunks(count));
        let read = x.chunks(width).zip(dy.chunks(width)).zip(statistics);
        for (((mut x, mut dy), (mut mean, mut inverse)), mut dx) in read.zip(dx.chunks_mut(width)) {
            for ((norm, heads), partial) in norms.into_iter().zip(heads).zip(partial.chunks_mut(2 * d_head)) {
                let length = heads * d_head;
                let (xs, dys, dxs) = (x.split_at(length), dy.split_at(length), dx.split_at_mut(length));
                let (means, inverses) = (mean.split_at(heads), inverse.split_at(heads));
                backward_rows(norm, xs.0, (means.0, inverses.0), dys.0, dxs.0, partial);
                (x, dy, dx, mean, inverse) = (xs.1, dys.1, dxs.1, means.1, inverses.1);
            }
            dx.copy_from_slice(dy);
        }
    });
    for (sums, first) in gamma_gradients.into_iter().zip([0, 2 * d_head]) {
        sums.fill(0.0);
        partial.chunks_exact(4 * d_head).for_each(|piece| add_piece(sums, &piece[first..first + d_head]));
    }
}

/// The sizes of packed heads.
struct Heads {
    /// The width of a row.
    width: usize,
    /// The number of normalised heads in a row.
    count: usize,
    d_head: usize,
}

impl Heads {
    fn new([query, key]: [&Norm; 2], [heads, key_value_heads]: [usize; 2]) -> Self {
        let d_head = query.gamma.len();
        assert_eq!(key.gamma.len(), d_head, "the norms of queries and keys must have the same width");
        Self { width: (heads + 2 * key_value_heads) * d_head, count: heads + key_value_heads, d_head }
    }
}

vectorized! {
    fn normalise_rows(
        simd;
        norm: &Norm<'_>,
        input: &[f32],
        mean: &mut [f32],
        inverse_deviation: &mut [f32],
        output: &mut [f32],
    ) {
        let width = norm.gamma.len();
        let rows = input.chunks_exact(width).zip(output.chunks_exact_mut(width));
        for ((x, y), (mean_out, inverse_out)) in rows.zip(mean.iter_mut().zip(inverse_deviation)) {
            let sum = if norm.is_centred { sum_map(simd, [x], |[x]| x) } else { 0.0 };
            let mean = sum / width as f32;
            let variance = sum_map(simd, [x], |[x]| (x - mean) * (x - mean)) / width as f32;
            let inverse = 1.0 / (variance + norm.epsilon).sqrt();
            match norm.beta {
                Some(beta) => update(simd, y, [x, norm.gamma, beta], |_, [x, g, b]| {
                    ((x - mean) * inverse).mul_add(g, b)
                }),
                None => update(simd, y, [x, norm.gamma], |_, [x, g]| (x - mean) * inverse * g),
            }
            (*mean_out, *inverse_out) = (mean, inverse);
        }
    }

    /// Computes the gradients of rows, and adds their contributions to the gradients of scale and shift to `partial`.
    fn backward_rows(
        simd;
        norm: &Norm<'_>,
        input: &[f32],
        statistics: (&[f32], &[f32]),
        output_gradient: &[f32],
        input_gradient: &mut [f32],
        partial: &mut [f32],
    ) {
        let Norm { gamma, is_centred, .. } = *norm;
        let width = gamma.len();
        let (dgamma, dbeta) = partial.split_at_mut(width);
        for (row, dx) in input_gradient.chunks_exact_mut(width).enumerate() {
            let range = row * width..(row + 1) * width;
            let (x, dy) = (&input[range.clone()], &output_gradient[range]);
            let (mean, inverse) = (statistics.0[row], statistics.1[row]);
            let sum_g = if is_centred { sum_map(simd, [dy, gamma], |[dy, g]| dy * g) } else { 0.0 };
            let mean_g = sum_g / width as f32;
            let sum_gh = sum_map(simd, [dy, gamma, x], |[dy, g, x]| dy * g * (x - mean)) * inverse;
            let mean_gh = sum_gh / width as f32;
            update(simd, dx, [dy, gamma, x], |_, [dy, g, x]| {
                let h = (x - mean) * inverse;
                inverse * h.mul_add(-mean_gh, dy * g - mean_g)
            });
            update(simd, dgamma, [dy, x], |sum, [dy, x]| dy.mul_add((x - mean) * inverse, sum));
            update(simd, dbeta, [dy], |sum, [dy]| sum + dy);
        }
    }
}

#[cfg(test)]
mod tests;
