//! The Fourier analysis of a run on modular addition: the frequencies of its best weights, and how they formed.
//!
//! | file | holds |
//! |---|---|
//! | `stages` | memorisation, circuit formation and cleanup, dated by the progress measures |
//! | `sentences` | the result as sentences |

mod sentences;
mod stages;

use std::path::Path;

use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::{Deserialize, Serialize};

use super::observers::weight_copies;
use super::run_folder::RunFolder;
use super::start::dataset_of;
use super::summary::Summary;
use crate::analysis::fourier::{
    NeuronFrequency, PairLogits, embedding_shares, key_frequencies, neuron_frequencies, pair_logits,
};
use crate::backend::{self, Device, Job, compute_as_run};
use crate::config::Config;
use crate::data::{Dataset, Sequences, Source, Task};
use crate::error::{Error, Result, ensure};
use crate::files::{read_json, write_atomically};
use crate::model::Model;
use crate::weights::file::WeightsFile;
use crate::weights::native;

pub(super) use sentences::stage_sentence;
pub use stages::{StageKind, TrainingStage};

/// The share of the variance of the logits that the key frequencies hold.
const KEY_SHARE: f64 = 0.95;
/// The maximum modulus of an analysis, whose logits take 67 MB.
const MAX_MODULUS: usize = 256;

/// The Fourier analysis of a run: `fourier.json`. Losses are in nats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FourierAnalysis {
    /// The modulus `n`.
    pub modulus: usize,
    /// The key frequencies of the best weights: those with the largest shares in `logits`, until they hold 95 %.
    pub keys: Vec<usize>,
    /// The share of each frequency, from 1 to `n / 2`, in the variance of the logits that depends on the sum alone.
    pub logits: Vec<f64>,
    /// The share of each frequency in the variance of the token embedding over the numbers.
    pub embedding: Vec<f64>,
    /// The frequency of each neuron of each feed-forward layer; `None` for constant neurons.
    pub neurons: Vec<Vec<Option<NeuronFrequency>>>,
    /// The losses of the best weights.
    pub best: ProgressMeasures,
    /// The losses of the copies of the weights that the run kept, in the order of steps.
    pub progress: Vec<ProgressMeasures>,
    /// The stages of training; empty if the run did not keep copies or did not generalise after it had memorised.
    pub stages: Vec<TrainingStage>,
    /// The result as sentences.
    pub sentences: Vec<String>,
}

/// The progress measures at a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProgressMeasures {
    /// The number of completed steps.
    pub step: usize,
    /// The loss on the training set.
    pub training: f64,
    /// The loss on the validation set.
    pub validation: f64,
    /// The loss on all pairs with only the key frequencies of the best weights.
    pub restricted: f64,
    /// The loss on the training set without these frequencies.
    pub excluded: f64,
    /// The sum of the squares of all weights.
    pub squared_weights: f64,
}

impl FourierAnalysis {
    /// Reads the analysis of a run; returns `None` if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn read(folder: &RunFolder) -> Result<Option<Self>> {
        let path = folder.fourier();
        let what = "the Fourier analysis of a run; remove the file and run `explain` again";
        path.exists().then(|| read_json(&path, what)).transpose()
    }

    /// Returns true if runs of `config` can be analysed: decoders of modular addition with a modulus of up to 256.
    pub fn suits(config: &Config) -> bool {
        let data = &config.data;
        let is_task = data.source() == Source::Sequences && data.task == Task::ModularAddition;
        is_task && data.symbols() <= MAX_MODULUS
    }

    /// Analyses a run on modular addition, and writes the result to its folder.
    ///
    /// # Errors
    /// If the run is of another task, its data has changed, or a file cannot be read or written.
    pub fn of_run(folder: &RunFolder, config: &Config, device: &Device) -> Result<Self> {
        ensure(Self::suits(config), Error::Input, || {
            format!(
                "the run `{}` has no Fourier analysis, which describes `modular_addition` with up to {MAX_MODULUS} numbers",
                folder.path().display()
            )
        })?;
        let dataset = dataset_of(config, folder)?;
        let found = backend::run(device, Analysing { folder, config, device, dataset: &dataset })?;
        let json = serde_json::to_vec_pretty(&found).expect("an analysis holds plain values");
        write_atomically(&folder.fourier(), &json)?;
        Ok(found)
    }
}

/// The job that analyses a run.
struct Analysing<'a> {
    folder: &'a RunFolder,
    config: &'a Config,
    device: &'a Device,
    dataset: &'a Dataset,
}

impl Job for Analysing<'_> {
    type Output = FourierAnalysis;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<FourierAnalysis> {
        let on_device = device.clone();
        compute_as_run::<B, _>(&self.config.training, self.device, &device, || {
            self.analyse::<B::InnerBackend>(&on_device)
        })
    }
}

impl Analysing<'_> {
    fn analyse<B: Backend>(&self, device: &B::Device) -> Result<FourierAnalysis> {
        let modulus = self.config.data.symbols();
        let best = self.folder.best_weights()?;
        let summary = Summary::read(self.folder)?;
        let step = summary.losses.best_step.unwrap_or(summary.work.steps);
        let (model, _) = native::load_model::<B>(&best, device)?;
        let logits = pair_logits(&model, modulus, device)?;
        let shares = logits.shares();
        let keys = key_frequencies(&shares, KEY_SHARE);
        let copies = weight_copies(self.folder)?;
        let progress = copies.into_iter().map(|(step, path)| {
            let (model, _) = native::load_model::<B>(&own_weights(&path)?, device)?;
            self.progress(step, &model, &pair_logits(&model, modulus, device)?, &keys)
        });
        let progress = progress.collect::<Result<Vec<_>>>()?;
        let mut found = FourierAnalysis {
            modulus,
            best: self.progress(step, &model, &logits, &keys)?,
            keys,
            logits: shares,
            embedding: embedding_shares(&model, modulus),
            neurons: neuron_frequencies(&model, modulus, device)?,
            stages: stages::stages(&progress),
            progress,
            sentences: Vec::new(),
        };
        found.sentences = sentences::sentences(&found);
        Ok(found)
    }

    fn progress<B: Backend>(
        &self,
        step: usize,
        model: &Model<B>,
        logits: &PairLogits,
        keys: &[usize],
    ) -> Result<ProgressMeasures> {
        let modulus = self.config.data.symbols();
        let [train, valid] = [&self.dataset.train, &self.dataset.valid].map(|set| pairs(set, modulus));
        let squares = native::collect(model)?;
        let squares = squares.iter().flat_map(|(_, data)| data.iter::<f64>()).map(|weight| weight * weight);
        Ok(ProgressMeasures {
            step,
            training: logits.excluded(&[], &train),
            validation: logits.excluded(&[], &valid),
            restricted: logits.restricted(keys),
            excluded: logits.excluded(keys, &train),
            squared_weights: squares.sum(),
        })
    }
}

fn own_weights(path: &Path) -> Result<WeightsFile> {
    WeightsFile::open_own(path.to_path_buf())
}

/// Returns the pairs of a set as `a * modulus + b`.
fn pairs(set: &Sequences, modulus: usize) -> Vec<usize> {
    let of_batch = |batch: crate::data::Batch| -> Vec<usize> {
        batch.inputs.chunks(batch.time).map(|row| row[0] as usize * modulus + row[1] as usize).collect()
    };
    set.batches(1024).flat_map(of_batch).collect()
}
