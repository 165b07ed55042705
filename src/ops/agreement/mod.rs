//! Every operation, composed against fused on the same backend, forward and gradients.

mod attention;
mod dropout;
mod linear;
mod tokens;

use burn::tensor::{Bool, Int, Tensor, TensorData, backend};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;

use super::*;
use crate::kernels::testing::random;

type Ndarray = Autodiff<NdArray>;
type Flexible = Autodiff<Flex>;

/// The results of an operation: its output, with and without differentiation, and its gradients.
struct Outcome {
    outputs: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
}

/// Runs an operation on both paths: numbers must lie within 1e-5 of the largest of their kind.
fn check(what: &str, run: impl Fn() -> Outcome) {
    let (fused, composed) = (Kernels::Fused.run(&run), Kernels::Composed.run(&run));
    for (kind, fused, composed) in
        [("output", fused.outputs, composed.outputs), ("gradient", fused.gradients, composed.gradients)]
    {
        assert_eq!(fused.len(), composed.len());
        let largest = composed.iter().flatten().fold(0.0f32, |largest, value| largest.max(value.abs()));
        for (index, (fused, composed)) in fused.iter().zip(&composed).enumerate() {
            assert_eq!(fused.len(), composed.len(), "{what}: {kind} {index}");
            for (place, (a, b)) in fused.iter().zip(composed).enumerate() {
                let close = (a - b).abs() <= 1e-5 * largest;
                assert!(close, "{what}: {kind} {index} at {place} is {a}, not {b} (largest {largest})");
            }
        }
    }
}

fn leaf<B: backend::Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    let values = random(seed, shape.iter().product());
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn numbers<B: backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().unwrap()
}

/// Ids below `below`, and which of the places are hidden.
fn ids<B: backend::Backend>(seed: u64, shape: [usize; 2], below: usize) -> Tensor<B, 2, Int> {
    let ids = random(seed, shape.iter().product());
    let ids = ids.into_iter().map(|x| ((x + 1.0) / 2.0 * below as f32) as i64).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(ids, shape), &Default::default())
}

fn hidden<B: backend::Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D, Bool> {
    let hidden = random(seed, shape.iter().product()).into_iter().map(|x| x > 0.3).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(hidden, shape), &Default::default())
}

/// Differentiates the products of the output with random numbers.
macro_rules! outcome {
    ($output:expr, $inner:expr, [$($leaf:expr),* $(,)?]) => {{
        let output = $output;
        let weights = leaf(99, output.dims());
        let gradients = (output.clone() * weights).sum().backward();
        Outcome {
            outputs: vec![numbers(output), numbers($inner)],
            gradients: vec![$(numbers($leaf.grad(&gradients).unwrap())),*],
        }
    }};
}
use outcome;

#[test]
fn both_cpu_backends_are_served_and_double_precision_is_composed() {
    fn is_served<B: Backend>() -> bool {
        fused::dropout::<B>(&leaf::<B, 2>(1, [3, 5]).into_float()).is_some()
    }
    assert!(is_served::<NdArray<f32>>() && is_served::<Flex>());
    assert!(!is_served::<NdArray<f64>>());
    assert!(!Kernels::Composed.run(is_served::<NdArray<f32>>));
}

#[test]
fn in_half_precision_products_alone_are_composed() {
    let matrix = || leaf::<Flex, 2>(1, [5, 5]).into_float();
    let is_served = || {
        let gamma = leaf::<Flex, 1>(2, [5]).into_float();
        let norm = fused::norm::<Flex>(&matrix(), &gamma, None, 1e-5).is_some();
        (norm, fused::linear::<Flex>(&matrix(), &matrix(), None).is_some())
    };
    assert_eq!(Precision::F32.run(is_served), (true, true));
    assert_eq!(Precision::Bf16.run(is_served), (true, false));
}

#[test]
fn one_mask_for_all_sequences_hides_in_each_of_them() {
    let part = |seed| leaf::<Flex, 3>(seed, [3, 5, 4]);
    let one = |mask: Tensor<Flex, 2, Bool>| Mask::causal().hide_queries(mask);
    let attend = |mask| {
        let options = AttentionOptions {
            heads: 2,
            key_value_heads: 2,
            mask,
            position: ScorePosition::None,
            dropout: 0.0,
        };
        numbers(attention(part(1), part(2), part(3), options))
    };
    let mask = hidden::<Flex, 2>(4, [1, 5]);
    assert_eq!(attend(one(mask.clone())), Kernels::Composed.run(|| attend(one(mask.expand([3, 5])))));
}
