//! `analysis.json`: the head scores of a run's best weights. They are stored with the run because the data may be
//! missing later.

use std::path::Path;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{HeadScores, HeadTallies, Sample, Score, View, ablation, view::floats};
use crate::config::{AnalysisConfig, Config};
use crate::data::{Dataset, Sequences};
use crate::error::Result;
use crate::evaluation::{DeviceBatch, Evaluation, evaluate, patched_loss};
use crate::files::read_json;
use crate::hooks::Patch;
use crate::model::Model;

/// The maximum number of attention weights computed to score the heads once.
const MAX_SCORED_WEIGHTS: usize = 1 << 28;
/// The maximum number of attention weights per batch: 4 MB, which fits the CPU cache.
const MAX_BATCH_WEIGHTS: usize = 1 << 20;
/// The maximum number of sequences per ablation batch.
const MAX_ABLATION_SEQUENCES: usize = 16;
/// The maximum number of tokens per ablation batch.
const MAX_ABLATION_TOKENS: usize = 1 << 13;

/// The analysis of a run's best weights. Losses are in nats per token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The step of the best weights.
    pub step: usize,
    /// The loss over the full validation set. If it differs from the loss of the run's best weights, the analysis
    /// belongs to other weights.
    pub loss: Option<f64>,
    /// The number of validation sequences that the heads were scored on.
    pub sequences: usize,
    /// The number of tokens scored per sequence; `None` if all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_tokens: Option<usize>,
    /// The number of validation sequences that the heads were ablated on.
    pub ablation_sequences: usize,
    /// Scores per head, `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
    /// The loss at each position over the full validation set; `None` where all targets are padding.
    pub loss_by_position: Vec<Option<f64>>,
    /// The entropy floor at each position: the loss of the optimal predictor. Empty if it is unknown.
    pub floor_by_position: Vec<f64>,
}

impl Analysis {
    /// Reads the analysis at `path`; returns `None` if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let what = "the scores of a run's heads; remove the file to compute them again";
        path.exists().then(|| read_json(path, what)).transpose()
    }
}

/// Scores the heads of `model` over the first sequences of `set`. Returns the scores, `[layer][head]`, and the number
/// of sequences. A batch has at most `rows` sequences, so it fits into memory if a training batch of that size does.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the model cannot read the sequences.
pub fn score_heads<B: Backend>(
    model: &Model<B>,
    set: &Sequences,
    config: &AnalysisConfig,
    rows: usize,
    device: &B::Device,
) -> Result<(Vec<Vec<HeadScores>>, usize)> {
    let heads = ablation::heads(model);
    let all = heads.iter().sum::<usize>();
    let max_length = Sample::max_length(all);
    let weights = |time: usize| (all * time * time).max(1);
    let samples = Sample::first(set, config.sequences.min(MAX_SCORED_WEIGHTS / weights(set.time())).max(1));
    let samples: Vec<_> = samples.into_iter().map(|sample| sample.truncated(max_length)).collect();
    let batch_size = (MAX_BATCH_WEIGHTS / weights(set.time().min(max_length))).clamp(1, rows.max(1));
    let mut tallies = HeadTallies::default();
    for samples in samples.chunks(batch_size) {
        let inputs = DeviceBatch::new(&Sample::batch_of(samples), device).inputs;
        let (_, maps) = model.forward_with_maps(inputs)?;
        let attention: Vec<_> = heads.iter().copied().zip(maps.causal.into_iter().map(floats)).collect();
        let documents: Vec<_> = samples.iter().map(Sample::documents).collect();
        tallies.add_batch(&attention, &documents);
    }
    Ok((tallies.scores(), samples.len()))
}

/// Analyses `model`, the best weights of a run of `config` on `dataset`. `step` is the step of these weights, and
/// `evaluation` is their result on the full validation set.
///
/// Each head is ablated on at least one validation sequence, and on more as long as all ablations together read at most
/// a tenth of the run's `trained_tokens`. `on_ablated` receives the number of finished heads.
///
/// # Errors
/// Same as [`score_heads`].
pub fn examine<B: Backend>(
    model: &Model<B>,
    dataset: &Dataset,
    config: &Config,
    (step, evaluation): (usize, &Evaluation),
    trained_tokens: u64,
    on_ablated: impl Fn(u64),
    device: &B::Device,
) -> Result<Analysis> {
    let (valid, rows) = (&dataset.valid, config.training.batch_size);
    let (mut heads, sequences) = score_heads(model, valid, &config.analysis, rows, device)?;

    let all = heads.iter().map(Vec::len).sum::<usize>();
    let affordable = trained_tokens as usize / 10 / (all * valid.time()).max(1);
    let ablation_sequences = affordable.clamp(1, sequences);
    let rows = ablation_batch(valid.time(), rows).min(ablation_sequences);
    let batches = ablation_sequences / rows;
    let loss = |model: &Model<B>| evaluate(model, valid.batches(rows).take(batches), device).loss;
    ablate(model, numbered(&mut heads), on_ablated, loss);
    Ok(Analysis {
        step,
        loss: Some(evaluation.loss),
        sequences,
        first_tokens: Some(Sample::max_length(all)).filter(|&max_length| max_length < valid.time()),
        ablation_sequences: batches * rows,
        heads,
        loss_by_position: evaluation.loss_by_position.clone(),
        floor_by_position: dataset.floor_by_position.clone(),
    })
}

/// Runs `model` on one sequence with a patch, and returns its view and head scores. With `on_ablated`, each head is
/// also ablated, which takes one pass per head; the callback receives the number of finished heads.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the model cannot read the sequence, for example because it is too long.
pub fn inspect_sample<B: Backend>(
    (model, patch): (&Model<B>, &Patch),
    sample: &Sample,
    on_ablated: Option<impl Fn(u64)>,
    device: &B::Device,
) -> Result<(View, Vec<Vec<HeadScores>>)> {
    let batch = Sample::batch_of(std::slice::from_ref(sample));
    let DeviceBatch { inputs, tokens, .. } = DeviceBatch::new(&batch, device);
    let view = View::patched(model, inputs, patch)?;
    let mut tallies = HeadTallies::default();
    tallies.add(&view.maps.attention, sample.documents());
    let mut heads = tallies.scores();
    if let Some(on_ablated) = on_ablated.filter(|_| tokens > 0) {
        let loss = |model: &Model<B>| patched_loss((model, patch), &batch, device);
        ablate(model, numbered(&mut heads), on_ablated, loss);
    }
    Ok((view, heads))
}

/// Returns the number of sequences of `time` tokens per ablation batch, at most `rows`.
fn ablation_batch(time: usize, rows: usize) -> usize {
    MAX_ABLATION_SEQUENCES.min(MAX_ABLATION_TOKENS / time.max(1)).min(rows).max(1)
}

/// Iterates over the scores of all heads, each with its layer and head.
fn numbered(heads: &mut [Vec<HeadScores>]) -> impl Iterator<Item = ([usize; 2], &mut HeadScores)> {
    heads.iter_mut().enumerate().flat_map(|(layer, heads)| {
        heads.iter_mut().enumerate().map(move |(head, scores)| ([layer, head], scores))
    })
}

/// Sets the ablation score of heads, the rise of the `loss`; `on_ablated` receives the number of finished heads.
pub(super) fn ablate<'s, B: Backend>(
    model: &Model<B>,
    heads: impl Iterator<Item = ([usize; 2], &'s mut HeadScores)>,
    on_ablated: impl Fn(u64),
    loss: impl Fn(&Model<B>) -> f64,
) {
    let full_loss = loss(model);
    for (number, ([layer, head], scores)) in (1..).zip(heads) {
        scores.0[Score::Ablation as usize] =
            Some(loss(&ablation::without_head(model, layer, head)) - full_loss);
        on_ablated(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ablation_batches_are_capped_by_rows_and_tokens() {
        assert_eq!(ablation_batch(64, 32), 16);
        assert_eq!(ablation_batch(64, 3), 3);
        assert_eq!(ablation_batch(4_096, 12), 2);
        assert_eq!(ablation_batch(100_000, 12), 1);
    }
}
