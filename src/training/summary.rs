//! `summary.json`: the result of a run, in flat keys.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::metrics::{Split, read as read_metrics};
use super::{run_folder::RunFolder, stopping::Ended};
use crate::error::{Error, Result};
use crate::files::{has_entry, read_json, sha256, write_atomically};

/// The maximum absolute number in a summary, above any loss, count or time of a run.
const MAX_NUMBER: f64 = 1e18;

/// The result of a run. Losses and the floor are in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The losses and accuracies.
    #[serde(flatten)]
    pub losses: Losses,
    /// The work that was done.
    #[serde(flatten)]
    pub work: Work,
    /// The device and the workers.
    #[serde(flatten)]
    pub machine: Machine,
    /// The seed of the run.
    pub seed: u64,
    /// The way in which the run ended.
    pub ended: Ended,
    /// The step at which the run diverged: its loss, gradient or weights were not finite, or its loss had exploded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged_step: Option<usize>,
    /// The most important head of each layer, by the rise of the loss of the best weights when it is ablated. Empty
    /// until known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads_worth_most: Vec<usize>,
    /// The origin of imported checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_from: Option<String>,
    /// The hashes of the run's files.
    #[serde(flatten)]
    pub hashes: Hashes,
    /// Warnings about the run's data and keys.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The losses and accuracies of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// The lowest validation loss, reached by the weights in `model.safetensors`.
    pub best_valid_loss: Option<f64>,
    /// The number of steps after which the validation loss was lowest.
    pub best_step: Option<usize>,
    /// The last validation loss.
    pub last_valid_loss: Option<f64>,
    /// The last logged training loss.
    pub last_train_loss: Option<f64>,
    /// The entropy floor: the loss of the optimal predictor on the same validation set, if known.
    pub floor: Option<f64>,
    /// The accuracy of the best weights on the validation targets.
    pub accuracy: Option<f64>,
    /// The same accuracy over the targets that the optimal predictor knows.
    pub determined_accuracy: Option<f64>,
}

/// The work of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The number of trained parameters.
    pub parameters: usize,
    /// The steps done, for a diverged run up to and including the step that diverged.
    pub steps: usize,
    /// The steps of one pass over the training set.
    pub steps_per_epoch: f64,
    /// The targets trained on in these steps.
    pub tokens: u64,
    /// The seconds of training, without validations, checkpoints and the scoring of heads.
    pub seconds: f64,
    /// The seconds spent on writing checkpoints.
    pub checkpoint_seconds: f64,
    /// The targets trained on per second.
    pub tokens_per_second: f64,
    /// The share of all steps with clipped gradients.
    pub clip_rate: f64,
}

/// The device and the workers of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The backend of the run.
    pub backend: String,
    /// The name of the device, as its driver reports it.
    pub device: String,
    /// The number of workers that shared the last steps.
    #[serde(default = "one")]
    pub workers: usize,
}

/// Returns tokens per second, or 0 if no time has passed, since JSON has no infinity.
pub(super) fn speed(tokens: u64, seconds: f64) -> f64 {
    let speed = tokens as f64 / seconds;
    if seconds > 0.0 && speed.is_finite() { speed } else { 0.0 }
}

/// Returns the number of workers of old runs, whose summaries do not record it.
fn one() -> usize {
    1
}

/// The hashes of a run's files, which distinguish them from the files of another run. `None` for a missing file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hashes {
    /// The SHA-256 of `config.toml`.
    pub config_sha256: Option<String>,
    /// The SHA-256 of `model.safetensors`.
    pub weights_sha256: Option<String>,
    /// The SHA-256 of `vocabulary.json`.
    pub vocabulary_sha256: Option<String>,
    /// The SHA-256 of `samples.json`.
    pub samples_sha256: Option<String>,
    /// The SHA-256 of `metrics.csv`.
    pub metrics_sha256: Option<String>,
    /// The SHA-256 of `head_scores.csv`.
    pub head_scores_sha256: Option<String>,
    /// The SHA-256 of `snapshots.jsonl`.
    pub snapshots_sha256: Option<String>,
    /// The SHA-256 of `analysis.json`.
    pub analysis_sha256: Option<String>,
}

impl Hashes {
    /// Returns the hashes of the files as they are.
    pub fn of(folder: &RunFolder) -> Self {
        let hash = |path: PathBuf| sha256(&path).ok();
        Self {
            config_sha256: hash(folder.config()),
            weights_sha256: hash(folder.model()),
            vocabulary_sha256: hash(folder.vocabulary()),
            samples_sha256: hash(folder.samples()),
            metrics_sha256: hash(folder.metrics()),
            head_scores_sha256: hash(folder.head_scores()),
            snapshots_sha256: hash(folder.snapshots()),
            analysis_sha256: hash(folder.analysis()),
        }
    }

    /// Reads the hashes from the summary, or returns `None` if there is no summary.
    pub fn read(folder: &RunFolder) -> Option<Self> {
        read_json(&folder.summary(), "the outcome of a run").ok()
    }
}

/// The summary of an imported run, which has not trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportSummary {
    /// The file or folder that was imported.
    pub imported_from: String,
    /// The number of parameters.
    pub parameters: usize,
    /// The hashes of the run's files.
    #[serde(flatten)]
    pub hashes: Hashes,
}

impl ImportSummary {
    /// Writes the summary into the folder of its run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, folder: &RunFolder) -> Result<()> {
        write(self, folder)
    }
}

fn write(summary: &impl Serialize, folder: &RunFolder) -> Result<()> {
    let json = serde_json::to_vec_pretty(summary).expect("a summary holds plain values");
    write_atomically(&folder.summary(), &json)
}

impl Summary {
    /// Writes the summary into the folder of its run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, folder: &RunFolder) -> Result<()> {
        write(self, folder)
    }

    /// Returns the first number that is out of range.
    fn problem(&self) -> Option<String> {
        let losses = [
            self.losses.best_valid_loss,
            self.losses.last_valid_loss,
            self.losses.last_train_loss,
            self.losses.floor,
        ];
        let shares = [self.losses.accuracy, self.losses.determined_accuracy, Some(self.work.clip_rate)];
        let spans = [self.work.seconds, self.work.checkpoint_seconds, self.work.tokens_per_second];
        let counts = [
            self.work.steps,
            self.losses.best_step.unwrap_or(0),
            self.work.parameters,
            self.machine.workers,
            self.work.tokens as usize,
        ];
        let checks = [
            ("`steps_per_epoch`", (1.0..=MAX_NUMBER).contains(&self.work.steps_per_epoch)),
            ("a loss", losses.iter().flatten().all(|loss| loss.abs() <= MAX_NUMBER)),
            ("a share", shares.iter().flatten().all(|share| (0.0..=1.0).contains(share))),
            ("a time", spans.iter().all(|span| (0.0..=MAX_NUMBER).contains(span))),
            ("a count", counts.iter().all(|&count| count as f64 <= MAX_NUMBER)),
            ("`best_step`", self.losses.best_step.is_none_or(|best| best <= self.work.steps)),
        ];
        checks.into_iter().find(|(_, holds)| !holds).map(|(what, _)| format!("{what} is out of range"))
    }

    /// Reads the summary of a run.
    ///
    /// # Errors
    /// If there is no summary, it cannot be read, or a number in it is out of range or differs from `metrics.csv`.
    pub fn read(folder: &RunFolder) -> Result<Self> {
        if folder.summary().exists() {
            let summary: Self = read_json(&folder.summary(), "the outcome of a run")?;
            return match summary.problem() {
                Some(problem) => Err(foreign(folder, &problem)),
                None => Scores::check(folder).map(|()| summary),
            };
        }
        let run = folder.path().display();
        Err(Error::Input(format!(
            "`{run}` has not ended, so it does not have a summary.json; complete it with `train --resume \
            {run}`, which also draws its pictures"
        )))
    }
}

/// The numbers of a summary that are also in `metrics.csv`, in any version of the program.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Scores {
    best_step: Option<usize>,
    best_valid_loss: Option<f64>,
    accuracy: Option<f64>,
    last_valid_loss: Option<f64>,
    last_train_loss: Option<f64>,
}

impl Scores {
    /// Compares the summary of a run with its metrics. An imported model has no metrics.
    ///
    /// # Errors
    /// If a number differs, or a file cannot be read.
    pub fn check(folder: &RunFolder) -> Result<()> {
        if !has_entry(&folder.metrics()) {
            return Ok(());
        }
        let summary: Self = read_json(&folder.summary(), "the outcome of a run")?;
        let rows = read_metrics(&folder.metrics())?;
        let of = |split: Split| rows.iter().filter(move |row| row.split == split);
        let best = of(Split::Valid).rfind(|row| Some(row.step) == summary.best_step);
        let last = |split: Split| of(split).next_back().map(|row| row.loss);
        let pairs = [
            ("best_valid_loss", summary.best_valid_loss, best.map(|row| row.loss)),
            ("accuracy", summary.accuracy, best.map(|row| row.accuracy)),
            ("last_valid_loss", summary.last_valid_loss, last(Split::Valid)),
            ("last_train_loss", summary.last_train_loss, last(Split::Train)),
        ];
        let is_near = |written: f64, found: f64| (written - found).abs() <= 1e-9 * found.abs();
        let differs = |&(_, written, found): &(_, Option<f64>, Option<f64>)| match (written, found) {
            (Some(written), Some(found)) => !is_near(written, found),
            (written, found) => written.is_some() != found.is_some(),
        };
        match pairs.iter().find(|pair| differs(pair)) {
            Some((key, ..)) => Err(foreign(folder, &format!("`{key}` differs from metrics.csv"))),
            None => Ok(()),
        }
    }
}

fn foreign(folder: &RunFolder, problem: &str) -> Error {
    let problem = format!("{problem}: the run did not write this file; copy this run's file back");
    Error::file(folder.summary(), problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::mutations;

    #[test]
    fn a_frozen_clock_leaves_a_finite_speed() {
        assert_eq!((speed(700, 2.0), speed(700, 0.0), speed(0, 0.0)), (350.0, 0.0, 0.0));
        assert_eq!([f64::MIN_POSITIVE, -1.0, f64::NAN].map(|seconds| speed(u64::MAX, seconds)), [0.0; 3]);
    }

    #[test]
    fn impossible_numbers_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(dir.path());
        let valid = serde_json::json!({
            "best_valid_loss": 1.5, "best_step": 7, "last_valid_loss": 1.6, "last_train_loss": 1.4, "floor": 0.5,
            "accuracy": 0.5, "determined_accuracy": 0.75, "parameters": 11, "steps": 13, "steps_per_epoch": 3.0,
            "tokens": 17, "seconds": 1.5, "checkpoint_seconds": 0.5, "tokens_per_second": 19.0, "clip_rate": 0.25,
            "backend": "flex", "device": "cpu", "seed": 0, "ended": "completed", "weights_sha256": "23",
        });
        let read = |value: &serde_json::Value| {
            std::fs::write(folder.summary(), value.to_string()).unwrap();
            Summary::read(&folder)
        };
        read(&valid).unwrap();
        let refused = mutations(&valid).iter().filter(|(_, damaged)| read(damaged).is_err()).count();
        assert!(refused > 40, "{refused}");
        let mut empty = valid.clone();
        empty["steps_per_epoch"] = 0.into();
        let error = read(&empty).unwrap_err().to_string();
        assert!(
            error.contains("summary.json") && error.contains("`steps_per_epoch` is out of range"),
            "{error}"
        );
    }
}
