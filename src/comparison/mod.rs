//! Runs beside each other: what their folders say, read as they are.
//!
//! | file | holds |
//! |---|---|
//! | `listing` | the runs and studies below folders, sorted and filtered |
//! | `compared` | a run that is compared: all that its folder says |
//! | `losses` | the losses of a run, listed or compared |
//! | `differences` | the keys in which runs differ |
//! | `settings` | a few runs side by side by their settings, and whether these differ by more than their seeds do |
//! | `statistics` | means, their intervals, Welch's test |

mod compared;
mod differences;
mod listing;
mod losses;
mod settings;
mod statistics;

pub use compared::{ComparedRun, Experiment, RunCost};
pub use listing::{Listed, ListedState, ListedTraining, list};
pub use losses::Losses;
pub use settings::{Comparison, MAX_NAME, Measure, Setting};
pub use statistics::{Mean, WelchTest, corrected};
