//! Hyper-parameter search: the search space, the selection of trials, and their results.
//!
//! | file | contents |
//! |---|---|
//! | `dimension`, `space` | lists and ranges, and the combinations of them that make valid configs |
//! | `stages`, `recipe` | the trials and their lengths, as a pure function of the available results |
//! | `training_set`, `budget` | the sequences per step; the length of trials and the rungs where they are compared |
//! | `outline` | the plan of a study, before any trial runs |
//! | `runs` | trials as ordinary runs, several at the same time |
//! | `trial`, `statistics`, `table` | the results of a trial's runs, and their stability; `study.csv` |
//! | `study`, `folder` | the state of a study and its next trials; the folder of a study |
//! | `overfit`, `rate` | the overfit check, and a sweep over learning rates, both in memory only |

mod budget;
mod dimension;
mod folder;
mod outline;
mod overfit;
mod process;
mod rate;
mod recipe;
mod runs;
mod space;
mod stages;
mod statistics;
mod study;
mod table;
mod training_set;
mod trial;
mod unused;

pub use dimension::{number, shown};
pub use folder::{best, check_resumes, overfit_check, study_folder};
pub use outline::{Candidate, Outline};
pub use overfit::{OverfitCheck, overfit};
pub use process::{TrialCommand, serve};
pub use rate::{RateSweep, Verdict, sweep};
pub use runs::{Runner, TrialRun};
pub use space::{Setting, Space, setting_shown};
pub use stages::{Agenda, Proposed, Stages};
pub use study::{Findings, Study};
pub use trial::{Record, Run, Stability, Trial, TrialCost, TrialScore, ranked};

#[cfg(test)]
mod testing {
    use std::path::Path;

    use super::Record;
    use crate::config::Config;
    use crate::error::Result;
    use crate::training::{Ended, Hashes, Losses, Machine, Row, Split, Summary, Work};

    /// Returns a config whose runs take about a millisecond per step.
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

    /// Returns a run with validations at these steps.
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
            objective: None,
        };
        let summary = Summary {
            losses: Losses {
                best_valid_loss: None,
                best_step: None,
                last_valid_loss: None,
                last_train_loss: None,
                floor: Some(0.5),
                accuracy: None,
                determined_accuracy: None,
            },
            work: Work {
                parameters: 11,
                steps,
                steps_per_epoch: 3.0,
                tokens: steps as u64 * 7,
                seconds: 2.0,
                checkpoint_seconds: 0.0,
                tokens_per_second: 1.0,
                clip_rate: 0.0,
            },
            machine: Machine { backend: "ndarray".into(), device: String::new(), workers: 1 },
            seed: 0,
            ended,
            diverged_step: None,
            heads_worth_most: Vec::new(),
            imported_from: None,
            hashes: Hashes::default(),
            warnings: Vec::new(),
        };
        Record { rows: valid.iter().map(row).collect(), summary }
    }
}
