//! A decoder on the sequences that it is explained on, with any of its parts at their means.

use burn::tensor::Tensor;

use super::pass::{Activations, Interventions, Site, run};
use super::weights::Input;
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::evaluation::DeviceBatch;
use crate::model::Decoder;
use crate::ops;

/// Up to so many parts are left out one by one; of more, several at once as long as that keeps enough.
const ONE_BY_ONE: usize = 16;

/// A decoder on the sequences that it is explained on.
pub(super) struct Bench<'a, B: ops::Backend> {
    pub model: &'a Decoder<B>,
    pub batch: DeviceBatch<B>,
    /// What it does there.
    pub whole: Activations<B>,
    /// What its heads and feed-forward layers write in the mean.
    pub means: Vec<(Site, Tensor<B, 3>)>,
    /// What targets count, `[batch, time, 1]`.
    pub counts: Tensor<B, 3>,
}

impl<'a, B: ops::Backend> Bench<'a, B> {
    pub fn new(model: &'a Decoder<B>, samples: &[Sample], device: &B::Device) -> Result<Self> {
        let batch = DeviceBatch::<B>::new(&Sample::batch_of(samples), device);
        let whole = run(model, batch.inputs.tokens.clone(), &Interventions::default())?;
        let counts = match &batch.hidden {
            Some(hidden) => hidden.clone().bool_not().float(),
            None => batch.targets.ones_like().float(),
        };
        let mut bench = Self { model, batch, whole, means: Vec::new(), counts: counts.unsqueeze_dim(2) };
        for (layer, block) in model.blocks.iter().enumerate() {
            let heads = (0..block.attention.heads).map(|head| Site::Head(layer, head));
            for site in heads.chain([Site::FeedForward(layer)]) {
                bench.means.push((site, bench.mean(bench.whole.at(site))));
            }
        }
        Ok(bench)
    }

    /// The mean at each position over the sequences; of one sequence, over its positions.
    pub fn mean(&self, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let over = usize::from(self.batch.inputs.tokens.dims()[0] == 1);
        let count = self.counts.clone().sum_dim(over).clamp_min(1.0);
        (activation * self.counts.clone()).sum_dim(over) / count
    }

    pub fn mean_of(&self, site: Site) -> Tensor<B, 3> {
        let found = self.means.iter().find(|(of, _)| *of == site);
        found.map(|(_, mean)| mean.clone()).expect("all parts have a mean")
    }

    pub fn loss_of(&self, pass: Activations<B>) -> f64 {
        let scores = ops::token_scores(pass.logits, self.batch.targets.clone(), self.batch.hidden.clone());
        scores.losses.into_data().iter::<f64>().sum::<f64>() / self.batch.tokens.max(1) as f64
    }

    pub fn loss(&self, interventions: &Interventions<B>) -> Result<f64> {
        Ok(self.loss_of(run(self.model, self.batch.inputs.tokens.clone(), interventions)?))
    }

    /// The loss with the means of these parts in their places.
    pub fn loss_without(&self, parts: &[Site]) -> Result<f64> {
        let left_out =
            |interventions: Interventions<B>, &site: &Site| interventions.replace(site, self.mean_of(site));
        self.loss(&parts.iter().fold(Interventions::default(), left_out))
    }

    /// The parts in the order of what the loss is without them and all that is `left_out`, the least first.
    pub fn ranked(&self, parts: &[Site], left_out: &[Site]) -> Result<Vec<(f64, Site)>> {
        let loss = |&site: &Site| Ok((self.loss_without(&[left_out, &[site]].concat())?, site));
        let mut ranked = parts.iter().map(loss).collect::<Result<Vec<_>>>()?;
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(ranked)
    }

    /// The parts that are left where none can be left out any more without a higher loss than `highest`, from all
    /// parts as they were `ranked`; and the loss of what is left.
    pub fn smallest(&self, mut ranked: Vec<(f64, Site)>, highest: f64) -> Result<(Vec<Site>, f64)> {
        let (mut left_out, mut loss) = (Vec::new(), None);
        loop {
            let mut count = ranked.iter().take_while(|(loss, _)| *loss <= highest).count();
            if ranked.len() <= ONE_BY_ONE {
                count = count.min(1);
            }
            while count > 0 {
                let sites = ranked[..count].iter().map(|(_, site)| *site);
                let more: Vec<Site> = left_out.iter().copied().chain(sites).collect();
                let without = self.loss_without(&more)?;
                if without <= highest {
                    (left_out, loss) = (more, Some(without));
                    break;
                }
                count /= 2;
            }
            let kept: Vec<Site> = ranked[count..].iter().map(|(_, site)| *site).collect();
            if count == 0 || kept.is_empty() {
                return Ok((kept, loss.map_or_else(|| self.loss_without(&[]), Ok)?));
            }
            ranked = self.ranked(&kept, &left_out)?;
        }
    }

    /// What the model does where `from` is its mean, but for all other heads: what reaches a later head so comes by the
    /// stream and the feed-forward layers alone, as Wang et al. (2022) patch paths.
    pub fn without_alone(&self, from: [usize; 2]) -> Result<Activations<B>> {
        let heads = self.means.iter().map(|(site, _)| *site).filter(|site| matches!(site, Site::Head(..)));
        let frozen = |it: Interventions<B>, site| it.replace(site, self.whole.at(site));
        let from = Site::Head(from[0], from[1]);
        let interventions = heads.fold(Interventions::default(), frozen).replace(from, self.mean_of(from));
        run(self.model, self.batch.inputs.tokens.clone(), &interventions)
    }

    /// The loss where `to` has some of its inputs as in another pass.
    pub fn loss_with_inputs(&self, to: [usize; 2], inputs: &[Input], other: &Activations<B>) -> Result<f64> {
        let site = |input: &Input| match input {
            Input::Query => Site::Query(to[0], to[1]),
            Input::Key => Site::Key(to[0], to[1]),
            Input::Value => Site::Value(to[0], to[1]),
        };
        let patch = |it: Interventions<B>, site| it.replace(site, other.at(site));
        self.loss(&inputs.iter().map(site).fold(Interventions::default(), patch))
    }

    /// How far the weights of a head differ from their mean over the sequences: half the sum over the keys of the
    /// absolute differences, in the mean over the queries. None of one sequence.
    pub fn unevenness(&self, [layer, head]: [usize; 2]) -> Option<f64> {
        let pattern = self.whole.at(Site::Pattern(layer, head));
        let [batch, _, _] = pattern.dims();
        let far = (pattern.clone() - self.mean(pattern)).abs().sum_dim(2) * self.counts.clone() / 2.0;
        let far = f64::from(floats(far.sum())[0]) / f64::from(floats(self.counts.clone().sum())[0]);
        (batch > 1).then_some(far)
    }

    /// The largest weight of a head, in the mean over queries, on one token wherever it stands, without the first place;
    /// none where that token is as frequent.
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
}
