//! Tests that training does not depend on the kernels (fused or reference) or on the number of threads.

use std::path::Path;

use burn::tensor::backend::AutodiffBackend;
use burn::{module::AutodiffModule, optim::Optimizer as _, tensor::TensorData, train::TrainStep};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;

use super::{Optimizer, StepBatches, Trainee};
use crate::config::TrainingConfig;
use crate::data::{Batch, Role, SourceBatch};
use crate::evaluation::DeviceBatch;
use crate::kernels::random::{assert_same_on_any_number_of_threads, random};
use crate::model::{Architecture, Model, ModelConfig, NormPlacement, Sizes};
use crate::ops::{self, Activation, Kernels, NormKind};
use crate::position::PositionScheme;
use crate::role::ParamRoles;
use crate::weights::native;

const VOCAB: usize = 13;
const TIME: usize = 37;

fn small() -> ModelConfig {
    ModelConfig { d_model: 24, heads: 3, layers: 2, dropout: 0.0, ..ModelConfig::default() }
}

/// Returns a model with the same weights on every backend. They do not depend on the backends' random generators, which
/// other tests use at the same time.
fn trainee<B: AutodiffBackend>(config: &ModelConfig) -> Trainee<B> {
    let source_context = (config.architecture == Architecture::EncoderDecoder).then_some(TIME);
    let sizes = Sizes { vocab: VOCAB, context: TIME, source_context };
    let model = config.init(sizes, &Default::default()).unwrap();
    let weights = native::collect(&model).unwrap().into_iter().zip(1..).map(|((name, data), seed)| {
        let values = match data.shape.as_slice() {
            [width] => vec![f32::from(name.ends_with("gamma")); *width],
            [rows, columns] => {
                let bound = (*rows as f32).sqrt().recip();
                random(seed, rows * columns).into_iter().map(|x| x * bound).collect()
            }
            shape => panic!("`{name}` of {shape:?}"),
        };
        (name, TensorData::new(values, data.shape))
    });
    let model = native::apply(model, weights.collect(), Path::new("the test's weights")).unwrap();
    Trainee::new(model, &TrainingConfig::default())
}

/// Returns a batch of counting sequences, each with its own increment. A source has the first tokens of its sequence.
fn batch(step: usize, has_source: bool) -> Batch {
    let rows = 5;
    let token = |index: usize| {
        let (row, time) = (index / TIME, index % TIME);
        ((step + row + time * (row + 1)) % VOCAB) as u32
    };
    let tokens = |ahead: usize| {
        (0..rows * TIME).map(|index| token(index / TIME * TIME + index % TIME + ahead)).collect()
    };
    let roles = vec![Role::Undetermined; rows * TIME];
    let source = has_source.then(|| {
        let lengths = (0..rows).map(|row| TIME.min(5 + row)).collect();
        SourceBatch { time: TIME, tokens: tokens(0), lengths }
    });
    Batch { rows, time: TIME, inputs: tokens(0), targets: tokens(1), roles, source, documents: None }
}

/// Returns the loss of each step, and the final weights.
fn run<B: AutodiffBackend>(mut trainee: Trainee<B>, steps: usize) -> (Vec<f32>, Vec<Vec<f32>>) {
    let device = Default::default();
    let has_source = matches!(&trainee.model, Model::Decoder(model) if model.encoder.is_some());
    let mut optimizer = Optimizer::<B>::new(&TrainingConfig::default(), trainee.model.roles());
    let mut losses = Vec::new();
    for step in 0..steps {
        // With the same seed, both kinds of kernels draw the same random positions.
        ops::seed::<B>(&device, step as u64);
        let batches = vec![DeviceBatch::new(&batch(step, has_source), &device)];
        let output = trainee.step(StepBatches::unsharded(step, batches, false));
        trainee = optimizer.step(3e-3, trainee, output.grads);
        losses.extend(output.item.loss.into_data().iter::<f32>());
    }
    let weights = native::collect(&trainee.valid().model).unwrap();
    (losses, weights.into_iter().map(|(_, data)| data.to_vec().unwrap()).collect())
}

/// Returns configs with every position scheme, both norm placements, all architectures, and shared keys and values.
fn all_kinds() -> Vec<ModelConfig> {
    let mut kinds: Vec<_> = (PositionScheme::ALL.into_iter().zip([3, 1].into_iter().cycle()))
        .map(|(position, key_value_heads)| ModelConfig {
            position,
            key_value_heads,
            largest_position: 2 * TIME,
            ..small()
        })
        .collect();
    kinds.push(ModelConfig {
        norm: NormPlacement::Post,
        activation: Activation::GeluTanh,
        bias: false,
        ..small()
    });
    kinds.push(ModelConfig { tie_embeddings: true, embedding_norm: true, ..small() });
    let modern = ModelConfig {
        norm_kind: NormKind::Rms,
        activation: Activation::Swiglu,
        qk_norm: true,
        d_head: 10,
        position: PositionScheme::Rotary,
        ..small()
    };
    kinds.push(ModelConfig {
        query_key_value_bias: Some(true),
        attention_output_bias: Some(true),
        bias: false,
        key_value_heads: 1,
        ..modern.clone()
    });
    kinds.push(ModelConfig { activation: Activation::Relu2, softcap: 15.0, embedding_scale: 3.0, ..modern });
    kinds.push(ModelConfig { architecture: Architecture::OneLayer, layers: 1, ..small() });
    kinds.extend([NormPlacement::Pre, NormPlacement::Post].map(|norm| ModelConfig {
        architecture: Architecture::EncoderDecoder,
        norm,
        key_value_heads: 1,
        layers: 1,
        ..small()
    }));
    kinds
}

#[test]
fn fused_and_composed_steps_have_close_losses() {
    const STEPS: usize = 60;
    fn compare<B: AutodiffBackend>(config: &ModelConfig) {
        let losses = |kernels: Kernels| kernels.run(|| run(trainee::<B>(config), STEPS)).0;
        let (fused, reference) = (losses(Kernels::Fused), losses(Kernels::Reference));
        for (step, (fused, reference)) in fused.iter().zip(&reference).enumerate() {
            let close = (fused - reference).abs() < 1e-3;
            assert!(close, "{config:?}, step {step}: {fused}, not {reference}");
        }
        assert_ne!(fused, reference, "different implementations differ in the last bits");
        assert!(reference[STEPS - 1] < 0.8 * reference[0], "{config:?}: {reference:?}");
    }
    for config in all_kinds() {
        compare::<Autodiff<NdArray>>(&config);
        compare::<Autodiff<Flex>>(&config);
    }
}

#[test]
fn steps_are_bitwise_equal_across_thread_counts() {
    fn same<B: AutodiffBackend>() {
        let trainee = trainee::<B>(&small());
        // The mutex shares a module, which is `Send` but not `Sync`.
        let trainee = std::sync::Mutex::new(trainee);
        assert_same_on_any_number_of_threads(|| {
            let trainee = trainee.lock().unwrap().clone();
            let (losses, mut weights) = run(trainee, 3);
            weights.push(losses);
            weights
        });
    }
    same::<Autodiff<NdArray>>();
    same::<Autodiff<Flex>>();
}
