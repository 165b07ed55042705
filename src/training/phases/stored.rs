//! The phases of a run as read from `phases.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::files::{has_entry, read_json};
use crate::training::RunFolder;

/// The parts of `phases.json` that pages and comparisons use.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StoredPhases {
    /// The phases in the order of steps.
    pub phases: Vec<StoredPhase>,
}

/// A phase.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StoredPhase {
    /// The recorded steps before and after all changes.
    pub between: [usize; 2],
    /// The steps after a tenth, half and nine tenths of the change, if a replay located them.
    pub steps: Option<[usize; 3]>,
    /// The changes.
    pub changes: Vec<StoredChange>,
    /// The phase as sentences; empty in files of earlier versions.
    #[serde(default)]
    pub sentences: Vec<String>,
}

/// A change of a curve, which is the score of a head if it has a layer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StoredChange {
    /// The layer.
    pub layer: Option<usize>,
    /// The head in the layer.
    pub head: Option<usize>,
    /// The recorded steps before and after the change.
    pub between: [usize; 2],
    /// The steps after a tenth, half and nine tenths of the change, if a replay located them.
    pub steps: Option<[usize; 3]>,
}

/// The steps of the first phase of a head.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeadPhase {
    /// The step after a tenth of the change or, without a replay, the recorded step before the change.
    pub began: f64,
    /// The step after half of the change or, without a replay, the middle of the recorded steps before and after it.
    pub half: f64,
    /// True if a replay located the steps.
    pub is_located: bool,
}

impl StoredPhases {
    /// Reads the phases of a run; `None` if they were not searched.
    ///
    /// # Errors
    /// Returns an error if the file is invalid.
    pub fn read(folder: &RunFolder) -> Result<Option<Self>> {
        let path = folder.phases();
        let read = || read_json(&path, "the phases of a run; remove the file and run `phases` again");
        has_entry(&path).then(read).transpose()
    }

    /// Returns the first phase of each head, by the largest change of the head in it.
    pub fn by_head(&self) -> BTreeMap<[usize; 2], HeadPhase> {
        let mut found = BTreeMap::new();
        for change in self.phases.iter().flat_map(|phase| &phase.changes) {
            let Some(head) = change.layer.zip(change.head) else { continue };
            let phase = match change.steps {
                Some([began, half, _]) => {
                    HeadPhase { began: began as f64, half: half as f64, is_located: true }
                }
                None => {
                    let [before, after] = change.between.map(|step| step as f64);
                    HeadPhase { began: before, half: (before + after) / 2.0, is_located: false }
                }
            };
            found.entry(head.into()).or_insert(phase);
        }
        found
    }
}
