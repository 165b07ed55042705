//! The scores by which heads are compared, and how their values read.

use serde::{Deserialize, Serialize};

use super::range::{Range, round_up};
use crate::error::{Error, Result};

/// What a head is measured by. All but the ablation are means over the queries of a set of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Entropy of the weights over the keys, in nats.
    Entropy,
    /// Distance from a query to the keys it attends to, in tokens, weighed by attention.
    Distance,
    /// Weight on the query itself.
    #[serde(rename = "self")]
    Itself,
    /// Weight on the token before the query.
    Previous,
    /// Weight on the first token of the sequence.
    First,
    /// Weight on the token after the last earlier occurrence of the query's token (Olsson et al., 2022).
    Induction,
    /// Weight on earlier occurrences of the query's token.
    Duplicate,
    /// The rise of the validation loss when the head's output is zeroed, in nats.
    Ablation,
}

impl Score {
    /// All scores, in the order in which they are shown.
    pub const ALL: [Score; 8] = [
        Score::Entropy,
        Score::Distance,
        Score::Itself,
        Score::Previous,
        Score::First,
        Score::Induction,
        Score::Duplicate,
        Score::Ablation,
    ];

    /// Its name, as it serialises.
    pub fn key(self) -> &'static str {
        match self {
            Score::Entropy => "entropy",
            Score::Distance => "distance",
            Score::Itself => "self",
            Score::Previous => "previous",
            Score::First => "first",
            Score::Induction => "induction",
            Score::Duplicate => "duplicate",
            Score::Ablation => "ablation",
        }
    }

    /// Its name in pictures.
    pub fn name(self) -> &'static str {
        match self {
            Score::Entropy => "entropy",
            Score::Distance => "distance",
            Score::Itself => "self",
            Score::Previous => "previous token",
            Score::First => "first token",
            Score::Induction => "induction",
            Score::Duplicate => "duplicate token",
            Score::Ablation => "ablation",
        }
    }

    /// What it measures, as a short clause.
    pub fn meaning(self) -> &'static str {
        match self {
            Score::Entropy => "how widely the weights spread, in nats",
            Score::Distance => "tokens back to the keys, weighed by attention",
            Score::Itself => "weight on the query itself",
            Score::Previous => "weight on the token before",
            Score::First => "weight on the first token",
            Score::Induction => "weight on what followed the same token last time",
            Score::Duplicate => "weight on the same token earlier",
            Score::Ablation => "rise of the validation loss without the head, in nats",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Score::Entropy => "nats",
            Score::Distance => "tokens",
            Score::Ablation => "nats of loss",
            Score::Itself | Score::Previous | Score::First | Score::Induction | Score::Duplicate => "weight",
        }
    }

    /// Digits after the point that its values are shown with.
    pub fn digits(self) -> usize {
        match self {
            Score::Distance => 1,
            Score::Ablation => 3,
            _ => 2,
        }
    }

    /// A value as text.
    pub(crate) fn text(self, value: f64) -> String {
        format!("{value:.*}", self.digits()).replace('-', "−")
    }

    /// Refuses `values`, `[layer][head]`, for other layers or heads than `layers` counts.
    pub(crate) fn check(self, values: &[Vec<Option<f64>>], layers: &[usize]) -> Result<()> {
        let found: Vec<usize> = values.iter().map(Vec::len).collect();
        if found == layers && !found.is_empty() {
            return Ok(());
        }
        Err(Error::Shape(format!(
            "the values of {} have heads by layer {found:?}, where {layers:?} are shown",
            self.name()
        )))
    }

    /// Whether it is a share of attention, from 0 to 1.
    fn is_weight(self) -> bool {
        match self {
            Score::Entropy | Score::Distance | Score::Ablation => false,
            Score::Itself | Score::Previous | Score::First | Score::Induction | Score::Duplicate => true,
        }
    }

    /// The range that shows `values`: from 0, or from below where a value is negative; shares of
    /// attention reach up to 1 as soon as one is half of it.
    pub(crate) fn range(self, values: impl Iterator<Item = f64> + Clone) -> Range {
        let finite = values.filter(|value| value.is_finite());
        let highest = finite.clone().fold(0.0, f64::max);
        let lowest = finite.fold(0.0, f64::min);
        let end = if self.is_weight() && highest > 0.5 { highest.max(1.0) } else { round_up(highest) };
        Range { start: if lowest < 0.0 { -round_up(-lowest) } else { 0.0 }, end }
    }
}

/// A value for each head, `[layer][head]`.
pub(crate) type Grid = Vec<Vec<Option<f64>>>;

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
        self.score.check(&self.values, layers)
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
    fn every_score_is_known_by_its_key() {
        for score in Score::ALL {
            assert_eq!(serde_json::to_string(&score).unwrap(), format!("\"{}\"", score.key()));
        }
    }

    #[test]
    fn shares_of_attention_are_shown_up_to_one_and_losses_below_zero() {
        assert_eq!(Score::Induction.range([0.1, 0.7].into_iter()), Range { start: 0.0, end: 1.0 });
        assert_eq!(Score::First.range([0.1, 0.19].into_iter()), Range { start: 0.0, end: 0.2 });
        assert_eq!(
            Score::Ablation.range([-0.02, 1.7, f64::NAN].into_iter()),
            Range { start: -0.02, end: 2.0 }
        );
        assert_eq!(Score::Ablation.text(-0.0215), "−0.021");
    }

    #[test]
    fn values_of_another_grid_are_refused() {
        let values = HeadValues { score: Score::Induction, values: vec![vec![Some(0.1); 3], vec![None; 3]] };
        assert!(values.check(&[3, 3]).is_ok());
        let message = values.check(&[3, 5]).unwrap_err().to_string();
        assert_eq!(message, "the values of induction have heads by layer [3, 3], where [3, 5] are shown");
    }
}
