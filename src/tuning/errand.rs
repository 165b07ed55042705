//! What a run of a study is told, and how it is held.
//!
//! A study starts its own program with the command `trial` and tells it on standard input what to
//! train, in one line. The line stays open: when it ends, because the study asks for it or was killed,
//! the run saves and stops. So no orphan goes on behind the back of a study that is resumed.

use std::fs::{File, TryLockError};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};

use super::folder::StudyFolder;
use super::record::Record;
use super::resuming::data_has_changed;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::terminal::warn;
use crate::training::{PREPARED, RunFolder, dataset};

/// What a run is told: where it is to go, and how far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Errand {
    /// The run's folder: one that exists is gone on with.
    pub folder: PathBuf,
    /// Its `config.toml`.
    pub config: String,
    /// Steps after which it pauses.
    pub pause_at: Option<usize>,
    /// The fingerprint of the study's data; none where it is drawn.
    pub data: Option<u64>,
}

/// The file of which every run of a study holds a shared lock while it works.
fn alive(trials: &Path) -> Result<File> {
    let path = trials.join(".alive");
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| Error::io("write", &path, error))
}

impl Errand {
    /// Whether the runs of a study in `folder` can be told where they are to go.
    ///
    /// # Errors
    /// If its path is not UTF-8.
    pub fn check_folder(folder: &Path) -> Result<()> {
        match std::path::absolute(folder).is_ok_and(|path| path.to_str().is_none()) {
            false => Ok(()),
            true => Err(Error::Input(format!(
                "`{}` is not UTF-8 in all of its path, and trials are told it in that: name another with --run DIR",
                folder.display()
            ))),
        }
    }

    /// Whether the run in `folder` is as far as this errand asks, because somebody has gone on with it.
    ///
    /// # Errors
    /// If it holds what cannot be understood.
    pub fn is_done(&self, folder: &RunFolder) -> Result<bool> {
        let end = self.pause_at.unwrap_or(usize::MAX);
        Ok(Record::read(folder)?.is_some_and(|record| record.at(end).is_some()))
    }

    /// Whether `experiment` still has the data of its study, whose other trials it is compared with.
    ///
    /// # Errors
    /// If it has not, or its data cannot be read.
    pub fn check_data(&self, experiment: &Config) -> Result<()> {
        match self.data {
            Some(known) if dataset(experiment)?.fingerprint() != known => Err(data_has_changed()),
            Some(_) | None => Ok(()),
        }
    }

    /// Reads the errand of this process, and watches the line that it came on: when that ends, `signal`
    /// is set as SIGTERM sets it. The file holds the study's attention until it is dropped.
    ///
    /// # Errors
    /// If there is no errand on standard input.
    pub fn receive(signal: Arc<AtomicUsize>) -> Result<(Self, File)> {
        const TERMINATED: usize = 15;
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        let errand = read.ok().and_then(|_| serde_json::from_str::<Self>(&line).ok());
        let errand = errand.ok_or_else(|| {
            Error::Input(
                "`trial` is for studies, which tell it on standard input what to train: see `tune`".into(),
            )
        })?;
        let alive = alive(errand.folder.parent().unwrap_or(Path::new(".")))?;
        let _ = alive.lock_shared();
        thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            let _ = signal.compare_exchange(0, TERMINATED, Ordering::Relaxed, Ordering::Relaxed);
        });
        Ok((errand, alive))
    }
}

/// Waits until no run of the study is at work: those of one that was killed save and stop by
/// themselves. Then removes what was left half-made.
///
/// # Errors
/// If the folder cannot be written.
pub fn follow(folder: &StudyFolder) -> Result<()> {
    let trials = folder.trials();
    let alive = alive(&trials)?;
    if let Err(TryLockError::WouldBlock) = alive.try_lock() {
        warn("waiting for the runs of the killed study to save and stop");
        alive.lock().map_err(|error| Error::io("lock", &trials, error))?;
    }
    for entry in std::fs::read_dir(&trials).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREPARED) {
            // What cannot be removed is in nobody's way: its name is hidden and never read.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
