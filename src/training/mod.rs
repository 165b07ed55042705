//! Training: the story of a run, driven by Burn's learner.
//!
//! A run begins with a folder that holds a checkpoint of step 0, and goes on from whatever checkpoint is the
//! newest. So a run that was killed and resumed does what the undisturbed one does, by construction.
//!
//! | file | holds |
//! |---|---|
//! | `launch` | a run is begun or resumed, on any backend |
//! | `start` | what it starts from: data, fresh weights or those of another run |
//! | `control` | how it is watched and stopped |
//! | `trainer` | the loop over steps |
//! | `observers` | what a run records, shows and decides between steps, one file each |
//! | `setup`, `resume` | the fixed part of a run, and how it is opened at a checkpoint |
//! | `records`, `ending` | rows, validations and checkpoints, and how a run ends |
//! | `reduce` | the sum of a step over one process or many |
//! | `step`, `loader` | one step, and the batches that it learns from |
//! | `side_by_side` | several shards of a step at once, each on its part of the threads |
//! | `gradients` | what the shards of a step have learned, added up over all workers |
//! | `optimizer`, `schedule` | what moves the weights, and how far |
//! | `stopping` | the ways in which it ends |
//! | `run_folder`, `new_folder`, `opening` | its folder, how one is made, and how one is opened |
//! | `checkpoint` | what it resumes from |
//! | `metrics`, `history`, `summary` | `metrics.csv`, the same while it grows, and `summary.json` |
//! | `tensorboard` | the same curves, the config and the pictures as an event file |
//! | `plan`, `short_training` | what a run would take; a training that leaves no run |
//! | `parts` | what each part of a step takes |

#[cfg(test)]
mod agreement;
mod checkpoint;
mod control;
mod ending;
mod gradients;
mod history;
mod launch;
mod loader;
mod metrics;
mod new_folder;
pub mod observers;
mod opening;
mod optimizer;
mod parts;
mod plan;
mod records;
mod reduce;
mod resume;
mod run_folder;
mod schedule;
mod setup;
mod short_training;
mod side_by_side;
mod start;
mod step;
mod stopping;
mod summary;
mod tensorboard;
mod trainer;

pub use checkpoint::{
    Best, State, data_fingerprint, steps as checkpoint_steps, weights as checkpoint_weights,
};
pub use control::{Control, NOTHING_TO_LOSE, hold};
pub use ending::Outcome;
pub use launch::{Given, Mode, check_precision, launch, launch_with, shared_by, train};
pub use loader::train_steps;
pub use metrics::{Row, Split, read as read_metrics};
pub use new_folder::{PREPARED, RUNS, RunPath};
pub use optimizer::Optimizer;
pub use parts::{StepParts, TimedExchange, time_parts};
pub use plan::Plan;

pub use run_folder::{EVENTS, Lock, RunFolder};
pub use schedule::{Schedule, Scheduler};
pub use setup::Setup;
pub use short_training::train_briefly;
pub use start::{dataset, dataset_of, has_other_data, sizes_of, trained_on, warnings};
pub use step::{StepBatches, StepOutput, Trainee};
pub use stopping::Ended;
pub use summary::{Hashes, ImportSummary, Scores, Summary};
pub use tensorboard::write_events;
