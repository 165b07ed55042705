//! The scores by which heads are compared, and their values by step.

use serde::{Serialize, Serializer};

use crate::numbers::fixed;

/// A kind of score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ScoreKind {
    /// The name in files, such as `zero_ablation`.
    pub key: &'static str,
    /// The name in pictures.
    pub name: &'static str,
    /// The unit of the values.
    pub unit: &'static str,
    /// The meaning as a short phrase.
    pub meaning: &'static str,
    /// The number of digits after the point.
    pub digits: usize,
    /// True if the values are attention weights, 0 to 1.
    pub is_weight: bool,
}

impl ScoreKind {
    /// Formats a value as text.
    pub fn text(&self, value: f64) -> String {
        fixed(value, self.digits)
    }
}

/// The scores of one head; an unknown score is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeadScores(pub(crate) Vec<(&'static str, Option<f64>)>);

impl HeadScores {
    /// Creates the scores of a head.
    pub fn new(scores: impl IntoIterator<Item = (ScoreKind, Option<f64>)>) -> Self {
        Self(scores.into_iter().map(|(kind, value)| (kind.key, value)).collect())
    }

    /// Returns the score of a kind, if known.
    pub fn get(&self, kind: &ScoreKind) -> Option<f64> {
        self.0.iter().find(|(key, _)| *key == kind.key).and_then(|&(_, value)| value)
    }
}

impl Serialize for HeadScores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// The scores of all heads at one step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoredStep {
    /// The number of completed steps.
    pub step: usize,
    /// The scores, `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
}

/// Returns the kinds for which at least one head has a score.
pub(crate) fn known(kinds: &[ScoreKind], heads: &[Vec<HeadScores>]) -> Vec<ScoreKind> {
    let is_known = |kind: &&ScoreKind| heads.iter().flatten().any(|head| head.get(kind).is_some());
    kinds.iter().filter(is_known).copied().collect()
}
