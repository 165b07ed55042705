//! The neurons of the feed-forward layers whose ablation changes the explained quantity most, and the tokens at which they
//! are most active.
//!
//! If the activation `a` of a neuron is replaced by `r`, the quantity `q` changes by about the sum over positions of
//! `(r - a) · dq/da`. The gradients are averaged as in `estimates`; a second ranking adds the curvature at the sequences
//! themselves. Both are often wrong, so the neurons are then ablated, in the order of the better of their two ranks, until a
//! round of ablations finds none that belongs to the most important ones.
//! Ablation is that of components: `r` is the mean, or the activation on the corrupted sequence. It changes the output of
//! the feed-forward layer by `(r - a)` times the neuron's row of the output projection.

mod contexts;

use burn::backend::Autodiff;
use burn::tensor::{Tensor, backend::Backend};

pub use self::contexts::context_samples;
use self::contexts::with_contexts;
use super::bench::{Bench, mean};
use super::chance::RandomEffect;
use super::estimates::{STEPS, copied, differentiable, embeddings, max_copies, mean_quantity, shares};
use super::explanation::{ContextSource, Explanation, Neuron, NeuronAnalysis};
use super::full_values::FullValues;
use super::pass::{Replacements, Site, explainable};
use super::question::Question;
use super::watch::{ExplanationStage, Watch};
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
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
    let estimates = estimates_at(bench, &ablation.changes, &shares)?;
    let Some((estimates, magnitudes)) = estimates.zip(magnitudes(bench, &ablation.changes)?) else {
        return Ok(None);
    };
    let estimates = in_order(estimates, &magnitudes);
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
    let mut sums = vec![Vec::new(); changes.len()];
    let is_complete = for_each_product(bench, changes, shares, |layer, products| {
        add(&mut sums[layer], products.sum_dims(&[0, 1]), 1.0 / shares.len() as f64);
    })?;
    Ok(is_complete.then(|| by_neuron(sums)))
}

/// Returns layer and index of each neuron, with an upper estimate of the magnitude of the change, from the gradients `g` at
/// the sequences themselves. A trained model has small gradients, so the second order counts: the curvature of the loss is
/// about its Fisher information, the sum of the squares of `n g` over `n` targets. `None` if the stage ends early.
fn magnitudes<B: Backend>(bench: &Bench<B>, changes: &[Tensor<B, 3>]) -> Result<Option<NeuronEstimates>> {
    let [mut first, mut second] = [vec![Vec::new(); changes.len()], vec![Vec::new(); changes.len()]];
    let half_targets = bench.batch.tokens as f64 / 2.0;
    let is_complete = for_each_product(bench, changes, &[0.0], |layer, products| {
        add(&mut first[layer], products.clone().sum_dims(&[0, 1]), 1.0);
        add(&mut second[layer], (products.clone() * products).sum_dims(&[0, 1]), half_targets);
    })?;
    let with_curvature =
        |((at, first), (_, second)): (([usize; 2], f64), ([usize; 2], f64))| (at, first.abs() + second);
    Ok(is_complete.then(|| by_neuron(first).into_iter().zip(by_neuron(second)).map(with_curvature).collect()))
}

/// Calls `visit` with each layer and the products of its `changes` and the gradients at each of the shares. Returns false if
/// the stage ends early.
fn for_each_product<B: Backend>(
    bench: &Bench<B>,
    changes: &[Tensor<B, 3>],
    shares: &[f64],
    mut visit: impl FnMut(usize, Tensor<B, 3>),
) -> Result<bool> {
    let model = differentiable(bench.model);
    let inputs = &bench.batch.inputs;
    for shares_of_pass in shares.chunks(max_copies(inputs)) {
        if bench.watch.ends(ExplanationStage::Neurons) {
            return Ok(false);
        }
        let copies = shares_of_pass.len();
        let mut probe = GradientProbe { embedding: embeddings(bench, shares_of_pass), zeros: Vec::new() };
        let stream = stream(&model, copied(inputs, copies), &mut probe)?;
        let gradients = mean_quantity(bench, &model, stream).backward();
        for (layer, (zeros, change)) in probe.zeros.into_iter().zip(changes).enumerate() {
            // Layers that do not reach a target have no gradient.
            let change = change.clone().repeat_dim(0, copies);
            let products = match zeros.grad(&gradients) {
                Some(gradient) => gradient * change,
                None => change.zeros_like(),
            };
            visit(layer, products);
        }
    }
    Ok(true)
}

/// Adds values, times a factor, to the sums of the neurons of a layer.
fn add<B: Backend>(sums: &mut Vec<f64>, values: Tensor<B, 3>, factor: f64) {
    let values = floats(values);
    sums.resize(values.len(), 0.0);
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value) * factor);
}

/// Returns the value of each neuron, from the values of each layer.
fn by_neuron(values: Vec<Vec<f64>>) -> NeuronEstimates {
    let of_layer = |(layer, values): (usize, Vec<f64>)| {
        values.into_iter().enumerate().map(move |(neuron, value)| ([layer, neuron], value))
    };
    values.into_iter().enumerate().flat_map(of_layer).collect()
}

/// Orders neurons by the better of their ranks in the estimates and in the magnitudes, and returns their estimates.
fn in_order(estimates: NeuronEstimates, magnitudes: &NeuronEstimates) -> NeuronEstimates {
    let ranks = |values: &NeuronEstimates| {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[b].1.abs().total_cmp(&values[a].1.abs()));
        let mut ranks = vec![0; values.len()];
        order.into_iter().enumerate().for_each(|(rank, neuron)| ranks[neuron] = rank);
        ranks
    };
    let ranks = [ranks(&estimates), ranks(magnitudes)];
    let mut ordered: Vec<_> = estimates.into_iter().enumerate().collect();
    ordered.sort_by_key(|(neuron, _)| ranks[0][*neuron].min(ranks[1][*neuron]));
    ordered.into_iter().map(|(_, estimate)| estimate).collect()
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
