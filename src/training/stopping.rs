//! How a run ends.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All its steps are done.
    Completed,
    /// The monitored metric no longer improved.
    EarlyStopped,
    /// A signal asked for it.
    Interrupted,
    /// `training.max_minutes` were over.
    TimeLimit,
    /// It has done the steps that it was to pause after.
    Paused,
    /// A loss or gradient was not finite, or the losses ended far above where they began.
    Diverged,
}

impl Ended {
    /// The clause that says it to a person.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::EarlyStopped => "stopped early: the monitored metric no longer improves",
            Self::Interrupted => "interrupted; `train --resume` continues it",
            Self::TimeLimit => "stopped at the time limit; `train --resume` with a longer one continues it",
            Self::Paused => "paused; `train --resume` continues it",
            Self::Diverged => "diverged",
        }
    }
}
