//! The folder that a run leaves behind, and that explains it.
//!
//! While a process works in it, `lock` holds the process id under the operating system's file lock,
//! which ends with the process.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::open_own_to_write;
use crate::weights::companions;

/// The file that the process which works in a folder has locked.
pub(super) const LOCK: &str = "lock";

/// A run's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder at `path`, whatever it holds.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Takes the folder for this process.
    ///
    /// # Errors
    /// If a living process has it.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.path.join(LOCK);
        let io = |error| Error::io("write", &path, error);
        let mut file = open_own_to_write(&path, File::options().create(true).read(true))?;
        if let Err(refused) = file.try_lock() {
            let (run, mut holder) = (self.path.display(), String::new());
            let _ = file.read_to_string(&mut holder);
            return Err(Error::Input(match (refused, holder.trim()) {
                // As some network drives: two processes could work here at once.
                (TryLockError::Error(error), _) => format!(
                    "the disk that `{run}` is on offers no file locks ({error}): choose one on another with --run DIR"
                ),
                (_, "") => format!("the run folder `{run}` is in use by another process: wait for it to end"),
                (_, id) => format!("the run folder `{run}` is in use by process {id}: wait for it to end"),
            }));
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io)?;
        Ok(Lock { file })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's name, which titles its pictures.
    pub fn name(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        path.file_name().map_or_else(|| "run".to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// Whether its weights came from elsewhere: nothing was trained here.
    pub fn is_imported(&self) -> bool {
        !self.samples().exists() && !self.metrics().exists()
    }
}

/// The name of an event file: what TensorBoard looks for.
pub const EVENTS: &str = "events.out.tfevents";

/// What stands in a run's folder, each with the name of the method that says where.
macro_rules! files {
    ($($(#[$doc:meta])* $method:ident: $name:expr,)*) => {
        impl RunFolder {
            $($(#[$doc])* pub fn $method(&self) -> PathBuf { self.path.join($name) })*
        }
    };
}

files! {
    /// `config.toml`: every key as used.
    config: "config.toml",
    /// `metrics.csv`: the course of the run.
    metrics: "metrics.csv",
    /// `events.out.tfevents`: the same for TensorBoard, where `training.tensorboard` asks for it.
    events: EVENTS,
    /// `head_scores.csv`: what the heads did along the run, where `analysis.every` asks for it.
    head_scores: "head_scores.csv",
    /// `snapshots.jsonl`: what the model did with one sequence along the run.
    snapshots: "snapshots.jsonl",
    /// `analysis.json`: what the best weights do.
    analysis: "analysis.json",
    /// `circuit.json`: which parts make the predictions of the best weights.
    circuit: "circuit.json",
    /// `report.html`: the page to explore.
    report: "report.html",
    /// `summary.json`: how it ended.
    summary: "summary.json",
    /// `model.safetensors`: the best weights.
    model: "model.safetensors",
    /// `vocabulary.json`: what the token ids mean.
    vocabulary: "vocabulary.json",
    /// `transformers.json`: what else came with imported weights, and leaves with them.
    transformers: companions::FILE,
    /// `samples.json`: a few validation sequences, for the pictures.
    samples: "samples.json",
    /// `checkpoints/`: what a run resumes from.
    checkpoints: "checkpoints",
    /// `plots/`: the pictures.
    plots: "plots",
}

/// A run folder taken by this process until this value is dropped.
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
    fn a_folder_in_use_names_its_process_and_a_stale_lock_is_taken_over() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        fs::write(place.path().join("lock"), "999999\n").unwrap();
        let lock = folder.lock().expect("a lock that nobody holds is stale");
        let refused = folder.lock().unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(lock);
        folder.lock().expect("a lock given back is free");
    }
}
