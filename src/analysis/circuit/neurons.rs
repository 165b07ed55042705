//! The neurons of the feed-forward layers whose ablation changes the explained quantity most, and the tokens at which they
//! are most active.
//!
//! If the activation `a` of a neuron is replaced by `r`, the quantity `q` changes by about the sum over positions of
//! `(r - a) · dq/da`. The gradients are averaged as in `estimates`. They rank the neurons, and are often wrong, so the
//! neurons are then ablated, in this order, until a round of ablations finds none that belongs to the most important ones.
//! Ablation is that of components: `r` is the mean, or the activation on the corrupted sequence. It changes the output of
//! the feed-forward layer by `(r - a)` times the neuron's row of the output projection.

use burn::backend::Autodiff;
use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};

use super::bench::{Bench, components, mean};
use super::chance::RandomEffect;
use super::estimates::{STEPS, copied, differentiable, embeddings, max_copies, mean_quantity, shares};
use super::explanation::{ContextSource, Explanation, Neuron, NeuronAnalysis, NeuronContext};
use super::full_values::FullValues;
use super::pass::{Replacements, Site, explainable};
use super::question::Question;
use super::watch::{ExplanationStage, Watch};
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::data::Sequences;
use crate::evaluation::DeviceBatch;
use crate::hooks::{HookPoint, HookSite, Hooks, NoHooks, Stack};
use crate::model::{Decoder, Inputs, Model};

/// The minimum number of neurons in a round of ablations, and their number for each reported neuron.
const MIN_ROUND: usize = 32;
const ROUND_PER_REPORTED: usize = 4;
/// The maximum number of rounds.
const MAX_ROUNDS: usize = 16;
/// The maximum number of neurons whose outputs are held at the same time.
const ABLATED_TOGETHER: usize = 32;
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
    /// Adds the neurons whose ablation changes the quantity most at the explained targets of `samples`. An explanation without
    /// a circuit is returned unchanged.
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
        let round = MIN_ROUND.max(search.count.saturating_mul(ROUND_PER_REPORTED));
        let extent = Extent::UntilSettled { reported: search.count, round };
        let found = most_important(&bench, (&samples, question), extent, device)?;
        let Some(RankedNeurons { neurons, tested, of_model }) =
            found.filter(|_| !search.watch.ends(ExplanationStage::Neurons))
        else {
            return Ok(self.without_neurons());
        };
        let contexts = if search.contexts.is_empty() { &samples } else { search.contexts };
        let Some(neurons) = with_contexts(bench.model, neurons, contexts, search.watch, device)? else {
            return Ok(self.without_neurons());
        };
        self.neurons = NeuronAnalysis { neurons, tested, of_model, neuron_contexts: Some(search.source) };
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

/// The number of neurons that are ablated.
#[derive(Clone, Copy)]
enum Extent {
    /// Rounds of this many neurons, until one changes none of the reported ones.
    UntilSettled { reported: usize, round: usize },
    /// A fixed number, of which one is reported.
    Exactly(usize),
}

/// Neurons, the one with the largest effect first.
struct RankedNeurons {
    neurons: Vec<Neuron>,
    /// The number of neurons that were ablated.
    tested: usize,
    of_model: usize,
}

/// Returns the neurons with the largest effects; `None` if the stage ends early.
fn most_important<B: Backend>(
    bench: &Bench<B>,
    (samples, question): (&[Sample], &Question),
    extent: Extent,
    device: &B::Device,
) -> Result<Option<RankedNeurons>> {
    let ablation = NeuronAblation { bench, changes: changes(bench, (samples, question), device)? };
    let shares = shares::<STEPS>();
    let Some(mut estimates) = estimates_at(bench, &ablation.changes, &shares)? else {
        return Ok(None);
    };
    estimates.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let full_values = FullValues::new(bench, samples);
    let change = |it: &Neuron| (it.ablated - full_values.mean()).abs();
    let (reported, round, rounds) = match extent {
        Extent::UntilSettled { reported, round } => (reported, round, MAX_ROUNDS),
        Extent::Exactly(count) => (1, count.max(1), 1),
    };
    let (mut neurons, mut tested) = (Vec::<Neuron>::new(), 0);
    for candidates in estimates.chunks(round).take(rounds) {
        let progress = (tested, (tested + 2 * round).min(estimates.len()));
        let Some(values) = ablation.values(candidates, progress)? else { return Ok(None) };
        let found = candidates.iter().zip(values).map(|(&([layer, neuron], estimated), values)| {
            let (ablated, interval) = (mean(&values), full_values.interval(&values));
            Neuron { layer, neuron, estimated, ablated, interval, contexts: Vec::new() }
        });
        let smallest = neurons.last().filter(|_| neurons.len() == reported).map(&change);
        let found: Vec<Neuron> = found.collect();
        tested += found.len();
        if smallest.is_some_and(|smallest| found.iter().all(|it| change(it) <= smallest)) {
            break;
        }
        neurons.extend(found);
        neurons.sort_by(|a, b| change(b).total_cmp(&change(a)));
        neurons.truncate(reported);
    }
    Ok(Some(RankedNeurons { neurons, tested, of_model: estimates.len() }))
}

/// Returns the change of the hidden activation of each layer that ablates its neurons, `[batch, time, d_inner]`.
fn changes<B: Backend>(
    bench: &Bench<B>,
    (samples, question): (&[Sample], &Question),
    device: &B::Device,
) -> Result<Vec<Tensor<B, 3>>> {
    let hidden = |inputs: Inputs<B>| {
        let mut recorder = HiddenRecorder(Vec::new());
        stream(bench.model, inputs, &mut recorder)?;
        Ok::<_, crate::Error>(recorder.0)
    };
    let old = hidden(bench.batch.inputs.clone())?;
    let new = match question.corrupted.is_empty() {
        true => old.iter().map(|activation| bench.mean(activation.clone())).collect(),
        false => {
            let batch = Sample::batch_of(&question.corrupted_samples(samples));
            hidden(DeviceBatch::new(&batch, device).inputs)?
        }
    };
    Ok(new.into_iter().zip(old).map(|(new, old)| new.expand(old.shape()) - old).collect())
}

/// Ablates neurons.
struct NeuronAblation<'a, 'b, B: Backend> {
    bench: &'a Bench<'b, B>,
    /// The change of the hidden activation of each layer that ablates its neurons, `[batch, time, d_inner]`.
    changes: Vec<Tensor<B, 3>>,
}

impl<B: Backend> NeuronAblation<'_, '_, B> {
    /// Returns the quantity at each target when each neuron alone is ablated; `None` if the stage ends early. For the
    /// progress, takes the number of neurons before and the total.
    fn values(
        &self,
        neurons: &[([usize; 2], f64)],
        (before, total): (usize, usize),
    ) -> Result<Option<Vec<Vec<f64>>>> {
        let (base, watch, mut found) = (self.bench.full_pass(), self.bench.watch, Vec::new());
        for part in neurons.chunks(ABLATED_TOGETHER) {
            let variants: Vec<Replacements<B>> = part.iter().map(|(at, _)| vec![self.output(*at)]).collect();
            let done = before + found.len();
            let values = self.bench.values_of_variants(&base, &variants, |count| {
                watch.report(ExplanationStage::Neurons, done + count, total);
                !watch.ends(ExplanationStage::Neurons)
            })?;
            found.extend(values);
        }
        Ok(found.into_iter().collect())
    }

    /// Returns the output of a feed-forward layer with one neuron ablated.
    fn output(&self, [layer, neuron]: [usize; 2]) -> (Site, Tensor<B, 3>) {
        let site = Site::FeedForward(layer);
        let row = self.bench.model.blocks[layer].feed_forward.down.weight.val().narrow(0, neuron, 1); // [1, d_model]
        let change = self.changes[layer].clone().narrow(2, neuron, 1); // [batch, time, 1]
        (site, self.bench.full.at(site) + change * row.unsqueeze_dim::<3>(0))
    }
}

/// Returns the largest change of the `full` quantity when a neuron is ablated, of the `count` neurons that gradients rank
/// first; `None` if the stage ends early.
///
/// # Errors
/// Same as [`explain`](super::explain).
pub(super) fn largest_change<B: Backend>(
    bench: &Bench<B>,
    explained: (&[Sample], &Question),
    (full, count): (f64, usize),
    device: &B::Device,
) -> Result<Option<RandomEffect>> {
    let Some(found) = most_important(bench, explained, Extent::Exactly(count), device)? else {
        return Ok(None);
    };
    let largest = found.neurons.first().map(|it| (it.ablated - full).abs());
    Ok(largest.map(|largest| RandomEffect { largest, tested: found.tested }))
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

#[cfg(test)]
mod tests;
