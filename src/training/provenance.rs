//! The data, the model and the keys with which a run was started, and the checks that a resumed run continues it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::run_folder::RunFolder;
use crate::config::{Config, differing};
use crate::data::Dataset;
use crate::error::{Error, Result, ensure};
use crate::files::{hash, sha256};

/// The data, the model and the keys with which a run was started, and their changes since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The fingerprint of the data. A run resumes only with the same data.
    pub data_fingerprint: u64,
    /// The hash of the seed and the model. A run resumes only with the same seed and model.
    pub began_with: String,
    /// The hash of the weights that the run started from, if they are those of another run.
    pub start_sha256: Option<String>,
    /// The keys of the section `training` that were used last.
    pub training: BTreeMap<String, toml::Value>,
    /// The keys of the section `analysis` that determine what is recorded during training.
    pub recording: BTreeMap<String, toml::Value>,
    /// The warnings from reading the data at the start, which a resumed run reads as recorded.
    pub guesses: Vec<String>,
    /// The changes of the section `training` with which the run was resumed.
    pub changes: Vec<String>,
}

impl Provenance {
    /// Describes a run that starts with this config and data.
    pub(super) fn new(config: &Config, dataset: &Dataset) -> Self {
        Self {
            data_fingerprint: dataset.fingerprint(),
            began_with: hash_of_start(config),
            start_sha256: config.run.start().and_then(|from| sha256(&RunFolder::at(from).model()).ok()),
            training: training_keys(config),
            recording: recording_keys(config),
            guesses: dataset.guesses().cloned().collect(),
            changes: Vec::new(),
        }
    }

    /// Rejects a config or data with which a resumed run would not continue this one.
    pub(super) fn check(&self, folder: &RunFolder, config: &Config, dataset: &Dataset) -> Result<()> {
        ensure(self.data_fingerprint == dataset.fingerprint(), Error::Input, || {
            format!(
                "the data has changed since the run `{}` started; restore the file, `run.seed` and the section [data]",
                folder.path().display()
            )
        })?;
        let has_same_start = self.began_with == hash_of_start(config);
        ensure(has_same_start, Error::Input, || {
            format!(
                "`{}` has a different `run.seed` or [model] than at the start of the run; restore them: only the keys \
                of [training] and [analysis] may change",
                folder.config().display()
            )
        })?;
        let now = recording_keys(config);
        let changed = self.recording.iter().find_map(|(key, before)| {
            let value = now.get(key)?;
            (value != before).then_some((key, value, before))
        });
        let Some((key, value, before)) = changed else { return Ok(()) };
        let problem = format!(
            "differs from the {before} with which the run started, and its recordings are of those sequences; restore it"
        );
        Err(Error::key(key, value, problem))
    }

    /// Records the keys of a resumed run at `step`, and its changes since the checkpoint.
    pub(super) fn resume(&mut self, step: usize, config: &Config) {
        let now = training_keys(config);
        let before = &self.training;
        let keys = now.keys().chain(before.keys()).map(String::as_str).collect::<BTreeSet<_>>();
        let changes: Vec<String> = differing(keys.into_iter(), [&now, before])
            .map(|(key, (value, before))| format!("{key} = {value} (was {before})"))
            .collect();
        if step > 0 && !changes.is_empty() {
            self.changes.push(format!("resumed after step {step} with {}", changes.join(", ")));
        }
        self.training = now;
    }
}

/// Returns the hash of the seed and the model of a run.
fn hash_of_start(config: &Config) -> String {
    let is_kept = |key: &String| key == "run.seed" || key.starts_with("model.");
    let kept: Vec<String> = config
        .values()
        .into_iter()
        .filter(|(key, _)| is_kept(key))
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    hash(kept.join("\n").as_bytes())
}

/// Returns the keys of the section `analysis` that determine what is recorded during training.
fn recording_keys(config: &Config) -> BTreeMap<String, toml::Value> {
    const KEYS: [&str; 3] = ["analysis.samples", "analysis.sample", "analysis.sequences"];
    let mut keys = config.values();
    keys.retain(|key, _| KEYS.contains(&key.as_str()));
    keys
}

/// Returns the keys of the section `training` that affect training.
pub(super) fn training_keys(config: &Config) -> BTreeMap<String, toml::Value> {
    const WITHOUT_EFFECT: [&str; 10] = [
        "training.backend",
        "training.device",
        "training.threads",
        "training.kernels",
        "training.log_every",
        "training.checkpoint_every",
        "training.tensorboard",
        "training.max_minutes",
        "training.worker_timeout",
        "training.shards",
    ];
    let mut keys = config.values();
    keys.retain(|key, _| key.starts_with("training.") && !WITHOUT_EFFECT.contains(&key.as_str()));
    keys
}
