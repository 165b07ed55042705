//! Hyper-parameters: what is tried, which trials go on, and what came of it.
//!
//! | file | holds |
//! |---|---|
//! | `dimension`, `space` | lists and ranges, and which of their combinations the config lets pass |
//! | `recipe` | the stages of the textbooks' advice |
//! | `proposal` | which trial comes next, a pure function of the results so far |
//! | `training_set`, `budget` | what steps see of the data; how long trials are, and where they are compared |
//! | `outline` | what a study would do, before any trial runs |
//! | `overfit` | the overfit check: whether one batch can be learned by heart |
//! | `runs` | trials as ordinary runs, several at once |
//! | `trial`, `statistics`, `table` | what the runs of a trial say, and how steadily; `study.csv` |
//! | `results` | what is known of all runs, and what follows from it |
//! | `folder`, `study` | the folder of a study, and what it amounts to |
//! | `rate` | a sweep over learning rates |

mod budget;
mod dimension;
mod folder;
mod outline;
mod overfit;
mod proposal;
mod rate;
mod recipe;
mod results;
mod runs;
mod space;
mod statistics;
mod study;
mod table;
mod training_set;
mod trial;

pub use dimension::{number, shown};
pub use folder::StudyFolder;
pub use outline::Outline;
pub use overfit::{Candidate, OverfitCheck, overfit};
pub use proposal::{Agenda, Due, Proposed, Proposer};
pub use rate::{RatePoint, RateSweep, Verdict, sweep};
pub use results::{Results, Run};
pub use runs::{Runner, TrialRun};
pub use space::{Setting, Space, setting_shown};
pub use study::{Findings, Study};
pub use trial::{Record, Trial, TrialEnd, ranked};

#[cfg(test)]
mod testing {
    use std::path::Path;

    use super::Record;
    use crate::config::Config;
    use crate::error::Result;
    use crate::training::{Ended, Row, Split, Summary};

    /// A config of a run whose steps take a millisecond.
    pub fn small(sets: &[&str]) -> Result<Config> {
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
        Config::parse("", Path::new("config.toml"), &sets)
    }

    /// A run with validations at these steps.
    pub fn run(ended: Ended, steps: usize, valid: &[(usize, f64)]) -> Record {
        let row = |&(step, loss): &(usize, f64)| Row {
            step,
            epoch: 1,
            split: Split::Valid,
            loss,
            accuracy: 1.0 / loss,
            learning_rate: 1e-3,
            gradient_norm: None,
            tokens: step as u64 * 7,
            seconds: 1.0,
            clip_rate: None,
        };
        let summary = Summary {
            best_valid_loss: None,
            best_step: None,
            last_valid_loss: None,
            last_train_loss: None,
            floor: Some(0.5),
            accuracy: None,
            determined_accuracy: None,
            parameters: 11,
            steps,
            steps_per_epoch: 3.0,
            tokens: steps as u64 * 7,
            seconds: 2.0,
            checkpoint_seconds: 0.0,
            tokens_per_second: 1.0,
            clip_rate: 0.0,
            backend: "ndarray".into(),
            device: String::new(),
            seed: 0,
            ended,
            diverged_step: None,
            weights_sha256: None,
            warnings: Vec::new(),
        };
        Record { rows: valid.iter().map(row).collect(), summary }
    }
}
