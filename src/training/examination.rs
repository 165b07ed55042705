//! `analysis.json`: what the best weights of a run do, kept beside them, for the data may be gone
//! when somebody looks.

use burn::data::dataloader::DataLoader;
use serde::{Deserialize, Serialize};

use super::checkpoint::Best;
use super::loader::ValidBatches;
use super::run_folder::{RunFolder, write_atomically};
use super::samples::Sample;
use super::step::{DeviceBatch, Trainee, ValidBatch, evaluate};
use crate::analysis::{HeadScores, HeadTallies, View, ablation, floats};
use crate::config::AnalysisConfig;
use crate::data::{Dataset, Loader, Order, Sequences};
use crate::error::{Error, Result};
use crate::ops;

/// The most attention weights that are made for one scoring, and for one batch of it: 4 MB, which a
/// processor's cache holds.
const MOST_SCORED: usize = 1 << 28;
const BATCH_SCORED: usize = 1 << 20;
/// Sequences in a batch that heads are left out on, and their tokens.
const ABLATION_BATCH: usize = 16;
const ABLATION_TOKENS: usize = 1 << 13;

/// What the best weights of a run do. Losses are in nats a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Steps done when they were reached.
    pub step: usize,
    /// Validation sequences that the heads were scored on.
    pub sequences: usize,
    /// How many tokens of each, where that is not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_tokens: Option<usize>,
    /// Validation sequences that they were left out on.
    pub ablation_sequences: usize,
    /// `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
    /// The loss at each position over the whole validation set; none where no target counts.
    pub loss_by_position: Vec<Option<f64>>,
    /// The same of the best possible predictor; empty where it is not known.
    pub floor_by_position: Vec<f64>,
}

impl Analysis {
    /// Writes `analysis.json`.
    pub fn write(&self, folder: &RunFolder) -> Result<()> {
        let json = serde_json::to_vec(self).expect("an analysis holds plain values");
        write_atomically(&folder.analysis(), &json)
    }

    /// Reads the analysis of a run; none where nobody made one.
    pub fn read(folder: &RunFolder) -> Result<Option<Self>> {
        let path = folder.analysis();
        if !path.exists() {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(|error| Error::io("read", &path, error))?;
        let analysis = serde_json::from_slice(&bytes).map_err(|error| {
            let problem = format!("is no analysis: {error}; without the file the heads are scored anew");
            Error::file(&path, Some(error.line()), Some(error.column()), problem)
        })?;
        Ok(Some(analysis))
    }
}

/// Scores the heads of `model`, `[layer][head]`, over the first sequences of `set`, and says over
/// how many. No batch has more `rows` than those of training: what a device holds of them, it holds of these.
pub fn score<B: ops::Backend>(
    model: &Trainee<B>,
    set: &Sequences,
    config: &AnalysisConfig,
    rows: usize,
    device: &B::Device,
) -> Result<(Vec<Vec<HeadScores>>, usize)> {
    let heads = ablation::heads(&model.model);
    let maps = heads.iter().sum::<usize>();
    let longest = Sample::longest(maps);
    let weights = |time: usize| (maps * time * time).max(1);
    let samples = Sample::first(set, config.sequences.min(MOST_SCORED / weights(set.time())).max(1));
    let samples: Vec<_> = samples.into_iter().map(|sample| sample.beginning(longest)).collect();
    let together = (BATCH_SCORED / weights(set.time().min(longest))).clamp(1, rows.max(1));
    let mut tallies = HeadTallies::default();
    for samples in samples.chunks(together) {
        let inputs = DeviceBatch::new(&Sample::batch_of(samples), device).inputs;
        let (_, maps) = model.model.forward_with_attention(inputs)?;
        let attention: Vec<_> = heads.iter().copied().zip(maps.into_iter().map(floats)).collect();
        let tokens: Vec<_> = samples.iter().map(|sample| sample.inputs.as_slice()).collect();
        tallies.add_batch(&attention, &tokens);
    }
    Ok((tallies.scores(), samples.len()))
}

/// Looks into `model`, the best weights of a run that trained on `trained` tokens, and that reached
/// `best` on the validation set of `dataset`.
///
/// Heads are left out one by one over as many sequences as a tenth of the run's tokens allow, but one, so
/// that looking takes a small part of the time that training took. `rows` as for [`score`].
pub fn examine<B: ops::Backend>(
    model: &Trainee<B>,
    dataset: &Dataset,
    config: &AnalysisConfig,
    (best, trained): (&Best, u64),
    rows: usize,
    device: &B::Device,
) -> Result<Analysis> {
    let valid = &dataset.valid;
    let (mut heads, sequences) = score(model, valid, config, rows, device)?;

    let all = heads.iter().map(Vec::len).sum::<usize>();
    let affordable = trained as usize / 10 / (all * valid.time()).max(1);
    let left_out_over = affordable.clamp(1, sequences);
    let batch = ablation_batch(valid.time(), rows).min(left_out_over);
    let batches = ValidBatches {
        end: left_out_over / batch,
        ..ValidBatches::new(Loader::new(valid.clone(), batch, 0, Order::InOrder).into(), device.clone())
    };
    ablate(model, &mut heads, |model| evaluate(model, batches.iter()).loss);
    Ok(Analysis {
        step: best.step,
        sequences,
        first_tokens: Some(Sample::longest(all)).filter(|&longest| longest < valid.time()),
        ablation_sequences: batches.end * batch,
        heads,
        loss_by_position: best.evaluation.loss_by_position.clone(),
        floor_by_position: dataset.floor_by_position.clone(),
    })
}

/// Looks at `model` reading one sequence: what it does, and the scores of its heads there.
///
/// # Errors
/// [`Error::Shape`] where the model cannot read it, as where it is too long.
pub fn look_at<B: ops::Backend>(
    model: &Trainee<B>,
    sample: &Sample,
    device: &B::Device,
) -> Result<(View, Vec<Vec<HeadScores>>)> {
    let host = sample.batch();
    let batch = ValidBatch { device: DeviceBatch::new(&host, device), host };
    let view = View::new(&model.model, batch.device.inputs.clone())?;
    let mut tallies = HeadTallies::default();
    tallies.add(&view.attention, &sample.inputs);
    let mut heads = tallies.scores();
    if batch.device.tokens > 0 {
        ablate(model, &mut heads, |model| evaluate(model, std::iter::once(batch.clone())).loss);
    }
    Ok((view, heads))
}

/// Sequences in a batch that heads are left out on, of `time` tokens each, where training has `rows` in one.
fn ablation_batch(time: usize, rows: usize) -> usize {
    ABLATION_BATCH.min(ABLATION_TOKENS / time.max(1)).min(rows).max(1)
}

/// Fills in what the `loss` rises by without each head.
fn ablate<B: ops::Backend>(
    model: &Trainee<B>,
    heads: &mut [Vec<HeadScores>],
    loss: impl Fn(&Trainee<B>) -> f64,
) {
    let whole = loss(model);
    for (layer, heads) in heads.iter_mut().enumerate() {
        for (head, scores) in heads.iter_mut().enumerate() {
            let without = ablation::without_head(&model.model, layer, head);
            let without = Trainee { model: without, label_smoothing: model.label_smoothing };
            scores.ablation = Some(loss(&without) - whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_left_out_on_batches_that_training_could_hold() {
        assert_eq!(ablation_batch(64, 32), 16);
        assert_eq!(ablation_batch(64, 3), 3);
        assert_eq!(ablation_batch(4_096, 12), 2);
        assert_eq!(ablation_batch(100_000, 12), 1);
    }
}
