//! A decoder on the sequences that it is explained on, with any of its components mean-ablated.

use burn::tensor::{Tensor, backend::Backend};

use super::pass::{Activations, Interventions, Site, run};
use super::weights::Input;
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::attention::Memory;
use crate::data::Role;
use crate::evaluation::{DeviceBatch, Mean};
use crate::hooks::NoHooks;
use crate::model::Decoder;
use crate::ops;

/// The maximum number of components that are ablated one by one. Of more components, several are ablated together as
/// long as the loss stays within the tolerance.
const ONE_BY_ONE: usize = 16;

/// Returns the components of a decoder that write to its residual stream, in model order.
pub(super) fn parts<B: Backend>(model: &Decoder<B>) -> impl Iterator<Item = Site> {
    let layers = model.blocks.iter().enumerate();
    layers.flat_map(|(layer, block)| {
        let heads = block.attention.heads;
        let cross = if block.cross_attention.is_some() { heads } else { 0 };
        let heads = (0..heads).map(move |head| Site::Head(layer, head));
        heads.chain((0..cross).map(move |head| Site::Cross(layer, head))).chain([Site::FeedForward(layer)])
    })
}

/// Returns the residual stream before each block of a decoder, and after the last one.
pub(super) fn streams<B: Backend>(model: &Decoder<B>) -> impl Iterator<Item = Site> {
    (0..model.blocks.len()).map(Site::Stream).chain([Site::Logits])
}

/// Returns the mean loss over the targets of a batch that count.
pub(super) fn loss_of<B: Backend>(logits: Tensor<B, 3>, batch: &DeviceBatch<B>) -> f64 {
    let scores = ops::token_scores(logits, batch.targets.clone(), batch.hidden.clone());
    scores.losses.into_data().iter::<f64>().sum::<f64>() / batch.tokens.max(1) as f64
}

/// A decoder on the sequences that it is explained on.
pub(super) struct Bench<'a, B: Backend> {
    pub model: &'a Decoder<B>,
    pub batch: DeviceBatch<B>,
    /// The cross-attention's keys and values, one entry per block; empty without an encoder.
    memories: Vec<Memory<B>>,
    /// The activations of the unchanged model.
    pub whole: Activations<B>,
    /// The mean output of each head and feed-forward layer.
    pub means: Vec<(Site, Tensor<B, 3>)>,
    /// 1 for targets that count and 0 for others, `[batch, time, 1]`.
    pub counts: Tensor<B, 3>,
}

impl<'a, B: Backend> Bench<'a, B> {
    pub fn new(model: &'a Decoder<B>, samples: &[Sample], device: &B::Device) -> Result<Self> {
        let batch = DeviceBatch::<B>::new(&Sample::batch_of(samples), device);
        let memories = model.project_memory(batch.inputs.source.clone(), &mut NoHooks)?;
        let whole = run(model, batch.inputs.tokens.clone(), &memories, &Interventions::default())?;
        let counts = match &batch.hidden {
            Some(hidden) => hidden.clone().bool_not().float(),
            None => batch.targets.ones_like().float(),
        };
        let counts = counts.unsqueeze_dim(2);
        let mut bench = Self { model, batch, memories, whole, means: Vec::new(), counts };
        bench.means = parts(model).map(|site| (site, bench.mean(bench.whole.at(site)))).collect();
        Ok(bench)
    }

    /// Averages an activation over the sequences at each position; over the positions if there is a single sequence.
    pub fn mean(&self, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let over = usize::from(self.batch.inputs.tokens.dims()[0] == 1);
        let count = self.counts.clone().sum_dim(over).clamp_min(1.0);
        (activation * self.counts.clone()).sum_dim(over) / count
    }

    pub fn mean_of(&self, site: Site) -> Tensor<B, 3> {
        let found = self.means.iter().find(|(of, _)| *of == site);
        found.map(|(_, mean)| mean.clone()).expect("all parts have a mean")
    }

    fn run(&self, interventions: &Interventions<B>) -> Result<Activations<B>> {
        run(self.model, self.batch.inputs.tokens.clone(), &self.memories, interventions)
    }

    pub fn loss(&self, interventions: &Interventions<B>) -> Result<f64> {
        Ok(loss_of(self.run(interventions)?.logits, &self.batch))
    }

    fn ablations(&self, parts: &[Site]) -> Interventions<B> {
        let ablated =
            |interventions: Interventions<B>, &site: &Site| interventions.replace(site, self.mean_of(site));
        parts.iter().fold(Interventions::default(), ablated)
    }

    /// Returns the loss with these components mean-ablated.
    pub fn mean_ablated_loss(&self, parts: &[Site]) -> Result<f64> {
        self.loss(&self.ablations(parts))
    }

    /// Returns the logits with all components mean-ablated.
    pub fn all_ablated(&self) -> Result<Tensor<B, 3>> {
        let all: Vec<Site> = self.means.iter().map(|(site, _)| *site).collect();
        Ok(self.run(&self.ablations(&all))?.logits)
    }

    /// Returns the loss on each target that counts, in the order of `samples`, from which the bench was created.
    pub fn losses(&self, logits: Tensor<B, 3>, samples: &[Sample]) -> Vec<f64> {
        let [_, time] = self.batch.targets.dims();
        let scores = ops::token_scores(logits, self.batch.targets.clone(), self.batch.hidden.clone());
        let losses = floats(scores.losses);
        let of_sample = |(sample, losses): (&Sample, &[f32])| {
            let counted =
                sample.roles.iter().zip(losses.to_vec()).filter(|(role, _)| **role != Role::Padding);
            counted.map(|(_, loss)| f64::from(loss)).collect::<Vec<_>>()
        };
        samples.iter().zip(losses.chunks(time)).flat_map(of_sample).collect()
    }

    /// Ranks components by the loss when each is mean-ablated in addition to all `ablated` ones. The component whose
    /// ablation moves the loss least from the `whole` model's loss comes first.
    pub fn ranked(&self, parts: &[Site], ablated: &[Site], whole: f64) -> Result<Vec<(f64, Site)>> {
        let loss = |&site: &Site| Ok((self.mean_ablated_loss(&[ablated, &[site]].concat())?, site));
        let mut ranked = parts.iter().map(loss).collect::<Result<Vec<_>>>()?;
        ranked.sort_by(|a, b| (a.0 - whole).abs().total_cmp(&(b.0 - whole).abs()));
        Ok(ranked)
    }

    /// Prunes the components, given as they were `ranked`, and returns those that remain and their loss. It stops when
    /// ablating any further component moves the loss from the `whole` model's by more than `tolerance`, up or down.
    ///
    /// A lower loss is not better: a circuit without a harmful component is not what the model computes.
    pub fn smallest(
        &self,
        mut ranked: Vec<(f64, Site)>,
        whole: f64,
        tolerance: f64,
    ) -> Result<(Vec<Site>, f64)> {
        let (mut left_out, mut loss) = (Vec::new(), None);
        let is_near = |loss: f64| (loss - whole).abs() <= tolerance;
        loop {
            let mut count = ranked.iter().take_while(|(loss, _)| is_near(*loss)).count();
            if ranked.len() <= ONE_BY_ONE {
                count = count.min(1);
            }
            while count > 0 {
                let sites = ranked[..count].iter().map(|(_, site)| *site);
                let more: Vec<Site> = left_out.iter().copied().chain(sites).collect();
                let without = self.mean_ablated_loss(&more)?;
                if is_near(without) {
                    (left_out, loss) = (more, Some(without));
                    break;
                }
                count /= 2;
            }
            let kept: Vec<Site> = ranked[count..].iter().map(|(_, site)| *site).collect();
            if count == 0 || kept.is_empty() {
                return Ok((kept, loss.unwrap_or(whole)));
            }
            ranked = self.ranked(&kept, &left_out, whole)?;
        }
    }

    /// Runs the model with `from` mean-ablated and all other heads frozen. A later head then receives the change
    /// through the residual stream and the feed-forward layers alone, as in the path patching of Wang et al. (2022).
    pub fn without_alone(&self, from: Site) -> Result<Activations<B>> {
        let is_head = |site: &Site| matches!(site, Site::Head(..) | Site::Cross(..));
        let heads = self.means.iter().map(|(site, _)| *site).filter(is_head);
        let frozen = |it: Interventions<B>, site| it.replace(site, self.whole.at(site));
        let interventions = heads.fold(Interventions::default(), frozen).replace(from, self.mean_of(from));
        self.run(&interventions)
    }

    /// Returns the loss with some inputs of the head `to` taken from another pass.
    pub fn loss_with_inputs(&self, to: Site, inputs: &[Input], other: &Activations<B>) -> Result<f64> {
        let site = |input: &Input| match (to, input) {
            (Site::Cross(layer, head), _) => Site::CrossQuery(layer, head),
            (Site::Head(layer, head), Input::Query) => Site::Query(layer, head),
            (Site::Head(layer, head), Input::Key) => Site::Key(layer, head),
            (Site::Head(layer, head), Input::Value) => Site::Value(layer, head),
            _ => unreachable!("paths lead from head to head"),
        };
        let patch = |it: Interventions<B>, site| it.replace(site, other.at(site));
        self.loss(&inputs.iter().map(site).fold(Interventions::default(), patch))
    }

    /// Returns the difference of a head's weights from their mean over the sequences. It is half the sum over the keys
    /// of the absolute differences, averaged over the queries. `None` for a single sequence.
    pub fn unevenness(&self, pattern: Site) -> Option<f64> {
        let pattern = self.whole.at(pattern);
        let [batch, _, _] = pattern.dims();
        let far = (pattern.clone() - self.mean(pattern)).abs().sum_dim(2) * self.counts.clone() / 2.0;
        let far = f64::from(floats(far.sum())[0]) / f64::from(floats(self.counts.clone().sum())[0]);
        (batch > 1).then_some(far)
    }

    /// Returns the largest weight of a head, averaged over queries, on one token of the vocabulary at any position but
    /// the first. `None` unless it exceeds three times the weight under uniform attention.
    pub fn separator(&self, [layer, head]: [usize; 2], samples: &[Sample]) -> Option<f64> {
        let pattern = floats(self.whole.at(Site::Pattern(layer, head)));
        let time = self.batch.inputs.tokens.dims()[1];
        let mut weights = std::collections::BTreeMap::<u32, [f64; 2]>::new();
        let mut queries = 0.0;
        for (sample, map) in samples.iter().zip(pattern.chunks(time * time)) {
            for (query, row) in map.chunks(time).enumerate().take(sample.inputs.len()).skip(1) {
                queries += 1.0;
                for (&token, &seen) in sample.inputs[1..=query].iter().zip(&row[1..]) {
                    let [weight, share] = weights.entry(token).or_default();
                    *weight += f64::from(seen);
                    *share += 1.0 / query as f64;
                }
            }
        }
        let most = weights.values().max_by(|a, b| a[0].total_cmp(&b[0]))?;
        (most[0] > 3.0 * most[1]).then_some(most[0] / queries)
    }

    /// Returns the weights of a cross-attention head on the first source token and on source tokens equal to the
    /// target. Both are averaged over the targets that count.
    pub fn looks_at(&self, [layer, head]: [usize; 2], samples: &[Sample]) -> [f64; 2] {
        let pattern = self.whole.at(Site::CrossPattern(layer, head));
        let [_, time, keys] = pattern.dims();
        let pattern = floats(pattern);
        let (mut first, mut next) = (Mean::default(), Mean::default());
        for (sample, map) in samples.iter().zip(pattern.chunks(time * keys)) {
            let source = sample.source.as_deref().unwrap_or_default();
            let queries = map.chunks(keys).zip(&sample.targets).zip(&sample.roles);
            for ((row, target), _) in queries.filter(|(_, role)| **role != Role::Padding) {
                first.add(f64::from(row[0]));
                let like = source.iter().zip(row).filter(|(token, _)| *token == target);
                next.add(like.map(|(_, &weight)| f64::from(weight)).sum());
            }
        }
        [first, next].map(|mean| mean.value().unwrap_or(0.0))
    }
}
