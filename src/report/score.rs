//! The values of a score head by head, and the range that shows them.

use serde::{Deserialize, Serialize};

use super::range::{Range, round_up};
use crate::analysis::Score;
use crate::error::{Error, Result};

/// Refuses `values` of a score, `[layer][head]`, for other layers or heads than `layers` counts.
pub(crate) fn check(score: Score, values: &[Vec<Option<f64>>], layers: &[usize]) -> Result<()> {
    let found: Vec<usize> = values.iter().map(Vec::len).collect();
    if found == layers && !found.is_empty() {
        return Ok(());
    }
    Err(Error::Shape(format!(
        "the values of {} have heads by layer {found:?}, where {layers:?} are shown",
        score.name()
    )))
}

/// The range that shows `values` of a score: from 0, or from below where a value is negative; shares of
/// attention reach up to 1 as soon as one is half of it.
pub(crate) fn range(score: Score, values: impl Iterator<Item = f64> + Clone) -> Range {
    let finite = values.filter(|value| value.is_finite());
    let highest = finite.clone().fold(0.0, f64::max);
    let lowest = finite.fold(0.0, f64::min);
    let start = if lowest < 0.0 { -round_up(-lowest) } else { 0.0 };
    let end = match highest {
        _ if score.is_weight() && highest > 0.5 => highest.max(1.0),
        // Where all are below zero, nothing above it is shown.
        0.0 if start < 0.0 => 0.0,
        _ => round_up(highest),
    };
    Range { start, end }
}

/// The values of one score, head by head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadValues {
    /// What they measure.
    pub score: Score,
    /// `[layer][head]`; none where the score says nothing, as a duplicate-token score where no token
    /// comes twice.
    pub values: Vec<Vec<Option<f64>>>,
}

impl HeadValues {
    /// All values that there are, each with its layer and head.
    pub(crate) fn known(&self) -> impl Iterator<Item = (usize, usize, f64)> + Clone {
        let layers = self.values.iter().enumerate();
        let heads = layers
            .flat_map(|(layer, heads)| heads.iter().enumerate().map(move |(head, v)| (layer, head, *v)));
        heads.filter_map(|(layer, head, value)| Some((layer, head, value.filter(|v| v.is_finite())?)))
    }

    /// The head with the highest value.
    pub(crate) fn highest(&self) -> Option<(usize, usize, f64)> {
        self.known().max_by(|a, b| a.2.total_cmp(&b.2))
    }

    /// Refuses values for other layers or heads than there are.
    pub(crate) fn check(&self, layers: &[usize]) -> Result<()> {
        check(self.score, &self.values, layers)
    }
}

/// The name of a head, as "layer 0, head 3".
pub(crate) fn head_name(layer: usize, head: usize) -> String {
    format!("layer {layer}, head {head}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_attention_are_shown_up_to_one_and_losses_below_zero() {
        assert_eq!(range(Score::Induction, [0.1, 0.7].into_iter()), Range { start: 0.0, end: 1.0 });
        assert_eq!(range(Score::First, [0.1, 0.19].into_iter()), Range { start: 0.0, end: 0.2 });
        assert_eq!(
            range(Score::Ablation, [-0.02, 1.7, f64::NAN].into_iter()),
            Range { start: -0.02, end: 2.0 }
        );
        assert_eq!(range(Score::Ablation, [-0.02, -0.01].into_iter()), Range { start: -0.02, end: 0.0 });
    }

    #[test]
    fn values_of_another_grid_are_refused() {
        let values = HeadValues { score: Score::Induction, values: vec![vec![Some(0.1); 3], vec![None; 3]] };
        assert!(values.check(&[3, 3]).is_ok());
        let message = values.check(&[3, 5]).unwrap_err().to_string();
        assert_eq!(message, "the values of induction have heads by layer [3, 3], where [3, 5] are shown");
    }
}
