//! Interpretability of a trained model: attention patterns, head importance and predictions, as plain data.
//!
//! | file | holds |
//! |---|---|
//! | `score` | the list of scores, and the scores of one head |
//! | `head` | head scores from attention weights |
//! | `assignment` | an assignment of rows to columns with the least cost |
//! | [`ablation`] | zero ablation of single heads |
//! | [`circuit`] | circuit discovery by interventions |
//! | `sample` | the validation sequences stored with a run |
//! | `view` | attention and predictions on one sequence |
//! | `selection` | a part of what a model computes on one sequence |
//! | [`activations`] | the activations of a forward pass at chosen hook sites |
//! | [`interventions`] | ablation and scaling of single components |
//! | [`steering`] | vectors added to the residual stream |
//! | `free_running` | a sequence continued by the model itself |
//! | `examination` | the full analysis of a run's best weights: `analysis.json` |
//! | [`fourier`] | the frequencies of models of modular addition |
//! | `step_log` | an append-only file of records per step |
//! | `head_history` | head scores over a run: `head_scores.csv` |
//! | [`phases`] | the changes of recorded curves, and what heads are worth at the end |
//! | `snapshots` | attention and predictions at several steps of a run: `snapshots.jsonl` |

pub mod ablation;
pub mod activations;
mod assignment;
pub mod circuit;
mod examination;
pub mod fourier;
mod free_running;
mod head;
mod head_history;
pub mod interventions;
pub mod phases;
mod sample;
mod score;
mod selection;
mod snapshots;
pub mod steering;
mod step_log;
mod view;

pub use assignment::assignment;
pub use examination::{Analysis, examine, inspect_sample, score_heads};
pub use free_running::FreeRunning;
pub use head::HeadTallies;
pub use head_history::{HeadHistory, ScoredStep};
pub use sample::{MAX_HELD_WEIGHTS, Sample};
pub use score::{HeadScores, Score, shown_head};
pub use selection::{Selected, Selection, inspect_selected};
pub use snapshots::{Snapshot, Snapshots, is_snapshot_step, snapshot_sample};
pub use step_log::{AtStep, StepLog};
pub use view::View;
