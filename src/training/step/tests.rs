//! Tests that uncounted targets and other documents do not influence a step.

use burn::backend::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;

use super::*;
use crate::data::{Batch, Role};
use crate::model::{ModelConfig, Sizes};
use crate::ops::Kernels;
use crate::position::PositionScheme;

const VOCAB: usize = 13;
const TIME: usize = 11;

fn trainee<B: Backend>(position: PositionScheme, config: &TrainingConfig) -> Trainee<B> {
    let model = ModelConfig { position, d_model: 12, heads: 3, ..ModelConfig::default() };
    let sizes = Sizes { vocab: VOCAB, context: TIME, source_context: None };
    Trainee::new(model.init(sizes, &Default::default()).unwrap(), config)
}

/// Returns a batch of two rows. The targets in `hidden` do not count.
fn batch(hidden: &[usize]) -> Batch {
    let token = |index: usize| ((index * index + 3 * index) % VOCAB) as u32;
    let roles =
        (0..2 * TIME).map(|index| if hidden.contains(&index) { Role::Padding } else { Role::Unknown });
    Batch {
        rows: 2,
        time: TIME,
        inputs: (0..2 * TIME).map(token).collect(),
        targets: (1..=2 * TIME).map(token).collect(),
        roles: roles.collect(),
        ..Batch::default()
    }
}

/// Returns the loss, the number of correct predictions and the gradients of a step over some batches.
fn step<B: AutodiffBackend>(trainee: &Trainee<B>, batches: &[Batch]) -> (f32, f32, Vec<Vec<f32>>) {
    let device = Default::default();
    ops::seed::<B>(&device, 5);
    let batches = batches.iter().map(|batch| DeviceBatch::new(batch, &device)).collect();
    let mut output = TrainStep::step(trainee, StepBatches::unsharded(0, batches, true));
    let mut gradients = Vec::new();
    each_parameter(trainee, |id, _| {
        let gradient = output.grads.remove::<B::InnerBackend, 1>(id).expect("a gradient");
        gradients.push(gradient.into_data().iter().collect());
    });
    let number = |tensor: Tensor<B::InnerBackend, 1>| tensor.into_data().iter::<f32>().next().unwrap();
    (number(output.item.loss), number(output.item.correct.unwrap()), gradients)
}

fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>]) {
    let largest = expected.iter().flatten().fold(0.0f32, |largest, value| largest.max(value.abs()));
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() <= 1e-5 * largest, "{found}, not {expected} (largest {largest})");
    }
}

/// The uncounted targets: at the beginning, in the middle and at the end of a row.
const HIDDEN: [usize; 6] = [0, 4, 5, 11, 15, 21];

fn uncounted_targets_do_not_influence_a_step_on<B: AutodiffBackend>() {
    for label_smoothing in [0.0, 0.1] {
        let config = TrainingConfig { label_smoothing, ..TrainingConfig::default() };
        let trainee = trainee::<B>(PositionScheme::Alibi, &config);
        let masked = batch(&HIDDEN);
        let (loss, correct, gradients) = step(&trainee, std::slice::from_ref(&masked));
        let mut other = masked.clone();
        HIDDEN.iter().for_each(|&index| other.targets[index] = (other.targets[index] + 5) % VOCAB as u32);
        assert_eq!(step(&trainee, &[other]), (loss, correct, gradients.clone()));
        // The mean over the counted targets is the mean over steps that count one target each.
        let counted: Vec<usize> = (0..2 * TIME).filter(|index| !HIDDEN.contains(index)).collect();
        let alone = counted.iter().map(|&counted| {
            let others: Vec<usize> = (0..2 * TIME).filter(|&index| index != counted).collect();
            step(&trainee, &[batch(&others)])
        });
        let (mut losses, mut all_correct, mut sums) = (0.0, 0.0, vec![Vec::new(); gradients.len()]);
        for (loss, correct, gradients) in alone {
            (losses, all_correct) = (losses + loss, all_correct + correct);
            for (sum, gradient) in sums.iter_mut().zip(gradients) {
                sum.resize(gradient.len(), 0.0);
                sum.iter_mut().zip(gradient).for_each(|(sum, x)| *sum += x / counted.len() as f32);
            }
        }
        assert_eq!(all_correct, correct);
        assert!((losses / counted.len() as f32 - loss).abs() < 1e-5, "{losses} {loss}");
        assert_close(&gradients, &sums);
        // Accumulated batches are weighted by their counted targets.
        let halves = [masked.part(0..1), masked.part(1..2)];
        let (accumulated, _, gradients_of_halves) = step(&trainee, &halves);
        assert!((accumulated - loss).abs() < 1e-5, "{accumulated} {loss}");
        assert_close(&gradients_of_halves, &gradients);
    }
}

#[test]
fn uncounted_targets_do_not_influence_a_step() {
    for kernels in [Kernels::Fused, Kernels::Reference] {
        kernels.run(uncounted_targets_do_not_influence_a_step_on::<Autodiff<Flex>>);
        kernels.run(uncounted_targets_do_not_influence_a_step_on::<Autodiff<NdArray>>);
    }
}

/// Returns a batch with a document per row, padded at the end, from the packed rows of `batch`.
fn unpacked(batch: &Batch) -> Batch {
    let documents = batch.documents.as_ref().unwrap();
    let starts: Vec<usize> = (0..2 * TIME)
        .filter(|&index| index % TIME == 0 || documents[index] != documents[index - 1])
        .collect();
    let mut rows = Batch { rows: starts.len(), time: TIME, ..Batch::default() };
    for (&start, &end) in starts.iter().zip(starts[1..].iter().chain([&(2 * TIME)])) {
        let padding = TIME - (end - start);
        rows.inputs.extend(batch.inputs[start..end].iter().copied().chain(vec![0; padding]));
        rows.targets.extend(batch.targets[start..end].iter().copied().chain(vec![0; padding]));
        rows.roles.extend(batch.roles[start..end].iter().copied().chain(vec![Role::Padding; padding]));
    }
    rows
}

#[test]
fn packed_documents_train_as_rows_of_their_own() {
    fn agrees<B: AutodiffBackend>() {
        // Random positions are drawn for the length of a document, but a padded row has the length of its batch.
        let drawn = PositionScheme::RandomSinusoidal;
        for position in PositionScheme::ALL.into_iter().filter(|&position| position != drawn) {
            let trainee = trainee::<B>(position, &TrainingConfig::default());
            let documents = [vec![0; 4], vec![1; 5], vec![2; 2], vec![0; 9], vec![1; 2]].concat();
            // The last target of each document is the first token of the next one.
            let packed = Batch { documents: Some(documents), ..batch(&[3, 8, 19]) };
            let (loss, correct, gradients) = step(&trainee, std::slice::from_ref(&packed));
            let (expected, expected_correct, expected_gradients) = step(&trainee, &[unpacked(&packed)]);
            assert_eq!(correct, expected_correct, "{position:?}");
            assert!((loss - expected).abs() < 1e-5, "{position:?}: {loss} {expected}");
            assert_close(&gradients, &expected_gradients);
        }
    }
    for kernels in [Kernels::Fused, Kernels::Reference] {
        kernels.run(agrees::<Autodiff<Flex>>);
        kernels.run(agrees::<Autodiff<NdArray>>);
    }
}
