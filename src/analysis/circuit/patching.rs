//! Activation patching: which activations carry the answer (Meng et al., 2022, arXiv 2202.05262; Wang et al., 2022, arXiv
//! 2211.00593).
//!
//! A clean sequence and a corrupted one differ in what an answer follows from. The model reads the corrupted one with
//! one activation as it was on the clean one. What of the *logit difference* comes back, the clean answer's logit less
//! the corrupted answer's, says how much of the answer runs through there:
//!
//! ```text
//! recovered = (patched - corrupted) / (clean - corrupted)
//! ```
//!
//! Zhang & Nanda (2024, arXiv 2309.16042) compare ways to do so: exchanged tokens that keep the model among sequences
//! that it knows and logit differences mislead least.

use std::ops::Range;

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
use serde::{Deserialize, Serialize};

use super::bench::streams;
use super::pass::{Activations, Interventions, Site, run};
use crate::Result;
use crate::analysis::view::floats;
use crate::analysis::{MOST_WEIGHTS, Sample};
use crate::data::tasks::SequenceTask;
use crate::model::Decoder;

/// The least mean by which the logit difference falls where there is something to recover.
const LEAST_FALL: f64 = 0.1;
/// Into so many spans the positions of the stream are cut, at most.
const MOST_SPANS: usize = 64;

/// A clean sequence and a corrupted one of the same length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// What the model reads, up to the position at which the answers differ.
    pub clean: Vec<u32>,
    /// The same with the tokens exchanged from which the answer follows.
    pub corrupted: Vec<u32>,
    /// The model's most likely next token after the clean one and after the corrupted one, which differ.
    pub answers: [u32; 2],
}

/// Two sequences, and the positions at which their answers may be compared.
struct Candidate {
    clean: Vec<u32>,
    corrupted: Vec<u32>,
    positions: Range<usize>,
}

impl Pair {
    /// The pairs of a task's samples, corrupted by what the task knows to break its rule, as far as that changes the
    /// model's answer.
    ///
    /// # Errors
    /// As [`run`].
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
            Some(Candidate { clean, corrupted, positions: target..target + 1 })
        };
        Self::answered(model, samples.iter().filter_map(candidate).collect(), device)
    }

    /// The pairs of sequences without a rule: the token in the middle of each is exchanged for the next other one.
    ///
    /// # Errors
    /// As [`run`].
    pub fn by_exchange<B: Backend>(
        model: &Decoder<B>,
        samples: &[Sample],
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        let candidate = |sample: &Sample| {
            let middle = sample.inputs.len().checked_sub(1)? / 2;
            let mut others = sample.inputs[middle..].iter().chain(&sample.inputs).copied();
            let other = others.find(|&token| token != sample.inputs[middle])?;
            let (clean, mut corrupted) = (sample.inputs.clone(), sample.inputs.clone());
            corrupted[middle] = other;
            let positions = middle + 1..clean.len();
            Some(Candidate { clean, corrupted, positions })
        };
        Self::answered(model, samples.iter().filter_map(candidate).collect(), device)
    }

    /// The candidates for which the model's own answers differ, its most likely tokens: each at the position where the
    /// exchange moves the difference of both answers' logits most.
    fn answered<B: Backend>(
        model: &Decoder<B>,
        candidates: Vec<Candidate>,
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let logits = |of: fn(&Candidate) -> &Vec<u32>| -> Result<Tensor<B, 3>> {
            let tokens = padded(&candidates.iter().map(of).collect::<Vec<_>>(), device);
            Ok(run(model, tokens, &[], &Interventions::default())?.logits)
        };
        let (clean, corrupted) = (logits(|it| &it.clean)?, logits(|it| &it.corrupted)?);
        let answers = Tensor::cat(vec![clean.clone().argmax(2), corrupted.clone().argmax(2)], 2); // [batch, time, 2]
        let falls = floats(clean.gather(2, answers.clone()) - corrupted.gather(2, answers.clone()));
        let [_, time, _] = answers.dims();
        let answers: Vec<i64> = answers.into_data().iter().collect();
        let at = |row: usize, position: usize| 2 * (row * time + position);
        let fall = |place: usize| falls[place] - falls[place + 1];
        let pair = |(row, Candidate { clean, corrupted, positions }): (usize, Candidate)| {
            let differ = |&position: &usize| answers[at(row, position)] != answers[at(row, position) + 1];
            let by_fall = |a: &usize, b: &usize| fall(at(row, *a)).total_cmp(&fall(at(row, *b)));
            let target = positions.filter(differ).max_by(by_fall)?;
            let [clean, corrupted] = [clean, corrupted].map(|tokens| tokens[..=target].to_vec());
            let answers = [0, 1].map(|which| answers[at(row, target) + which] as u32);
            Some(Self { clean, corrupted, answers })
        };
        Ok(candidates.into_iter().enumerate().filter_map(pair).collect())
    }
}

/// Sequences as a tensor `[batch, time]`, the shorter ones padded behind their end, where nothing before it reads.
fn padded<B: Backend>(sequences: &[&Vec<u32>], device: &B::Device) -> Tensor<B, 2, Int> {
    let time = sequences.iter().map(|tokens| tokens.len()).max().unwrap_or(0);
    let row = |tokens: &&Vec<u32>| {
        let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
        ids.into_iter().chain(std::iter::repeat(0)).take(time)
    };
    let ids: Vec<i64> = sequences.iter().flat_map(row).collect();
    Tensor::from_data(TensorData::new(ids, [sequences.len(), time]), device)
}

/// What comes back of the logit difference where one activation of a corrupted sequence is as on the clean one: 0 is
/// nothing, 1 all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Patching {
    /// How many pairs of sequences the means are over.
    pub pairs: usize,
    /// The mean logit difference on the clean sequences.
    pub clean: f64,
    /// The same on the corrupted ones.
    pub corrupted: f64,
    /// What each head recovers at all positions, `[layer][head]`.
    pub heads: Vec<Vec<f64>>,
    /// What each feed-forward layer recovers, likewise.
    pub feed_forward: Vec<f64>,
    /// Of one pair: what the stream recovers before the first block, then after each, `[depth][position]`.
    pub stream: Vec<Vec<f64>>,
    /// So many positions of the stream are patched together.
    pub together: usize,
    /// The pair.
    pub pair: Pair,
}

impl Patching {
    /// Patches what the heads and feed-forward layers write and the stream between them. None without pairs, and where
    /// the model answers the corrupted sequences as it does the clean ones.
    ///
    /// # Errors
    /// As [`run`].
    pub fn new<B: Backend>(model: &Decoder<B>, pairs: &[Pair], device: &B::Device) -> Result<Option<Self>> {
        if pairs.is_empty() {
            return Ok(None);
        }
        let bench = Bench::new(model, pairs, device)?;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let [clean, corrupted] = [&bench.clean, &bench.corrupted].map(|pass| bench.differences(pass));
        let falls: Vec<f64> =
            clean.iter().zip(&corrupted).map(|(clean, corrupted)| clean - corrupted).collect();
        let fall = mean(&falls);
        if fall.is_nan() || fall < LEAST_FALL {
            return Ok(None);
        }
        let recovered = |site: Site| -> Result<f64> {
            let patched = Interventions::default().replace(site, bench.clean.at(site));
            let patched = bench.differences(&run(model, bench.tokens.clone(), &[], &patched)?);
            Ok((mean(&patched) - mean(&corrupted)) / fall)
        };
        let layers = || model.blocks.iter().enumerate();
        let heads = |(layer, block): (usize, &crate::model::block::Block<B>)| {
            (0..block.attention.heads).map(|head| recovered(Site::Head(layer, head))).collect()
        };
        let heads = layers().map(heads).collect::<Result<_>>()?;
        let feed_forward =
            layers().map(|(layer, _)| recovered(Site::FeedForward(layer))).collect::<Result<_>>()?;
        // One that is no exception.
        let shown = falls.iter().position(|&it| it >= fall).unwrap_or(0);
        let pair = pairs[shown].clone();
        let (stream, together) = Bench::new(model, &pairs[shown..=shown], device)?.stream()?;
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
struct Bench<'a, B: Backend> {
    model: &'a Decoder<B>,
    pairs: &'a [Pair],
    /// The corrupted ones, the shorter ones padded behind their end, where nothing that is asked for reads.
    tokens: Tensor<B, 2, Int>,
    clean: Activations<B>,
    corrupted: Activations<B>,
}

impl<'a, B: Backend> Bench<'a, B> {
    fn new(model: &'a Decoder<B>, pairs: &'a [Pair], device: &B::Device) -> Result<Self> {
        let ids = |of: fn(&Pair) -> &Vec<u32>| padded(&pairs.iter().map(of).collect::<Vec<_>>(), device);
        let pass = |tokens: &Tensor<B, 2, Int>| run(model, tokens.clone(), &[], &Interventions::default());
        let [clean, tokens] = [ids(|pair| &pair.clean), ids(|pair| &pair.corrupted)];
        Ok(Self { model, pairs, clean: pass(&clean)?, corrupted: pass(&tokens)?, tokens })
    }

    /// The logit differences of a pass over all pairs, or of passes over the first.
    fn differences(&self, pass: &Activations<B>) -> Vec<f64> {
        let [batch, time, vocab] = pass.logits.dims();
        let pair = |row: usize| if batch == self.pairs.len() { &self.pairs[row] } else { &self.pairs[0] };
        let places: Vec<i64> =
            (0..batch).map(|row| (row * time + pair(row).clean.len() - 1) as i64).collect();
        let answers: Vec<i64> = (0..batch).flat_map(|row| pair(row).answers.map(i64::from)).collect();
        let device = pass.logits.device();
        let places = Tensor::<B, 1, Int>::from_data(places.as_slice(), &device);
        let answers = Tensor::<B, 2, Int>::from_data(TensorData::new(answers, [batch, 2]), &device);
        let logits = pass.logits.clone().reshape([batch * time, vocab]).select(0, places).gather(1, answers);
        floats(logits).chunks(2).map(|both| f64::from(both[0]) - f64::from(both[1])).collect()
    }

    /// What the stream of the first pair recovers at each depth and position, and how many positions are patched
    /// together. A batch holds as many copies of the sequence as it patches spans.
    fn stream(&self) -> Result<(Vec<Vec<f64>>, usize)> {
        let Pair { clean, corrupted, .. } = &self.pairs[0];
        let time = clean.len();
        // Before the first token that was exchanged both streams are the same.
        let first =
            clean.iter().zip(corrupted).position(|(clean, corrupted)| clean != corrupted).unwrap_or(0);
        let together = (time - first).div_ceil(MOST_SPANS);
        let heads = self.model.blocks.iter().map(|block| block.attention.heads).max().unwrap_or(1);
        let [_, _, vocab] = self.clean.logits.dims();
        let rows = (MOST_WEIGHTS / (time * vocab.max(heads * time))).max(1);
        let [whole, least] = [&self.clean, &self.corrupted].map(|pass| self.differences(pass)[0]);

        let mut recovered = Vec::new();
        let spans: Vec<usize> = (first..time).step_by(together).collect();
        for site in streams(self.model) {
            let mut of_depth = vec![0.0; time];
            for starts in spans.chunks(rows) {
                let patched = starts.iter().map(|&start| {
                    self.corrupted.mixed(site, &self.clean, start..(start + together).min(time))
                });
                let patched = Interventions::default().replace(site, Tensor::cat(patched.collect(), 0));
                let tokens = self.tokens.clone().repeat_dim(0, starts.len());
                let pass = run(self.model, tokens, &[], &patched)?;
                for (&start, difference) in starts.iter().zip(self.differences(&pass)) {
                    of_depth[start..(start + together).min(time)]
                        .fill((difference - least) / (whole - least));
                }
            }
            recovered.push(of_depth);
        }
        Ok((recovered, together))
    }
}

#[cfg(test)]
mod tests;
