//! The checkpoints of another program's training as one run: the loss, the scores of all heads, and attention on one
//! sequence at each checkpoint.

use std::path::Path;

use burn::module::Module;
use burn::tensor::backend::AutodiffBackend;

use super::metrics::{self, Row, Split};
use super::run_folder::RunFolder;
use super::stopping::Ended;
use super::summary::{Hashes, Losses, Machine, Summary, Work};
use crate::analysis::{
    HeadHistory, Sample, ScoredStep, Snapshot, Snapshots, inspect_sample, score_heads, snapshot_sample,
};
use crate::backend::{Device, Job, run};
use crate::config::Config;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::evaluation::{Evaluation, evaluate};
use crate::files::write_atomically;
use crate::hooks::Patch;
use crate::weights::file::LazyTensor;
use crate::weights::native::{self, Description};

/// A checkpoint: the number of steps done, and the weights, each read on demand.
pub type SeriesStep = (usize, Vec<LazyTensor>);

/// The checkpoints of a model, with the data to measure them on.
pub struct Series<'a> {
    /// The config of the run.
    pub config: &'a Config,
    /// The model and its sizes.
    pub description: &'a Description,
    /// The data; its validation sequences are measured, up to `analysis.sequences`.
    pub dataset: &'a Dataset,
    /// The checkpoints in the order of their steps, at least one.
    pub steps: &'a [SeriesStep],
    /// The origin of the checkpoints, for errors and the summary.
    pub origin: &'a Path,
    /// Called with the step and the result of each measured checkpoint.
    pub on_measured: &'a dyn Fn(usize, &Evaluation),
}

impl Series<'_> {
    /// Measures the checkpoints on `device`, and writes samples, metrics, head scores, snapshots and summary into the
    /// `folder` of their run, which holds its config, its vocabulary and the weights of the last step.
    ///
    /// # Errors
    /// Returns an error if weights cannot be read, if the data does not fit the model, or if a file cannot be written.
    pub fn measure(self, folder: &RunFolder, device: &Device) -> Result<()> {
        let samples = Sample::first(&self.dataset.valid, self.config.analysis.samples);
        if samples.is_empty() {
            let problem = "the data has no validation sequence to measure the checkpoints on";
            return Err(Error::Input(problem.into()));
        }
        let json = serde_json::to_vec(&samples).expect("samples hold plain values");
        write_atomically(&folder.samples(), &json)?;
        let (config, dataset, origin) = (self.config, self.dataset, self.origin);
        let measures_all =
            config.analysis.sequences.next_multiple_of(config.training.batch_size) >= dataset.valid.len();
        let (rows, parameters) = run(device, MeasureSeries { folder, series: self })?;
        metrics::write(&folder.metrics(), &rows)?;
        // The folder holds the weights of the last step.
        let last = rows.last();
        let batches = dataset.train.len().div_ceil(config.training.batch_size);
        let summary = Summary {
            losses: Losses {
                best_valid_loss: last.map(|row| row.loss),
                best_step: last.map(|row| row.step),
                last_valid_loss: last.map(|row| row.loss),
                last_train_loss: None,
                // The floor is known for all validation sequences, not for the first ones.
                floor: dataset.floor.filter(|_| measures_all).map(|floor| floor.valid),
                accuracy: last.map(|row| row.accuracy),
                determined_accuracy: None,
            },
            work: Work {
                parameters,
                steps: last.map_or(0, |row| row.step),
                steps_per_epoch: config.training.steps_per_epoch(batches) as f64,
                ..Work::default()
            },
            machine: Machine { backend: device.backend_name(), device: device.name.clone(), workers: 1 },
            seed: config.run.seed,
            ended: Ended::Imported,
            diverged_step: None,
            heads_worth_most: Vec::new(),
            imported_from: Some(origin.display().to_string()),
            hashes: Hashes::of(folder),
            warnings: Vec::new(),
        };
        summary.write(folder)
    }
}

/// The job that measures all checkpoints.
struct MeasureSeries<'a> {
    folder: &'a RunFolder,
    series: Series<'a>,
}

impl Job for MeasureSeries<'_> {
    type Output = (Vec<Row>, usize);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Series { config, description, dataset, steps, origin, on_measured } = self.series;
        let (set, batch) = (&dataset.valid, config.training.batch_size);
        let mut heads = HeadHistory::open(&self.folder.head_scores(), usize::MAX)?;
        let mut snapshots = Snapshots::open(&self.folder.snapshots(), usize::MAX)?;
        let shown = snapshot_sample(set, config);
        let batches = config.analysis.sequences.div_ceil(batch);
        let (mut rows, mut parameters) = (Vec::new(), 0);
        for (step, tensors) in steps {
            let model = native::model::<B::InnerBackend>(description, tensors.clone(), origin, &device)?;
            parameters = model.num_params();
            let evaluation = evaluate(&model, set.batches(batch).take(batches), &device);
            if !evaluation.loss.is_finite() {
                let problem = format!("the loss of the weights of step {step} is not finite");
                return Err(Error::file(origin, problem));
            }
            let (scores, _) = score_heads(&model, set, &config.analysis, batch, &device)?;
            heads.push(ScoredStep { step: *step, heads: scores })?;
            if let Some(sample) = &shown {
                let (view, _) =
                    inspect_sample((&model, &Patch::default()), sample, None::<fn(u64)>, &device)?;
                snapshots.push(Snapshot::new(*step, sample, &view))?;
            }
            on_measured(*step, &evaluation);
            rows.push(validation(*step, &evaluation));
        }
        Ok((rows, parameters))
    }
}

/// Returns the row of a checkpoint.
fn validation(step: usize, evaluation: &Evaluation) -> Row {
    Row {
        step,
        epoch: 1,
        split: Split::Valid,
        loss: evaluation.loss,
        accuracy: evaluation.accuracy,
        learning_rate: 0.0,
        gradient_norm: None,
        tokens: 0,
        seconds: 0.0,
        clip_rate: None,
        objective: None,
    }
}
