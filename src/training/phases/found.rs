//! The phases of a run as plain data: `phases.json`.

use serde::{Deserialize, Serialize};

use crate::analysis::HeadScores;
use crate::analysis::phases::{CircuitSizes, HeadAblation, LossByTarget};
use crate::training::fourier::TrainingStage;

/// The phases of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phases {
    /// The number of steps of the run.
    pub steps: usize,
    /// The number of recorded curves that were searched.
    pub curves: usize,
    /// The steps between scorings of the heads.
    pub recorded_every: usize,
    /// The phases in the order of steps.
    pub phases: Vec<Phase>,
    /// The stages of a run on modular addition, from the weights that it kept; empty for other runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<TrainingStage>,
    /// The replay that located the phases; `None` if the run was not replayed.
    pub replay: Option<Replayed>,
    /// The result as sentences: those of all phases, then the replay.
    pub sentences: Vec<String>,
}

/// A phase: changes of recorded curves at the same time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    /// The recorded steps before and after all changes.
    pub between: [usize; 2],
    /// The steps after a tenth, half and nine tenths of the change of the loss or, if no loss changed, of the largest
    /// change of a head. `None` if the run was not replayed through the phase.
    pub steps: Option<[usize; 3]>,
    /// The losses on the first validation sequences at each step of the replay from `between[0]` to `between[1]`.
    pub losses: Vec<MeasuredLoss>,
    /// The changes, those of losses first, then the largest change of a score first.
    pub changes: Vec<PhaseChange>,
    /// The circuits of the head that changed most, at the first and at the last step of the phase. `None` if no head
    /// changed, the run was not replayed, or the model cannot be explained.
    pub circuits: Option<[CircuitSizes; 2]>,
    /// The losses at the end of the run with each head of the layer mean-ablated whose head changed most. `None` if no
    /// head changed.
    pub end: Option<Confirmation>,
    /// The phase as sentences.
    pub sentences: Vec<String>,
}

impl Phase {
    /// Returns the layer and the head of the largest change of an attention weight, else of another score.
    pub fn head(&self) -> Option<[usize; 2]> {
        self.changes.iter().find_map(|change| match change.curve {
            PhaseCurve::HeadScore { layer, head, .. } => Some([layer, head]),
            _ => None,
        })
    }

    /// Returns true if the training or validation loss changed.
    pub fn changes_loss(&self) -> bool {
        self.changes.iter().any(|change| !matches!(change.curve, PhaseCurve::HeadScore { .. }))
    }

    /// Returns the fall of the loss: on validation sequences if the phase was replayed, else as recorded. `None` if no
    /// loss changed.
    pub fn fall(&self) -> Option<f64> {
        if !self.changes_loss() {
            return None;
        }
        match (self.losses.first(), self.losses.last()) {
            (Some(first), Some(last)) if self.steps.is_some() => Some(first.loss.all - last.loss.all),
            _ => self.changes.first().map(|change| change.values[0] - change.values[1]),
        }
    }
}

/// A recorded curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "curve", rename_all = "snake_case")]
pub enum PhaseCurve {
    /// The loss of the training steps.
    TrainingLoss,
    /// The validation loss.
    ValidationLoss,
    /// A score of a head.
    HeadScore {
        /// The layer, from 0.
        layer: usize,
        /// The head in the layer, from 0.
        head: usize,
        /// The key of the score, as in `head_scores.csv`.
        score: &'static str,
    },
}

/// The change of a curve in a phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseChange {
    /// The curve.
    #[serde(flatten)]
    pub curve: PhaseCurve,
    /// The recorded steps before and after the change.
    pub between: [usize; 2],
    /// The recorded values before and after.
    pub values: [f64; 2],
    /// The steps after a tenth, half and nine tenths of the change, of a head that was scored at each step.
    pub steps: Option<[usize; 3]>,
    /// The steps of the replay at which the head was scored, with its scores.
    pub measured: Vec<(usize, f64)>,
}

/// The losses at a step of the replay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredLoss {
    /// The number of completed steps.
    pub step: usize,
    /// The losses on the first validation sequences.
    #[serde(flatten)]
    pub loss: LossByTarget,
}

/// The losses at the end of the run, on the first validation sequences.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Confirmation {
    /// The losses of the full model.
    pub full: LossByTarget,
    /// The losses with each head of a layer mean-ablated alone.
    pub heads: Vec<HeadAblation>,
}

/// The replay of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// The step from which the run was replayed: of a checkpoint, or 0.
    pub from: usize,
    /// The step up to which it was replayed.
    pub until: usize,
    /// True if all phases were replayed.
    pub is_complete: bool,
    /// The number of logged training steps at which loss, accuracy and gradient norm equal those in `metrics.csv` in all
    /// digits. A difference is an error.
    pub equal_rows: usize,
    /// The step of a later checkpoint of the run whose weights have the same SHA-256 as the replayed ones. `None` if the
    /// run did not keep a checkpoint of a replayed step.
    pub equal_checkpoint: Option<usize>,
    /// The seconds of the replay, over all calls.
    pub seconds: f64,
}

/// The measurements at a step of the replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredStep {
    /// The number of completed steps.
    pub step: usize,
    /// The losses on the first validation sequences.
    pub loss: LossByTarget,
    /// The scores of the heads, `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
}
