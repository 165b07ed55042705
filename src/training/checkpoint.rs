//! Checkpoints: all that a run needs to go on as if it had never stopped.
//!
//! A checkpoint is a folder `checkpoints/step-00000120` with the weights, the optimizer's moments,
//! the run's state and a manifest of content hashes. It is written under a hidden name, synced and
//! renamed, so its final name never holds half of it. Loader position and random numbers need no
//! place in it: both are pure functions of (seed, step).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::run_folder::RunFolder;
use super::stopping::EarlyStopping;
use crate::error::{Error, Result};
use crate::evaluation::Evaluation;
use crate::files::{show_at, sync_folder};
use crate::model::Sizes;
use crate::weights::file::WeightsFile;
use crate::weights::native::{self, Description, Tensors};

const WEIGHTS: &str = "model.safetensors";
const MOMENTS: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const MANIFEST: &str = "manifest.json";
/// What the names of unfinished files and folders begin with, which are never read.
const WRITING: &str = ".writing-";
const REMOVING: &str = ".removing-";
/// The newest checkpoints that are kept beside the best: one more than is needed, should it be damaged.
const KEPT: usize = 2;

/// What a run knows of itself besides weights and moments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Steps done.
    pub step: usize,
    /// What the data amounts to: a run goes on with the same data only.
    pub data_fingerprint: u64,
    /// Updates that the optimizer made.
    pub updates: usize,
    /// Targets trained on.
    pub tokens: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Seconds of the run, validations and checkpoints included, pauses between its parts not.
    pub elapsed: f64,
    /// Seconds of writing checkpoints.
    #[serde(default)]
    pub checkpoint_seconds: f64,
    /// The best validation so far.
    pub best: Option<Best>,
    /// What early stopping has seen.
    pub stopping: EarlyStopping,
    /// Steps whose gradients were clipped, and all steps.
    pub clipped: (u64, u64),
    /// Steps clipped and all steps since the last row of `metrics.csv`.
    pub clipped_since_row: (u64, u64),
    /// Length of `metrics.csv` in bytes.
    pub metrics_bytes: u64,
}

impl State {
    /// Counts a step, whose gradients were clipped or not.
    pub fn count_clipping(&mut self, is_clipped: bool) {
        for count in [&mut self.clipped, &mut self.clipped_since_row] {
            count.0 += u64::from(is_clipped);
            count.1 += 1;
        }
    }
}

/// The best validation of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Steps done then.
    pub step: usize,
    /// What the validation found.
    pub evaluation: Evaluation,
}

/// A whole checkpoint, read and verified.
#[derive(Debug)]
pub struct Checkpoint {
    /// Where it was read.
    pub path: PathBuf,
    /// The weights.
    pub weights: Tensors,
    /// The sizes of their model.
    pub sizes: Sizes,
    /// The optimizer's moments: `<parameter>.first` and `<parameter>.second`, flat.
    pub moments: Tensors,
    /// The run's state.
    pub state: State,
}

/// Writes a checkpoint into `folder`. The weights must be finite: a checkpoint is for going on.
pub fn write(
    folder: &RunFolder,
    (weights, description): (&Tensors, &Description),
    moments: &Tensors,
    state: &State,
) -> Result<()> {
    let checkpoints = folder.checkpoints();
    fs::create_dir_all(&checkpoints).map_err(|error| Error::io("create", &checkpoints, error))?;
    let hidden = TempDir::with_prefix_in(WRITING, &checkpoints)
        .map_err(|error| Error::io("write into", &checkpoints, error.kind().into()))?;
    let path = place(folder, state.step);
    let shown = |error| show_at(error, hidden.path(), &path);
    let mut manifest = BTreeMap::new();
    let state_json = serde_json::to_vec_pretty(state).expect("a state holds plain values");
    let weights = native::to_bytes(weights, Some(description))?;
    for (name, bytes) in
        [(WEIGHTS, weights), (MOMENTS, native::to_bytes(moments, None)?), (STATE, state_json)]
    {
        manifest.insert(name, hash(&bytes));
        write_synced(&hidden.path().join(name), &bytes).map_err(shown)?;
    }
    let manifest = serde_json::to_vec_pretty(&manifest).expect("a manifest holds plain values");
    write_synced(&hidden.path().join(MANIFEST), &manifest).map_err(shown)?;
    sync_folder(hidden.path());
    if path.exists() {
        // A run that was resumed meets what it wrote before: the same step, the same state.
        remove(&path)?;
    }
    fs::rename(hidden.path(), &path).map_err(|error| Error::io("create", &path, error))?;
    let _ = hidden.keep();
    sync_folder(&checkpoints);
    Ok(())
}

/// Removes every checkpoint but the newest ones, and the best that each of these knows: whichever of
/// them a run goes on from, its best weights are there.
pub fn prune(folder: &RunFolder) -> Result<()> {
    let mut steps = steps(folder)?;
    steps.sort_unstable();
    let (older, newest) = steps.split_at(steps.len().saturating_sub(KEPT));
    let best = newest.iter().filter_map(|&step| Some(state(&place(folder, step)).ok()?.best?.step));
    let best = best.collect::<Vec<_>>();
    older.iter().filter(|step| !best.contains(step)).try_for_each(|&step| remove(&place(folder, step)))
}

/// Removes the checkpoints behind `step`: a run that goes on from there comes to others.
pub fn remove_newer(folder: &RunFolder, step: usize) -> Result<()> {
    steps(folder)?.into_iter().filter(|&newer| newer > step).try_for_each(|step| remove(&place(folder, step)))
}

/// Removes a checkpoint, its name first, so that a kill leaves no half of it under that name.
fn remove(path: &Path) -> Result<()> {
    let io = |error| Error::io("remove", path, error);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = path.with_file_name(format!("{REMOVING}{name}"));
    // What a removal before could not remove.
    let _ = fs::remove_dir_all(&hidden);
    fs::rename(path, &hidden).map_err(io)?;
    fs::remove_dir_all(&hidden).map_err(io)
}

/// The newest checkpoint of `folder` that is whole, and what is wrong with each newer one.
///
/// # Errors
/// If there is none: the message names each one and what is wrong with it.
pub fn newest(folder: &RunFolder) -> Result<(Checkpoint, Vec<String>)> {
    let mut steps = steps(folder)?;
    steps.sort_unstable_by(|a, b| b.cmp(a));
    let mut damaged = Vec::new();
    for step in steps {
        match read(&place(folder, step)) {
            Ok(checkpoint) => return Ok((checkpoint, damaged)),
            Err(error) => damaged.push(error.to_string()),
        }
    }
    if damaged.is_empty() {
        return Err(none(folder));
    }
    let path = folder.path().display();
    Err(Error::Input(format!("every checkpoint of the run `{path}` is damaged: {}", damaged.join("; "))))
}

/// Reads the checkpoint at `path` and verifies it against its manifest.
pub fn read(path: &Path) -> Result<Checkpoint> {
    let manifest = manifest(path)?;
    let state = json(path, STATE, &verified(path, STATE, &manifest)?)?;
    let tensors = |name| Ok(WeightsFile::held(path.join(name), verified(path, name, &manifest)?));
    let weights: WeightsFile = tensors(WEIGHTS)?;
    Ok(Checkpoint {
        path: path.to_path_buf(),
        weights: native::tensors(&weights)?,
        sizes: native::description(&weights)?.sizes,
        moments: native::tensors(&tensors(MOMENTS)?)?,
        state,
    })
}

/// The content hash of each file of the checkpoint at `path`.
fn manifest(path: &Path) -> Result<BTreeMap<String, String>> {
    json(path, MANIFEST, &load(path, MANIFEST)?)
}

/// What a file of the checkpoint at `path` says in JSON.
fn json<T: DeserializeOwned>(path: &Path, name: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| damaged(path, name, error.to_string()))
}

/// The bytes of a file of the checkpoint at `path`, which are those of its manifest.
fn verified(path: &Path, name: &str, manifest: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let bytes = load(path, name)?;
    match manifest.get(name) {
        Some(expected) if *expected == hash(&bytes) => Ok(bytes),
        _ => Err(damaged(path, name, "its content does not match the manifest".into())),
    }
}

fn load(path: &Path, name: &str) -> Result<Vec<u8>> {
    let file = path.join(name);
    fs::read(&file).map_err(|error| Error::io("read", &file, error))
}

fn damaged(path: &Path, name: &str, problem: String) -> Error {
    Error::file(path.join(name), None, None, format!("is damaged: {problem}"))
}

/// The state in the checkpoint at `path`.
fn state(path: &Path) -> Result<State> {
    json(path, STATE, &load(path, STATE)?)
}

/// What the data of the run in `folder` amounts to; none where no checkpoint says it.
pub fn data_fingerprint(folder: &RunFolder) -> Option<u64> {
    let newest = steps(folder).ok()?.into_iter().max()?;
    Some(state(&place(folder, newest)).ok()?.data_fingerprint)
}

/// Removes what a process left half-written when it was killed.
pub fn remove_half_written(folder: &RunFolder) {
    for parent in [folder.path().to_path_buf(), folder.checkpoints()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(WRITING) || name.starts_with(REMOVING) {
                // What cannot be removed is in nobody's way: its name is hidden and never read.
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
    }
}

/// The weights of the checkpoint of `step`, verified, as the bytes of their file.
pub fn weights(folder: &RunFolder, step: usize) -> Result<Vec<u8>> {
    let path = place(folder, step);
    verified(&path, WEIGHTS, &manifest(&path)?)
}

/// Whether `bytes` are what the file of the weights held when the checkpoint of `step` was written.
pub fn wrote_weights(folder: &RunFolder, step: usize, bytes: &[u8]) -> bool {
    manifest(&place(folder, step)).is_ok_and(|manifest| manifest.get(WEIGHTS) == Some(&hash(bytes)))
}

/// Refuses a folder that no run ever wrote a checkpoint into.
pub fn check_any(folder: &RunFolder) -> Result<()> {
    let has_any = steps(folder).is_ok_and(|steps| !steps.is_empty());
    if has_any { Ok(()) } else { Err(none(folder)) }
}

fn none(folder: &RunFolder) -> Error {
    Error::Input(format!("the run `{}` has no checkpoint to go on from", folder.path().display()))
}

fn place(folder: &RunFolder, step: usize) -> PathBuf {
    folder.checkpoints().join(format!("step-{step:08}"))
}

fn steps(folder: &RunFolder) -> Result<Vec<usize>> {
    let path = folder.checkpoints();
    let entries = fs::read_dir(&path).map_err(|error| Error::io("read", &path, error))?;
    // Only what has exactly the name of a checkpoint.
    let step = |entry: fs::DirEntry| {
        let step = entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok()?;
        (entry.path() == place(folder, step) && entry.path().is_dir()).then_some(step)
    };
    Ok(entries.filter_map(|entry| entry.ok().and_then(step)).collect())
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let io = |error| Error::io("write", path, error);
    let mut file = fs::File::create(path).map_err(io)?;
    file.write_all(bytes).and_then(|()| file.sync_data()).map_err(io)
}
