//! The effects in a model with random weights, which show what chance gives, as plain data.

use serde::{Deserialize, Serialize};

use super::kind::HeadKind;

/// The effects in a model of the same architecture with random weights, on the same targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RandomEffects {
    /// The largest change of the quantity, up or down, when a single component is ablated.
    pub largest: f64,
    /// The number of components that were ablated alone, as many as in the explained model: of many, the ones with the
    /// largest estimates.
    pub components: usize,
    /// The number of targets.
    pub targets: usize,
    /// The connections between the components of the circuit; `None` without connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<RandomEffect>,
    /// The paths from all components to the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<RandomEffect>,
    /// The neurons; `None` without neurons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neurons: Option<RandomEffect>,
    /// The mean logit difference of the pairs of clean and corrupted sequences, in logits, when a component is restored;
    /// `None` without pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patching: Option<RandomEffect>,
    /// The mean contributions of all components to the logits of the targets, or to the difference between two answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<RandomEffect>,
    /// The mean loss of the logit lens at each depth; empty if the search ended before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lens: Vec<f64>,
    /// The quantity of the model, of it with all components ablated that are not in the explained circuit, and with all
    /// components ablated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<[f64; 3]>,
    /// The mean losses on the first and the second copy of a repetition; `None` for other sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<[f64; 2]>,
    /// The largest score of any self-attention head for each kind: those that a repetition reveals, and those of the
    /// circuit's heads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<(HeadKind, f64)>,
}

/// The largest effect of several that were tested, as many as in the explained model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RandomEffect {
    /// The largest change, up or down.
    pub largest: f64,
    /// The number of ablated connections or neurons, or of restored components. Of many, those with the largest estimates.
    pub tested: usize,
}
