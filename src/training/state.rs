//! The state of a run, apart from weights and moments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::control::Stop;
use super::metrics::{Row, Split};
use super::provenance::Provenance;
use crate::error::{Error, Result};
use crate::evaluation::Evaluation;

/// The state of a run, apart from weights and moments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// The number of steps done.
    pub step: usize,
    /// The data, the model and the keys of the run.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The number of optimizer updates.
    pub updates: usize,
    /// The number of targets trained on.
    pub tokens: u64,
    /// The time that the run took.
    #[serde(flatten)]
    pub time: RunTime,
    /// The best validation.
    pub best: Option<Best>,
    /// The steps with clipped gradients.
    pub clipping: Clipping,
    /// The parts of the observers, by name.
    pub parts: BTreeMap<String, Value>,
    /// All rows of metrics. A checkpoint keeps the hash of `metrics.csv` instead.
    #[serde(skip)]
    pub rows: Vec<Row>,
    /// The reason to stop that the processes agreed on at the last step.
    #[serde(skip)]
    pub stop: Option<Stop>,
}

/// The number of steps whose gradients were clipped, and of all steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Clipping {
    /// The numbers since the start of the run.
    run: (u64, u64),
    /// The numbers since the last training row.
    since_row: (u64, u64),
}

impl Clipping {
    /// Counts a step.
    pub(super) fn count(&mut self, is_clipped: bool) {
        for (clipped, all) in [&mut self.run, &mut self.since_row] {
            *clipped += u64::from(is_clipped);
            *all += 1;
        }
    }

    /// Returns the share of all clipped steps.
    pub fn rate(self) -> f64 {
        share(self.run)
    }

    /// Returns the share of clipped steps since the last training row, and restarts the count.
    pub(super) fn take_rate(&mut self) -> f64 {
        share(std::mem::take(&mut self.since_row))
    }
}

fn share((part, all): (u64, u64)) -> f64 {
    part as f64 / all.max(1) as f64
}

/// The time that a run took, in seconds, without the time between its sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunTime {
    /// The seconds of training.
    pub seconds: f64,
    /// The seconds of the run, including validations and checkpoints.
    pub elapsed: f64,
    /// The seconds spent on writing checkpoints.
    pub checkpoint_seconds: f64,
}

impl RunState {
    /// Returns the state as JSON, in the form that a checkpoint keeps.
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a state holds plain values")
    }

    /// Returns the last row of a split.
    pub fn last(&self, split: Split) -> Option<&Row> {
        self.rows.iter().rfind(|row| row.split == split)
    }

    /// Returns true if the current step has been validated.
    pub(super) fn is_validated(&self) -> bool {
        let validations = self.rows.iter().rev().filter(|row| row.split == Split::Valid);
        validations.take_while(|row| row.step >= self.step).any(|row| row.step == self.step)
    }

    /// Returns a part by its name, or the default value if the checkpoint lacks the part.
    ///
    /// # Errors
    /// If the part cannot be deserialised.
    pub fn part<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T> {
        let Some(part) = self.parts.get(name) else { return Ok(T::default()) };
        T::deserialize(part).map_err(|error| self.damaged(name, &error))
    }

    /// Returns the error for a part that cannot be read.
    pub(super) fn damaged(&self, name: &str, error: &serde_json::Error) -> Error {
        let step = self.step;
        Error::Input(format!(
            "the checkpoint of step {step} is damaged: its part `{name}` cannot be read: {error}; remove it \
             to resume from the previous checkpoint"
        ))
    }
}

/// The best validation of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The steps done at that validation.
    pub step: usize,
    /// The results of the validation.
    pub evaluation: Evaluation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clip_rates_cover_run_and_last_row() {
        let mut clipping = Clipping::default();
        assert_eq!((clipping.rate(), clipping.take_rate()), (0.0, 0.0));
        [true, false, true].into_iter().for_each(|is_clipped| clipping.count(is_clipped));
        assert_eq!((clipping.rate(), clipping.take_rate()), (2.0 / 3.0, 2.0 / 3.0));
        clipping.count(false);
        assert_eq!((clipping.rate(), clipping.take_rate()), (0.5, 0.0));
    }
}
