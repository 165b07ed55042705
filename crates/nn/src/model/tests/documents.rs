//! Tests that packed documents get the logits and gradients that they get alone.

use super::*;
use crate::ops::{self, Kernels};
use burn::tensor::TensorData;
use burn::tensor::backend::AutodiffBackend;
use burn_autodiff::Autodiff;
use burn_flex::Flex;

/// The documents of two sequences of 11 tokens each, with the number of each document.
const DOCUMENTS: [&[(u32, &[i64])]; 2] = [
    &[(7, &[3, 1, 4]), (2, &[1, 5, 9, 2, 6]), (7, &[5]), (3, &[3, 5])],
    &[(0, &[8, 9, 7, 9, 3, 2, 3]), (1, &[8, 4, 6, 2])],
];

fn packed_tokens<B: Backend>() -> Tensor<B, 2, Int> {
    let documents = DOCUMENTS.iter().copied().flatten();
    let tokens: Vec<i64> = documents.flat_map(|(_, tokens)| tokens.iter().copied()).collect();
    Tensor::from_data(TensorData::new(tokens, [2, 11]), &Default::default())
}

fn packed<B: Backend>() -> Inputs<B> {
    let numbers = DOCUMENTS.map(|row| {
        row.iter().flat_map(|(number, tokens)| std::iter::repeat_n(*number, tokens.len())).collect()
    });
    Inputs::tokens(packed_tokens()).with_documents(&numbers)
}

fn configs() -> Vec<ModelConfig> {
    let plain = ModelConfig { d_model: 18, heads: 3, largest_position: 31, ..ModelConfig::default() };
    let with = |position| ModelConfig { position, ..plain.clone() };
    let mut configs: Vec<_> = PositionScheme::ALL.map(with).into();
    configs.push(ModelConfig { architecture: Architecture::OneLayer, ..plain.clone() });
    configs.push(ModelConfig { embedding_scale: 2.0, embedding_norm: true, ..plain });
    configs
}

/// Returns the logits, `[1, time, vocab]` of one sequence after another, and the gradients of all parameters. The loss
/// is the dot product of the logits and fixed numbers. Each sequence has a backward pass of its own, because Burn can
/// lose gradients of a loss over several forward passes while other threads use automatic differentiation.
fn outcome<B: AutodiffBackend>(model: &Model<B>, all: &[Inputs<B>]) -> (Vec<f32>, Vec<Vec<f32>>) {
    let (mut all_logits, mut sums): (Vec<f32>, Vec<Vec<f32>>) = Default::default();
    for inputs in all {
        // Documents of equal length get equal random positions, alone as in a batch.
        ops::seed_this_thread(3);
        let logits = model.forward(inputs.clone()).unwrap();
        let (first, count) = (all_logits.len() as i64, logits.shape().num_elements() as i64);
        let weights = Tensor::<B, 1, Int>::arange(first..first + count, &logits.device());
        let gradients = (logits.clone() * weights.float().sin().reshape(logits.shape())).sum().backward();
        all_logits.extend(logits.into_data().to_vec::<f32>().unwrap());
        let mut parameter = 0;
        each_gradient(model, &gradients, |gradient| {
            match sums.get_mut(parameter) {
                Some(sum) => sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value),
                None => sums.push(gradient),
            }
            parameter += 1;
        });
    }
    (all_logits, sums)
}

fn each_gradient<B: AutodiffBackend>(model: &Model<B>, gradients: &B::Gradients, work: impl FnMut(Vec<f32>)) {
    struct Each<'a, B: AutodiffBackend, F>(&'a B::Gradients, F);
    impl<B: AutodiffBackend, F: FnMut(Vec<f32>)> ModuleVisitor<B> for Each<'_, B, F> {
        fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
            let gradient = parameter.val().grad(self.0).expect("every parameter has a gradient");
            (self.1)(gradient.into_data().to_vec().unwrap());
        }
    }
    model.visit(&mut Each(gradients, work));
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-5 * largest.max(1e-3), "{what}: {a}, not {b} (largest {largest})");
    }
}

fn documents_are_independent_on<B: AutodiffBackend>() {
    for config in configs() {
        // The context is shorter than the packed sequences, but as long as the longest document.
        let sizes = Sizes { source_context: None, ..SIZES };
        let model = config.init::<B>(sizes, &Default::default()).unwrap();
        let alone = |tokens: &&[i64]| {
            Inputs::tokens(Tensor::from_data(
                TensorData::new(tokens.to_vec(), [1, tokens.len()]),
                &Default::default(),
            ))
        };
        let alone: Vec<_> = DOCUMENTS.iter().copied().flatten().map(|(_, tokens)| alone(tokens)).collect();
        for kernels in [Kernels::Fused, Kernels::Reference] {
            let what = format!("{:?} {:?} {kernels:?}", config.architecture, config.position);
            kernels.run(|| {
                let (logits, gradients) = outcome(&model, &[packed()]);
                let (expected, expected_gradients) = outcome(&model, &alone);
                assert_close(&what, &logits, &expected);
                for (found, expected) in gradients.iter().zip(&expected_gradients) {
                    assert_close(&what, found, expected);
                }
                let evaluated = valid(&model, packed());
                let alone: Vec<f32> = alone.iter().flat_map(|it| valid(&model, it.clone())).collect();
                assert_close(&what, &evaluated, &alone);
            });
        }
    }
}

/// Returns the logits in evaluation.
fn valid<B: AutodiffBackend>(model: &Model<B>, inputs: Inputs<B>) -> Vec<f32> {
    use burn::module::AutodiffModule;
    let documents = inputs.documents;
    let inputs = Inputs { documents, ..Inputs::tokens(inputs.tokens.inner()) };
    model.valid().forward(inputs).unwrap().into_data().to_vec().unwrap()
}

#[test]
fn packed_documents_match_documents_alone() {
    documents_are_independent_on::<Autodiff<Flex>>();
    documents_are_independent_on::<Autodiff<NdArray>>();
}

#[test]
fn one_document_never_changes_another() {
    for config in configs() {
        let sizes = Sizes { source_context: None, ..SIZES };
        let model = config.init::<Flex>(sizes, &Default::default()).unwrap();
        let logits = |tokens: Tensor<Flex, 2, Int>| {
            model.forward(Inputs { tokens, ..packed() }).unwrap().into_data().to_vec::<f32>().unwrap()
        };
        let before = logits(packed_tokens());
        // The second document of the first sequence is at 3 to 7.
        let other = Tensor::<Flex, 2, Int>::from_ints([[10, 10, 0, 0, 10]], &Default::default());
        let after = logits(packed_tokens().slice_assign([0..1, 3..8], other));
        for (index, (before, after)) in before.iter().zip(&after).enumerate() {
            let position = index / SIZES.vocab;
            let is_same = before.to_bits() == after.to_bits();
            assert!(is_same || (3..8).contains(&position), "{:?} at {position}", config.position);
        }
        assert_ne!(before, after);
    }
}

#[test]
fn visible_keys_of_maps_end_at_documents() {
    let config = ModelConfig { d_model: 18, heads: 3, ..ModelConfig::default() };
    let model = config.init::<Flex>(Sizes { source_context: None, ..SIZES }, &Default::default()).unwrap();
    let (_, maps) = model.forward_with_maps(packed()).unwrap();
    let first: Vec<u32> = maps.visible[1].iter().map(|keys| keys.first).collect();
    assert_eq!(first[..11], [0, 0, 0, 3, 3, 3, 3, 3, 8, 9, 9]);
    assert_eq!(first[11..], [0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7]);
}

#[test]
fn wrong_documents_report_their_shape() {
    let model = model(Architecture::Decoder, PositionScheme::Learned);
    let tokens = || Inputs::<B>::tokens(Tensor::zeros([2, 3], &Default::default()));
    let refused =
        |documents: &[Vec<u32>]| model.check(&tokens().with_documents(documents)).unwrap_err().to_string();
    let expected = "`inputs.documents` is [1, 3], but must be [batch][time] = [2, 3]";
    assert_eq!(refused(&[vec![0; 3]]), expected);
    assert!(refused(&[vec![0; 3], vec![0; 5]]).contains("[2, 5]"));
    let long = Inputs::<B>::tokens(Tensor::zeros([1, 13], &Default::default()));
    let error = |lengths: [usize; 2]| {
        let documents = [[vec![0; lengths[0]], vec![1; lengths[1]]].concat()];
        model.check(&long.clone().with_documents(&documents)).err().map(|error| error.to_string())
    };
    assert_eq!(error([7, 6]), None);
    assert!(error([8, 5]).unwrap().contains("a sequence of 8 tokens"));
}
