//! The folder of a run, with everything that explains the run.
//!
//! While a process works in the folder, `lock` holds its process id under the operating system's file lock, which ends
//! with the process.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use causal_attention_report::{CIRCUIT_PICTURES, FOURIER_PICTURE, PHASES_PICTURE, RUN_PICTURES};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::files::{open_own_to_write, read_json};
use crate::weights::companions;

/// The name of the file that a process locks while it works in the folder.
pub(super) const LOCK: &str = "lock";

/// The folder of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Returns the folder at `path`, whatever its contents.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Removes the pictures of an explanation, which would not describe other weights or sequences.
    ///
    /// # Errors
    /// If a picture cannot be removed.
    pub fn remove_circuit_pictures(&self) -> Result<()> {
        self.remove_pictures(&CIRCUIT_PICTURES)
    }

    /// Removes the picture of the phases of the run.
    ///
    /// # Errors
    /// If the picture cannot be removed.
    pub fn remove_phases_picture(&self) -> Result<()> {
        self.remove_pictures(&[PHASES_PICTURE])
    }

    /// Removes the picture of the Fourier analysis of the run.
    ///
    /// # Errors
    /// If the picture cannot be removed.
    pub fn remove_fourier_picture(&self) -> Result<()> {
        self.remove_pictures(&[FOURIER_PICTURE])
    }

    /// Removes all pictures of the run.
    ///
    /// # Errors
    /// If a picture cannot be removed.
    pub fn remove_all_pictures(&self) -> Result<()> {
        self.remove_pictures(&CIRCUIT_PICTURES)?;
        self.remove_phases_picture()?;
        self.remove_fourier_picture()?;
        self.remove_pictures(&RUN_PICTURES)
    }

    fn remove_pictures(&self, names: &[&str]) -> Result<()> {
        for (name, format) in names.iter().flat_map(|name| ["png", "svg", "pdf"].map(|format| (name, format)))
        {
            let path = self.plots().join(format!("{name}.{format}"));
            match fs::remove_file(&path) {
                Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Err(Error::io("remove", &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Locks the folder for this process.
    ///
    /// # Errors
    /// If a running process has locked the folder.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.path.join(LOCK);
        let io = |error| Error::io("write", &path, error);
        let mut file = open_own_to_write(&path, File::options().create(true).read(true))?;
        if let Err(refused) = file.try_lock() {
            let (run, mut holder) = (self.path.display(), String::new());
            let _ = file.read_to_string(&mut holder);
            return Err(Error::Input(match (refused, holder.trim()) {
                // Without file locks, as on some network drives, two processes could work in the folder at once.
                (TryLockError::Error(error), _) => format!(
                    "the disk of `{run}` does not support file locks ({error}); pass a folder on another \
                    disk with --run DIR"
                ),
                (_, "") => format!("the run folder `{run}` is in use by another process; wait for it to end"),
                (_, id) => format!("the run folder `{run}` is in use by process {id}; wait for it to end"),
            }));
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io)?;
        Ok(Lock { file })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the folder, which titles its pictures.
    pub fn name(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        path.file_name().map_or_else(|| "run".to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// Returns true if another program trained the weights.
    pub fn has_foreign_weights(&self) -> bool {
        let imported = read_json::<Value>(&self.summary(), "the outcome of a run");
        self.is_imported() || imported.is_ok_and(|summary| summary.get("imported_from").is_some())
    }

    /// Returns true if the weights were imported without data, so the folder has no curves and no sequences.
    pub fn is_imported(&self) -> bool {
        !self.samples().exists() && !self.metrics().exists()
    }
}

/// The name of an event file, as TensorBoard expects it.
pub const EVENTS: &str = "events.out.tfevents";

/// Defines a method per file of a run folder that returns its path.
macro_rules! files {
    ($($(#[$doc:meta])* $method:ident: $name:expr,)*) => {
        impl RunFolder {
            $($(#[$doc])* pub fn $method(&self) -> PathBuf { self.path.join($name) })*
        }
    };
}

files! {
    /// `config.toml`: every key with the value used.
    config: "config.toml",
    /// `metrics.csv`: the metrics over the steps.
    metrics: "metrics.csv",
    /// `events.out.tfevents`: the same metrics for TensorBoard, if `training.tensorboard` is on.
    events: EVENTS,
    /// `head_scores.csv`: the scores of the heads over the steps, if `analysis.every` is on.
    head_scores: "head_scores.csv",
    /// `snapshots.jsonl`: attention and predictions for one sequence over the steps.
    snapshots: "snapshots.jsonl",
    /// `analysis.json`: the analysis of the best weights.
    analysis: "analysis.json",
    /// `circuit.json`: the components that make the predictions of the best weights.
    circuit: "circuit.json",
    /// `phases.json`: the phases of the run, once `phases` has found them.
    phases: "phases.json",
    /// `report.html`: the interactive report.
    report: "report.html",
    /// `summary.json`: the result of the run.
    summary: "summary.json",
    /// `model.safetensors`: the best weights.
    model: "model.safetensors",
    /// `vocabulary.json`: the token of each id.
    vocabulary: "vocabulary.json",
    /// `transformers.json`: further contents of imported weights, which an export includes.
    transformers: companions::FILE,
    /// `samples.json`: a few validation sequences, for the pictures.
    samples: "samples.json",
    /// `weights/`: copies of the weights during training, if `analysis.weights_every` is on.
    weight_copies: "weights",
    /// `fourier.json`: the Fourier analysis of a run on modular addition.
    fourier: "fourier.json",
    /// `checkpoints/`: the checkpoints, from which a run resumes.
    checkpoints: "checkpoints",
    /// `plots/`: the pictures.
    plots: "plots",
}

/// A lock on a run folder, held by this process until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_stale_locks_are_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(dir.path());
        fs::write(dir.path().join("lock"), "999999\n").unwrap();
        let lock = folder.lock().expect("a lock without a holder is stale");
        let refused = folder.lock().unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(lock);
        folder.lock().expect("a released lock is free");
    }
}
