//! The kernels with factors rounded to bf16, compared with the reference implementation.

use super::*;

#[test]
fn bf16_attention_error_stays_below_one_percent() {
    let window = Visibility::Window { first_query: 0, keys: 21 };
    for (time, d_head, scale, visibility) in [
        (13, 16, 1.0, Visibility::CAUSAL),
        (13, 24, 1.0, Visibility::CAUSAL),
        (131, 24, 1.0, Visibility::CAUSAL),
        (201, 24, 1.0, window),
        (131, 24, 1e30, Visibility::CAUSAL),
    ] {
        let shape = Attention { key_value_heads: 2, ..Attention::new(2, time, time, 4, d_head) };
        let options = Options { visibility, bias: true, rotary: true, dropout: true, ..CAUSAL };
        let mut case = Case::new(Attention { precision: Precision::Bf16, ..shape }, options);
        case.value.iter_mut().for_each(|x| *x *= scale);
        let output = case.run();
        let expected = compute(&case.attention(), &case.tensors(), &widened(&case.context_gradient));
        let Tensors { query, key, value, bias, .. } = &expected.gradients;
        for (what, actual, expected) in [
            ("context", &output.context, &expected.context),
            ("query gradient", &output.query, query),
            ("key gradient", &output.key, key),
            ("value gradient", &output.value, value),
            ("bias gradient", &output.bias, bias),
        ] {
            let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
            for (actual, expected) in actual.iter().zip(expected) {
                let error = (f64::from(*actual) - expected).abs();
                assert!(
                    error <= 0.01 * largest,
                    "{what} of {time}: {actual}, not {expected} (largest {largest})"
                );
            }
        }
    }
}

/// The largest relative error of a product of two rounded factors, each of which has a relative error of up to 2^-9.
const PRODUCT_ERROR: f64 = 1.01 / 256.0;

#[test]
fn bf16_attention_error_is_within_rounding_bounds() {
    for time in [13, 131] {
        let (heads, d_head) = (2, 24);
        let shape = Attention { precision: Precision::Bf16, ..Attention::new(1, time, time, heads, d_head) };
        let case = Case::new(shape, CAUSAL);
        let output = case.run();
        let gradient = widened(&case.context_gradient);
        let expected = compute(&case.attention(), &case.tensors(), &gradient);
        let Tensors { query, key, value, .. } = case.tensors();
        let width = heads * d_head;
        let [mut context_bound, mut query_bound, mut key_bound, mut value_bound] =
            [(); 4].map(|()| vec![0.0; time * width]);
        let scale = (d_head as f64).sqrt().recip();
        for (head, row) in (0..heads).flat_map(|head| (0..time).map(move |row| (head, row))) {
            let at = |row: usize| row * width + head * d_head..row * width + (head + 1) * d_head;
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let error = |a: &[f64], b: &[f64]| {
                PRODUCT_ERROR * a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum::<f64>()
            };
            let (q, g) = (&query[at(row)], &gradient[at(row)]);
            let exponentials = (0..=row).map(|k| (scale * dot(q, &key[at(k)])).exp()).collect::<Vec<_>>();
            let total = exponentials.iter().sum::<f64>();
            let weights = exponentials.iter().map(|x| x / total).collect::<Vec<_>>();
            // The error of the scores affects a weight and the sum by which it is divided.
            let score_error = (0..=row).map(|k| scale * error(q, &key[at(k)])).fold(0.0, f64::max);
            let weight_error = (2.0 * score_error).exp() - 1.0;
            let term_error = (1.0 + weight_error) * (1.0 + PRODUCT_ERROR) - 1.0;
            for (k, weight) in weights.iter().enumerate() {
                for (i, (v, g)) in value[at(k)].iter().zip(g).enumerate() {
                    context_bound[at(row).start + i] += weight * v.abs() * term_error;
                    value_bound[at(k).start + i] += weight * g.abs() * term_error;
                }
            }
            // The gradient of a score is its weight times the excess of `g . v` over `g . c`.
            let mean_product = dot(&expected.context[at(row)], g);
            let mean_error =
                context_bound[at(row)].iter().zip(g).map(|(error, g)| error * g.abs()).sum::<f64>();
            for (k, weight) in weights.iter().enumerate() {
                let excess = dot(g, &value[at(k)]) - mean_product;
                let excess_error = error(g, &value[at(k)]) + mean_error;
                let slope_error =
                    weight * ((1.0 + weight_error) * excess_error + weight_error * excess.abs());
                let slope = (weight * excess).abs();
                let term_error = scale * ((slope + slope_error) * (1.0 + PRODUCT_ERROR) - slope);
                for i in 0..d_head {
                    query_bound[at(row).start + i] += key[at(k)][i].abs() * term_error;
                    key_bound[at(k).start + i] += q[i].abs() * term_error;
                }
            }
        }
        let gradients = &expected.gradients;
        assert_within("context", &output.context, &expected.context, &context_bound);
        assert_within("query gradient", &output.query, &gradients.query, &query_bound);
        assert_within("key gradient", &output.key, &gradients.key, &key_bound);
        assert_within("value gradient", &output.value, &gradients.value, &value_bound);
    }
}

fn assert_within(what: &str, actual: &[f32], expected: &[f64], bounds: &[f64]) {
    for ((actual, expected), bound) in actual.iter().zip(expected).zip(bounds) {
        let error = (f64::from(*actual) - expected).abs();
        assert!(error <= bound + 1e-6, "{what}: {actual}, not {expected} (bound {bound})");
    }
}
