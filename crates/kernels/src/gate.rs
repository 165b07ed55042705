//! Sigmoid gates of attention outputs (Qiu et al., 2025, arXiv 2505.06708): `output = sigmoid(logit) x`, with a logit for
//! each number or for several adjacent ones.

use rayon::prelude::*;

use super::parallel::{for_each, rows_per_piece};
use super::vector::{sum_map, update, update_all, vectorized};

/// The number of steps per gated number, for the division of work.
const WORK: usize = 16;

/// Multiplies `x` by its gates.
///
/// # Shapes
/// `logits` is `[gates]`, `x` and `output` are `[gates, width]`.
///
/// # Panics
/// Panics if the lengths do not match the shape.
pub fn forward(logits: &[f32], x: &[f32], output: &mut [f32]) {
    let width = width(logits, x);
    assert_eq!(x.len(), output.len(), "gated numbers");
    let piece = rows_per_piece(logits.len(), WORK * width);
    let inputs = logits.par_chunks(piece).zip(x.par_chunks(piece * width));
    let pieces = inputs.zip(output.par_chunks_mut(piece * width));
    for_each(pieces, piece * width * WORK, |((logits, x), output)| forward_piece(logits, x, output));
}

/// Computes the gradients of the logits and of `x`; both are overwritten.
///
/// # Panics
/// Panics if the lengths do not match the shape.
pub fn backward(
    logits: &[f32],
    x: &[f32],
    gradient: &[f32],
    logit_gradients: &mut [f32],
    x_gradients: &mut [f32],
) {
    let width = width(logits, x);
    let lengths = [gradient.len(), x_gradients.len(), logit_gradients.len()];
    assert_eq!(lengths, [x.len(), x.len(), logits.len()], "gradients of gates and gated numbers");
    let piece = rows_per_piece(logits.len(), WORK * width);
    let inputs = logits.par_chunks(piece).zip(x.par_chunks(piece * width));
    let inputs = inputs.zip(gradient.par_chunks(piece * width));
    let outputs = logit_gradients.par_chunks_mut(piece).zip(x_gradients.par_chunks_mut(piece * width));
    for_each(inputs.zip(outputs), piece * width * WORK, |(((logits, x), gradient), outputs)| {
        backward_piece(logits, x, gradient, outputs.0, outputs.1);
    });
}

/// Returns the number of values per gate.
fn width(logits: &[f32], x: &[f32]) -> usize {
    let width = x.len() / logits.len().max(1);
    assert_eq!(x.len(), width * logits.len(), "{} values with {} gates", x.len(), logits.len());
    width.max(1)
}

vectorized! {
    fn forward_piece(simd; logits: &[f32], x: &[f32], output: &mut [f32]) {
        if logits.len() == x.len() {
            return update(
                simd,
                output,
                [logits, x],
                #[inline(always)]
                |_, [logit, x]| logit.sigmoid() * x,
            );
        }
        let width = x.len() / logits.len();
        for ((logit, x), output) in logits.iter().zip(x.chunks_exact(width)).zip(output.chunks_exact_mut(width)) {
            let gate = sigmoid(*logit);
            update(simd, output, [x], |_, [x]| x * gate);
        }
    }

    fn backward_piece(
        simd;
        logits: &[f32],
        x: &[f32],
        gradient: &[f32],
        logit_gradients: &mut [f32],
        x_gradients: &mut [f32],
    ) {
        if logits.len() == x.len() {
            return update_all(
                simd,
                [logit_gradients, x_gradients],
                [logits, x, gradient],
                #[inline(always)]
                |_, [logit, x, gradient]| {
                    let gate = logit.sigmoid();
                    [gradient * x * gate * (1.0 - gate), gradient * gate]
                },
            );
        }
        let width = x.len() / logits.len();
        let inputs = logits.iter().zip(x.chunks_exact(width)).zip(gradient.chunks_exact(width));
        let outputs = logit_gradients.iter_mut().zip(x_gradients.chunks_exact_mut(width));
        for (((logit, x), gradient), (logit_gradient, x_gradient)) in inputs.zip(outputs) {
            let gate = sigmoid(*logit);
            *logit_gradient = sum_map(simd, [x, gradient], |[x, gradient]| x * gradient) * gate * (1.0 - gate);
            update(simd, x_gradient, [gradient], |_, [gradient]| gradient * gate);
        }
    }
}

fn sigmoid(logit: f32) -> f32 {
    1.0 / ((-logit).exp() + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::random;

    #[test]
    fn gates_and_gradients_match_their_equations() {
        for (gates, width) in [(1, 1), (7, 1), (900, 1), (5, 3), (300, 64)] {
            let [logits, x, gradient] = [(1, gates), (2, gates * width), (3, gates * width)]
                .map(|(seed, count)| random(seed, count).into_iter().map(|x| 4.0 * x).collect::<Vec<f32>>());
            let mut output = vec![f32::NAN; x.len()];
            forward(&logits, &x, &mut output);
            let [mut logit_gradients, mut x_gradients] = [gates, x.len()].map(|count| vec![f32::NAN; count]);
            backward(&logits, &x, &gradient, &mut logit_gradients, &mut x_gradients);
            for (at, logit) in logits.iter().enumerate() {
                let gate = 1.0 / (1.0 + (-f64::from(*logit)).exp());
                let mut sum = 0.0;
                for index in at * width..(at + 1) * width {
                    let [x, gradient] = [x[index], gradient[index]].map(f64::from);
                    assert!((f64::from(output[index]) - gate * x).abs() < 1e-6 * 4.0);
                    assert!((f64::from(x_gradients[index]) - gate * gradient).abs() < 1e-6 * 4.0);
                    sum += x * gradient;
                }
                let expected = sum * gate * (1.0 - gate);
                assert!((f64::from(logit_gradients[at]) - expected).abs() < 1e-5 * (1.0 + expected.abs()));
            }
        }
    }
}
