//! The ways in which a run ends.

use serde::{Deserialize, Serialize};

/// The way in which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All steps are done.
    Completed,
    /// The monitored metric no longer improved.
    EarlyStopped,
    /// A signal asked the run to end.
    Interrupted,
    /// `training.max_minutes` have passed.
    TimeLimit,
    /// The run reached the step after which it pauses.
    Paused,
    /// Another program trained the weights, and this one measured its checkpoints.
    Imported,
    /// A loss or gradient was not finite, or the losses ended far above their start.
    Diverged,
}

impl Ended {
    /// Returns a clause that describes the end.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::EarlyStopped => "stopped early: the monitored metric no longer improves",
            Self::Interrupted => "interrupted; continue it with `train --resume`",
            Self::TimeLimit => {
                "stopped at the time limit; continue it with `train --resume` and a larger training.max_minutes"
            }
            Self::Paused => "paused; continue it with `train --resume`",
            Self::Imported => "imported",
            Self::Diverged => "diverged",
        }
    }
}
