//! The feed-forward layer, computed by strips of rows and layer by layer.

use super::*;
use crate::linear::WeightLayout;
use crate::testing::{assert_same_on_any_number_of_threads, random, widened};

/// The sizes, parameters and inputs of a layer.
struct Case {
    d_model: usize,
    d_inner: usize,
    d_up: usize,
    parameters: [Vec<f32>; 4],
    input: Vec<f32>,
    residual: Vec<f32>,
    gradient: Vec<f32>,
}

/// The results of both passes: the output, then the gradients of the input, both weights and both biases.
type Results = [Vec<f32>; 6];

impl Case {
    fn new(rows: usize, d_model: usize, d_inner: usize, is_gated: bool) -> Self {
        let d_up = if is_gated { 2 * d_inner } else { d_inner };
        let lengths = [d_model * d_up, d_up, d_inner * d_model, d_model];
        let mut seed = 0;
        let mut random = |length| {
            seed += 1;
            random(seed, length)
        };
        Self {
            d_model,
            d_inner,
            d_up,
            parameters: lengths.map(&mut random),
            input: random(rows * d_model),
            residual: random(rows * d_model),
            gradient: random(rows * d_model),
        }
    }

    fn layer(&self, precision: Precision) -> FeedForward<'_> {
        let [up, up_bias, down, down_bias] = &self.parameters;
        let layer = |weight, bias, d_in, d_out| Linear {
            weight,
            layout: WeightLayout::InputOutput,
            bias: Some(bias),
            d_in,
            d_out,
            precision,
        };
        FeedForward {
            up: layer(up, up_bias, self.d_model, self.d_up),
            down: layer(down, down_bias, self.d_inner, self.d_model),
            activation: Activation::GeluTanh,
            dropout: Some(Dropout { probability: 0.25, seed: 3 }),
        }
    }

    /// Runs both passes with a stored or a recomputed pre-activation.
    fn run(&self, layer: &FeedForward, is_stored: bool) -> Results {
        self.run_for(layer, is_stored, |_| true)
    }

    /// Runs both passes with only the wanted gradients, selected by their index in [`Results`].
    fn run_for(&self, layer: &FeedForward, is_stored: bool, is_requested: impl Fn(usize) -> bool) -> Results {
        let rows = self.input.len() / self.d_model;
        let mut results = self.unknown();
        let [output, gradients @ ..] = &mut results;
        let mut pre_activation = is_stored.then(|| pool::take(rows * self.d_up));
        forward(layer, &self.input, &self.residual, pre_activation.as_deref_mut(), output);
        let mut index = 0;
        let [input, up, down, up_bias, down_bias] = gradients.each_mut().map(|gradient| {
            index += 1;
            is_requested(index).then_some(&mut gradient[..])
        });
        let gradients = [(input, up, up_bias), (None, down, down_bias)]
            .map(|(input, weight, bias)| linear::Gradients { input, weight, bias });
        backward(layer, &self.input, pre_activation, &self.gradient, gradients);
        results
    }

    fn unknown(&self) -> Results {
        let [up, up_bias, down, down_bias] = self.parameters.each_ref().map(Vec::len);
        [self.input.len(), self.input.len(), up, down, up_bias, down_bias]
            .map(|length| vec![f32::NAN; length])
    }
}

/// Returns the largest difference, relative to the largest number.
fn difference(actual: &[f32], expected: &[f32]) -> f64 {
    let largest = |numbers: &mut dyn Iterator<Item = f64>| numbers.fold(0.0, f64::max);
    let (actual, expected) = (widened(actual), widened(expected));
    let differences = largest(&mut actual.iter().zip(&expected).map(|(a, b)| (a - b).abs()));
    assert!(actual.iter().all(|number| number.is_finite()));
    differences / largest(&mut expected.iter().map(|number| number.abs()))
}

#[test]
fn row_strips_match_the_unfused_layers() {
    // The first inner width has one chunk, the second several chunks, the last of which is shorter.
    for (d_inner, is_gated) in [(64, false), (64, true), (800, false), (800, true)] {
        let case = Case::new(601, 134, d_inner, is_gated);
        let layer = case.layer(Precision::Bf16);
        assert!(layer.uses_strips(601) && !case.layer(Precision::F32).uses_strips(601));
        let by_strips = case.run(&layer, true);
        assert!(by_strips == case.run(&layer, false), "stored and recomputed pre-activations: {d_inner}");

        // The same rows in two halves, which are too short for strips.
        let mut by_layers = case.unknown();
        by_layers[2..].iter_mut().for_each(|sums| sums.fill(0.0));
        let in_single_precision = case.run(&case.layer(Precision::F32), true);
        for (first, rows) in [(0, 300), (300, 301)] {
            let part = |numbers: &Vec<f32>| numbers[first * 134..(first + rows) * 134].to_vec();
            let half = Case {
                input: part(&case.input),
                residual: part(&case.residual),
                gradient: part(&case.gradient),
                parameters: case.parameters.clone(),
                ..case
            };
            let layer = FeedForward { dropout: None, ..half.layer(Precision::Bf16) };
            assert!(!layer.uses_strips(rows));
            let results = half.run(&layer, true);
            for (all, part) in by_layers.iter_mut().zip(&results).take(2) {
                all[first * 134..(first + rows) * 134].copy_from_slice(part);
            }
            for (all, part) in by_layers.iter_mut().zip(&results).skip(2) {
                all.iter_mut().zip(part).for_each(|(sum, term)| *sum += term);
            }
        }
        let without_dropout = case.run(&FeedForward { dropout: None, ..layer }, true);
        assert!(without_dropout[0] == by_layers[0], "the output of {d_inner} inner columns");
        for (name, (strips, by_layers)) in ["input", "up", "down", "up's bias", "down's bias"]
            .iter()
            .zip(without_dropout.iter().zip(&by_layers).skip(1))
        {
            let difference = difference(strips, by_layers);
            assert!(difference < 1e-5, "{name}, {d_inner} inner columns: {difference}");
        }
        for (index, (strips, expected)) in by_strips.iter().zip(&in_single_precision).enumerate() {
            let difference = difference(strips, expected);
            assert!(
                difference < 0.02,
                "{index}, {d_inner} inner columns: {difference} from single precision"
            );
        }
    }
}

#[test]
fn strips_are_bitwise_equal_across_thread_counts() {
    let case = Case::new(601, 128, 416, true);
    assert_same_on_any_number_of_threads(|| case.run(&case.layer(Precision::Bf16), false).into());
}

#[test]
fn omitted_gradients_and_biases_change_no_others() {
    let case = Case::new(601, 128, 64, true);
    let layer = case.layer(Precision::Bf16);
    let all = case.run(&layer, false);
    for wanted in 1..all.len() {
        let results = case.run_for(&layer, false, |index| index == wanted);
        assert!(results[0] == all[0] && results[wanted] == all[wanted], "the gradient at {wanted} alone");
    }
    let mut case = Case::new(601, 128, 64, true);
    [1, 3].iter().for_each(|bias| case.parameters[*bias].fill(0.0));
    let layer = case.layer(Precision::Bf16);
    let [up, down] = [layer.up, layer.down].map(|layer| Linear { bias: None, ..layer });
    let results = [layer, FeedForward { up, down, ..layer }].map(|layer| case.run(&layer, true));
    assert!(results[0] == results[1], "biases of zero and none");
}
