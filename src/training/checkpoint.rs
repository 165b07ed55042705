//! Checkpoints: everything that a run needs to resume as if it had never stopped.
//!
//! A checkpoint is a folder `checkpoints/step-00000120` with the weights, the optimizer's moments, the run's state and
//! a manifest of content hashes. It is written under a hidden name, synced and renamed, so that the final name never
//! holds a partial checkpoint. Loader position and random numbers are not stored: both are pure functions of (seed,
//! step).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::provenance::Provenance;
use super::run_folder::RunFolder;
use super::state::{RunState, RunTime};
use crate::error::{Error, Result, ensure};
use crate::files::{create, hash, read_json, show_at, sync_folder, write_atomically, write_unpublished};
use crate::weights::file::WeightsFile;
use crate::weights::native::{self, Description, Tensors};

const WEIGHTS: &str = "model.safetensors";
const MOMENTS: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
/// The file with the content hashes of the other files.
const MANIFEST: &str = "manifest.json";
/// The prefixes of unfinished files and folders, which are never read.
const WRITING_PREFIX: &str = ".writing-";
const REMOVING_PREFIX: &str = ".removing-";
/// The maximum count of steps, updates or tokens of a run, and its maximum time in seconds.
const MAX_COUNT: usize = 1 << 53;
const MAX_SECONDS: f64 = 1e12;
/// The number of newest checkpoints to keep in addition to the best one: one more than needed, in case one is damaged.
const RETAINED_CHECKPOINTS: usize = 2;

/// A complete checkpoint, read and verified.
#[derive(Debug)]
pub struct Checkpoint {
    /// The path of the checkpoint.
    pub path: PathBuf,
    /// The weights.
    pub weights: Tensors,
    /// The model that the weights belong to.
    pub description: Description,
    /// The optimizer's moments: `<parameter>.first` and `<parameter>.second`, flattened.
    pub moments: Tensors,
    /// The run's state.
    pub state: RunState,
}

/// The contents of a checkpoint, to be written.
pub struct CheckpointContents {
    /// The number of steps done.
    pub step: usize,
    /// The weights. They must be finite, so that the run can resume from them.
    pub weights: Tensors,
    /// The model that the weights belong to.
    pub description: Description,
    /// The optimizer's moments.
    pub moments: Tensors,
    /// The run's state as JSON.
    pub state: Vec<u8>,
}

/// Writes a checkpoint into `folder`.
pub fn write(folder: &RunFolder, contents: &CheckpointContents) -> Result<()> {
    let CheckpointContents { step, weights, description, moments, state } = contents;
    let (checkpoints, path) = (folder.checkpoints(), checkpoint_path(folder, *step));
    create(&checkpoints)?;
    let hidden = TempDir::with_prefix_in(WRITING_PREFIX, &checkpoints)
        .map_err(|error| Error::io("write into", &checkpoints, error.kind().into()))?;
    let files = [
        (WEIGHTS, native::to_bytes(weights, Some(description))?),
        (MOMENTS, native::to_bytes(moments, None)?),
        (STATE, state.clone()),
    ];
    let manifest = files.iter().map(|(name, bytes)| (*name, hash(bytes))).collect::<BTreeMap<_, _>>();
    let manifest = serde_json::to_vec_pretty(&manifest).expect("a manifest holds plain values");
    for (name, bytes) in files.iter().chain(&[(MANIFEST, manifest)]) {
        write_unpublished(&hidden.path().join(name), bytes)
            .map_err(|error| show_at(error, hidden.path(), &path))?;
    }
    sync_folder(hidden.path());
    if path.exists() {
        // A resumed run repeats steps. The same step has the same state.
        remove(&path)?;
    }
    fs::rename(hidden.path(), &path).map_err(|error| Error::io("create", &path, error))?;
    let _ = hidden.keep();
    sync_folder(&checkpoints);
    Ok(())
}

/// Removes every checkpoint except the newest ones and the best checkpoint known to each of them. So the run can resume
/// from any of the newest without losing the best weights. Until a best is known, the checkpoint of step 0 is kept.
pub fn prune(folder: &RunFolder) -> Result<()> {
    let steps = steps(folder)?;
    let (older, newest) = steps.split_at(steps.len().saturating_sub(RETAINED_CHECKPOINTS));
    let best = newest.iter().filter_map(|&step| {
        let state = state(folder, step).ok()?;
        Some(state.best.map_or(0, |best| best.step))
    });
    let best = best.collect::<Vec<_>>();
    older
        .iter()
        .filter(|step| !best.contains(step))
        .try_for_each(|&step| remove(&checkpoint_path(folder, step)))
}

/// Removes the checkpoints after `step`. A run that resumes at `step` writes them again.
pub fn remove_newer(folder: &RunFolder, step: usize) -> Result<()> {
    steps(folder)?
        .into_iter()
        .filter(|&newer| newer > step)
        .try_for_each(|step| remove(&checkpoint_path(folder, step)))
}

/// Removes a checkpoint. Renames it first, so that a kill leaves no partial checkpoint under its name.
fn remove(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = path.with_file_name(format!("{REMOVING_PREFIX}{name}"));
    // A previous removal may have been interrupted.
    let _ = fs::remove_dir_all(&hidden);
    fs::rename(path, &hidden)
        .and_then(|()| fs::remove_dir_all(&hidden))
        .map_err(|error| Error::io("remove", path, error))
}

/// Returns the newest intact checkpoint of `folder`, and the problem of each newer one.
///
/// # Errors
/// If no checkpoint is intact: the message lists each checkpoint with its problem.
pub fn newest(folder: &RunFolder) -> Result<(Checkpoint, Vec<String>)> {
    let mut damaged = Vec::new();
    for step in steps(folder)?.into_iter().rev() {
        match read(folder, step) {
            Ok(checkpoint) => return Ok((checkpoint, damaged)),
            Err(error) => damaged.push(error.to_string()),
        }
    }
    check_exists(folder)?;
    let path = folder.path().display();
    Err(Error::Input(format!(
        "all checkpoints of the run `{path}` are damaged: {}; restore one, or start another run from its weights with \
         train --from {path}",
        damaged.join("; ")
    )))
}

/// Reads and verifies the checkpoint of `step`.
pub(super) fn read(folder: &RunFolder, step: usize) -> Result<Checkpoint> {
    let weights = verified(folder, step, WEIGHTS)?;
    verified(folder, step, STATE)?;
    Ok(Checkpoint {
        path: checkpoint_path(folder, step),
        weights: native::tensors(&weights)?,
        description: native::description(&weights)?,
        moments: native::tensors(&verified(folder, step, MOMENTS)?)?,
        state: state(folder, step)?,
    })
}

/// Opens a file of the checkpoint of `step`, and verifies its hash against the manifest.
fn verified(folder: &RunFolder, step: usize, name: &str) -> Result<WeightsFile> {
    let (manifest, path) = (manifest(folder, step)?, checkpoint_path(folder, step).join(name));
    let file = WeightsFile::open_own(path)?;
    if manifest.get(name) != Some(&file.sha256()?) {
        return Err(file.error("is damaged: its content does not match the manifest"));
    }
    Ok(file)
}

fn manifest(folder: &RunFolder, step: usize) -> Result<BTreeMap<String, String>> {
    read_json(&checkpoint_path(folder, step).join(MANIFEST), "the hashes of a checkpoint")
}

/// Reads the state of the checkpoint of `step`, and checks the range of its numbers.
fn state(folder: &RunFolder, step: usize) -> Result<RunState> {
    let path = checkpoint_path(folder, step).join(STATE);
    let state: RunState = read_json(&path, "the state of a run")?;
    let RunState { step: own, updates, tokens, best, .. } = &state;
    let RunTime { seconds, elapsed, checkpoint_seconds } = &state.time;
    let is_time = |seconds: &f64| (0.0..=MAX_SECONDS).contains(seconds);
    let fits = *own == step
        && *own <= MAX_COUNT
        && *updates <= MAX_COUNT
        && *tokens <= MAX_COUNT as u64
        && best.as_ref().is_none_or(|best| best.step <= step)
        && [seconds, elapsed, checkpoint_seconds].into_iter().all(is_time);
    if !fits {
        let problem = "is damaged: a number is out of range, or its step differs from the name of its folder";
        return Err(Error::file(&path, problem));
    }
    Ok(state)
}

/// Returns the data, the weights and the keys with which the run in `folder` started, or `None` if its newest checkpoint
/// cannot be read.
pub fn provenance_of(folder: &RunFolder) -> Option<Provenance> {
    Some(state(folder, steps(folder).ok()?.pop()?).ok()?.provenance)
}

/// Returns the fingerprint of the data of the run in `folder`, or `None` if its newest checkpoint cannot be read.
pub fn data_fingerprint(folder: &RunFolder) -> Option<u64> {
    Some(provenance_of(folder)?.data_fingerprint)
}

/// Returns the hash of the weights that the run in `folder` started from, or `None` if it started from fresh ones or if its
/// newest checkpoint cannot be read.
pub fn start_sha256(folder: &RunFolder) -> Option<String> {
    provenance_of(folder)?.start_sha256
}

/// Removes the files and folders that a killed process left half-written.
pub fn remove_half_written(folder: &RunFolder) {
    for parent in [folder.path().to_path_buf(), folder.checkpoints()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(WRITING_PREFIX) || name.starts_with(REMOVING_PREFIX) {
                // Leftovers are harmless: their names are hidden and never read.
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
    }
}

/// Returns the verified weights of the checkpoint of `step`.
///
/// # Errors
/// If the checkpoint does not exist, or its file is not the one that the run wrote.
pub fn weights(folder: &RunFolder, step: usize) -> Result<WeightsFile> {
    verified(folder, step, WEIGHTS)
}

/// Writes the verified weights of the checkpoint of `step` to `model.safetensors` of the run.
///
/// # Errors
/// As [`weights`], and if the file cannot be written.
pub fn keep_weights(folder: &RunFolder, step: usize) -> Result<()> {
    write_atomically(&folder.model(), &weights(folder, step)?.bytes(0..usize::MAX)?)
}

/// Returns the step of the checkpoint whose weights have this hash.
pub fn step_of(folder: &RunFolder, hash: &str) -> Option<usize> {
    let matches = |written: &String| written == hash;
    let holds =
        |step: &usize| manifest(folder, *step).is_ok_and(|file| file.get(WEIGHTS).is_some_and(matches));
    steps(folder).ok()?.into_iter().find(holds)
}

/// Returns true if a checkpoint holds weights of this hash, or `None` if no checkpoint holds the best weights.
pub fn holds_weights(folder: &RunFolder, hash: &str) -> Option<bool> {
    let steps = steps(folder).ok()?;
    let best = state(folder, *steps.last()?).ok()?.best?.step;
    steps.contains(&best).then(|| step_of(folder, hash).is_some())
}

/// Checks that a folder has checkpoints, and that `checkpoints` is not a symbolic link.
pub fn check_exists(folder: &RunFolder) -> Result<()> {
    if folder.checkpoints().is_symlink() {
        create(&folder.checkpoints())?;
    }
    ensure(steps(folder).is_ok_and(|steps| !steps.is_empty()), Error::Input, || {
        let path = folder.path().display();
        format!(
            "the run `{path}` does not have a checkpoint to resume from; start another run from its weights with \
             train --from {path}"
        )
    })
}

/// Returns the folder of the checkpoint of `step`.
pub fn checkpoint_path(folder: &RunFolder, step: usize) -> PathBuf {
    folder.checkpoints().join(format!("step-{step:08}"))
}

/// Returns the steps of the checkpoints of the run in `folder`, in ascending order.
///
/// # Errors
/// If the folder `checkpoints` cannot be read.
pub fn steps(folder: &RunFolder) -> Result<Vec<usize>> {
    let path = folder.checkpoints();
    let entries = fs::read_dir(&path).map_err(|error| Error::io("read", &path, error))?;
    // Accepts only the exact name of a checkpoint.
    let step = |entry: fs::DirEntry| {
        let step = entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok()?;
        (entry.path() == checkpoint_path(folder, step) && entry.path().is_dir()).then_some(step)
    };
    let mut steps = entries.filter_map(|entry| entry.ok().and_then(step)).collect::<Vec<_>>();
    steps.sort_unstable();
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::Evaluation;
    use crate::training::state::Best;

    /// Returns true if the edited state of a checkpoint at `step` is read as it was written.
    fn is_read(step: usize, edit: impl Fn(&mut RunState)) -> bool {
        let dir = TempDir::new().unwrap();
        let folder = RunFolder::at(dir.path());
        let mut written = RunState { step, ..RunState::default() };
        edit(&mut written);
        fs::create_dir_all(checkpoint_path(&folder, step)).unwrap();
        fs::write(checkpoint_path(&folder, step).join(STATE), written.to_json()).unwrap();
        match state(&folder, step) {
            Ok(read) => read == written,
            Err(error) => {
                assert!(error.to_string().contains("is damaged: a number is out of range"), "{error}");
                false
            }
        }
    }

    fn best(step: usize) -> Option<Best> {
        let evaluation = Evaluation {
            loss: 1.0,
            accuracy: 0.5,
            determined_accuracy: None,
            determined_loss: None,
            tokens: 1,
            determined_tokens: 0,
            loss_by_position: Vec::new(),
        };
        Some(Best { step, evaluation })
    }

    #[test]
    fn each_number_out_of_range_is_damage() {
        let accepted: [fn(&mut RunState); 5] = [
            |state| state.updates = MAX_COUNT,
            |state| state.tokens = MAX_COUNT as u64,
            |state| state.best = best(7),
            |state| state.time.seconds = MAX_SECONDS,
            |state| state.time.checkpoint_seconds = 0.0,
        ];
        assert!(accepted.into_iter().all(|edit| is_read(7, edit)));
        let refused: [fn(&mut RunState); 7] = [
            |state| state.step = 8,
            |state| state.updates = MAX_COUNT + 1,
            |state| state.tokens = MAX_COUNT as u64 + 1,
            |state| state.best = best(8),
            |state| state.time.seconds = -1.0,
            |state| state.time.elapsed = 2.0 * MAX_SECONDS,
            |state| state.time.checkpoint_seconds = -1.0,
        ];
        for (index, edit) in refused.into_iter().enumerate() {
            assert!(!is_read(7, edit), "{index}");
        }
        assert!(is_read(MAX_COUNT, |_| ()) && !is_read(MAX_COUNT + 1, |_| ()));
    }

    #[test]
    fn only_folders_with_exact_names_are_checkpoints() {
        let dir = TempDir::new().unwrap();
        let folder = RunFolder::at(dir.path());
        for name in ["step-00000012", "step-00000003", "step-4", "step-x", ".writing-step-00000005"] {
            fs::create_dir_all(folder.checkpoints().join(name)).unwrap();
        }
        fs::write(folder.checkpoints().join("step-00000006"), "").unwrap();
        assert_eq!(steps(&folder).unwrap(), [3, 12]);
    }

    #[test]
    fn half_written_files_and_folders_are_removed() {
        let dir = TempDir::new().unwrap();
        let folder = RunFolder::at(dir.path());
        let kept = checkpoint_path(&folder, 3);
        let leftovers = [
            folder.checkpoints().join(".writing-1"),
            folder.checkpoints().join(".removing-step-00000002"),
            folder.path().join(".writing-4"),
        ];
        for path in leftovers.iter().chain([&kept]) {
            fs::create_dir_all(path).unwrap();
            fs::write(path.join(STATE), "{}").unwrap();
        }
        let file = folder.path().join(".writing-5");
        fs::write(&file, "").unwrap();
        remove_half_written(&folder);
        assert!(kept.join(STATE).exists());
        assert!(!leftovers.iter().chain([&file]).any(|path| path.exists()));
    }
}
