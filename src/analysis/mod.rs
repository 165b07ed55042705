//! Looking inside a trained model: what each head attends to, what it is worth, and what the model
//! predicts, as plain data.
//!
//! | file | holds |
//! |---|---|
//! | `score` | the list of scores, and the scores of one head |
//! | `head` | the scores of heads from their attention weights |
//! | [`ablation`] | a model without one of its heads |
//! | [`circuit`] | which parts make the prediction, by interventions |
//! | `sample` | the validation sequences that are kept with a run |
//! | `view` | what a model does with one of them |
//! | `free_running` | one of them continued by the model itself |
//! | `examination` | all of it for the best weights of a run: `analysis.json` |
//! | `step_log` | a file of what was looked at along a run |
//! | `head_history` | the scores along a run: `head_scores.csv` |
//! | `snapshots` | one of the sequences at some steps of a run: `snapshots.jsonl` |

pub mod ablation;
pub mod circuit;
mod examination;
mod free_running;
mod head;
mod head_history;
mod sample;
mod score;
mod snapshots;
mod step_log;
mod view;

pub use examination::{Analysis, examine, look_at, score_heads};
pub use free_running::FreeRunning;
pub use head::HeadTallies;
pub use head_history::{HeadHistory, ScoredStep};
pub use sample::{MOST_WEIGHTS, Sample};
pub use score::{HeadScores, Score, shown_head};
pub use snapshots::{Snapshot, Snapshots, is_taken, watched};
pub use step_log::StepLog;
pub use view::View;
