//! `analysis.json`: the head scores of a run's best weights. They are stored with the run because the data may be gone
//! later.

use std::path::Path;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{HeadScores, HeadTallies, Sample, Score, View, ablation, view::floats};
use crate::config::{AnalysisConfig, Config};
use crate::data::{Dataset, Sequences};
use crate::error::Result;
use crate::evaluation::{DeviceBatch, Evaluation, evaluate};
use crate::files::read_json;
use crate::model::Model;

/// The maximum number of attention weights computed for one scoring, and per batch: 4 MB, which fits the CPU cache.
const MOST_SCORED: usize = 1 << 28;
const BATCH_SCORED: usize = 1 << 20;
/// The maximum number of sequences per ablation batch, and of tokens in it.
const ABLATION_BATCH: usize = 16;
const ABLATION_TOKENS: usize = 1 << 13;

/// The analysis of a run's best weights. Losses are in nats per token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The step of the best weights.
    pub step: usize,
    /// The loss over the whole validation set, which distinguishes these weights from another run's.
    #[serde(default)]
    pub loss: Option<f64>,
    /// The number of validation sequences that the heads were scored on.
    pub sequences: usize,
    /// The number of tokens scored per sequence, if not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_tokens: Option<usize>,
    /// The number of validation sequences that the heads were ablated on.
    pub ablation_sequences: usize,
    /// Scores per head, `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
    /// The loss at each position over the whole validation set; `None` where no target counts.
    pub loss_by_position: Vec<Option<f64>>,
    /// The entropy floor at each position: the loss of the optimal predictor. Empty if it is unknown.
    pub floor_by_position: Vec<f64>,
}

impl Analysis {
    /// Reads the analysis at `path`; returns `None` if the file does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let what = "the scores of a run's heads; without the file they are scored anew";
        path.exists().then(|| read_json(path, what)).transpose()
    }
}

/// Scores the heads of `model`, `[layer][head]`, over the first sequences of `set`. Returns the scores and the number
/// of sequences. A batch has at most `rows` sequences, so that it fits wherever a training batch fits.
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
    let maps = heads.iter().sum::<usize>();
    let longest = Sample::longest(maps);
    let weights = |time: usize| (maps * time * time).max(1);
    let samples = Sample::first(set, config.sequences.min(MOST_SCORED / weights(set.time())).max(1));
    let samples: Vec<_> = samples.into_iter().map(|sample| sample.beginning(longest)).collect();
    let together = (BATCH_SCORED / weights(set.time().min(longest))).clamp(1, rows.max(1));
    let mut tallies = HeadTallies::default();
    for samples in samples.chunks(together) {
        let inputs = DeviceBatch::new(&Sample::batch_of(samples), device).inputs;
        let (_, maps) = model.forward_with_maps(inputs)?;
        let attention: Vec<_> = heads.iter().copied().zip(maps.causal.into_iter().map(floats)).collect();
        let tokens: Vec<_> = samples.iter().map(|sample| sample.inputs.as_slice()).collect();
        tallies.add_batch(&attention, &tokens);
    }
    Ok((tallies.scores(), samples.len()))
}

/// Analyses `model`, the best weights of a run of `config` on `dataset`. They were reached after `step` steps, with
/// `evaluation` as their result on the whole validation set.
///
/// Each head is ablated on as many validation sequences as cost at most a tenth of the run's `trained_tokens`, and on
/// at least one. `ablated` is called with the number of finished heads.
///
/// # Errors
/// Same as [`score_heads`].
pub fn examine<B: Backend>(
    model: &Model<B>,
    dataset: &Dataset,
    config: &Config,
    (step, evaluation): (usize, &Evaluation),
    trained_tokens: u64,
    ablated: impl Fn(u64),
    device: &B::Device,
) -> Result<Analysis> {
    let (valid, rows) = (&dataset.valid, config.training.batch_size);
    let (mut heads, sequences) = score_heads(model, valid, &config.analysis, rows, device)?;

    let all = heads.iter().map(Vec::len).sum::<usize>();
    let affordable = trained_tokens as usize / 10 / (all * valid.time()).max(1);
    let left_out_over = affordable.clamp(1, sequences);
    let rows = ablation_batch(valid.time(), rows).min(left_out_over);
    let batches = left_out_over / rows;
    let loss = |model: &Model<B>| evaluate(model, valid.batches(rows).take(batches), device).loss;
    ablate(model, &mut heads, ablated, loss);
    Ok(Analysis {
        step,
        loss: Some(evaluation.loss),
        sequences,
        first_tokens: Some(Sample::longest(all)).filter(|&longest| longest < valid.time()),
        ablation_sequences: batches * rows,
        heads,
        loss_by_position: evaluation.loss_by_position.clone(),
        floor_by_position: dataset.floor_by_position.clone(),
    })
}

/// Runs `model` on one sequence and returns its view and head scores. With `ablated`, each head is also ablated once,
/// which takes one pass over the sequence per head; the callback receives the number of finished heads.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the model cannot read the sequence, for example because it is too long.
pub fn look_at<B: Backend>(
    model: &Model<B>,
    sample: &Sample,
    ablated: Option<impl Fn(u64)>,
    device: &B::Device,
) -> Result<(View, Vec<Vec<HeadScores>>)> {
    let batch = Sample::batch_of(std::slice::from_ref(sample));
    let DeviceBatch { inputs, tokens, .. } = DeviceBatch::new(&batch, device);
    let view = View::new(model, inputs)?;
    let mut tallies = HeadTallies::default();
    tallies.add(&view.maps.attention, &sample.inputs);
    let mut heads = tallies.scores();
    if let Some(done) = ablated.filter(|_| tokens > 0) {
        let loss = |model: &Model<B>| evaluate(model, std::iter::once(batch.clone()), device).loss;
        ablate(model, &mut heads, done, loss);
    }
    Ok((view, heads))
}

/// Returns the number of sequences per ablation batch, each of `time` tokens, where a training batch has `rows`.
fn ablation_batch(time: usize, rows: usize) -> usize {
    ABLATION_BATCH.min(ABLATION_TOKENS / time.max(1)).min(rows).max(1)
}

/// Fills in the rise of the `loss` when each head is ablated; `done` receives the number of finished heads.
fn ablate<B: Backend>(
    model: &Model<B>,
    heads: &mut [Vec<HeadScores>],
    done: impl Fn(u64),
    loss: impl Fn(&Model<B>) -> f64,
) {
    let whole = loss(model);
    let heads = heads.iter_mut().enumerate();
    let heads = heads.flat_map(|(layer, heads)| heads.iter_mut().enumerate().map(move |head| (layer, head)));
    for (number, (layer, (head, scores))) in (1..).zip(heads) {
        scores.0[Score::Ablation as usize] = Some(loss(&ablation::without_head(model, layer, head)) - whole);
        done(number);
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
