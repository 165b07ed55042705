//! The keys of `[analysis]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

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
}

impl Default for AnalysisConfig {
    fn default() -> Self {
        Self { samples: 8, sequences: 128, every: 0, sample: 0, head: None }
    }
}

impl AnalysisConfig {
    /// Checks the keys, for a model with `heads` heads a layer.
    pub fn check(&self, heads: usize) -> Result<()> {
        if self.samples == 0 || self.samples > 1_000 {
            return Err(Error::key("analysis.samples", self.samples, "must lie between 1 and 1,000"));
        }
        if self.sequences == 0 {
            return Err(Error::key("analysis.sequences", 0, "must be at least 1"));
        }
        if self.sample >= self.samples {
            let problem = format!("must be below `analysis.samples` = {}: they count from 0", self.samples);
            return Err(Error::key("analysis.sample", self.sample, problem));
        }
        match self.head {
            Some(head) if head >= heads => {
                let problem = format!("must be below `model.heads` = {heads}: they count from 0");
                Err(Error::key("analysis.head", head, problem))
            }
            _ => Ok(()),
        }
    }
}
