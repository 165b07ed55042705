//! A decoder on the sequences that it is explained on, with any of its components mean-ablated.

use burn::tensor::{Tensor, backend::Backend};

use super::pass::{Activations, Interventions, Site, run};
use super::weights::Input;
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::interventions::ResidualWriter;
use crate::analysis::view::floats;
use crate::attention::Memory;
use crate::data::Role;
use crate::evaluation::{DeviceBatch, Mean};
use crate::hooks::NoHooks;
use crate::model::Decoder;
use crate::ops;

/// The maximum number of components that are ablated one by one. With more components, several are ablated together
/// while the loss stays within the tolerance.
const MAX_SINGLE_ABLATIONS: usize = 16;

/// Returns the components of a decoder that write to its residual stream, in model order.
pub(super) fn components<B: Backend>(model: &Decoder<B>) -> impl Iterator<Item = Site> {
    ResidualWriter::of_decoder(model).map(Site::from)
}

/// Returns the residual stream before each block of a decoder, and after the last one.
pub(super) fn residual_streams<B: Backend>(model: &Decoder<B>) -> impl Iterator<Item = Site> {
    (0..model.blocks.len()).map(Site::Stream).chain([Site::Logits])
}

/// Returns the mean loss over the non-padding targets of a batch.
pub(super) fn loss_of<B: Backend>(logits: Tensor<B, 3>, batch: &DeviceBatch<B>) -> f64 {
    let scores = ops::token_scores(logits, batch.targets.clone(), batch.hidden.clone());
    scores.losses.into_data().iter::<f64>().sum::<f64>() / batch.tokens.max(1) as f64
}

/// A decoder and the sequences that it is explained on.
pub(super) struct Bench<'a, B: Backend> {
    pub model: &'a Decoder<B>,
    pub batch: DeviceBatch<B>,
    /// The cross-attention's keys and values, one entry per block; empty without an encoder.
    memories: Vec<Memory<B>>,
    /// The activations of the full model.
    pub full: Activations<B>,
    /// The mean output of each head and feed-forward layer.
    pub means: Vec<(Site, Tensor<B, 3>)>,
    /// 1 for targets and 0 for padding, `[batch, time, 1]`.
    target_mask: Tensor<B, 3>,
}

impl<'a, B: Backend> Bench<'a, B> {
    pub fn new(model: &'a Decoder<B>, samples: &[Sample], device: &B::Device) -> Result<Self> {
        let batch = DeviceBatch::<B>::new(&Sample::batch_of(samples), device);
        let memories = model.project_memory(batch.inputs.source.clone(), &mut NoHooks)?;
        let full = run(model, batch.inputs.clone(), &memories, &Interventions::default())?;
        let target_mask = match &batch.hidden {
            Some(hidden) => hidden.clone().bool_not().float(),
            None => batch.targets.ones_like().float(),
        };
        let target_mask = target_mask.unsqueeze_dim(2);
        let mut bench = Self { model, batch, memories, full, means: Vec::new(), target_mask };
        bench.means = components(model).map(|site| (site, bench.mean(bench.full.at(site)))).collect();
        Ok(bench)
    }

    /// Averages an activation at each position over the sequences, or over the positions of a single sequence.
    pub fn mean(&self, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let dim = usize::from(self.batch.inputs.tokens.dims()[0] == 1);
        let count = self.target_mask.clone().sum_dim(dim).clamp_min(1.0);
        (activation * self.target_mask.clone()).sum_dim(dim) / count
    }

    /// Returns the mean output of a component.
    pub fn mean_of(&self, site: Site) -> Tensor<B, 3> {
        let found = self.means.iter().find(|(component, _)| *component == site);
        found.map(|(_, mean)| mean.clone()).expect("all components have a mean")
    }

    fn run(&self, interventions: &Interventions<B>) -> Result<Activations<B>> {
        run(self.model, self.batch.inputs.clone(), &self.memories, interventions)
    }

    pub fn loss(&self, interventions: &Interventions<B>) -> Result<f64> {
        Ok(loss_of(self.run(interventions)?.logits, &self.batch))
    }

    fn ablations(&self, components: &[Site]) -> Interventions<B> {
        let ablated =
            |interventions: Interventions<B>, &site: &Site| interventions.replace(site, self.mean_of(site));
        components.iter().fold(Interventions::default(), ablated)
    }

    /// Returns the loss with the given components mean-ablated.
    pub fn mean_ablated_loss(&self, components: &[Site]) -> Result<f64> {
        self.loss(&self.ablations(components))
    }

    /// Returns the logits with all components mean-ablated.
    pub fn all_ablated(&self) -> Result<Tensor<B, 3>> {
        let all: Vec<Site> = self.means.iter().map(|(site, _)| *site).collect();
        Ok(self.run(&self.ablations(&all))?.logits)
    }

    /// Returns the loss of each non-padding target. `samples` must be those from which the bench was created.
    pub fn losses(&self, logits: Tensor<B, 3>, samples: &[Sample]) -> Vec<f64> {
        let [_, time] = self.batch.targets.dims();
        let scores = ops::token_scores(logits, self.batch.targets.clone(), self.batch.hidden.clone());
        let losses = floats(scores.losses);
        let sample_losses = |(sample, losses): (&Sample, &[f32])| {
            let unpadded =
                sample.roles.iter().zip(losses.to_vec()).filter(|(role, _)| **role != Role::Padding);
            unpadded.map(|(_, loss)| f64::from(loss)).collect::<Vec<_>>()
        };
        samples.iter().zip(losses.chunks(time)).flat_map(sample_losses).collect()
    }

    /// Ranks components by the loss when each is mean-ablated in addition to all `ablated` ones. The component whose
    /// ablation changes the full model's loss least comes first.
    pub fn rank(&self, components: &[Site], ablated: &[Site], full_loss: f64) -> Result<Vec<(f64, Site)>> {
        let loss = |&site: &Site| Ok((self.mean_ablated_loss(&[ablated, &[site]].concat())?, site));
        let mut ranked = components.iter().map(loss).collect::<Result<Vec<_>>>()?;
        ranked.sort_by(|a, b| (a.0 - full_loss).abs().total_cmp(&(b.0 - full_loss).abs()));
        Ok(ranked)
    }

    /// Prunes components, as ranked by [`rank`](Self::rank), and returns the remaining ones and their loss. Stops when
    /// ablating any further component changes the full model's loss by more than `tolerance`, up or down.
    ///
    /// A lower loss is not better: a circuit without a harmful component differs from what the model computes.
    pub fn prune(
        &self,
        mut ranked: Vec<(f64, Site)>,
        full_loss: f64,
        tolerance: f64,
    ) -> Result<(Vec<Site>, f64)> {
        let (mut ablated, mut loss) = (Vec::new(), None);
        let is_near = |loss: f64| (loss - full_loss).abs() <= tolerance;
        loop {
            let mut count = ranked.iter().take_while(|(loss, _)| is_near(*loss)).count();
            if ranked.len() <= MAX_SINGLE_ABLATIONS {
                count = count.min(1);
            }
            while count > 0 {
                let sites = ranked[..count].iter().map(|(_, site)| *site);
                let candidates: Vec<Site> = ablated.iter().copied().chain(sites).collect();
                let ablated_loss = self.mean_ablated_loss(&candidates)?;
                if is_near(ablated_loss) {
                    (ablated, loss) = (candidates, Some(ablated_loss));
                    break;
                }
                count /= 2;
            }
            let kept: Vec<Site> = ranked[count..].iter().map(|(_, site)| *site).collect();
            if count == 0 || kept.is_empty() {
                return Ok((kept, loss.unwrap_or(full_loss)));
            }
            ranked = self.rank(&kept, &ablated, full_loss)?;
        }
    }

    /// Runs the model with `from` mean-ablated and all other heads frozen. The change then reaches a later head only
    /// through the residual stream and the feed-forward layers, as in the path patching of Wang et al. (2022).
    pub fn run_with_frozen_heads(&self, from: Site) -> Result<Activations<B>> {
        let is_head = |site: &Site| matches!(site, Site::Head(..) | Site::Cross(..));
        let heads = self.means.iter().map(|(site, _)| *site).filter(is_head);
        let frozen = |it: Interventions<B>, site| it.replace(site, self.full.at(site));
        let interventions = heads.fold(Interventions::default(), frozen).replace(from, self.mean_of(from));
        self.run(&interventions)
    }

    /// Returns the loss with the given inputs of the head `to` taken from the pass `other`.
    pub fn loss_with_inputs(&self, to: Site, inputs: &[Input], other: &Activations<B>) -> Result<f64> {
        let site = |input: &Input| match (to, input) {
            (Site::Cross(layer, head), _) => Site::CrossQuery(layer, head),
            (Site::Head(layer, head), Input::Query) => Site::Query(layer, head),
            (Site::Head(layer, head), Input::Key) => Site::Key(layer, head),
            (Site::Head(layer, head), Input::Value) => Site::Value(layer, head),
            _ => unreachable!("paths connect heads"),
        };
        let patch = |it: Interventions<B>, site| it.replace(site, other.at(site));
        self.loss(&inputs.iter().map(site).fold(Interventions::default(), patch))
    }

    /// Returns the variation of a head's weights between sequences: half the sum over the keys of the absolute
    /// differences from the mean, averaged over the queries. `None` for a single sequence.
    pub fn pattern_variation(&self, pattern: Site) -> Option<f64> {
        let pattern = self.full.at(pattern);
        let [batch, _, _] = pattern.dims();
        let variation =
            (pattern.clone() - self.mean(pattern)).abs().sum_dim(2) * self.target_mask.clone() / 2.0;
        let variation =
            f64::from(floats(variation.sum())[0]) / f64::from(floats(self.target_mask.clone().sum())[0]);
        (batch > 1).then_some(variation)
    }

    /// Returns the largest weight of a head on one token of the vocabulary, averaged over queries. The first position
    /// of each document is ignored. `None` unless the weight exceeds three times the weight under uniform attention.
    pub fn separator_weight(&self, [layer, head]: [usize; 2], samples: &[Sample]) -> Option<f64> {
        let pattern = floats(self.full.at(Site::Pattern(layer, head)));
        let time = self.batch.inputs.tokens.dims()[1];
        let mut weights = std::collections::BTreeMap::<u32, [f64; 2]>::new();
        let mut queries = 0.0;
        for (sample, map) in samples.iter().zip(pattern.chunks(time * time)) {
            for (first, tokens) in sample.documents() {
                let rows = map.chunks(time).skip(first).map(|row| &row[first..]);
                for (query, row) in rows.enumerate().take(tokens.len()).skip(1) {
                    queries += 1.0;
                    for (&token, &attention) in tokens[1..=query].iter().zip(&row[1..]) {
                        let [weight, share] = weights.entry(token).or_default();
                        *weight += f64::from(attention);
                        *share += 1.0 / query as f64;
                    }
                }
            }
        }
        let largest = weights.values().max_by(|a, b| a[0].total_cmp(&b[0]))?;
        (largest[0] > 3.0 * largest[1]).then_some(largest[0] / queries)
    }

    /// Returns the weights of a cross-attention head on the first source token and on source tokens equal to the
    /// target. Both are averaged over the non-padding targets.
    pub fn source_weights(&self, [layer, head]: [usize; 2], samples: &[Sample]) -> [f64; 2] {
        let pattern = self.full.at(Site::CrossPattern(layer, head));
        let [_, time, keys] = pattern.dims();
        let pattern = floats(pattern);
        let (mut first, mut next) = (Mean::default(), Mean::default());
        for (sample, map) in samples.iter().zip(pattern.chunks(time * keys)) {
            let source = sample.source.as_deref().unwrap_or_default();
            let queries = map.chunks(keys).zip(&sample.targets).zip(&sample.roles);
            for ((row, target), _) in queries.filter(|(_, role)| **role != Role::Padding) {
                first.add(f64::from(row[0]));
                let equal = source.iter().zip(row).filter(|(token, _)| *token == target);
                next.add(equal.map(|(_, &weight)| f64::from(weight)).sum());
            }
        }
        [first, next].map(|mean| mean.value().unwrap_or(0.0))
    }
}
