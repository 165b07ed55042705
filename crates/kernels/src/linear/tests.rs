//! The linear layer, compared with products in double precision.

use proptest::prelude::*;

use super::*;
use crate::team;
use crate::testing::{
    assert_close, assert_same_on_any_number_of_threads, erf, naive_product, random, transposed, widened,
};

struct Case {
    input: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
    output_gradient: Vec<f32>,
    d_in: usize,
    d_out: usize,
}

impl Case {
    fn new(rows: usize, d_in: usize, d_out: usize) -> Self {
        Self {
            input: random(1, rows * d_in),
            weight: random(2, d_in * d_out),
            bias: random(3, d_out),
            residual: random(4, rows * d_out),
            output_gradient: random(5, rows * d_out),
            d_in,
            d_out,
        }
    }

    fn layer(&self) -> Linear<'_> {
        let Self { weight, bias, d_in, d_out, .. } = self;
        let precision = Precision::F32;
        Linear {
            weight,
            layout: WeightLayout::InputOutput,
            bias: Some(bias),
            d_in: *d_in,
            d_out: *d_out,
            precision,
        }
    }

    /// Computes `x W + b` in double precision.
    fn pre_activation(&self) -> Vec<f64> {
        let product = naive_product(&widened(&self.input), &widened(&self.weight), self.d_in, self.d_out);
        product.iter().enumerate().map(|(i, x)| x + f64::from(self.bias[i % self.d_out])).collect()
    }

    fn forward(&self, epilogue: Epilogue) -> Vec<f32> {
        let mut output = vec![f32::NAN; self.residual.len()];
        forward(&self.layer(), &self.input, epilogue, &mut output);
        output
    }

    /// Computes all gradients, and compares them with the gradients derived from `gradient`, the gradient of `x W + b`.
    fn check_backward(&self, layer: Linear, dropout: Option<Dropout>, gradient: &[f64]) {
        let (d_in, d_out) = (self.d_in, self.d_out);
        let mut input = vec![f32::NAN; self.input.len()];
        let mut weight = vec![f32::NAN; self.weight.len()];
        let mut bias = vec![f32::NAN; d_out];
        let gradients =
            Gradients { input: Some(&mut input), weight: Some(&mut weight), bias: Some(&mut bias) };
        backward(&layer, &self.input, dropout, &self.output_gradient, gradients);
        let weight_transposed = transposed(&widened(&self.weight), d_out);
        assert_close("dx", &input, &naive_product(gradient, &weight_transposed, d_out, d_in));
        let mut expected =
            naive_product(&transposed(&widened(&self.input), d_in), gradient, gradient.len() / d_out, d_out);
        if layer.layout == WeightLayout::OutputInput {
            expected = transposed(&expected, d_out);
        }
        assert_close("dW", &weight, &expected);
        let mut sums = vec![0.0; d_out];
        gradient.iter().enumerate().for_each(|(i, g)| sums[i % d_out] += g);
        // Terms may cancel, so errors are measured relative to the largest term.
        let largest = gradient.iter().fold(0.0_f32, |largest, g| largest.max(g.abs() as f32));
        bias.push(largest);
        sums.push(f64::from(largest));
        assert_close("db", &bias, &sums);
    }
}

fn check(rows: usize, d_in: usize, d_out: usize) {
    let case = Case::new(rows, d_in, d_out);
    let pre_activation = case.pre_activation();
    let gradient = widened(&case.output_gradient);

    assert_close("x W + b", &case.forward(Epilogue::None), &pre_activation);
    case.check_backward(case.layer(), None, &gradient);

    let transposed_weight = transposed(&case.weight, d_out);
    let tied = Linear { weight: &transposed_weight, layout: WeightLayout::OutputInput, ..case.layer() };
    let mut output = vec![f32::NAN; rows * d_out];
    forward(&tied, &case.input, Epilogue::None, &mut output);
    assert_close("x W^T + b", &output, &pre_activation);
    case.check_backward(tied, None, &gradient);

    let mut saved = vec![f32::NAN; rows * d_out];
    let form = Activation::Gelu;
    let output = case.forward(Epilogue::Activation { form, pre_activation: Some(&mut saved) });
    let cdf = |x: f64| 0.5 * (1.0 + erf(x.clamp(-6.0, 6.0) * std::f64::consts::FRAC_1_SQRT_2));
    assert_close("saved pre-activation", &saved, &pre_activation);
    assert_close("gelu", &output, &pre_activation.iter().map(|&x| x * cdf(x)).collect::<Vec<_>>());
    assert_eq!(output, case.forward(Epilogue::Activation { form, pre_activation: None }));
    let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let through: Vec<f64> =
        pre_activation.iter().zip(&gradient).map(|(&x, g)| g * (cdf(x) + x * density(x))).collect();
    let mut before_gelu = Case::new(rows, d_in, d_out);
    activation::activate_and_differentiate(form, &mut saved, &mut before_gelu.output_gradient);
    assert_eq!(saved, output);
    before_gelu.check_backward(before_gelu.layer(), None, &through);

    let dropout = Dropout { probability: 0.3, seed: 17 };
    let mut keep = vec![f32::NAN; rows * d_out];
    dropout::apply(dropout, d_out, &vec![1.0; rows * d_out], &mut keep);
    for dropout in [None, Some(dropout)] {
        let kept = |i: usize| dropout.map_or(1.0, |_| f64::from(keep[i]));
        let expected: Vec<f64> = pre_activation
            .iter()
            .enumerate()
            .map(|(i, x)| f64::from(case.residual[i]) + kept(i) * x)
            .collect();
        let output = case.forward(Epilogue::Residual { residual: &case.residual, dropout });
        assert_close("residual", &output, &expected);
    }
    let through: Vec<f64> = gradient.iter().zip(&keep).map(|(g, &keep)| g * f64::from(keep)).collect();
    case.check_backward(case.layer(), Some(dropout), &through);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn forward_and_gradients_agree_with_f64(rows in 1_usize..70, d_in in 1_usize..70, d_out in 1_usize..150) {
        check(rows, d_in, d_out);
    }
}

#[test]
fn bf16_error_stays_within_factor_rounding() {
    for scale in [1.0, 1e30] {
        let (rows, d_in, d_out) = (67, 131, 71);
        let mut case = Case::new(rows, d_in, d_out);
        case.input.iter_mut().for_each(|x| *x *= scale);
        let layer = Linear { precision: Precision::Bf16, bias: None, ..case.layer() };
        let mut output = vec![f32::NAN; rows * d_out];
        forward(&layer, &case.input, Epilogue::None, &mut output);
        let (mut input, mut weight) = (vec![f32::NAN; rows * d_in], vec![f32::NAN; d_in * d_out]);
        let gradients = Gradients { input: Some(&mut input), weight: Some(&mut weight), bias: None };
        backward(&layer, &case.input, None, &case.output_gradient, gradients);
        let [x, w, g] = [&case.input, &case.weight, &case.output_gradient].map(|values| widened(values));
        for (actual, left, right, inner, columns) in [
            (output, x.clone(), w.clone(), d_in, d_out),
            (input, g.clone(), transposed(&w, d_out), d_out, d_in),
            (weight, transposed(&x, d_in), g, rows, d_out),
        ] {
            let expected = naive_product(&left, &right, inner, columns);
            let absolute = |values: Vec<f64>| values.into_iter().map(f64::abs).collect::<Vec<_>>();
            // Each factor has a relative error of up to 2^-9. The bound adds one percent for the sums.
            let bounds = naive_product(&absolute(left), &absolute(right), inner, columns);
            for ((actual, expected), bound) in actual.iter().zip(expected).zip(bounds) {
                let error = (f64::from(*actual) - expected).abs();
                assert!(error <= 1.01 / 256.0 * bound, "{actual}, not {expected}, by terms of {bound}");
            }
        }
    }
}

#[test]
fn products_cut_into_tiles_agree_with_f64() {
    team::with_threads(2, || {
        assert_ne!(tile_size(Precision::F32, [331, 307], 101), (331, 307), "the product is cut");
        check(331, 101, 307);
    });
}

#[test]
fn results_are_bitwise_equal_across_thread_counts() {
    let case = Case::new(401, 199, 307);
    let dropout = Dropout { probability: 0.3, seed: 17 };
    assert_same_on_any_number_of_threads(|| {
        let layer = Linear { precision: Precision::Bf16, ..case.layer() };
        let mut output = vec![f32::NAN; case.residual.len()];
        forward(&layer, &case.input, Epilogue::None, &mut output);
        vec![output]
    });
    assert_same_on_any_number_of_threads(|| {
        let mut saved = vec![0.0; case.residual.len()];
        let gelu = case
            .forward(Epilogue::Activation { form: Activation::GeluTanh, pre_activation: Some(&mut saved) });
        let residual = case.forward(Epilogue::Residual { residual: &case.residual, dropout: Some(dropout) });
        let mut gradients =
            vec![vec![0.0; case.input.len()], vec![0.0; case.weight.len()], vec![0.0; case.d_out]];
        let [input, weight, bias] = &mut gradients[..] else { unreachable!() };
        backward(
            &case.layer(),
            &case.input,
            Some(dropout),
            &case.output_gradient,
            Gradients { input: Some(input), weight: Some(weight), bias: Some(bias) },
        );
        gradients.extend([gelu, residual, saved]);
        gradients
    });
}
