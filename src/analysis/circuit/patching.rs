//! Activation patching: locates the activations that carry the answer (Meng et al., 2022, arXiv 2202.05262; Wang et
//! al., 2022, arXiv 2211.00593).
//!
//! A clean and a corrupted sequence differ in the tokens that determine an answer. The model runs on the corrupted
//! sequence with one activation restored from the clean run. The *logit difference* is the clean answer's logit minus
//! the corrupted answer's logit. The recovered share of it measures how much of the answer passes through the
//! activation:
//!
//! ```text
//! recovered = (patched - corrupted) / (clean - corrupted)
//! ```
//!
//! Zhang & Nanda (2024, arXiv 2309.16042) compare corruptions and metrics. The least misleading choices are exchanged
//! tokens, which keep the sequence in distribution, and logit differences.

use std::ops::Range;

use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
use serde::{Deserialize, Serialize};

use super::bench::{components, mean, select_positions};
use super::chance::RandomEffect;
use super::gain::interval;
use super::pairs::{Pair, padded};
use super::pass::{Activations, Interventions, Recorded, Replacements, Site, residual_streams, run};
use super::variants::BasePass;
use super::watch::{ExplanationStage, Unwatched, Watch};
use crate::Result;
use crate::analysis::view::floats;
use crate::model::{Decoder, Inputs};

/// The minimum mean drop of the logit difference. The recovered share of a smaller drop is not meaningful.
const MIN_DROP: f64 = 0.1;
/// The maximum number of floating-point operations for patching the residual stream; large models have fewer spans.
const MAX_STREAM_OPERATIONS: usize = 250_000_000_000;
/// The number of spans that are prepared together. Positions before the first of them are not computed again.
const SPANS_TOGETHER: usize = 4;
/// The share of the progress that patching the residual stream takes, relative to that of components.
const STREAM_SHARE: usize = 1;
/// The maximum number of spans that the positions of the residual stream are split into.
const MAX_SPANS: usize = 64;

/// The recovered share of the logit difference when one activation of a corrupted sequence is restored from the clean
/// one: 0 is none, 1 is all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Patching {
    /// The number of pairs.
    pub pairs: usize,
    /// The mean logit difference on the clean sequences.
    pub clean: f64,
    /// The mean logit difference on the corrupted sequences.
    pub corrupted: f64,
    /// The share recovered by each head, patched at all positions, `[layer][head]`.
    pub heads: Vec<Vec<f64>>,
    /// The share recovered by each feed-forward layer, patched at all positions.
    pub feed_forward: Vec<f64>,
    /// The 95 % intervals of the shares of the heads over the pairs, for the mean drop of the logit difference; empty for a
    /// single pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub head_intervals: Vec<Vec<[f64; 2]>>,
    /// The same for the feed-forward layers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feed_forward_intervals: Vec<[f64; 2]>,
    /// The share recovered by the residual stream of `pair` before the first block, then after each,
    /// `[depth][position]`.
    pub stream: Vec<Vec<f64>>,
    /// The number of adjacent positions of the residual stream patched together.
    pub together: usize,
    /// The pair that `stream` is computed on.
    pub pair: Pair,
    /// All pairs, which the file does not hold.
    #[serde(skip)]
    all: Vec<Pair>,
}

impl Patching {
    /// Returns all pairs. Of an explanation that was read from a file, this is only the one that it holds.
    pub(super) fn all_pairs(&self) -> &[Pair] {
        if self.all.is_empty() { std::slice::from_ref(&self.pair) } else { &self.all }
    }

    /// Patches the outputs of heads and feed-forward layers, and the residual stream between them. Returns `None`
    /// without pairs, or if the corruption barely lowers the logit difference.
    ///
    /// # Errors
    /// Same as [`run`].
    pub fn new<B: Backend>(model: &Decoder<B>, pairs: &[Pair], device: &B::Device) -> Result<Option<Self>> {
        Self::watched(model, pairs, device, &Unwatched).map(|(found, _)| found)
    }

    /// Same as [`new`](Self::new), but also returns true if the stage ended early, and the result is therefore missing.
    pub(super) fn watched<B: Backend>(
        model: &Decoder<B>,
        pairs: &[Pair],
        device: &B::Device,
        watch: &dyn Watch,
    ) -> Result<(Option<Self>, bool)> {
        if pairs.is_empty() {
            return Ok((None, false));
        }
        let bench = PatchingBench::new(model, pairs, device, watch)?;
        let [clean, corrupted] =
            [&bench.clean, &bench.corrupted].map(|pass| bench.differences(pass.at(Site::Logits), 0));
        let drops: Vec<f64> =
            clean.iter().zip(&corrupted).map(|(clean, corrupted)| clean - corrupted).collect();
        let drop = mean(&drops);
        if drop.is_nan() || drop < MIN_DROP {
            return Ok((None, false));
        }
        let components: Vec<Site> = components(model).collect();
        let restored: Vec<_> = components.iter().map(|&site| vec![(site, bench.clean.at(site))]).collect();
        let total = components.len() * (1 + STREAM_SHARE);
        let Some(differences) =
            bench.patched(&bench.base()?, (&restored, first_difference(pairs)), (0, total))?
        else {
            return Ok((None, true));
        };
        let recovered = differences.iter().map(|patched| {
            let shares =
                patched.iter().zip(&corrupted).map(|(patched, corrupted)| (patched - corrupted) / drop);
            shares.collect::<Vec<_>>()
        });
        let recovered: Vec<_> = recovered.collect();
        let (heads, feed_forward) = by_layer(&components, recovered.iter().map(|shares| Some(mean(shares))));
        let groups: Vec<usize> = (0..pairs.len()).collect();
        let (head_intervals, feed_forward_intervals) =
            by_layer(&components, recovered.iter().map(|shares| interval(shares, &groups)));
        // A typical pair: its drop is at least the mean.
        let typical = drops.iter().position(|&it| it >= drop).unwrap_or(0);
        let pair = pairs[typical].clone();
        let typical = PatchingBench::new(model, &pairs[typical..=typical], device, watch)?;
        let Some((stream, together)) = typical.stream((components.len(), total))? else {
            return Ok((None, true));
        };
        let (all, pairs, clean, corrupted) = (pairs.to_vec(), pairs.len(), mean(&clean), mean(&corrupted));
        let found = Self {
            pairs,
            clean,
            corrupted,
            heads,
            feed_forward,
            head_intervals,
            feed_forward_intervals,
            stream,
            together,
            pair,
            all,
        };
        Ok((Some(found), false))
    }
}

/// Returns the values of the heads, `[layer][head]`, and of the feed-forward layers; both are empty if there are none.
fn by_layer<T>(components: &[Site], values: impl Iterator<Item = Option<T>>) -> (Vec<Vec<T>>, Vec<T>) {
    let (mut heads, mut feed_forward) = (Vec::<Vec<T>>::new(), Vec::new());
    for (site, value) in components.iter().zip(values) {
        match (*site, value) {
            (Site::Head(layer, _), Some(value)) => {
                heads.resize_with(heads.len().max(layer + 1), Vec::new);
                heads[layer].push(value);
            }
            (_, value) => feed_forward.extend(value),
        }
    }
    (heads, feed_forward)
}

/// Returns the largest change of the mean logit difference of corrupted sequences when the output of one component is
/// restored; `None` if the stage ends early.
///
/// # Errors
/// Same as [`run`].
pub(super) fn largest_change<B: Backend>(
    model: &Decoder<B>,
    pairs: &[Pair],
    device: &B::Device,
    watch: &dyn Watch,
) -> Result<Option<RandomEffect>> {
    let bench = PatchingBench::new(model, pairs, device, watch)?;
    let restored: Vec<_> = components(model).map(|site| vec![(site, bench.clean.at(site))]).collect();
    let corrupted = mean(&bench.differences(bench.corrupted.at(Site::Logits), 0));
    let patched = bench.patched(&bench.base()?, (&restored, first_difference(pairs)), (0, restored.len()))?;
    let change = |differences: &Vec<f64>| (mean(differences) - corrupted).abs();
    Ok(patched.map(|patched| RandomEffect {
        largest: patched.iter().map(change).fold(0.0, f64::max),
        tested: restored.len(),
    }))
}

/// Returns the position of the first exchanged token in any of the pairs. Before it, activations do not differ.
fn first_difference(pairs: &[Pair]) -> usize {
    let of_pair =
        |pair: &Pair| pair.clean.iter().zip(&pair.corrupted).position(|(clean, other)| clean != other);
    pairs.iter().filter_map(of_pair).min().unwrap_or(0)
}

/// A decoder on pairs of sequences.
struct PatchingBench<'a, B: Backend> {
    model: &'a Decoder<B>,
    pairs: &'a [Pair],
    /// The corrupted sequences, padded at the end.
    inputs: Inputs<B>,
    clean: Activations<B>,
    corrupted: Activations<B>,
    watch: &'a dyn Watch,
}

impl<'a, B: Backend> PatchingBench<'a, B> {
    fn new(
        model: &'a Decoder<B>,
        pairs: &'a [Pair],
        device: &B::Device,
        watch: &'a dyn Watch,
    ) -> Result<Self> {
        let inputs = |of: fn(&Pair) -> &Vec<u32>| {
            Inputs::tokens(padded(&pairs.iter().map(of).collect::<Vec<_>>(), device))
        };
        let pass = |inputs: &Inputs<B>| run(model, inputs.clone(), &[], &Interventions::default());
        let [clean, inputs] = [inputs(|pair| &pair.clean), inputs(|pair| &pair.corrupted)];
        Ok(Self { model, pairs, clean: pass(&clean)?, corrupted: pass(&inputs)?, inputs, watch })
    }

    /// Returns the corrupted pass, to run variants of it.
    fn base(&self) -> Result<BasePass<'_, B>> {
        let corrupted = (&self.corrupted, Interventions::default());
        BasePass::of(self.model, &self.inputs, &[], corrupted).with_caches()
    }

    /// Returns the logit difference of each pair in each of the variants of the corrupted pass, `[variant][pair]`; `None` if
    /// the stage ends early. The variants do not change the first positions, up to `shared`. For the progress, takes the
    /// number of variants before and the total.
    fn patched(
        &self,
        base: &BasePass<B>,
        (variants, shared): (&[Replacements<B>], usize),
        (before, total): (usize, usize),
    ) -> Result<Option<Vec<Vec<f64>>>> {
        let (mut found, mut done) = (vec![Vec::new(); variants.len()], before);
        for batch in base.batches_from(variants, shared) {
            self.watch.report(ExplanationStage::Patching, done, total);
            if self.watch.ends(ExplanationStage::Patching) {
                return Ok(None);
            }
            done += batch.numbers.len();
            let pass = base.run_batch(&batch, variants, Recorded::Nothing)?;
            let differences = self.differences(pass.stream, shared);
            for (number, differences) in batch.numbers.iter().zip(differences.chunks(self.pairs.len())) {
                found[*number] = differences.to_vec();
            }
        }
        Ok(Some(found))
    }

    /// Returns the logit differences of all pairs in each variant of a batch, from the residual stream after the last block
    /// without its first positions, up to `shared`.
    fn differences(&self, stream: Tensor<B, 3>, shared: usize) -> Vec<f64> {
        let [batch, time, _] = stream.dims();
        let pair = |row: usize| &self.pairs[row % self.pairs.len()];
        let last = |row: usize| (row * time + pair(row).clean.len() - 1 - shared) as i64;
        let last: Vec<i64> = (0..batch).map(last).collect();
        let answers: Vec<i64> = (0..batch).flat_map(|row| pair(row).answers.map(i64::from)).collect();
        let device = stream.device();
        let last = Tensor::<B, 1, Int>::from_data(last.as_slice(), &device);
        let answers = Tensor::<B, 3, Int>::from_data(TensorData::new(answers, [batch, 1, 2]), &device);
        let logits = self.model.logits(select_positions(stream, last, batch)).gather(2, answers);
        floats(logits).chunks(2).map(|both| f64::from(both[0]) - f64::from(both[1])).collect()
    }

    /// Returns the share recovered by the residual stream of the first pair at each depth and position, and the number
    /// of positions patched together; `None` if the stage ends early. For the progress, takes the number of variants before
    /// and the total.
    fn stream(&self, (before, total): (usize, usize)) -> Result<Option<(Vec<Vec<f64>>, usize)>> {
        let (time, base_pass) = (self.pairs[0].clean.len(), self.base()?);
        let first = first_difference(self.pairs);
        let depths = self.model.blocks.len() + 1;
        // On average, half of the layers and of the positions are computed, with two operations per weight.
        let operations = (time - first) * depths * self.model.blocks.num_params() / 2;
        let together =
            (time - first).div_ceil((MAX_STREAM_OPERATIONS / operations.max(1)).clamp(1, MAX_SPANS));
        let [full, base] =
            [&self.clean, &self.corrupted].map(|pass| self.differences(pass.at(Site::Logits), 0)[0]);
        let mut recovered = Vec::new();
        let spans: Vec<_> =
            (first..time).step_by(together).map(|start| start..(start + together).min(time)).collect();
        for (depth, site) in residual_streams(self.model).enumerate() {
            let mut at_depth = vec![0.0; time];
            for spans in spans.chunks(SPANS_TOGETHER) {
                let variant =
                    |span: &Range<usize>| vec![(site, self.corrupted.mixed(site, &self.clean, span.clone()))];
                let done = before + (total - before) * depth / depths;
                let variants: Vec<_> = spans.iter().map(variant).collect();
                // Positions before the first span do not change.
                let variants = (&variants[..], spans[0].start);
                let Some(differences) = self.patched(&base_pass, variants, (done, total))? else {
                    return Ok(None);
                };
                for (span, difference) in spans.iter().zip(differences) {
                    at_depth[span.clone()].fill((difference[0] - base) / (full - base));
                }
            }
            recovered.push(at_depth);
        }
        Ok(Some((recovered, together)))
    }
}

#[cfg(test)]
mod tests;
