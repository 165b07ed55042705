//! Lists and comparisons of runs, read from their folders.
//!
//! | file | holds |
//! |---|---|
//! | `listing` | the runs and studies in folders, sorted and filtered |
//! | `circuits` | the circuits of runs compared: what all runs have learned, and what differs |
//! | `compared` | a run of a comparison, as read from its folder |
//! | `losses` | the losses of a run, listed or compared |
//! | `differences` | the keys in which runs differ |
//! | `settings` | a comparison of runs by setting, with tests against the noise between seeds |
//! | `trials` | the result of a study, as listed |
//! | `statistics` | means, their intervals, Welch's test |

mod circuits;
mod compared;
mod differences;
mod listing;
mod losses;
mod settings;
mod statistics;
mod trials;

pub use circuits::{
    CircuitComparison, CircuitNode, ConnectionOverlap, ConsensusComponent, ConsensusEdge, ConsensusPhase,
    MatchedComponent, RunTransplant,
};
pub use compared::{ComparedRun, Experiment, RunCost};
pub use listing::{Listed, ListedState, ListedTraining, list};
pub use losses::RunLosses;
pub use settings::{ComparedSetting, Comparison, MAX_NAME, Measure};
pub use statistics::{GroupMean, WelchTest, corrected};
