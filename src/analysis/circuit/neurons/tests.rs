//! Neurons of noisy models and their contexts.

use burn_ndarray::NdArray;

use super::*;
use crate::analysis::circuit::Unwatched;
use crate::analysis::circuit::testing::noisy_model;
use crate::model::{ModelConfig, Sizes};

type B = NdArray;

fn model() -> Decoder<B> {
    let config = ModelConfig { d_model: 20, heads: 5, layers: 3, ..ModelConfig::default() };
    let sizes = Sizes { vocab: 11, context: 8, source_context: None };
    match noisy_model(&config, sizes, 0.1) {
        Model::Decoder(model) => model,
        Model::OneLayer(_) => panic!("the config specifies a decoder"),
    }
}

fn sample() -> Sample {
    Sample::of_inputs(vec![3, 1, 4, 1, 5, 9, 2, 6])
}

fn hidden(bench: &Bench<B>) -> Vec<Tensor<B, 3>> {
    let mut recorder = HiddenRecorder(Vec::new());
    stream(bench.model, bench.batch.inputs.clone(), &mut recorder).unwrap();
    recorder.0
}

#[test]
fn gradients_match_small_changes_of_neurons() {
    const SMALL: f64 = 1e-2;
    let model = model();
    let bench = Bench::new(&model, &[sample()], &Question::default(), &Default::default()).unwrap();
    let hidden = hidden(&bench);
    let change = |old: &Tensor<B, 3>| bench.mean(old.clone()).expand(old.shape()) - old.clone();
    let changes: Vec<_> = hidden.iter().map(change).collect();
    let estimates = estimates_at(&bench, &changes, &[0.0]).unwrap().unwrap();
    for [layer, neuron] in [[0, 3], [1, 7], [2, 0]] {
        let moved = |share: f64| {
            let replacement = &(hidden[layer].clone() + changes[layer].clone() * share);
            let mut ablation = NeuronAblation { layer, neuron, replacement };
            let last = stream(&model, bench.batch.inputs.clone(), &mut ablation).unwrap();
            mean(&bench.values_after(last, 0).concat())
        };
        let slope = (moved(SMALL) - moved(-SMALL)) / (2.0 * SMALL);
        let (_, estimate) = estimates.iter().find(|(at, _)| *at == [layer, neuron]).unwrap();
        assert!((estimate - slope).abs() < 2e-3 * slope.abs().max(0.05), "{estimate} {slope}");
    }
}

#[test]
fn the_only_active_neuron_is_found_and_ablated() {
    let (device, sample) = (Default::default(), sample());
    let mut model = model();
    for (layer, block) in model.blocks.iter_mut().enumerate() {
        let down = &mut block.feed_forward.down;
        let row = down.weight.val().slice([7..8, 0..20]) * if layer == 1 { 5.0 } else { 0.0 };
        let silent = |weight: Tensor<B, 2>| weight.zeros_like().slice_assign([7..8, 0..20], row);
        down.weight = down.weight.clone().map(silent);
    }
    let (samples, question) = (std::slice::from_ref(&sample), Question::default());
    let bench = Bench::new(&model, samples, &question, &device).unwrap();
    let neurons = most_important(&bench, (samples, &question), 3, &device).unwrap().unwrap();
    let neurons = with_contexts(&model, neurons, samples, &Unwatched, &device).unwrap().unwrap();
    assert_eq!((neurons.len(), neurons[0].layer, neurons[0].neuron), (3, 1, 7));
    assert!(neurons[1..].iter().all(|it| it.estimated == 0.0));
    // The same ablation by weights: the row is zero, and the bias adds the mean.
    let activations = floats(hidden(&bench)[1].clone().narrow(2, 7, 1));
    let mut ablated = model.clone();
    let down = &mut ablated.blocks[1].feed_forward.down;
    let row = down.weight.val().slice([7..8, 0..20]).squeeze_dim::<1>(0);
    let added = row * (activations.iter().sum::<f32>() / activations.len() as f32);
    down.weight = down.weight.clone().map(|weight| weight.zeros_like());
    down.bias = down.bias.take().map(|bias| bias.map(|bias| bias + added));
    let last = stream(&ablated, bench.batch.inputs.clone(), &mut NoHooks).unwrap();
    let expected = mean(&bench.values_after(last, 0).concat());
    assert!((neurons[0].ablated - expected).abs() < 1e-5, "{} {expected}", neurons[0].ablated);
    let largest = activations.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    let (position, activation) = largest.unwrap();
    let top = &neurons[0].contexts[0];
    assert_eq!(top.activation as f32, *activation);
    assert_eq!(top.tokens, sample.inputs[position.saturating_sub(5)..=position]);
}

#[test]
fn contexts_are_distinct_and_within_a_document() {
    let sample = Sample { documents: Some(vec![0, 0, 1, 1]), ..Sample::of_inputs(vec![3, 1, 3, 1]) };
    let mut contexts = Vec::new();
    for (position, activation) in [2.0, 1.0, -3.0, 0.5].into_iter().enumerate() {
        keep(&mut contexts, &sample, position, activation);
    }
    let found: Vec<_> = contexts.iter().map(|it| (&it.tokens[..], it.activation)).collect();
    assert_eq!(found, [(&[3][..], -3.0), (&[3, 1], 1.0)]);
}
