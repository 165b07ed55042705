//! Every operation, composed against fused on the same backend, forward and gradients.

use burn::module::Param;
use burn::nn::{DropoutConfig, Embedding, Linear};
use burn::tensor::{Bool, Int, Tensor, TensorData, backend};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use proptest::prelude::*;

use super::*;
use crate::kernels::testing::random;

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

fn norm_agrees<B: AutodiffBackend>([rows, width]: [usize; 2], bias: bool, seed: u64) {
    check("norm", || {
        let input = leaf::<B, 3>(seed, [1, rows, width]).require_grad();
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

fn embedding_agrees<B: AutodiffBackend>([batch, time, width, vocab]: [usize; 4], positions: bool, seed: u64) {
    check("embedding", || {
        let table = leaf::<B, 2>(seed, [vocab, width]).require_grad();
        let positions = positions.then(|| leaf::<B, 2>(seed + 1, [time, width]).require_grad());
        let tokens = ids::<B>(seed + 2, [batch, time], vocab);
        let output = float::<B, 3>(B::token_embedding(
            tokens.clone().into_primitive(),
            table.clone().into_float(),
            positions.clone().map(IntoFloat::into_float),
        ));
        let inner = float::<B::InnerBackend, 3>(B::InnerBackend::token_embedding(
            tokens.inner().into_primitive(),
            table.clone().inner().into_float(),
            positions.clone().map(|positions| positions.inner().into_float()),
        ));
        match &positions {
            Some(positions) => outcome!(output, inner, [table, positions]),
            None => outcome!(output, inner, [table]),
        }
    });
}

fn cross_entropy_agrees<B: AutodiffBackend>(
    [batch, time, vocab]: [usize; 3],
    hides: bool,
    smoothing: f64,
    seed: u64,
) {
    check("cross-entropy", || {
        let logits = leaf::<B, 3>(seed, [batch, time, vocab]).require_grad();
        let targets = ids::<B>(seed + 1, [batch, time], vocab);
        let hidden = hides.then(|| hidden::<B, 2>(seed + 2, [batch, time]));
        // What stands at a hidden place is no matter.
        let targets = match &hidden {
            Some(hidden) => targets.mask_fill(hidden.clone(), -1),
            None => targets,
        };
        let output = cross_entropy(logits.clone(), targets.clone(), hidden.clone(), smoothing);
        let inner =
            cross_entropy(logits.clone().inner(), targets.inner(), hidden.map(Tensor::inner), smoothing);
        outcome!(output, inner, [logits])
    });
}

/// What an attention is tried with.
#[derive(Debug, Clone, Copy)]
struct Setting {
    batch: usize,
    query_time: usize,
    key_time: usize,
    key_value_heads: usize,
    group: usize,
    d_head: usize,
    causal: bool,
    hides: [bool; 3],
    position: PositionKind,
    seed: u64,
}

#[derive(Debug, Clone, Copy)]
enum PositionKind {
    None,
    Rotation,
    Bias,
}

fn attention_agrees<B: AutodiffBackend>(setting: Setting) {
    let Setting { batch, query_time, key_time, key_value_heads, group, d_head, seed, .. } = setting;
    let heads = key_value_heads * group;
    let bias = || leaf::<B, 2>(seed + 5, [heads, query_time + key_time - 1]).require_grad();
    let options = |bias: &Tensor<B, 2>| -> AttentionOptions<B> {
        let mut mask = if setting.causal { Mask::causal() } else { Mask::none() };
        let [queries, keys, pairs] = setting.hides;
        if queries {
            mask = mask.hide_queries(hidden(seed + 6, [batch, query_time]));
        }
        if keys {
            mask = mask.hide_keys(hidden(seed + 7, [batch, key_time]));
        }
        if pairs {
            mask = mask.hide_pairs(hidden(seed + 8, [batch, query_time, key_time]));
        }
        let table = |seed| leaf::<B, 2>(seed, [key_time, d_head / 2]);
        let position = match setting.position {
            PositionKind::None => ScorePosition::None,
            PositionKind::Rotation => {
                ScorePosition::Rotation { cosine: table(seed + 9), sine: table(seed + 10) }
            }
            PositionKind::Bias => ScorePosition::Bias(bias.clone()),
        };
        AttentionOptions { heads, key_value_heads, mask, position, dropout: 0.0 }
    };
    check("attention", || {
        let query = leaf::<B, 3>(seed, [batch, query_time, heads * d_head]).require_grad();
        let key = leaf::<B, 3>(seed + 1, [batch, key_time, key_value_heads * d_head]).require_grad();
        let value = leaf::<B, 3>(seed + 2, [batch, key_time, key_value_heads * d_head]).require_grad();
        let bias = bias();
        let output = attention(query.clone(), key.clone(), value.clone(), options(&bias));
        match setting.position {
            PositionKind::Bias => outcome!(output.clone(), output.inner(), [query, key, value, bias]),
            _ => outcome!(output.clone(), output.inner(), [query, key, value]),
        }
    });
    if query_time == key_time {
        check("packed attention", || {
            let width = (heads + 2 * key_value_heads) * d_head;
            let packed = leaf::<B, 3>(seed + 3, [batch, query_time, width]).require_grad();
            let bias = bias();
            let output = packed_attention(packed.clone(), options(&bias));
            match setting.position {
                PositionKind::Bias => outcome!(output.clone(), output.inner(), [packed, bias]),
                _ => outcome!(output.clone(), output.inner(), [packed]),
            }
        });
    }
}

type Ndarray = Autodiff<NdArray>;
type Flexible = Autodiff<Flex>;

fn settings() -> impl Strategy<Value = Setting> {
    let position =
        prop_oneof![Just(PositionKind::None), Just(PositionKind::Rotation), Just(PositionKind::Bias)];
    let times = (1usize..=130, 1usize..=130, 0usize..3, any::<bool>());
    let sizes = (1usize..4, 1usize..4, 1usize..3, 1usize..20);
    (sizes, times, prop::array::uniform3(prop::bool::weighted(0.2)), position, 0u64..1_000).prop_map(
        |((batch, key_value_heads, group, d_head), (a, b, kind, causal), hides, position, seed)| {
            // Mostly square; with a causal mask the queries are the last ones.
            let (query_time, key_time) = if kind > 0 { (a, a) } else { (a.min(b), a.max(b)) };
            let d_head = if matches!(position, PositionKind::Rotation) { 2 * d_head } else { d_head };
            Setting {
                batch,
                query_time,
                key_time,
                key_value_heads,
                group,
                d_head,
                causal,
                hides,
                position,
                seed,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn linear_layers_agree(sizes in [1usize..130, 1usize..70, 1usize..70], bias: bool, seed in 0u64..1_000) {
        linear_agrees::<Ndarray>(sizes, bias, seed);
        linear_agrees::<Flexible>(sizes, bias, seed);
    }

    #[test]
    fn norms_agree(sizes in [1usize..130, 5usize..70], bias: bool, seed in 0u64..1_000) {
        norm_agrees::<Ndarray>(sizes, bias, seed);
        norm_agrees::<Flexible>(sizes, bias, seed);
    }

    #[test]
    fn embeddings_agree(
        sizes in [1usize..4, 1usize..130, 1usize..70, 1usize..30], positions: bool, seed in 0u64..1_000,
    ) {
        embedding_agrees::<Ndarray>(sizes, positions, seed);
        embedding_agrees::<Flexible>(sizes, positions, seed);
    }

    #[test]
    fn cross_entropies_agree(
        sizes in [1usize..4, 1usize..130, 2usize..70],
        hides: bool,
        smooth: bool,
        seed in 0u64..1_000,
    ) {
        let smoothing = if smooth { 0.1 } else { 0.0 };
        cross_entropy_agrees::<Ndarray>(sizes, hides, smoothing, seed);
        cross_entropy_agrees::<Flexible>(sizes, hides, smoothing, seed);
    }

    #[test]
    fn attentions_agree(setting in settings()) {
        attention_agrees::<Ndarray>(setting);
        attention_agrees::<Flexible>(setting);
    }
}

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

#[test]
fn a_gradient_passes_through_the_mask_of_its_dropout() {
    fn agrees<B: AutodiffBackend>() {
        let device = Default::default();
        let input = Tensor::<B, 2>::ones([211, 103], &device).require_grad();
        let output = float::<B, 2>(B::dropout(input.clone().into_float(), 0.25));
        let gradient = input.grad(&output.clone().sum().backward()).unwrap();
        let output = numbers(output);
        assert_eq!(output, numbers(gradient));
        let dropped = output.iter().filter(|&&value| value == 0.0).count() as f64 / output.len() as f64;
        // Six standard deviations.
        assert!((dropped - 0.25).abs() < 6.0 * (0.25 * 0.75 / output.len() as f64).sqrt(), "{dropped}");
        assert!(output.iter().all(|&value| value == 0.0 || (value - 4.0 / 3.0).abs() < 1e-6));

        // The layer's output is its bias where it is kept, so the bias's gradient counts what is kept.
        let bias = Tensor::<B, 1>::ones([103], &device).require_grad();
        let output = float::<B, 2>(B::linear_residual(
            Tensor::<B, 2>::zeros([211, 5], &device).into_float(),
            Tensor::<B, 2>::zeros([5, 103], &device).into_float(),
            Some(bias.clone().into_float()),
            Tensor::<B, 2>::zeros([211, 103], &device).into_float(),
            0.25,
        ));
        let gradient = numbers(bias.grad(&output.clone().sum().backward()).unwrap());
        for (sum, gradient) in numbers(output.sum_dim(0)).into_iter().zip(gradient) {
            assert!((sum - gradient).abs() < 1e-3 && sum > 100.0, "{sum} {gradient}");
        }

        // With values of one a context is the sum of the weights that are kept, and so is the sum of the
        // values' gradients.
        let ones = || Tensor::<B, 3>::ones([3, 67, 10], &device);
        let value = ones().require_grad();
        let options = AttentionOptions {
            heads: 5,
            key_value_heads: 5,
            mask: Mask::causal(),
            position: ScorePosition::None,
            dropout: 0.25,
        };
        let output = attention(ones(), ones(), value.clone(), options);
        let gradient = value.grad(&output.clone().sum().backward()).unwrap();
        let (kept, gradients) = (output.sum_dim(1), gradient.sum_dim(1));
        for (kept, gradient) in numbers(kept).into_iter().zip(numbers(gradients)) {
            assert!((kept - gradient).abs() < 1e-3 && (40.0..95.0).contains(&kept), "{kept} {gradient}");
        }
    }
    agrees::<Ndarray>();
    agrees::<Flexible>();
}
