//! Neurons of noisy models and their contexts.

use burn_ndarray::NdArray;

use super::contexts::keep;
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

/// Replaces the activation of one neuron.
struct HiddenAblation<'a, B: Backend> {
    layer: usize,
    neuron: usize,
    /// The replacements of all neurons of the layer, `[batch, time, d_inner]`; axes of size 1 are broadcast.
    replacement: &'a Tensor<B, 3>,
}

impl<B: Backend> Hooks<B> for HiddenAblation<'_, B> {
    fn wants(&self, site: HookSite) -> bool {
        is_hidden(site) && site.layer == self.layer
    }

    fn hook(&mut self, _site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, time, _] = activation.dims();
        let new = self.replacement.clone().narrow(2, self.neuron, 1).expand([batch, time, 1]);
        activation.slice_assign([0..batch, 0..time, self.neuron..self.neuron + 1], new)
    }
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
            let mut ablation = HiddenAblation { layer, neuron, replacement };
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
    let extent = Extent::UntilSettled { reported: 3, round: 5 };
    let found = most_important(&bench, (samples, &question), extent, &device).unwrap().unwrap();
    assert!(found.tested >= 10 && found.of_model == 3 * 80, "{}", found.tested);
    let neurons = found.neurons;
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

/// Returns the value with a neuron ablated by a hook, which computes its feed-forward layer again.
fn ablated_by_hook(bench: &Bench<B>, [layer, neuron]: [usize; 2], replacement: &Tensor<B, 3>) -> f64 {
    let mut ablation = HiddenAblation { layer, neuron, replacement };
    let last = stream(bench.model, bench.batch.inputs.clone(), &mut ablation).unwrap();
    mean(&bench.values_after(last, 0).concat())
}

#[test]
fn ablated_outputs_equal_ablated_activations() {
    use crate::model::NormPlacement;
    let plain = ModelConfig { d_model: 20, heads: 5, layers: 3, ..ModelConfig::default() };
    let gated = ModelConfig { activation: crate::ops::Activation::Swiglu, parallel: true, ..plain.clone() };
    let sandwich = ModelConfig { norm: NormPlacement::Sandwich, ..plain.clone() };
    let corrupted = Question { corrupted: vec![vec![3, 1, 4, 7, 5, 9, 2, 6]], ..Question::default() };
    for (config, question) in [(&plain, &corrupted), (&gated, &Question::default()), (&sandwich, &corrupted)]
    {
        let model = noisy_model(config, Sizes { vocab: 11, context: 8, source_context: None }, 0.2);
        let (samples, device) = ([sample()], Default::default());
        let bench = Bench::new(explainable(&model).unwrap(), &samples, question, &device).unwrap();
        let changes = changes(&bench, (&samples, question), &device).unwrap();
        let neurons = [[0, 3], [1, 7], [2, 0], [1, 2]];
        let replaced = |[layer, _]: [usize; 2]| hidden(&bench)[layer].clone() + changes[layer].clone();
        let expected = neurons.map(|at| ablated_by_hook(&bench, at, &replaced(at)));
        let candidates = neurons.map(|at| (at, 0.0));
        let ablation = NeuronAblation { bench: &bench, changes: changes.clone() };
        let found = ablation.values(&candidates, (0, 4)).unwrap().unwrap();
        for (values, expected) in found.iter().zip(expected) {
            assert!((mean(values) - expected).abs() < 1e-5, "{} {expected}", mean(values));
        }
    }
}

#[test]
fn the_reported_neurons_are_those_of_an_exhaustive_search() {
    let (model, device, samples) = (model(), Default::default(), [sample()]);
    let question = Question::default();
    let bench = Bench::new(&model, &samples, &question, &device).unwrap();
    let search = |extent| most_important(&bench, (&samples, &question), extent, &device).unwrap().unwrap();
    let all = search(Extent::UntilSettled { reported: 240, round: 240 });
    let found = search(Extent::UntilSettled { reported: 8, round: 32 });
    assert!((64..240).contains(&found.tested) && all.tested == 240, "{} {}", found.tested, all.tested);
    let names = |of: &RankedNeurons| -> Vec<_> {
        of.neurons.iter().take(8).map(|it| [it.layer, it.neuron]).collect()
    };
    assert_eq!(names(&found), names(&all));
    let random =
        largest_change(&bench, (&samples, &question), (mean(&bench.values(&bench.full)), 7), &device);
    assert_eq!(random.unwrap().unwrap().tested, 7);
}
