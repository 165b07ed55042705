//! `head_scores.csv`: the scores of all heads every `analysis.every` steps.

use std::path::PathBuf;

use super::{ModelAccess, Moment, Observer};
use crate::analysis::{HeadHistory, ScoredStep};
use crate::error::Result;
use crate::training::setup::Setup;
use crate::training::state::RunState;

/// A log of head scores during a run.
pub struct HeadScoreLog {
    path: PathBuf,
    log: HeadHistory,
}

impl HeadScoreLog {
    /// Opens the file up to a checkpoint.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(setup: &Setup, state: &RunState) -> Result<Self> {
        let path = setup.folder.head_scores();
        Ok(Self { log: HeadHistory::open(&path, state.step)?, path })
    }
}

impl Observer for HeadScoreLog {
    fn file(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn start(&mut self, _moment: &Moment<'_>) -> Result<()> {
        self.log.rewrite()
    }

    fn wants_model(&self, moment: &Moment<'_>) -> bool {
        let (every, step) = (moment.setup.config.analysis.every, moment.state.step);
        every > 0 && (step.is_multiple_of(every) || step == moment.setup.total) && !self.log.ends_at(step)
    }

    fn model(&mut self, moment: &Moment<'_>, model: &dyn ModelAccess) -> Result<()> {
        let heads = model.score_heads(moment.setup)?;
        self.log.push(ScoredStep { step: moment.state.step, heads })
    }
}
