//! AdamW (Loshchilov and Hutter, *Decoupled weight decay regularization*, 2019) with clipping by the global norm of all
//! gradients (Pascanu et al., 2013).
//!
//! At step `t`, counted from 1, with gradients `g` scaled by `c = min(1, max_norm / (norm + 1e-6))` as in PyTorch:
//!
//! - `m = b1 m + (1 - b1) c g`;
//! - `v = b2 v + (1 - b2) (c g)^2`;
//! - `p = (1 - rate decay) p - rate m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon)`.

use rayon::prelude::*;

use super::parallel::for_each;
use super::vector::{sum_map, update_all, vectorized};

/// The number of values that a thread processes at a time.
const PIECE_LENGTH: usize = 1 << 14;

/// The settings of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The decay of the first moment, in double precision because it is close to one.
    pub beta_1: f64,
    /// The decay of the second moment.
    pub beta_2: f64,
    /// A small number that keeps the denominator above zero.
    pub epsilon: f32,
    /// The number of the step, counted from 1.
    pub step: u32,
    /// The global norm above which gradients are clipped.
    pub max_norm: Option<f64>,
}

/// A parameter tensor with its gradient and moments, all of the same length.
#[derive(Debug)]
pub struct Parameter<'a> {
    /// The values, which may still be read elsewhere.
    pub values: &'a [f32],
    /// The gradient, which is replaced by the new values.
    pub gradient: &'a mut [f32],
    /// The first moment, zero before the first step.
    pub first_moment: &'a mut [f32],
    /// The second moment, zero before the first step.
    pub second_moment: &'a mut [f32],
    /// The weight decay of this tensor; zero by convention for biases and norms.
    pub weight_decay: f32,
}

/// Returns the Euclidean norm of all gradients together.
pub fn global_norm(gradients: &[&[f32]]) -> f64 {
    let pieces: Vec<&[f32]> = gradients.iter().flat_map(|gradient| gradient.chunks(PIECE_LENGTH)).collect();
    let mut squares = vec![0.0; pieces.len()];
    for_each(squares.par_iter_mut().zip(&pieces), PIECE_LENGTH / 2, |(sum, piece)| {
        *sum = sum_of_squares(piece);
    });
    let sum: f64 = squares.iter().copied().map(f64::from).sum();
    if sum.is_infinite() {
        // The squares overflowed, or a gradient is not finite. In double precision, squares do not overflow.
        let squares = gradients.iter().flat_map(|gradient| gradient.iter()).map(|g| f64::from(*g).powi(2));
        return squares.sum::<f64>().sqrt();
    }
    sum.sqrt()
}

/// Returns the factor that clips gradients with the global norm `norm`.
pub(super) fn clip(max_norm: Option<f64>, norm: f64) -> f32 {
    max_norm.map_or(1.0, |max_norm| (max_norm / (norm + 1e-6)).min(1.0)) as f32
}

/// Performs one step with the given global norm, which may include other parameters.
///
/// # Panics
/// Panics if the slices of a parameter differ in length.
pub fn step(settings: &AdamW, norm: f64, parameters: &mut [Parameter]) {
    let clip = clip(settings.max_norm, norm);
    let mut pieces = Vec::new();
    for parameter in parameters {
        let length = parameter.values.len();
        let lengths = [parameter.gradient.len(), parameter.first_moment.len(), parameter.second_moment.len()];
        assert_eq!(lengths, [length; 3], "gradient and moments of a parameter of {length}");
        let chunks = (parameter.values.chunks(PIECE_LENGTH))
            .zip(parameter.gradient.chunks_mut(PIECE_LENGTH))
            .zip(parameter.first_moment.chunks_mut(PIECE_LENGTH))
            .zip(parameter.second_moment.chunks_mut(PIECE_LENGTH));
        pieces.extend(chunks.map(|chunks| (parameter.weight_decay, chunks)));
    }
    for_each(
        pieces.into_par_iter(),
        PIECE_LENGTH,
        |(weight_decay, (((values, gradient), first), second))| {
            update_piece(settings, clip, weight_decay, values, [gradient, first, second]);
        },
    );
}

vectorized! {
    fn sum_of_squares(simd; values: &[f32]) -> f32 { sum_map(simd, [values], |[x]| x * x) }

    fn update_piece(
        simd; settings: &AdamW, clip: f32, weight_decay: f32, values: &[f32], outputs: [&mut [f32]; 3],
    ) {
        let AdamW { learning_rate, beta_1, beta_2, epsilon, .. } = *settings;
        let correction = |beta: f64| 1.0 - beta.powi(settings.step as i32);
        let rate = (learning_rate / correction(beta_1)) as f32;
        let second_correction = (1.0 / correction(beta_2)) as f32;
        let keep = (1.0 - learning_rate * f64::from(weight_decay)) as f32;
        let [rest_1, rest_2] = [beta_1, beta_2].map(|beta| (1.0 - beta) as f32);
        let (beta_1, beta_2) = (beta_1 as f32, beta_2 as f32);
        update_all(simd, outputs, [values], |[gradient, first, second], [value]| {
            let g = gradient * clip;
            let m = first.mul_add(beta_1, g * rest_1);
            let v = second.mul_add(beta_2, g * g * rest_2);
            [value * keep - m * rate / ((v * second_correction).sqrt() + epsilon), m, v]
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_same_on_any_number_of_threads, random, widened};

    const SETTINGS: AdamW =
        AdamW { learning_rate: 1e-2, beta_1: 0.9, beta_2: 0.95, epsilon: 1e-8, step: 1, max_norm: Some(1.0) };

    /// Creates tensors of these lengths: values, first and second moments.
    fn state(lengths: &[usize]) -> Vec<[Vec<f32>; 3]> {
        lengths.iter().map(|&n| [random(n as u64, n), vec![0.0; n], vec![0.0; n]]).collect()
    }

    /// Performs one step on all tensors, and returns the norm of their gradients.
    fn run(settings: &AdamW, state: &mut [[Vec<f32>; 3]], gradients: &[Vec<f32>]) -> f64 {
        let norm = global_norm(&gradients.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut buffers = gradients.to_vec();
        let parameters = state.iter_mut().zip(&mut buffers).enumerate();
        let mut parameters: Vec<_> = parameters
            .map(|(index, ([values, first, second], gradient))| Parameter {
                values,
                gradient,
                first_moment: first,
                second_moment: second,
                weight_decay: if index == 0 { 0.1 } else { 0.0 },
            })
            .collect();
        step(settings, norm, &mut parameters);
        for ([values, ..], new) in state.iter_mut().zip(buffers) {
            *values = new;
        }
        norm
    }

    #[test]
    fn clipped_adamw_steps_match_f64_formulas() {
        let lengths = [37, 5, PIECE_LENGTH + 3];
        let mut state = state(&lengths);
        let mut expected: Vec<[Vec<f64>; 3]> =
            state.iter().map(|tensor| tensor.each_ref().map(|part| widened(part))).collect();
        for t in 1..=12_i32 {
            let gradients: Vec<Vec<f32>> =
                lengths.iter().map(|&n| random(100 * t as u64 + n as u64, n)).collect();
            let norm = run(&AdamW { step: t as u32, ..SETTINGS }, &mut state, &gradients);
            let exact = gradients.iter().flatten().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            assert!((norm - exact).abs() <= 1e-6 * exact, "norm {norm}, not {exact}");
            for (index, ([p, m, v], gradient)) in expected.iter_mut().zip(&gradients).enumerate() {
                for (i, g) in gradient.iter().enumerate() {
                    let g = f64::from(*g) / exact.max(1.0);
                    m[i] = 0.9 * m[i] + 0.1 * g;
                    v[i] = 0.95 * v[i] + 0.05 * g * g;
                    let decay = if index == 0 { 1e-3 } else { 0.0 };
                    let root = (v[i] / (1.0 - 0.95_f64.powi(t))).sqrt() + 1e-8;
                    p[i] = (1.0 - decay) * p[i] - 1e-2 * m[i] / (1.0 - 0.9_f64.powi(t)) / root;
                }
            }
        }
        for (tensor, expected) in state.iter().zip(&expected) {
            for (part, expected) in tensor.iter().zip(expected) {
                assert_close("after twelve steps", part, expected);
            }
        }
    }

    #[test]
    fn norm_is_finite_if_squares_overflow() {
        let gradient = [3e30_f32, 4e30];
        let norm = global_norm(&[&gradient]);
        assert!((norm - 5e30).abs() < 1e24, "{norm}");
    }

    #[test]
    fn small_gradients_are_not_clipped() {
        let gradients = [vec![0.3_f32, -0.4]];
        let stepped = |max_norm| {
            let mut state = state(&[2]);
            let norm = run(&AdamW { max_norm, ..SETTINGS }, &mut state, &gradients);
            assert!((norm - 0.5).abs() < 1e-7);
            state
        };
        assert_eq!(stepped(Some(0.6)), stepped(None));
        assert_ne!(stepped(Some(0.4)), stepped(None));
    }

    #[test]
    fn steps_are_bitwise_equal_across_thread_counts() {
        let lengths = [5 * PIECE_LENGTH + 7, 3, 40 * PIECE_LENGTH];
        let gradients: Vec<Vec<f32>> = lengths.iter().map(|&n| random(n as u64 + 1, n)).collect();
        assert_same_on_any_number_of_threads(|| {
            let mut state = state(&lengths);
            run(&SETTINGS, &mut state, &gradients);
            state.into_iter().flatten().collect()
        });
    }
}
