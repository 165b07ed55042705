//! Following an explanation, and ending it early.

use serde::{Deserialize, Serialize};

/// A stage of an explanation that may end early, in the order of their execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExplanationStage {
    /// The search for the components of the circuit.
    Components,
    /// The proof that no smaller circuit exists.
    Proof,
    /// The ablation of each component of the circuit alone.
    SingleAblations,
    /// The analysis of the weights of the heads.
    Weights,
    /// The ablation of connections.
    Connections,
    /// The logit lens.
    Lens,
    /// The training of the tuned lens.
    TunedLens,
    /// Activation patching.
    Patching,
    /// The search for neurons.
    Neurons,
    /// The ablations of a model with random weights.
    RandomWeights,
}

impl ExplanationStage {
    /// Returns the share of a time budget after which the stage ends, so that later stages have time too.
    pub fn share(self) -> f64 {
        match self {
            Self::Components | Self::Proof => 0.5,
            Self::SingleAblations => 0.65,
            Self::Weights => 0.75,
            Self::Connections => 0.85,
            Self::Lens => 0.9,
            Self::TunedLens | Self::Patching => 0.95,
            Self::Neurons | Self::RandomWeights => 1.0,
        }
    }
}

/// Follows an explanation and may end it early.
pub trait Watch {
    /// Reports that `done` of `total` units of a stage are done.
    fn report(&self, stage: ExplanationStage, done: usize, total: usize);

    /// Returns true if the stage must end with what is known.
    fn ends(&self, stage: ExplanationStage) -> bool;
}

/// A watch of nothing: the explanation ends when it is complete.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn report(&self, _stage: ExplanationStage, _done: usize, _total: usize) {}

    fn ends(&self, _stage: ExplanationStage) -> bool {
        false
    }
}
