//! The section `[run]`.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::{Range, Ranged, Section};

/// Name and seed of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The run's name: its folder below `runs/` and the title of its pictures. Empty: task and architecture, such as
    /// `repeat-decoder`.
    pub name: String,
    /// The seed of all random numbers: data, weights, order, dropout.
    pub seed: u64,
    /// The run whose best weights this one starts from, with its vocabulary. Empty: new weights.
    #[serde(skip_serializing_if = "is_empty")]
    pub from: PathBuf,
}

pub(super) fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

impl Section for RunConfig {
    fn ranges(&self) -> Vec<Ranged> {
        vec![("seed", Some(self.seed.into()), Range::ANY)]
    }
}

impl RunConfig {
    /// Returns the run whose weights this one starts from, or `None` for new weights.
    pub fn start(&self) -> Option<&Path> {
        Some(self.from.as_path()).filter(|from| !is_empty(from))
    }
}
