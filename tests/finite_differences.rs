//! Gradients compared with finite differences in double precision, for every mechanism and every model.
//!
//! This test needs a separate process, because the first backend sets the default precision of a device for the entire
//! process.

mod kinds;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Bool, Distribution, Int, Tensor, TensorData};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use causal_attention::attention::{
    CausalAttentionConfig, Mask, Masking, SplitHeadsConfig, StackedHeadsConfig, TrainableAttentionConfig,
    simple,
};
use causal_attention::model::{Architecture, Inputs, ModelConfig, NormPlacement, Sizes, Source, loss};
use causal_attention::ops::{self, Activation, NormKind};
use causal_attention::position::PositionScheme;

type B = Autodiff<NdArray<f64>>;

/// Compares the gradient of `loss` with finite differences along one direction per parameter, which moves all of its
/// entries. A four-point formula, whose error is of fourth order in the step size, is used because norms over embeddings
/// near zero have a large curvature. A smaller step is tried if the kink of a ReLU lies within the step.
fn check<M: Module<B>>(what: &str, module: M, loss: impl Fn(&M) -> Tensor<B, 1>) {
    const STEPS: [f64; 3] = [1e-5, 1e-6, 1e-7];
    let gradients = loss(&module).backward();

    struct Collect<'a> {
        gradients: &'a <B as burn::tensor::backend::AutodiffBackend>::Gradients,
        found: Vec<(ParamId, Vec<f64>)>,
    }
    impl ModuleVisitor<B> for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let gradient = param.val().grad(self.gradients).expect("a parameter lacks a gradient");
            self.found.push((param.id, gradient.into_data().to_vec().unwrap()));
        }
    }
    let mut collect = Collect { gradients: &gradients, found: Vec::new() };
    module.visit(&mut collect);

    struct Move(ParamId, f64);
    impl ModuleMapper<B> for Move {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            if param.id != self.0 {
                return param;
            }
            param.map(|value| {
                let (shape, device) = (value.shape(), value.device());
                let change = direction(shape.num_elements()).iter().map(|entry| self.1 * entry).collect();
                value.detach() + Tensor::from_data(TensorData::new::<f64, _>(change, shape), &device)
            })
        }
    }
    let value = |id, step| loss(&module.clone().map(&mut Move(id, step))).into_scalar();
    assert!(!collect.found.is_empty());
    let largest = collect.found.iter().flat_map(|(_, gradient)| gradient).fold(0.0f64, |a, b| a.max(b.abs()));
    assert!(largest > 1e-6, "{what}: the loss does not depend on any parameter");
    for (number, (id, gradient)) in collect.found.into_iter().enumerate() {
        let expected: f64 = gradient.iter().zip(direction(gradient.len())).map(|(g, entry)| g * entry).sum();
        let slope = |step| (value(id, step) - value(id, -step)) / (2.0 * step);
        let difference = |step| (4.0 * slope(step) - slope(2.0 * step)) / 3.0;
        let agrees = |step| (expected - difference(step)).abs() <= 1e-8 * largest;
        let message = || format!("{what}, parameter {number}: {expected} is not {}", difference(STEPS[0]));
        assert!(STEPS.into_iter().any(agrees), "{}", message());
    }
}

/// Returns a vector of length one without zeros, in which neighbours differ.
fn direction(size: usize) -> Vec<f64> {
    let entries = (0..size).map(|index| (1.7 * index as f64 + 0.6).sin()).collect::<Vec<f64>>();
    let length = entries.iter().map(|entry| entry * entry).sum::<f64>().sqrt();
    entries.into_iter().map(|entry| entry / length).collect()
}

/// Returns a sum over all elements, each with a different weight.
fn mixed<const D: usize>(output: Tensor<B, D>) -> Tensor<B, 1> {
    let shape = output.shape();
    let weights = (0..shape.num_elements()).map(|i| (1.7 * i as f64).sin()).collect::<Vec<f64>>();
    (output * Tensor::from_data(TensorData::new(weights, shape), &Default::default())).sum()
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

fn hidden<const D: usize>(shape: [usize; D], every: usize) -> Tensor<B, D, Bool> {
    let elements = shape.iter().product::<usize>();
    let values = (0..elements).map(|i| i % every == every - 1).collect::<Vec<bool>>();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn tokens(shape: [usize; 2], vocab: usize) -> Tensor<B, 2, Int> {
    let ids = (0..shape[0] * shape[1]).map(|i| ((i * i + i / 3) % vocab) as i64).collect::<Vec<i64>>();
    Tensor::from_data(TensorData::new(ids, shape), &Default::default())
}

/// An input whose gradient is checked like a parameter's.
#[derive(Module, Debug)]
struct Given<B: burn::tensor::backend::Backend> {
    x: Param<Tensor<B, 3>>,
}

#[test]
fn attention_without_parameters_matches_finite_differences() {
    let given = Given { x: Param::from_tensor(random([2, 7, 5])) };
    check("simple", given.clone(), |given: &Given<B>| mixed(simple::attend(given.x.val()).unwrap().context));
    check("simple, one query", given, |given: &Given<B>| {
        mixed(simple::attend_from(given.x.val().narrow(0, 1, 1).squeeze_dim(0), 3).unwrap().context)
    });
}

#[test]
fn introductory_attention_layers_match_finite_differences() {
    let device = Default::default();
    let x = random([2, 7, 5]);
    let trainable = TrainableAttentionConfig::new(5, 3).with_bias(true).init(&device).unwrap();
    check("trainable", trainable, |module| mixed(module.forward(x.clone()).unwrap().context));

    let causal = CausalAttentionConfig::new(5, 3, 11).init(&device).unwrap();
    for masking in [Masking::Scores, Masking::Weights] {
        let loss = |module: &_| {
            let module: &causal_attention::attention::CausalAttention<B> = module;
            mixed(module.forward(x.clone(), masking).unwrap().context)
        };
        check("causal", causal.clone(), loss);
    }

    let stacked = StackedHeadsConfig::new(5, 3, 2, 7).with_d_out(Some(11)).init(&device).unwrap();
    check("stacked", stacked, |module| mixed(module.forward(x.clone()).unwrap()));
    let split = SplitHeadsConfig::new(5, 6, 2).init(&device).unwrap();
    check("split", split, |module| mixed(module.forward(x.clone()).unwrap()));
}

#[test]
fn masked_attention_matches_finite_differences() {
    let attention = SplitHeadsConfig::new(6, 6, 2).with_bias(true).init(&Default::default()).unwrap();
    let (query, key, value) = (random([2, 3, 6]), random([2, 5, 6]), random([2, 5, 6]));
    let masks = [
        Mask::none(),
        Mask::causal(),
        Mask::none().with_lengths(&[4, 1]),
        Mask::causal().with_window(2).with_documents(&[vec![0, 0, 1, 1, 1], vec![2; 5]]),
        Mask::none().hide_keys(hidden([2, 5], 3)),
        Mask::none().hide_queries(hidden([2, 3], 2)),
        Mask::causal().hide_keys(hidden([2, 5], 4)).hide_pairs(hidden([2, 3, 5], 3)),
    ];
    for mask in masks {
        check(&format!("{mask:?}"), attention.clone(), |module| {
            let memory = module.project_memory(key.clone(), value.clone(), mask.clone()).unwrap();
            mixed(module.forward_memory(query.clone(), &memory).unwrap())
        });
    }
}

/// Checks the loss of a model of this config, with padding and label smoothing.
fn check_model(config: ModelConfig) {
    let sizes = Sizes { vocab: 11, context: 7, source_context: Some(5) };
    let model = config.init::<B>(sizes, &Default::default()).unwrap();
    let source = (config.architecture == Architecture::EncoderDecoder)
        .then(|| Source { tokens: tokens([3, 5], 11), lengths: vec![5, 2, 4] });
    let inputs = Inputs { source, ..Inputs::tokens(tokens([3, 7], 11)) };
    let targets = tokens([3, 8], 11).narrow(1, 1, 7);
    check(&format!("{config:?}"), model, |model| {
        // Draws the same random positions for each evaluation.
        if config.position == PositionScheme::RandomSinusoidal {
            ops::seed::<B>(&Default::default(), 5);
        }
        let logits = model.forward(inputs.clone()).unwrap();
        loss::cross_entropy(logits, targets.clone(), Some(hidden([3, 7], 5)), 0.1).unwrap()
    });
}

fn small() -> ModelConfig {
    ModelConfig { d_model: 12, heads: 2, layers: 1, feed_forward: 2, ..ModelConfig::default() }
}

#[test]
fn position_schemes_match_finite_differences() {
    for position in PositionScheme::ALL {
        for architecture in [Architecture::Decoder, Architecture::EncoderDecoder] {
            check_model(ModelConfig { architecture, position, ..small() });
        }
    }
    check_model(ModelConfig { architecture: Architecture::OneLayer, ..small() });
}

#[test]
fn model_options_match_finite_differences() {
    // At the kink of a ReLU, a finite difference does not approximate the derivative.
    let kinds = kinds::configs_covering_all_pairs(&small()).into_iter();
    kinds.filter(|kind| kind.activation != Activation::Relu).for_each(check_model);
    kinds::variants_covering_all_pairs(&small()).into_iter().for_each(check_model);
    check_model(ModelConfig { tie_embeddings: true, embedding_norm: true, ..small() });
    let architecture = Architecture::EncoderDecoder;
    let modern = ModelConfig { qk_norm: true, d_head: 4, norm_kind: NormKind::Rms, ..small() };
    check_model(ModelConfig { architecture, norm: NormPlacement::Post, tie_embeddings: true, ..modern });
}
