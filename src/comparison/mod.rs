//! Runs beside each other: what their folders say, read as they are.
//!
//! | file | holds |
//! |---|---|
//! | `listing` | the runs and studies below folders, sorted and filtered |
//! | `compared`, `settings` | a few runs side by side; where they differ, and whether by more than their seeds do |
//! | `statistics` | means, their intervals, Welch's test |

mod compared;
mod listing;
mod settings;
mod statistics;

pub use compared::ComparedRun;
pub use listing::{Listed, list};
pub use settings::{Comparison, MAX_NAME, Measure, Setting};
pub use statistics::{Mean, WelchTest, corrected};
