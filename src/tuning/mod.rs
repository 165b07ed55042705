//! Hyper-parameters: what is tried, which trials go on, and what came of it.
//!
//! | file | holds |
//! |---|---|
//! | `config` | the section `[tune]` |
//! | `dimension`, `space` | lists and ranges, and which of their combinations the config lets pass |
//! | `recipe` | the stages of the textbooks' advice |
//! | `proposal` | which trial comes next, a pure function of the results so far |
//! | `training_set`, `budget` | what steps see of the data; how long trials are, and where they are compared |
//! | `outline` | what a study would do, before any trial runs |
//! | `folder`, `study` | the folder of a study, and what it amounts to |
//! | `record`, `statistics`, `table` | what the runs of a trial say, and how steadily; `study.csv` |
//! | `progress` | what a person sees |
//! | `errand`, `worker` | runs in processes of their own: what they are told, and what becomes of them |
//! | `baseline` | whether a few sequences can be learned by heart |
//! | `rate` | a sweep over learning rates |

mod baseline;
mod budget;
mod config;
mod dimension;
mod errand;
mod folder;
mod outline;
mod progress;
mod proposal;
mod rate;
mod recipe;
mod record;
mod space;
mod statistics;
mod study;
mod table;
mod training_set;
mod worker;

pub use baseline::{Baseline, Candidate, check as check_baseline};
pub use config::{Method, TuneConfig, flatten};
pub use errand::Errand;
pub use folder::StudyFolder;
pub use outline::Outline;
pub use progress::StudyProgress;
pub use proposal::{Agenda, Due, Proposed, Proposer};
pub use rate::{RatePoint, RateSweep, Verdict, sweep};
pub use record::{Record, Trial, TrialEnd, ranked};
pub use space::{Setting, Space};
pub use study::{DueRun, Study, check_resumes};
pub use table::{setting_shown, shown};
pub use worker::{CANNOT_BE_TRAINED, Happened, Workers};

#[cfg(test)]
mod testing {
    use std::path::Path;

    use crate::config::Config;
    use crate::error::Result;
    use crate::training::Experiment;

    /// An experiment whose steps take a millisecond.
    pub fn small(sets: &[&str]) -> Result<Experiment> {
        const SMALL: [&str; 7] = [
            "data.length=12",
            "data.vocab=11",
            "data.period=[5, 6]",
            "data.train_samples=64",
            "data.valid_samples=16",
            "model.d_model=24",
            "model.heads=3",
        ];
        let sets = SMALL.iter().chain(sets).map(|set| set.to_string()).collect::<Vec<_>>();
        Ok(Config::parse("", Path::new("config.toml"), &sets)?.experiment())
    }
}
