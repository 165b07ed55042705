//! Tests of the fused norms, compared with Burn's operations.

use burn::tensor::TensorData;
use proptest::prelude::*;

use super::*;
use crate::kernels::random::random;
use crate::ops::{Activation, agreement::*, feed_forward};

/// Creates the input of a norm whose adjacent elements differ widely. If the elements of a row hardly differed, only
/// the rounding error of their mean would remain.
fn uneven<B: AutodiffBackend>(seed: u64, [rows, width]: [usize; 2]) -> Tensor<B, 3> {
    let mut values = random(seed, rows * width);
    for row in values.chunks_mut(width) {
        row.iter_mut().step_by(2).for_each(|value| *value += 3.0);
    }
    Tensor::from_data(TensorData::new(values, [1, rows, width]), &Default::default()).require_grad()
}

const LAYER: Settings = Settings { epsilon: 1e-5, kind: NormKind::Layer };
const RMS: Settings = Settings { kind: NormKind::Rms, ..LAYER };

fn norm_agrees<B: AutodiffBackend>([rows, width]: [usize; 2], bias: bool, seed: u64) {
    check("RMS norm", || {
        let input = uneven::<B>(seed, [rows, width]);
        let gamma = leaf::<B, 1>(seed + 1, [width]).require_grad();
        let output = run(input.clone(), gamma.clone(), None, RMS);
        let inner = run(input.clone().inner(), gamma.clone().inner(), None, RMS);
        outcome!(output, inner, [input, gamma])
    });
    check("norm", || {
        let input = uneven::<B>(seed, [rows, width]);
        let gamma = leaf::<B, 1>(seed + 1, [width]).require_grad();
        let beta = bias.then(|| leaf::<B, 1>(seed + 2, [width]).require_grad());
        let output = run(input.clone(), gamma.clone(), beta.clone(), LAYER);
        let inner_beta = beta.clone().map(Tensor::inner);
        let inner = run(input.clone().inner(), gamma.clone().inner(), inner_beta, LAYER);
        match &beta {
            Some(beta) => outcome!(output, inner, [input, gamma, beta]),
            None => outcome!(output, inner, [input, gamma]),
        }
    });
}

/// Checks a norm before linear layers, which recompute it for their gradients. If `tracked` is false, scale and shift
/// have no gradients, and the output of the norm is kept.
fn norm_before_linear_layers_agrees<B: AutodiffBackend>([rows, width]: [usize; 2], tracked: bool, seed: u64) {
    check("norm before linear layers", || {
        let input = uneven::<B>(seed, [rows, width]);
        let parameter = |seed| {
            let parameter = leaf::<B, 1>(seed, [width]);
            if tracked { parameter.require_grad() } else { parameter }
        };
        let (gamma, beta) = (parameter(seed + 1), parameter(seed + 2));
        let weight = leaf::<B, 2>(seed + 3, [width, width]).require_grad();
        let normed = run(input.clone(), gamma.clone(), Some(beta.clone()), LAYER);
        let layer = || layer_of(weight.clone(), None);
        let linear = || layer().apply(normed.clone(), None);
        let layers = [layer(), layer()];
        let feed_forward = feed_forward::run(layers, Activation::Gelu, 0.0, normed.clone(), normed.clone());
        let output = linear() + linear() * 2.0 + feed_forward;
        match tracked {
            true => outcome!(output.clone(), output.inner(), [input, weight, gamma, beta]),
            false => outcome!(output.clone(), output.inner(), [input, weight]),
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Rows of one element are excluded, since their gradient is pure rounding error.
    #[test]
    fn norms_agree(sizes in [1usize..131, 2usize..70], bias: bool, seed in 0u64..1_000) {
        norm_agrees::<AutodiffNdArray>(sizes, bias, seed);
        norm_agrees::<AutodiffFlex>(sizes, bias, seed);
    }

    #[test]
    fn norms_before_linear_layers_agree(
        sizes in [1usize..131, 5usize..70], tracked: bool, seed in 0u64..1_000,
    ) {
        norm_before_linear_layers_agrees::<AutodiffNdArray>(sizes, tracked, seed);
        norm_before_linear_layers_agrees::<AutodiffFlex>(sizes, tracked, seed);
    }
}

#[test]
fn norm_output_is_not_kept_for_backward() {
    /// Returns true if the memory of the norm returns to the pool while the layer's output still exists. No other
    /// buffer has this size.
    fn is_free<B: AutodiffBackend>() -> bool {
        let (rows, width) = (997, 41);
        let parameter = |seed| leaf::<B, 1>(seed, [width]).require_grad();
        let input = leaf::<B, 2>(3, [rows, width]).require_grad();
        let normed = run(input, parameter(1), Some(parameter(2)), LAYER);
        let layer = layer_of(leaf::<B, 2>(4, [width, 5]).require_grad(), None);
        let output = layer.apply(normed.clone(), None);
        let normed = Floats::contiguous::<B>(primitive(normed));
        let address = normed.slice().as_ptr();
        drop(normed);
        let is_free = [(); 2].map(|()| pool::take(rows * width)).iter().any(|it| it.as_ptr() == address);
        drop(output);
        is_free
    }
    assert!(is_free::<AutodiffNdArray>() && is_free::<AutodiffFlex>());
}

#[test]
fn norm_accepts_transposed_and_narrowed_inputs() {
    fn agrees<B: AutodiffBackend>() {
        check("norm of a transposed part", || {
            let input = leaf::<B, 3>(1, [7, 5, 11]).require_grad();
            let part = input.clone().swap_dims(0, 1).narrow(1, 2, 3); // [5, 3, 11]
            let output = run(part, leaf::<B, 1>(2, [11]), None, LAYER);
            outcome!(output.clone(), output.inner(), [input])
        });
    }
    agrees::<AutodiffNdArray>();
    agrees::<AutodiffFlex>();
}
