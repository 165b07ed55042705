//! Linear layers, alone and as a feed-forward layer, and norms, alone and before linear layers.

use burn::module::Param;
use burn::nn::{DropoutConfig, Embedding, Linear};
use proptest::prelude::*;

use super::*;

fn linear_agrees<B: AutodiffBackend>([rows, d_in, d_out]: [usize; 3], bias: bool, seed: u64) {
    let parameters = || {
        let weight = leaf::<B, 2>(seed, [d_in, d_out]).require_grad();
        let bias = bias.then(|| leaf::<B, 1>(seed + 1, [d_out]).require_grad());
        (weight, bias)
    };
    let inputs = || leaf::<B, 3>(seed + 2, [1, rows, d_in]).require_grad();
    fn layer<B: backend::Backend>(weight: &Tensor<B, 2>, bias: &Option<Tensor<B, 1>>) -> Linear<B> {
        let bias = bias.clone().map(Param::from_tensor);
        Linear { weight: Param::from_tensor(weight.clone()), bias }
    }
    let none = DropoutConfig::new(0.0).init();
    for form in [None, Some(Gelu::Erf), Some(Gelu::Tanh)] {
        check(&format!("linear with {form:?}"), || {
            let ((weight, bias), input) = (parameters(), inputs());
            let bias_primitive = bias.clone().map(IntoFloat::into_float);
            let output = float::<B, 3>(B::linear_activation(
                input.clone().into_float(),
                weight.clone().into_float(),
                bias_primitive,
                form,
            ));
            let inner: Tensor<B::InnerBackend, 3> = float(B::InnerBackend::linear_activation(
                input.clone().inner().into_float(),
                weight.clone().inner().into_float(),
                bias.clone().map(|bias| bias.inner().into_float()),
                form,
            ));
            match &bias {
                Some(bias) => outcome!(output, inner, [input, weight, bias]),
                None => outcome!(output, inner, [input, weight]),
            }
        });
    }
    check("linear with residual", || {
        let ((weight, bias), input) = (parameters(), inputs());
        // As parameters of a module lose their place in the graph, the operation is called itself.
        let residual = leaf::<B, 3>(seed + 3, [1, rows, d_out]).require_grad();
        let output = float::<B, 3>(B::linear_residual(
            input.clone().into_float(),
            weight.clone().into_float(),
            bias.clone().map(IntoFloat::into_float),
            residual.clone().into_float(),
            0.0,
        ));
        let layer = layer(&weight.clone().inner(), &bias.clone().map(Tensor::inner));
        let inner = linear_residual(&layer, &none, input.clone().inner(), residual.clone().inner());
        match &bias {
            Some(bias) => outcome!(output, inner, [input, weight, bias, residual]),
            None => outcome!(output, inner, [input, weight, residual]),
        }
    });
    check("tied linear", || {
        let input = inputs();
        let table = leaf::<B, 2>(seed + 4, [d_out, d_in]).require_grad();
        let transposed = table.clone().transpose().into_float();
        let output = float::<B, 3>(B::linear_activation(input.clone().into_float(), transposed, None, None));
        let inner = Embedding { weight: Param::from_tensor(table.clone().inner()) };
        let inner = tied_linear(&inner, input.clone().inner());
        outcome!(output, inner, [input, table])
    });
}

fn feed_forward_agrees<B: AutodiffBackend>([rows, d_model, d_inner]: [usize; 3], bias: bool, seed: u64) {
    for form in [Gelu::Erf, Gelu::Tanh] {
        check(&format!("feed-forward with {form:?}"), || {
            let input = leaf::<B, 3>(seed, [1, rows, d_model]).require_grad();
            let residual = leaf::<B, 3>(seed + 1, [1, rows, d_model]).require_grad();
            let weights = [(seed + 2, [d_model, d_inner]), (seed + 3, [d_inner, d_model])];
            let [up, down] = weights.map(|(seed, shape)| leaf::<B, 2>(seed, shape).require_grad());
            let biases = [(seed + 4, d_inner), (seed + 5, d_model)];
            let biases = biases.map(|(seed, width)| leaf::<B, 1>(seed, [width]).require_grad());
            fn run<B: Backend>(
                input: Tensor<B, 3>,
                weights: [Tensor<B, 2>; 2],
                biases: [Option<Tensor<B, 1>>; 2],
                form: Gelu,
                residual: Tensor<B, 3>,
            ) -> Tensor<B, 3> {
                let [up, down] = weights.map(IntoFloat::into_float);
                let [up_bias, down_bias] = biases.map(|bias| bias.map(IntoFloat::into_float));
                let (up, down) =
                    (Layer { weight: up, bias: up_bias }, Layer { weight: down, bias: down_bias });
                float(B::feed_forward(input.into_float(), up, form, down, residual.into_float(), 0.0))
            }
            let of_bias = |tensor: &Tensor<B, 1>| bias.then(|| tensor.clone());
            let output = run(
                input.clone(),
                [up.clone(), down.clone()],
                biases.each_ref().map(of_bias),
                form,
                residual.clone(),
            );
            let inner = run(
                input.clone().inner(),
                [up.clone().inner(), down.clone().inner()],
                biases.each_ref().map(|bias| of_bias(bias).map(Tensor::inner)),
                form,
                residual.clone().inner(),
            );
            let [up_bias, down_bias] = &biases;
            match bias {
                true => outcome!(output, inner, [input, up, up_bias, down, down_bias, residual]),
                false => outcome!(output, inner, [input, up, down, residual]),
            }
        });
    }
}

/// The input of a norm. Each value lies far from the next: where those of a row hardly differ, nothing is
/// left of them but the rounding of their mean.
fn uneven<B: AutodiffBackend>(seed: u64, [rows, width]: [usize; 2]) -> Tensor<B, 3> {
    let mut values = random(seed, rows * width);
    for row in values.chunks_mut(width) {
        row.iter_mut().step_by(2).for_each(|value| *value += 3.0);
    }
    Tensor::from_data(TensorData::new(values, [1, rows, width]), &Default::default()).require_grad()
}

fn norm_agrees<B: AutodiffBackend>([rows, width]: [usize; 2], bias: bool, seed: u64) {
    check("norm", || {
        let input = uneven::<B>(seed, [rows, width]);
        let gamma = leaf::<B, 1>(seed + 1, [width]).require_grad();
        let beta = bias.then(|| leaf::<B, 1>(seed + 2, [width]).require_grad());
        let output = float::<B, 3>(B::scaled_layer_norm(
            input.clone().into_float(),
            gamma.clone().into_float(),
            beta.clone().map(IntoFloat::into_float),
            1e-5,
        ));
        let inner = float::<B::InnerBackend, 3>(B::InnerBackend::scaled_layer_norm(
            input.clone().inner().into_float(),
            gamma.clone().inner().into_float(),
            beta.clone().map(|beta| beta.inner().into_float()),
            1e-5,
        ));
        match &beta {
            Some(beta) => outcome!(output, inner, [input, gamma, beta]),
            None => outcome!(output, inner, [input, gamma]),
        }
    });
}

/// Linear layers compute the norm before them again for their gradients: `tracked` says whether scale and
/// shift have gradients themselves, without which it is kept.
fn norm_before_linear_layers_agrees<B: AutodiffBackend>([rows, width]: [usize; 2], tracked: bool, seed: u64) {
    check("norm before linear layers", || {
        let input = uneven::<B>(seed, [rows, width]);
        let parameter = |seed| {
            let parameter = leaf::<B, 1>(seed, [width]);
            if tracked { parameter.require_grad() } else { parameter }
        };
        let (gamma, beta) = (parameter(seed + 1), parameter(seed + 2));
        let weight = leaf::<B, 2>(seed + 3, [width, width]).require_grad();
        let normed = float::<B, 3>(B::scaled_layer_norm(
            input.clone().into_float(),
            gamma.clone().into_float(),
            Some(beta.clone().into_float()),
            1e-5,
        ));
        let layer = || Layer { weight: weight.clone().into_float(), bias: None };
        let linear = |form| {
            let Layer { weight, bias } = layer();
            float::<B, 3>(B::linear_activation(normed.clone().into_float(), weight, bias, form))
        };
        let feed_forward = float::<B, 3>(B::feed_forward(
            normed.clone().into_float(),
            layer(),
            Gelu::Erf,
            layer(),
            normed.clone().into_float(),
            0.0,
        ));
        let output = linear(None) + linear(Some(Gelu::Tanh)) + feed_forward;
        match tracked {
            true => outcome!(output.clone(), output.inner(), [input, weight, gamma, beta]),
            false => outcome!(output.clone(), output.inner(), [input, weight]),
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn linear_layers_agree(sizes in [1usize..131, 1usize..70, 1usize..70], bias: bool, seed in 0u64..1_000) {
        linear_agrees::<Ndarray>(sizes, bias, seed);
        linear_agrees::<Flexible>(sizes, bias, seed);
    }

    #[test]
    fn feed_forward_layers_agree(
        sizes in [1usize..131, 1usize..40, 1usize..150], bias: bool, seed in 0u64..1_000,
    ) {
        feed_forward_agrees::<Ndarray>(sizes, bias, seed);
        feed_forward_agrees::<Flexible>(sizes, bias, seed);
    }

    #[test]
    fn norms_agree(sizes in [1usize..131, 1usize..70], bias: bool, seed in 0u64..1_000) {
        norm_agrees::<Ndarray>(sizes, bias, seed);
        norm_agrees::<Flexible>(sizes, bias, seed);
    }

    #[test]
    fn norms_before_linear_layers_agree(
        sizes in [1usize..131, 5usize..70], tracked: bool, seed in 0u64..1_000,
    ) {
        norm_before_linear_layers_agrees::<Ndarray>(sizes, tracked, seed);
        norm_before_linear_layers_agrees::<Flexible>(sizes, tracked, seed);
    }
}

/// Products of this size are cut in two, and their gradients computed side by side.
#[test]
fn linear_layers_of_middling_size_agree() {
    linear_agrees::<Ndarray>([320, 64, 192], true, 1);
    linear_agrees::<Flexible>([257, 97, 131], true, 2);
}

#[test]
fn the_graph_keeps_no_norm_for_the_layer_behind_it() {
    fn is_free<B: Backend>() -> bool {
        type Differentiated<B> = Autodiff<B>;
        let parameter = |seed| leaf::<Differentiated<B>, 1>(seed, [11]).require_grad().into_float();
        let input = leaf::<Differentiated<B>, 2>(3, [7, 11]).require_grad();
        let normed = Differentiated::<B>::scaled_layer_norm(
            input.into_float(),
            parameter(1),
            Some(parameter(2)),
            1e-5,
        );
        let weight = leaf::<Differentiated<B>, 2>(4, [11, 5]).require_grad().into_float();
        let output = Differentiated::<B>::linear_activation(normed.clone(), weight, None, None);
        let is_free = B::into_floats(normed.primitive).is_ok();
        drop(output);
        is_free
    }
    assert!(is_free::<NdArray>() && is_free::<Flex>());
}

#[test]
fn transposed_and_cut_tensors_are_read_as_they_stand() {
    fn agrees<B: AutodiffBackend>() {
        check("norm of a transposed part", || {
            let input = leaf::<B, 3>(1, [7, 5, 11]).require_grad();
            let part = input.clone().swap_dims(0, 1).narrow(1, 2, 3); // [5, 3, 11]
            let gamma = leaf::<B, 1>(2, [11]).into_float();
            let norm = |part: Tensor<B, 3>| {
                float::<B, 3>(B::scaled_layer_norm(part.into_float(), gamma.clone(), None, 1e-5))
            };
            let output = norm(part);
            outcome!(output.clone(), output.inner(), [input])
        });
    }
    agrees::<Ndarray>();
    agrees::<Flexible>();
}
