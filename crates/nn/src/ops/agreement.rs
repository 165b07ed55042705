//! Test helpers that compare the two forms of an operation on one backend, forward and backward.

pub use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Bool, Int, Tensor, TensorData, backend::Backend};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;

use super::{linear::Layer, *};
use crate::kernels::{linear::WeightLayout, random::random};

pub type AutodiffNdArray = Autodiff<NdArray>;
pub type AutodiffFlex = Autodiff<Flex>;

/// The results of an operation: its outputs with and without differentiation, and its gradients.
pub struct Outcome {
    pub outputs: Vec<Vec<f32>>,
    pub gradients: Vec<Vec<f32>>,
}

/// Runs an operation in both forms and compares the results. Outputs and gradients must each agree within 1e-5 of their
/// largest element.
pub fn check(what: &str, run: impl Fn() -> Outcome) {
    let (fused, reference) = (Kernels::Fused.run(&run), Kernels::Reference.run(&run));
    for (kind, fused, reference) in
        [("output", fused.outputs, reference.outputs), ("gradient", fused.gradients, reference.gradients)]
    {
        assert_eq!(fused.len(), reference.len());
        let largest = reference.iter().flatten().fold(0.0f32, |largest, value| largest.max(value.abs()));
        for (index, (fused, reference)) in fused.iter().zip(&reference).enumerate() {
            assert_eq!(fused.len(), reference.len(), "{what}: {kind} {index}");
            for (element, (a, b)) in fused.iter().zip(reference).enumerate() {
                let close = (a - b).abs() <= 1e-5 * largest;
                assert!(close, "{what}: {kind} {index} at {element} is {a}, not {b} (largest {largest})");
            }
        }
    }
}

pub fn leaf<B: Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    let values = random(seed, shape.iter().product());
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

pub fn numbers<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().unwrap()
}

/// Creates random ids below `below`.
pub fn ids<B: Backend>(seed: u64, shape: [usize; 2], below: usize) -> Tensor<B, 2, Int> {
    let ids = random(seed, shape.iter().product());
    let ids = ids.into_iter().map(|x| ((x + 1.0) / 2.0 * below as f32) as i64).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(ids, shape), &Default::default())
}

pub fn hidden<B: Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D, Bool> {
    let hidden = random(seed, shape.iter().product()).into_iter().map(|x| x > 0.3).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(hidden, shape), &Default::default())
}

/// Creates a layer with these parameters.
pub fn layer_of<B: Backend>(weight: Tensor<B, 2>, bias: Option<Tensor<B, 1>>) -> Layer<B> {
    Layer { weight, layout: WeightLayout::InputOutput, bias }
}

impl<B: AutodiffBackend> Layer<B> {
    /// Returns the same layer on the inner backend.
    pub fn inner(self) -> Layer<B::InnerBackend> {
        Layer { weight: self.weight.inner(), layout: self.layout, bias: self.bias.map(Tensor::inner) }
    }
}

/// Computes the outcome of an operation. The loss for its gradients is the dot product of the output and random
/// numbers.
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
pub(super) use outcome;

#[test]
fn fused_kernels_support_f32_on_cpu_backends() {
    fn is_supported<B: Backend>() -> bool {
        host::Floats::new::<B>(&primitive(leaf::<B, 2>(1, [3, 5]))).is_some()
    }
    assert!(is_supported::<NdArray<f32>>() && is_supported::<Flex>());
    assert!(!is_supported::<NdArray<f64>>());
    assert!(!Kernels::Reference.run(is_supported::<NdArray<f32>>));
}
