//! Layer norm and RMS norm, compared with their equations in double precision.

use proptest::prelude::*;

use super::*;
use crate::testing::{assert_close, assert_same_on_any_number_of_threads, random, widened};

const EPSILON: f32 = 1e-5;

/// Computes the norm row by row in double precision: output, dx, dgamma, dbeta.
fn naive(x: &[f32], norm: &Norm, dy: &[f32]) -> [Vec<f64>; 4] {
    let Norm { gamma, is_centred, .. } = *norm;
    let (width, beta) = (gamma.len(), norm.beta.expect("a shift"));
    let (x, gamma, beta, dy) = (widened(x), widened(gamma), widened(beta), widened(dy));
    let mut result = [vec![], vec![], vec![0.0; width], vec![0.0; width]];
    for (x, dy) in x.chunks(width).zip(dy.chunks(width)) {
        let average = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / width as f64;
        let centred = f64::from(u8::from(is_centred));
        let mean = centred * average(&mut x.iter().copied());
        let deviation = (average(&mut x.iter().map(|x| (x - mean).powi(2))) + f64::from(EPSILON)).sqrt();
        let h: Vec<f64> = x.iter().map(|x| (x - mean) / deviation).collect();
        let mean_g = centred * average(&mut (0..width).map(|i| dy[i] * gamma[i]));
        let mean_gh = average(&mut (0..width).map(|i| dy[i] * gamma[i] * h[i]));
        for i in 0..width {
            result[0].push(gamma[i] * h[i] + beta[i]);
            result[1].push((dy[i] * gamma[i] - mean_g - h[i] * mean_gh) / deviation);
            result[2][i] += dy[i] * h[i];
            result[3][i] += dy[i];
        }
    }
    result
}

struct Run {
    output: Vec<f32>,
    input: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
}

fn run(x: &[f32], norm: &Norm, dy: &[f32]) -> Run {
    let (width, rows) = (norm.gamma.len(), x.len() / norm.gamma.len());
    let (mut mean, mut inverse) = (vec![f32::NAN; rows], vec![f32::NAN; rows]);
    let new = |length| vec![f32::NAN; length];
    let mut run = Run { output: new(x.len()), input: new(x.len()), gamma: new(width), beta: new(width) };
    forward(norm, x, [&mut mean, &mut inverse], &mut run.output);
    let beta = norm.beta.map(|_| &mut run.beta[..]);
    backward(norm, x, [&mean, &inverse], dy, &mut run.input, &mut run.gamma, beta);
    run
}

fn check(rows: usize, width: usize, is_centred: bool) {
    let (x, dy) = (random(1, rows * width), random(2, rows * width));
    let (gamma, beta) = (random(3, width), random(4, width));
    let norm = Norm { is_centred, gamma: &gamma, beta: Some(&beta), epsilon: EPSILON };
    let result = run(&x, &norm, &dy);
    let expected = naive(&x, &norm, &dy);
    assert_close("y", &result.output, &expected[0]);
    // At widths of 1 and 2 the gradient is due to epsilon alone.
    if width > 2 {
        assert_close("dx", &result.input, &expected[1]);
        assert_close("dgamma", &result.gamma, &expected[2]);
    }
    assert_close("dbeta", &result.beta, &expected[3]);

    let without_shift = run(&x, &Norm { beta: None, ..norm }, &dy);
    let shifted: Vec<f64> = without_shift
        .output
        .iter()
        .enumerate()
        .map(|(i, y)| f64::from(*y) + f64::from(beta[i % width]))
        .collect();
    assert_close("y without shift", &result.output, &shifted);
    assert_eq!(result.gamma, without_shift.gamma);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn forward_and_gradients_agree_with_f64(rows in 1_usize..80, width in 1_usize..140) {
        check(rows, width, true);
        check(rows, width, false);
    }
}

#[test]
fn many_rows_in_pieces_agree_with_f64() {
    check(1_009, 97, true);
    check(1_009, 97, false);
}

#[test]
fn results_are_bitwise_equal_across_thread_counts() {
    let (rows, width) = (2_003, 131);
    assert!(rows > 2 * rows_per_piece(rows, width), "rows are cut into pieces");
    let (x, dy) = (random(1, rows * width), random(2, rows * width));
    let (gamma, beta) = (random(3, width), random(4, width));
    let norm = Norm { is_centred: true, gamma: &gamma, beta: Some(&beta), epsilon: EPSILON };
    assert_same_on_any_number_of_threads(|| {
        let Run { output, input, gamma, beta } = run(&x, &norm, &dy);
        vec![output, input, gamma, beta]
    });
}
