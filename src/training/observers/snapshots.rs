//! `snapshots.jsonl`: attention and predictions for one validation sequence at `analysis.snapshots` steps.

use std::path::PathBuf;

use super::{ModelAccess, Moment, Observer};
use crate::analysis::{Sample, Snapshot, Snapshots, is_snapshot_step, snapshot_sample};
use crate::error::Result;
use crate::training::setup::Setup;
use crate::training::state::RunState;

/// A log of snapshots during a run.
pub struct SnapshotLog {
    path: PathBuf,
    log: Snapshots,
    /// The sequence, or `None` without a validation set.
    sample: Option<Sample>,
}

impl SnapshotLog {
    /// Opens the log, and keeps the snapshots up to the step of a checkpoint.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(setup: &Setup, state: &RunState) -> Result<Self> {
        let path = setup.folder.snapshots();
        let sample = snapshot_sample(&setup.dataset.valid, &setup.config);
        Ok(Self { log: Snapshots::open(&path, state.step)?, path, sample })
    }
}

impl Observer for SnapshotLog {
    fn file(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn start(&mut self, _moment: &Moment<'_>) -> Result<()> {
        self.log.rewrite()
    }

    fn wants_model(&self, moment: &Moment<'_>) -> bool {
        let (step, total) = (moment.state.step, moment.setup.total);
        self.sample.is_some()
            && is_snapshot_step(step, total, moment.setup.config.analysis.snapshots)
            && !self.log.ends_at(step)
    }

    fn model(&mut self, moment: &Moment<'_>, model: &dyn ModelAccess) -> Result<()> {
        let Some(sample) = &self.sample else { return Ok(()) };
        let view = model.view(sample)?;
        self.log.push(Snapshot::new(moment.state.step, sample, &view))
    }
}
