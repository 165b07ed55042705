//! The keys of `[analysis]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::training::MOST_STEPS;
use crate::error::{Error, Result};
use crate::range::{Number, Range, Ranged, Section};

/// What is looked at after a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AnalysisConfig {
    /// Validation sequences kept with the run for its pictures. 8: enough to see what is typical.
    pub samples: usize,
    /// The one among them that the pictures of attention show, counted from 0.
    pub sample: usize,
    /// The head that the pictures of attention show in every layer, counted from 0. Left out: in each layer the one
    /// without which the loss rises most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// Validation sequences on which heads are scored and ablated. 128: their means are then known
    /// to a few hundredths.
    pub sequences: usize,
    /// Steps between scorings of the heads along the run; 0 for none: each costs as many forward passes
    /// as there are sequences.
    pub every: usize,
    /// Steps of the run at which the sequence of the pictures is looked at, so that the page can replay how heads form,
    /// evenly spaced in their logarithm; 0 for none. 12: as many as stand side by side.
    pub snapshots: usize,
    /// Whether a run is explained at its end, as `explain` does, which takes some seconds, on slow devices minutes.
    pub circuit: bool,
}

impl Default for AnalysisConfig {
    fn default() -> Self {
        Self { samples: 8, sequences: 128, every: 0, snapshots: 12, sample: 0, head: None, circuit: true }
    }
}

/// The maximum number of sequences that are kept for pictures.
const MAX_SAMPLES: u64 = 1_000;

impl Section for AnalysisConfig {
    fn ranges(&self) -> Vec<Ranged> {
        let whole = |key, value: usize, least, most| (key, Some(value.into()), Range::Whole(least, most));
        vec![
            whole("samples", self.samples, 1, MAX_SAMPLES),
            whole("sample", self.sample, 0, MAX_SAMPLES - 1),
            whole("snapshots", self.snapshots, 0, 100),
            whole("sequences", self.sequences, 1, MOST_STEPS as u64),
            whole("every", self.every, 0, MOST_STEPS as u64),
            ("head", self.head.map(Number::from), Range::Whole(0, 65_535)),
        ]
    }
}

impl AnalysisConfig {
    /// Checks the keys, for a model with `heads` heads per layer.
    pub fn check(&self, heads: usize) -> Result<()> {
        self.check_ranges().map_err(Error::in_section("analysis"))?;
        for (key, number, of, count) in [
            ("analysis.sample", self.sample, "analysis.samples", self.samples),
            ("analysis.head", self.head.unwrap_or(0), "model.heads", heads),
        ] {
            let problem = format!("must be below `{of}` = {count}: they count from 0");
            Error::check_key(number < count, key, number, problem)?;
        }
        Ok(())
    }
}
