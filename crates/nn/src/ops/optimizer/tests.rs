//! Tests of the kernels, compared with Burn's operations.

use burn::tensor::TensorData;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use proptest::prelude::*;

use super::*;
use crate::{kernels::random::random, ops::Kernels};

/// Runs a few updates of matrices of these shapes, the first `muon` of them with Muon, and returns weights, moments and
/// norm after each.
fn path<B: Backend>(
    rule: &Rule,
    (decay, max_norm, muon): (f64, Option<f64>, usize),
    shapes: &[[usize; 2]],
    seed: u64,
) -> Vec<Vec<f32>> {
    let device = B::Device::default();
    let tensor = |seed, shape: [usize; 2]| {
        let values = TensorData::new(random(seed, shape[0] * shape[1]), shape);
        primitive(Tensor::<B, 2>::from_data(values, &device))
    };
    let mut state: Vec<_> =
        shapes.iter().enumerate().map(|(at, shape)| (tensor(seed + at as u64, *shape), None)).collect();
    let mut path = Vec::new();
    for step in 1..=4 {
        let parameters =
            state.into_iter().zip(shapes).enumerate().map(|(at, ((weights, moments), shape))| {
                let columns = match shape[1] / 2 {
                    0 => vec![1],
                    half => vec![half, shape[1] - half],
                };
                let by_muon = Rule::Muon(Muon { momentum: 0.95, columns });
                Parameter {
                    weights,
                    gradient: tensor(seed + (100 * step + at) as u64, *shape),
                    moments,
                    rule: if at < muon { by_muon } else { rule.clone() },
                    weight_decay: if at % 2 == 0 { decay } else { 0.0 },
                }
            });
        let update = Update { learning_rate: 1e-2, step, max_norm };
        let (updated, norm) = update.apply::<B>(parameters.collect(), &device);
        let numbers = |tensor: Tensor<B, 1>| tensor.into_data().to_vec::<f32>().unwrap();
        path.push(numbers(norm));
        for Updated { weights, moments } in &updated {
            path.push(numbers(flat::<B>(weights.clone())));
            path.push(numbers(moments.first.clone()));
            path.extend(moments.second.clone().map(numbers));
        }
        state = updated.into_iter().map(|updated| (updated.weights, Some(updated.moments))).collect();
    }
    path
}

fn fused_and_reference_agree<B: Backend>(
    rule: &Rule,
    settings: (f64, Option<f64>, usize),
    shapes: &[[usize; 2]],
    seed: u64,
) {
    let path = |kernels: Kernels| kernels.run(|| path::<B>(rule, settings, shapes, seed));
    let (fused, reference) = (path(Kernels::Fused), path(Kernels::Reference));
    assert_eq!(fused.len(), reference.len());
    for (fused, reference) in fused.iter().zip(&reference) {
        let largest = reference.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        assert_eq!(fused.len(), reference.len());
        for (a, b) in fused.iter().zip(reference) {
            assert!((a - b).abs() <= 1e-5 * largest, "{a}, not {b} (largest {largest})");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn kernel_updates_match_burn_operations(
        shapes in prop::collection::vec([1usize..131, 1usize..70], 1..5),
        (beta1, beta2) in (0.0..0.99, 0.5..0.999),
        decay in 0.0..1.0,
        max_norm in prop::sample::select(vec![None, Some(0.1), Some(1e3)]),
        is_adam: bool,
        muon in 0usize..4,
        seed in 0u64..1_000,
    ) {
        let rule = Rule::Adam(Adam { beta1, beta2, epsilon: 1e-8 });
        let decay = if is_adam { 0.0 } else { decay };
        fused_and_reference_agree::<NdArray>(&rule, (decay, max_norm, muon), &shapes, seed);
        fused_and_reference_agree::<Flex>(&rule, (decay, max_norm, muon), &shapes, seed);
    }
}
