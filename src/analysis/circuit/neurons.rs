//! The neurons of the feed-forward layers whose ablation changes the explained quantity most, among those that gradients
//! rank first, and the tokens at which they are most active.
//!
//! If the activation `a` of a neuron is replaced by `r`, the quantity `q` changes by about the sum over positions of
//! `(r - a) · dq/da`. The gradients are averaged as in `estimates`. The neurons with the largest estimates are then
//! ablated one by one, as components are: `r` is the mean, or the activation on the corrupted sequence.

use burn::backend::Autodiff;
use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};

use super::bench::{Bench, components, mean};
use super::chance::RandomEffect;
use super::estimates::{STEPS, copied, differentiable, embeddings, max_copies, mean_quantity, shares};
use super::explanation::{ContextSource, Explanation, Neuron, NeuronAnalysis, NeuronContext};
use super::full_values::FullValues;
use super::pass::{Site, explainable};
use super::question::Question;
use super::watch::{ExplanationStage, Watch};
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::data::Sequences;
use crate::evaluation::DeviceBatch;
use crate::hooks::{HookPoint, HookSite, Hooks, NoHooks, Stack};
use crate::model::{Decoder, Inputs, Model};

/// The number of neurons that are ablated for each reported one.
const ABLATED_PER_REPORTED: usize = 2;
/// The maximum number of contexts of a neuron.
const MAX_CONTEXTS: usize = 5;
/// The maximum number of tokens in a context.
const CONTEXT_LENGTH: usize = 6;
/// The maximum number of tokens that are searched for contexts.
const MAX_SEARCHED_TOKENS: usize = 1 << 16;
/// The maximum number of floating-point operations of this search.
const MAX_OPERATIONS: usize = 200_000_000_000;
/// The number of tokens of a batch in this search.
const BATCH_TOKENS: usize = 2_048;

/// A search for neurons.
#[derive(Clone, Copy)]
pub struct NeuronSearch<'a> {
    /// The number of neurons to report.
    pub count: usize,
    /// The sequences in which contexts are searched; those explained if empty.
    pub contexts: &'a [Sample],
    /// The origin of these sequences.
    pub source: ContextSource,
    /// Follows the search, and may end it early.
    pub watch: &'a dyn Watch,
}

/// Returns the sequences of a set in which contexts are searched: as many as computing time allows.
pub fn context_samples<B: Backend>(model: &Decoder<B>, set: &Sequences) -> Vec<Sample> {
    // A pass has two operations per weight and token.
    let tokens = (MAX_OPERATIONS / (2 * model.num_params()).max(1)).min(MAX_SEARCHED_TOKENS);
    let length = Sample::max_length(components(model).count()).min(set.time());
    let samples = Sample::first(set, (tokens / length.max(1)).max(2));
    samples.into_iter().map(|sample| sample.truncated(length)).collect()
}

impl Explanation {
    /// Adds the neurons whose ablation changes the quantity most at the explained targets of `samples`, among those that
    /// gradients rank first. An explanation without a circuit is
    /// returned unchanged.
    ///
    /// # Errors
    /// Same as [`explain`](super::explain).
    pub fn with_neurons<B: Backend>(
        mut self,
        model: &Model<B>,
        (samples, question): (&[Sample], &Question),
        search: NeuronSearch,
        device: &B::Device,
    ) -> Result<Self> {
        if self.gain.no_circuit.is_some() || search.count == 0 {
            return Ok(self);
        }
        let samples = self.explained(samples);
        let mut bench = Bench::new(explainable(model)?, &samples, question, device)?;
        bench.watch = search.watch;
        let neurons = most_important(&bench, (&samples, question), search.count, device)?;
        let Some(neurons) = neurons.filter(|_| !search.watch.ends(ExplanationStage::Neurons)) else {
            return Ok(self.without_neurons());
        };
        let contexts = if search.contexts.is_empty() { &samples } else { search.contexts };
        let Some(neurons) = with_contexts(bench.model, neurons, contexts, search.watch, device)? else {
            return Ok(self.without_neurons());
        };
        self.neurons = NeuronAnalysis { neurons, neuron_contexts: Some(search.source) };
        Ok(self)
    }

    /// Records that the explanation ended before the neurons were known.
    #[must_use]
    pub fn without_neurons(mut self) -> Self {
        if self.gain.no_circuit.is_none() {
            self.cut(ExplanationStage::Neurons);
        }
        self
    }
}

/// Returns the neurons with the largest effects of those that gradients rank first; `None` if the stage ends early.
fn most_important<B: Backend>(
    bench: &Bench<B>,
    (samples, question): (&[Sample], &Question),
    count: usize,
    device: &B::Device,
) -> Result<Option<Vec<Neuron>>> {
    let mut recorder = HiddenRecorder(Vec::new());
    stream(bench.model, bench.batch.inputs.clone(), &mut recorder)?;
    let hidden = recorder.0;
    let replacements = match question.corrupted.is_empty() {
        true => hidden.iter().map(|activation| bench.mean(activation.clone())).collect(),
        false => {
            let batch = Sample::batch_of(&question.corrupted_samples(samples));
            let mut recorder = HiddenRecorder(Vec::new());
            stream(bench.model, DeviceBatch::new(&batch, device).inputs, &mut recorder)?;
            recorder.0
        }
    };
    let changes = replacements.iter().zip(hidden).map(|(new, old)| new.clone().expand(old.shape()) - old);
    let shares = shares::<STEPS>();
    let Some(mut estimates) = estimates_at(bench, &changes.collect::<Vec<_>>(), &shares)? else {
        return Ok(None);
    };
    estimates.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    estimates.truncate(count.saturating_mul(ABLATED_PER_REPORTED));
    let full_values = FullValues::new(bench, samples);
    let total = estimates.len();
    let mut neurons = Vec::new();
    for (done, ([layer, neuron], estimated)) in estimates.into_iter().enumerate() {
        bench.watch.report(ExplanationStage::Neurons, done, total);
        if bench.watch.ends(ExplanationStage::Neurons) {
            return Ok(None);
        }
        let mut ablation = NeuronAblation { layer, neuron, replacement: &replacements[layer] };
        // Earlier layers compute what they compute in the full model.
        let (x, inputs) = (bench.full.at(Site::Stream(layer)), (&bench.batch.inputs, &bench.memories[..]));
        let last = bench.model.hidden_states_from((layer, x), inputs, None, &mut ablation)?;
        let values = bench.values_after(last, 0).concat();
        let (ablated, interval) = (mean(&values), full_values.interval(&values));
        neurons.push(Neuron { layer, neuron, estimated, ablated, interval, contexts: Vec::new() });
    }
    let change = |it: &Neuron| (it.ablated - full_values.mean()).abs();
    neurons.sort_by(|a, b| change(b).total_cmp(&change(a)));
    neurons.truncate(count);
    Ok(Some(neurons))
}

/// Returns the largest change of the `full` quantity when a neuron is ablated, of the neurons that gradients rank first;
/// `None` if the stage ends early.
///
/// # Errors
/// Same as [`explain`](super::explain).
pub(super) fn largest_change<B: Backend>(
    bench: &Bench<B>,
    explained: (&[Sample], &Question),
    full: f64,
    device: &B::Device,
) -> Result<Option<RandomEffect>> {
    let found = most_important(bench, explained, 1, device)?;
    let largest = found.and_then(|neurons| neurons.first().map(|it| (it.ablated - full).abs()));
    Ok(largest.map(|largest| RandomEffect { largest, tested: ABLATED_PER_REPORTED }))
}

/// Layer and index of each neuron, with an estimate.
type NeuronEstimates = Vec<([usize; 2], f64)>;

/// Returns layer and index of each neuron, with the estimated change of the mean quantity when its activation changes by
/// `changes`, `[layer]` of `[batch, time, d_inner]`. The gradients are those at the given shares of the way from the
/// sequence's embeddings to the others. `None` if the stage ends early.
fn estimates_at<B: Backend>(
    bench: &Bench<B>,
    changes: &[Tensor<B, 3>],
    shares: &[f64],
) -> Result<Option<NeuronEstimates>> {
    let model = differentiable(bench.model);
    let inputs = &bench.batch.inputs;
    let mut sums: Vec<Vec<f64>> = changes.iter().map(|change| vec![0.0; change.dims()[2]]).collect();
    for shares_of_pass in shares.chunks(max_copies(inputs)) {
        if bench.watch.ends(ExplanationStage::Neurons) {
            return Ok(None);
        }
        let copies = shares_of_pass.len();
        let mut probe = GradientProbe { embedding: embeddings(bench, shares_of_pass), zeros: Vec::new() };
        let stream = stream(&model, copied(inputs, copies), &mut probe)?;
        let gradients = mean_quantity(bench, &model, stream).backward();
        for ((zeros, change), sums) in probe.zeros.into_iter().zip(changes).zip(&mut sums) {
            let Some(gradient) = zeros.grad(&gradients) else { continue };
            let effects = floats((gradient * change.clone().repeat_dim(0, copies)).sum_dims(&[0, 1]));
            sums.iter_mut()
                .zip(effects)
                .for_each(|(sum, effect)| *sum += f64::from(effect) / shares.len() as f64);
        }
    }
    let of_layer = |(layer, sums): (usize, Vec<f64>)| {
        sums.into_iter().enumerate().map(move |(neuron, sum)| ([layer, neuron], sum))
    };
    Ok(Some(sums.into_iter().enumerate().flat_map(of_layer).collect()))
}

/// Adds to each neuron the contexts in which it is most active in `samples`. Equal contexts count once. Returns `None` if
/// the stage ends early.
fn with_contexts<B: Backend>(
    model: &Decoder<B>,
    mut neurons: Vec<Neuron>,
    samples: &[Sample],
    watch: &dyn Watch,
    device: &B::Device,
) -> Result<Option<Vec<Neuron>>> {
    let longest = samples.iter().map(|sample| sample.inputs.len()).max().unwrap_or(1);
    for samples in samples.chunks((BATCH_TOKENS / longest).max(1)) {
        if watch.ends(ExplanationStage::Neurons) {
            return Ok(None);
        }
        let mut recorder = HiddenRecorder(Vec::new());
        stream(model, DeviceBatch::new(&Sample::batch_of(samples), device).inputs, &mut recorder)?;
        for Neuron { layer, neuron, contexts, .. } in &mut neurons {
            let [_, time, _] = recorder.0[*layer].dims();
            let activations = floats(recorder.0[*layer].clone().narrow(2, *neuron, 1));
            for (sample, row) in samples.iter().zip(activations.chunks(time)) {
                for (position, &activation) in row[..sample.inputs.len()].iter().enumerate() {
                    keep(contexts, sample, position, activation.into());
                }
            }
        }
    }
    Ok(Some(neurons))
}

/// Adds the context of a position to the contexts of a neuron, if it is among those with the largest activations.
fn keep(contexts: &mut Vec<NeuronContext>, sample: &Sample, position: usize, activation: f64) {
    let is_larger = |it: &NeuronContext| it.activation.abs() >= activation.abs();
    let rank = contexts.partition_point(is_larger);
    if rank == MAX_CONTEXTS {
        return;
    }
    let is_same_document =
        |at: &usize| sample.documents.as_ref().is_none_or(|documents| documents[*at] == documents[position]);
    let first = (position.saturating_sub(CONTEXT_LENGTH - 1)..position).find(is_same_document);
    let tokens = sample.inputs[first.unwrap_or(position)..=position].to_vec();
    if contexts[..rank].iter().any(|it| it.tokens == tokens) {
        return;
    }
    contexts.retain(|it| it.tokens != tokens);
    contexts.insert(rank, NeuronContext { tokens, activation });
    contexts.truncate(MAX_CONTEXTS);
}

/// Runs a decoder with hooks, and returns its final residual stream.
fn stream<B: Backend>(
    model: &Decoder<B>,
    inputs: Inputs<B>,
    hooks: &mut dyn Hooks<B>,
) -> Result<Tensor<B, 3>> {
    let memories = model.project_memory(inputs.source.clone(), &mut NoHooks)?;
    Ok(model.hidden_states(inputs, &memories, None, hooks)?)
}

/// Returns true for the hidden activation of a feed-forward layer of the decoder.
fn is_hidden(site: HookSite) -> bool {
    site.stack == Stack::Decoder && site.point == HookPoint::FeedForwardHidden
}

/// Records the hidden activations of the feed-forward layers, one per layer.
struct HiddenRecorder<B: Backend>(Vec<Tensor<B, 3>>);

impl<B: Backend> Hooks<B> for HiddenRecorder<B> {
    fn wants(&self, site: HookSite) -> bool {
        is_hidden(site)
    }

    fn hook(&mut self, _site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        self.0.push(activation.clone());
        activation
    }
}

/// Replaces the embedding, and adds zeros, at which gradients are taken, to the hidden activations.
struct GradientProbe<B: Backend> {
    embedding: Tensor<B, 3>,
    zeros: Vec<Tensor<Autodiff<B>, 3>>,
}

impl<B: Backend> Hooks<Autodiff<B>> for GradientProbe<B> {
    fn wants(&self, site: HookSite) -> bool {
        is_hidden(site) || site.stack == Stack::Decoder && site.point == HookPoint::Embedding
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<Autodiff<B>, 3>) -> Tensor<Autodiff<B>, 3> {
        if site.point == HookPoint::Embedding {
            return Tensor::from_inner(self.embedding.clone());
        }
        let zeros = Tensor::zeros(activation.shape(), &activation.device()).require_grad();
        self.zeros.push(zeros.clone());
        activation + zeros
    }
}

/// Replaces the activation of one neuron.
struct NeuronAblation<'a, B: Backend> {
    layer: usize,
    neuron: usize,
    /// The replacements of all neurons of the layer, `[batch, time, d_inner]`; axes of size 1 are broadcast.
    replacement: &'a Tensor<B, 3>,
}

impl<B: Backend> Hooks<B> for NeuronAblation<'_, B> {
    fn wants(&self, site: HookSite) -> bool {
        is_hidden(site) && site.layer == self.layer
    }

    fn hook(&mut self, _site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, time, _] = activation.dims();
        let new = self.replacement.clone().narrow(2, self.neuron, 1).expand([batch, time, 1]);
        activation.slice_assign([0..batch, 0..time, self.neuron..self.neuron + 1], new)
    }
}

#[cfg(test)]
mod tests;
