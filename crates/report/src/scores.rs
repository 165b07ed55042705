//! Scores by which heads are compared, as a table for each step of a run.

use serde::{Serialize, Serializer};

use crate::numbers::fixed;

/// A kind of score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ScoreKind {
    /// The name in files, as `zero_ablation`.
    pub key: &'static str,
    /// The name in pictures.
    pub name: &'static str,
    /// The unit of the values.
    pub unit: &'static str,
    /// The meaning, as a short clause.
    pub meaning: &'static str,
    /// The digits after the point with which values are shown.
    pub digits: usize,
    /// True where the values are shares of attention, from 0 to 1.
    pub is_weight: bool,
}

impl ScoreKind {
    /// Returns a value as text.
    pub fn text(&self, value: f64) -> String {
        fixed(value, self.digits)
    }
}

/// The scores of one head; a score that is not known has no value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeadScores(pub(crate) Vec<(&'static str, Option<f64>)>);

impl HeadScores {
    /// The scores of a head, in the order in which a page holds them.
    pub fn new(scores: impl IntoIterator<Item = (ScoreKind, Option<f64>)>) -> Self {
        Self(scores.into_iter().map(|(kind, value)| (kind.key, value)).collect())
    }

    /// Returns the score of a kind.
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
    /// The steps done.
    pub step: usize,
    /// The scores, `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
}

/// Returns the kinds of which any head has a score.
pub(crate) fn known(kinds: &[ScoreKind], heads: &[Vec<HeadScores>]) -> Vec<ScoreKind> {
    let is_known = |kind: &&ScoreKind| heads.iter().flatten().any(|head| head.get(kind).is_some());
    kinds.iter().filter(is_known).copied().collect()
}
