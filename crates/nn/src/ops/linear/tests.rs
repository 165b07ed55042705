//! Tests of the fused linear layer, compared with Burn's operations.

use burn::{module::Param, nn::DropoutConfig};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use proptest::prelude::*;

use super::*;
use crate::ops::agreement::*;

type B = NdArray;

fn tensor<const D: usize>(values: impl Into<burn::tensor::TensorData>) -> Tensor<B, D> {
    Tensor::from_floats(values, &Default::default())
}

fn layer() -> Linear<B> {
    Linear {
        weight: Param::from_tensor(tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 3.0]])),
        bias: Some(Param::from_tensor(tensor([10.0, 20.0, 30.0]))),
    }
}

#[test]
fn linear_applies_to_the_last_axis() {
    let expected: [f32; 6] = [11.0, 18.0, 38.0, 13.0, 16.0, 48.0];
    let output = linear(&layer(), tensor::<2>([[1.0, 2.0], [3.0, 4.0]]));
    assert_eq!(output.into_data().to_vec::<f32>().unwrap(), expected);
    let output = linear(&layer(), tensor::<4>([[[[1.0, 2.0], [3.0, 4.0]]]]));
    assert_eq!(output.dims(), [1, 1, 2, 3]);
    assert_eq!(output.into_data().to_vec::<f32>().unwrap(), expected);
}

#[test]
fn linear_residual_adds_the_residual() {
    let dropout = DropoutConfig::new(0.5).init();
    let residual = tensor::<2>([[100.0, 200.0, 300.0]]);
    let output = linear_residual(&layer(), &dropout, tensor::<2>([[1.0, 2.0]]), Some(residual));
    assert_eq!(output.into_data().to_vec::<f32>().unwrap(), [111.0, 218.0, 338.0]);
}

#[test]
fn tied_layer_scores_every_embedding_row() {
    let table = Embedding { weight: Param::from_tensor(tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])) };
    let scores = tied_linear(&table, tensor::<3>([[[1.0, 10.0]]]));
    assert_eq!(scores.into_data().to_vec::<f32>().unwrap(), [21.0, 43.0, 65.0]);
}

fn linear_agrees<B: AutodiffBackend>([rows, d_in, d_out]: [usize; 3], bias: bool, seed: u64) {
    // Module parameters are detached from the graph, so the operations are called directly.
    let layer = || {
        let bias = bias.then(|| leaf::<B, 1>(seed + 1, [d_out]).require_grad());
        layer_of(leaf::<B, 2>(seed, [d_in, d_out]).require_grad(), bias)
    };
    let inputs = || leaf::<B, 3>(seed + 2, [1, rows, d_in]).require_grad();
    check("linear", || {
        let (layer, input) = (layer(), inputs());
        let output = layer.clone().apply(input.clone(), None);
        let inner = layer.clone().inner().apply(input.clone().inner(), None);
        match layer.bias {
            Some(bias) => outcome!(output, inner, [input, layer.weight, bias]),
            None => outcome!(output, inner, [input, layer.weight]),
        }
    });
    check("linear with residual", || {
        let (layer, input) = (layer(), inputs());
        let residual = leaf::<B, 3>(seed + 3, [1, rows, d_out]).require_grad();
        let output = layer.clone().apply(input.clone(), Some((residual.clone(), 0.0)));
        let inner = layer.clone().inner().apply(input.clone().inner(), Some((residual.clone().inner(), 0.0)));
        match layer.bias {
            Some(bias) => outcome!(output, inner, [input, layer.weight, bias, residual]),
            None => outcome!(output, inner, [input, layer.weight, residual]),
        }
    });
    check("tied linear", || {
        let input = inputs();
        let table = leaf::<B, 2>(seed + 4, [d_out, d_in]).require_grad();
        let layer = Layer { layout: WeightLayout::OutputInput, ..layer_of(table.clone(), None) };
        let output = layer.apply(input.clone(), None);
        let inner = Embedding { weight: Param::from_tensor(table.clone().inner()) };
        let inner = tied_linear(&inner, input.clone().inner());
        outcome!(output, inner, [input, table])
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn linear_layers_agree(sizes in [1usize..131, 1usize..70, 1usize..70], bias: bool, seed in 0u64..1_000) {
        linear_agrees::<AutodiffNdArray>(sizes, bias, seed);
        linear_agrees::<AutodiffFlex>(sizes, bias, seed);
    }
}

/// Products of this size are split in two, and their gradients are computed in parallel.
#[test]
fn medium_linear_layers_agree() {
    linear_agrees::<AutodiffNdArray>([320, 64, 192], true, 1);
    linear_agrees::<AutodiffFlex>([257, 97, 131], true, 2);
}

#[test]
fn f16_linear_falls_back_to_reference() {
    let is_supported = || {
        let weight = leaf::<Flex, 2>(1, [5, 5]);
        let read = || fused::input(&weight);
        let inputs = LinearInputs { input: read(), weight: read(), bias: None, residual: None };
        let output = layer_of(weight.clone(), None).apply(weight.clone(), None);
        let precision = kernels::Precision::F32;
        let settings = Fused { layout: WeightLayout::InputOutput, dropout: None, precision };
        let fused: Tensor<Flex, 2> = fused(inputs, |_| Some(settings)).unwrap();
        numbers(output) == numbers(fused)
    };
    assert!(Precision::F32.run(is_supported));
    assert!(!Precision::F16.run(is_supported));
}

#[test]
fn bias_gradient_counts_elements_kept_by_dropout() {
    fn agrees<B: AutodiffBackend>() {
        let device = Default::default();
        // Where dropout keeps the output, it is the scaled bias, so the gradient of the bias counts the kept elements.
        let bias = Tensor::<B, 1>::ones([103], &device).require_grad();
        let zeros = |shape| Tensor::<B, 2>::zeros(shape, &device);
        let layer = layer_of(zeros([5, 103]), Some(bias.clone()));
        let output = layer.apply(zeros([211, 5]), Some((zeros([211, 103]), 0.25)));
        let gradient = numbers(bias.grad(&output.clone().sum().backward()).unwrap());
        for (sum, gradient) in numbers(output.sum_dim(0)).into_iter().zip(gradient) {
            assert!((sum - gradient).abs() < 1e-3 && sum > 100.0, "{sum} {gradient}");
        }
    }
    agrees::<AutodiffNdArray>();
    agrees::<AutodiffFlex>();
}
