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

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
use serde::{Deserialize, Serialize};

use super::bench::residual_streams;
use super::pass::{Activations, Interventions, Site, run};
use super::question::Question;
use crate::Result;
use crate::analysis::view::floats;
use crate::analysis::{MAX_HELD_WEIGHTS, Sample};
use crate::data::tasks::SequenceTask;
use crate::model::{Decoder, Inputs};

/// The minimum mean drop of the logit difference. The recovered share of a smaller drop is not meaningful.
const MIN_DROP: f64 = 0.1;
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
        if pairs.is_empty() {
            return Ok(None);
        }
        let bench = PatchingBench::new(model, pairs, device)?;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let [clean, corrupted] = [&bench.clean, &bench.corrupted].map(|pass| bench.differences(pass));
        let drops: Vec<f64> =
            clean.iter().zip(&corrupted).map(|(clean, corrupted)| clean - corrupted).collect();
        let drop = mean(&drops);
        if drop.is_nan() || drop < MIN_DROP {
            return Ok(None);
        }
        let recovered = |site: Site| -> Result<f64> {
            let patched = Interventions::default().replace(site, bench.clean.at(site));
            let patched = run(model, Inputs::tokens(bench.tokens.clone()), &[], &patched)?;
            let patched = bench.differences(&patched);
            Ok((mean(&patched) - mean(&corrupted)) / drop)
        };
        let layers = || model.blocks.iter().enumerate();
        let heads = |(layer, block): (usize, &crate::model::block::Block<B>)| {
            (0..block.attention.heads).map(|head| recovered(Site::Head(layer, head))).collect()
        };
        let heads = layers().map(heads).collect::<Result<_>>()?;
        let feed_forward =
            layers().map(|(layer, _)| recovered(Site::FeedForward(layer))).collect::<Result<_>>()?;
        // A typical pair: its drop is at least the mean.
        let typical = drops.iter().position(|&it| it >= drop).unwrap_or(0);
        let pair = pairs[typical].clone();
        let (stream, together) = PatchingBench::new(model, &pairs[typical..=typical], device)?.stream()?;
        Ok(Some(Self {
            pairs: pairs.len(),
            clean: mean(&clean),
            corrupted: mean(&corrupted),
            heads,
            feed_forward,
            stream,
            together,
            pair,
        }))
    }
}

/// A decoder on pairs of sequences.
struct PatchingBench<'a, B: Backend> {
    model: &'a Decoder<B>,
    pairs: &'a [Pair],
    /// The corrupted sequences, padded at the end.
    tokens: Tensor<B, 2, Int>,
    clean: Activations<B>,
    corrupted: Activations<B>,
}

impl<'a, B: Backend> PatchingBench<'a, B> {
    fn new(model: &'a Decoder<B>, pairs: &'a [Pair], device: &B::Device) -> Result<Self> {
        let ids = |of: fn(&Pair) -> &Vec<u32>| padded(&pairs.iter().map(of).collect::<Vec<_>>(), device);
        let pass = |tokens: &Tensor<B, 2, Int>| {
            run(model, Inputs::tokens(tokens.clone()), &[], &Interventions::default())
        };
        let [clean, tokens] = [ids(|pair| &pair.clean), ids(|pair| &pair.corrupted)];
        Ok(Self { model, pairs, clean: pass(&clean)?, corrupted: pass(&tokens)?, tokens })
    }

    /// Returns the logit differences of a pass over all pairs, or over a batch of copies of the first pair.
    fn differences(&self, pass: &Activations<B>) -> Vec<f64> {
        let [batch, time, vocab] = pass.logits.dims();
        let pair = |row: usize| if batch == self.pairs.len() { &self.pairs[row] } else { &self.pairs[0] };
        let rows: Vec<i64> = (0..batch).map(|row| (row * time + pair(row).clean.len() - 1) as i64).collect();
        let answers: Vec<i64> = (0..batch).flat_map(|row| pair(row).answers.map(i64::from)).collect();
        let device = pass.logits.device();
        let rows = Tensor::<B, 1, Int>::from_data(rows.as_slice(), &device);
        let answers = Tensor::<B, 2, Int>::from_data(TensorData::new(answers, [batch, 2]), &device);
        let logits = pass.logits.clone().reshape([batch * time, vocab]).select(0, rows).gather(1, answers);
        floats(logits).chunks(2).map(|both| f64::from(both[0]) - f64::from(both[1])).collect()
    }

    /// Returns the share recovered by the residual stream of the first pair at each depth and position, and the number
    /// of positions patched together. A batch holds one copy of the sequence per patched span.
    fn stream(&self) -> Result<(Vec<Vec<f64>>, usize)> {
        let Pair { clean, corrupted, .. } = &self.pairs[0];
        let time = clean.len();
        // Before the first exchanged token, both residual streams are equal.
        let first =
            clean.iter().zip(corrupted).position(|(clean, corrupted)| clean != corrupted).unwrap_or(0);
        let together = (time - first).div_ceil(MAX_SPANS);
        let heads = self.model.blocks.iter().map(|block| block.attention.heads).max().unwrap_or(1);
        let [_, _, vocab] = self.clean.logits.dims();
        let rows = (MAX_HELD_WEIGHTS / (time * vocab.max(heads * time))).max(1);
        let [full, base] = [&self.clean, &self.corrupted].map(|pass| self.differences(pass)[0]);

        let mut recovered = Vec::new();
        let spans: Vec<usize> = (first..time).step_by(together).collect();
        for site in residual_streams(self.model) {
            let mut at_depth = vec![0.0; time];
            for starts in spans.chunks(rows) {
                let patched = starts.iter().map(|&start| {
                    self.corrupted.mixed(site, &self.clean, start..(start + together).min(time))
                });
                let patched = Interventions::default().replace(site, Tensor::cat(patched.collect(), 0));
                let tokens = self.tokens.clone().repeat_dim(0, starts.len());
                let pass = run(self.model, Inputs::tokens(tokens), &[], &patched)?;
                for (&start, difference) in starts.iter().zip(self.differences(&pass)) {
                    at_depth[start..(start + together).min(time)].fill((difference - base) / (full - base));
                }
            }
            recovered.push(at_depth);
        }
        Ok((recovered, together))
    }
}

#[cfg(test)]
mod tests;
