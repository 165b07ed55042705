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

use super::bench::{components, select_positions};
use super::pass::{Activations, Interventions, Recorded, Replacements, Site, residual_streams, run};
use super::question::Question;
use super::variants::BasePass;
use super::watch::{ExplanationStage, Unwatched, Watch};
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::data::tasks::SequenceTask;
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

/// A clean sequence and a corrupted one of the same length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The model's input, up to the position at which the answers differ.
    pub clean: Vec<u32>,
    /// The same input, with the tokens that determine the answer exchanged.
    pub corrupted: Vec<u32>,
    /// The model's argmax tokens after the clean and the corrupted sequence; they differ.
    pub answers: [u32; 2],
}

/// Two sequences, and the positions at which their answers are compared.
struct PairCandidate {
    clean: Vec<u32>,
    corrupted: Vec<u32>,
    positions: Range<usize>,
}

impl Pair {
    /// Creates pairs from a task's samples and their [corruptions](SequenceTask::corrupt), which are samples of the
    /// same task. Only pairs whose answers differ are returned.
    ///
    /// # Errors
    /// Same as [`run`].
    pub fn of_task<B: Backend>(
        model: &Decoder<B>,
        task: &dyn SequenceTask,
        samples: &[Sample],
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        let candidate = |sample: &Sample| {
            let clean: Vec<u32> = sample.inputs.iter().chain(sample.targets.last()).copied().collect();
            let mut corrupted = clean.clone();
            let target = (clean.len() == task.tokens()).then(|| task.corrupt(&mut corrupted))??;
            let [clean, corrupted] = [clean, corrupted].map(|tokens| tokens[..=target].to_vec());
            Some(PairCandidate { clean, corrupted, positions: target..target + 1 })
        };
        Self::from_candidates(model, samples.iter().filter_map(candidate).collect(), device)
    }

    /// Creates pairs from sequences without a rule: the middle token of each sequence is replaced by the next different
    /// token. Of a sequence with several documents, the longest is the sequence.
    ///
    /// # Errors
    /// Same as [`run`].
    pub fn by_exchange<B: Backend>(
        model: &Decoder<B>,
        samples: &[Sample],
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        let candidate = |sample: &Sample| {
            let inputs = sample.longest_document();
            let middle = inputs.len().checked_sub(1)? / 2;
            let mut others = inputs[middle..].iter().chain(inputs).copied();
            let other = others.find(|&token| token != inputs[middle])?;
            let (clean, mut corrupted) = (inputs.to_vec(), inputs.to_vec());
            corrupted[middle] = other;
            let positions = middle + 1..clean.len();
            Some(PairCandidate { clean, corrupted, positions })
        };
        Self::from_candidates(model, samples.iter().filter_map(candidate).collect(), device)
    }

    /// Creates pairs from prompts and their corrupted sequences. Without a token against which the answer is compared,
    /// this is the model's prediction on the corrupted sequence; a pair with equal answers is left out.
    pub(super) fn of_answers<B: Backend>(
        bench: &super::bench::Bench<B>,
        samples: &[Sample],
        question: &Question,
    ) -> Vec<Self> {
        let Some(pass) = &bench.corrupted else { return Vec::new() };
        let predicted: Vec<i64> = pass.logits.clone().argmax(2).into_data().iter().collect();
        let [_, time, _] = pass.logits.dims();
        let pair = |(row, (sample, corrupted)): (usize, (&Sample, &Vec<u32>))| {
            let at = sample.inputs.len() - 1;
            let other = question.against.get(row).copied().unwrap_or(predicted[row * time + at] as u32);
            let answers = [sample.targets[at], other];
            let (clean, corrupted) = (sample.inputs.clone(), corrupted.clone());
            (answers[0] != other).then_some(Self { clean, corrupted, answers })
        };
        samples.iter().zip(&question.corrupted).enumerate().filter_map(pair).collect()
    }

    /// Creates pairs from the candidates for which the model's argmax tokens differ. Each pair ends at the position
    /// where the exchange changes the logit difference most.
    fn from_candidates<B: Backend>(
        model: &Decoder<B>,
        candidates: Vec<PairCandidate>,
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let logits = |of: fn(&PairCandidate) -> &Vec<u32>| -> Result<Tensor<B, 3>> {
            let tokens = padded(&candidates.iter().map(of).collect::<Vec<_>>(), device);
            Ok(run(model, Inputs::tokens(tokens), &[], &Interventions::default())?.logits)
        };
        let (clean, corrupted) = (logits(|it| &it.clean)?, logits(|it| &it.corrupted)?);
        let answers = Tensor::cat(vec![clean.clone().argmax(2), corrupted.clone().argmax(2)], 2); // [batch, time, 2]
        let drops = floats(clean.gather(2, answers.clone()) - corrupted.gather(2, answers.clone()));
        let [_, time, _] = answers.dims();
        let answers: Vec<i64> = answers.into_data().iter().collect();
        let at = |row: usize, position: usize| 2 * (row * time + position);
        let drop = |index: usize| drops[index] - drops[index + 1];
        let pair = |(row, PairCandidate { clean, corrupted, positions }): (usize, PairCandidate)| {
            let differ = |&position: &usize| answers[at(row, position)] != answers[at(row, position) + 1];
            let by_drop = |a: &usize, b: &usize| drop(at(row, *a)).total_cmp(&drop(at(row, *b)));
            let target = positions.filter(differ).max_by(by_drop)?;
            let [clean, corrupted] = [clean, corrupted].map(|tokens| tokens[..=target].to_vec());
            let answers = [0, 1].map(|answer| answers[at(row, target) + answer] as u32);
            Some(Self { clean, corrupted, answers })
        };
        Ok(candidates.into_iter().enumerate().filter_map(pair).collect())
    }
}

/// Collates sequences into a tensor `[batch, time]`. Shorter sequences are padded at the end, where padding does not
/// affect earlier positions.
fn padded<B: Backend>(sequences: &[&Vec<u32>], device: &B::Device) -> Tensor<B, 2, Int> {
    let time = sequences.iter().map(|tokens| tokens.len()).max().unwrap_or(0);
    let row = |tokens: &&Vec<u32>| {
        let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
        ids.into_iter().chain(std::iter::repeat(0)).take(time)
    };
    let ids: Vec<i64> = sequences.iter().flat_map(row).collect();
    Tensor::from_data(TensorData::new(ids, [sequences.len(), time]), device)
}

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
    /// The share recovered by the residual stream of `pair` before the first block, then after each,
    /// `[depth][position]`.
    pub stream: Vec<Vec<f64>>,
    /// The number of adjacent positions of the residual stream patched together.
    pub together: usize,
    /// The pair that `stream` is computed on.
    pub pair: Pair,
}

impl Patching {
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
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
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
        let recovered = differences.iter().map(|patched| (mean(patched) - mean(&corrupted)) / drop);
        let (mut heads, mut feed_forward) = (vec![Vec::new(); model.blocks.len()], Vec::new());
        for (site, share) in components.iter().zip(recovered) {
            match *site {
                Site::Head(layer, _) => heads[layer].push(share),
                _ => feed_forward.push(share),
            }
        }
        // A typical pair: its drop is at least the mean.
        let typical = drops.iter().position(|&it| it >= drop).unwrap_or(0);
        let pair = pairs[typical].clone();
        let typical = PatchingBench::new(model, &pairs[typical..=typical], device, watch)?;
        let Some((stream, together)) = typical.stream((components.len(), total))? else {
            return Ok((None, true));
        };
        let (pairs, clean, corrupted) = (pairs.len(), mean(&clean), mean(&corrupted));
        Ok((Some(Self { pairs, clean, corrupted, heads, feed_forward, stream, together, pair }), false))
    }
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
