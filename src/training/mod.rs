//! Training runs, driven by Burn's learner.
//!
//! A run writes a checkpoint of step 0 and starts from it in memory; a resumed run continues from the newest checkpoint.
//! A run that was killed and resumed computes the same results as an uninterrupted one.
//!
//! | file | contents |
//! |---|---|
//! | `launch` | starting or resuming a run, on any backend |
//! | `start` | the starting point: data, and fresh weights or the weights of another run |
//! | `warnings` | warnings before a run begins |
//! | `lineage` | the runs that a run started from, and their training data |
//! | `control`, `stop_signal` | monitoring and stopping a run |
//! | `trainer` | the loop over steps |
//! | `observers` | recording, display and decisions between steps, one file each |
//! | `setup`, `resume` | the fixed part of a run, and opening a run at a checkpoint |
//! | `provenance` | the data, the model and the keys at the start of a run, and checks that a resumed run continues it |
//! | `state` | the state of a run, apart from weights and moments |
//! | `records`, `ending` | reading results, validations and the events of observers; the end of a run |
//! | `reduce` | the all-reduce of a step over one or several processes |
//! | `step`, `loader` | one step, and its batches |
//! | `side_by_side` | several shards of a step in parallel, each on its share of the threads |
//! | `gradients` | the gradients of a step, summed over shards and workers |
//! | `optimizer`, `schedule` | the weight updates, and their learning rates |
//! | `stopping` | the ways in which a run ends |
//! | `run_folder`, `new_folder`, `opening` | the run folder, its creation, and its opening |
//! | `checkpoint` | the folder that a run resumes from |
//! | `metrics`, `summary` | `metrics.csv` as plain data, and `summary.json` |
//! | `tensorboard` | the same curves, the config and the pictures as an event file |
//! | `plan`, `short_training` | the estimated cost of a run; training without a run folder |
//! | `phases` | the phases of a run, located by replaying it |
//! | `fourier` | the Fourier analysis of a run on modular addition |
//! | `parts` | timings of the parts of a step |

#[cfg(test)]
mod agreement;
mod checkpoint;
mod control;
mod ending;
mod fourier;
mod gradients;
mod intervene;
mod launch;
mod lineage;
mod loader;
mod metrics;
mod new_folder;
pub mod observers;
mod opening;
mod optimizer;
mod parts;
mod phases;
mod plan;
mod provenance;
mod records;
mod reduce;
mod resume;
mod run_folder;
mod schedule;
mod series;
mod setup;
mod short_training;
mod side_by_side;
mod start;
mod state;
mod step;
mod stop_signal;
mod stopping;
mod summary;
mod tensorboard;
mod trainer;
mod warnings;

pub use checkpoint::{
    data_fingerprint, provenance_of, start_sha256, steps as checkpoint_steps, weights as checkpoint_weights,
};
pub use control::Control;
pub use ending::Outcome;
pub use fourier::{FourierAnalysis, ProgressMeasures, StageKind, TrainingStage};
pub use launch::{Mode, RunInputs, check_precision, launch, launch_with, shared_config, train, train_on};
pub use lineage::{TrainedOn, Unchecked, trained_on};
pub use loader::train_steps;
pub use metrics::{Row, Split, read as read_metrics};
pub use new_folder::{PREPARED_PREFIX, RUNS, RunPath};
pub use optimizer::Optimizer;
pub use parts::{StepParts, TimedExchange, time_parts};
pub use phases::{
    Confirmation, FoundPhases, HeadPhase, MeasuredLoss, Phase, PhaseChange, PhaseCurve, PhaseSearch, Phases,
    RecordedCurve, Replayed, StoredChange, StoredPhase, StoredPhases,
};
pub use plan::Plan;

pub use provenance::Provenance;
pub use run_folder::{EVENTS, Lock, RunFolder};
pub use schedule::{Schedule, Scheduler};
pub use series::{Series, SeriesStep};
pub use setup::Setup;
pub use short_training::train_briefly;
pub use start::{dataset, dataset_of, has_different_data, initial_weights, sizes_of};
pub use state::{Best, Clipping, RunState, RunTime};
pub use step::{StepBatches, StepOutput, Trainee};
pub use stop_signal::StopSignal;
pub use stopping::Ended;
pub use summary::{Hashes, ImportSummary, Losses, Machine, Scores, Summary, Work};
pub use tensorboard::write_events;
pub use warnings::warnings;
