//! The scores of heads: a single list for all tables, pictures and pages.

use std::collections::HashMap;
use std::ops::Index;

use causal_attention_report::scores::ScoreKind;
use serde::{Deserialize, Serialize, Serializer};

/// A score of a head. All except `Ablation` are means over the queries of a set of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Score {
    /// Entropy of the weights over the keys, in nats.
    Entropy,
    /// Distance from the query to the keys before it, in tokens, weighted by attention.
    Distance,
    /// Weight on the query itself.
    Itself,
    /// Weight on the token before the query.
    Previous,
    /// Weight on the first token of the sequence; the first query is not counted.
    First,
    /// Weight on the tokens that follow earlier occurrences of the query's token, summed over all of them: the
    /// prefix-matching score of induction heads (Olsson et al., 2022, arXiv 2209.11895).
    Induction,
    /// Weight on earlier occurrences of the query's token, summed over all of them.
    Duplicate,
    /// Rise of the validation loss when the head's output is zeroed, in nats per token.
    Ablation,
}

impl Score {
    /// All scores, in display order.
    pub const ALL: [Score; 8] = {
        use Score::{Ablation, Distance, Duplicate, Entropy, First, Induction, Itself, Previous};
        [Entropy, Distance, Itself, Previous, First, Induction, Duplicate, Ablation]
    };

    /// Returns the key, name, unit and meaning of the score for files and pictures.
    pub fn about(self) -> ScoreKind {
        let (key, name, unit, meaning, digits) = match self {
            Score::Entropy => ("entropy", "entropy", "nats", "entropy of the weights, in nats", 2),
            Score::Distance => {
                ("distance", "distance", "tokens", "distance to the keys in tokens, weighted by attention", 1)
            }
            Score::Itself => ("self", "self", "weight", "weight on the query itself", 2),
            Score::Previous => ("previous", "previous token", "weight", "weight on the token before", 2),
            Score::First => ("first", "first token", "weight", "weight on the first token", 2),
            Score::Induction => {
                ("induction", "induction", "weight", "weight on the token after an earlier occurrence", 2)
            }
            Score::Duplicate => (
                "duplicate",
                "duplicate token",
                "weight",
                "weight on earlier occurrences of the same token",
                2,
            ),
            Score::Ablation => (
                "zero_ablation",
                "zero ablation",
                "nats of loss",
                "rise of the validation loss when the head is zero-ablated, in nats",
                3,
            ),
        };
        let is_weight = match self {
            Score::Itself | Score::Previous | Score::First | Score::Induction | Score::Duplicate => true,
            Score::Entropy | Score::Distance | Score::Ablation => false,
        };
        ScoreKind { key, name, unit, meaning, digits, is_weight }
    }

    /// Formats a value of this score.
    pub fn text(self, value: f64) -> String {
        self.about().text(value)
    }
}

/// The scores of one head; `None` if a score applies to no query, or if the head was not ablated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(from = "HashMap<String, Option<f64>>")]
pub struct HeadScores(pub(super) [Option<f64>; Score::ALL.len()]);

impl HeadScores {
    /// Creates scores from a function of the score.
    pub fn new(value: impl FnMut(Score) -> Option<f64>) -> Self {
        Self(Score::ALL.map(value))
    }

    /// Removes the value of a score.
    pub fn remove(&mut self, score: Score) {
        self.0[score as usize] = None;
    }
}

impl Index<Score> for HeadScores {
    type Output = Option<f64>;

    fn index(&self, score: Score) -> &Option<f64> {
        &self.0[score as usize]
    }
}

impl From<HashMap<String, Option<f64>>> for HeadScores {
    fn from(values: HashMap<String, Option<f64>>) -> Self {
        Self::new(|score| values.get(score.about().key).copied().flatten())
    }
}

impl Serialize for HeadScores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Score::ALL.map(|score| (score.about().key, self[score])))
    }
}

/// Returns the head of a layer that is shown first: the head with the highest ablation score, or with the highest
/// induction score if no head was ablated. Ties go to the lower index.
pub fn shown_head(layer: &[HeadScores]) -> usize {
    let is_ablated = layer.iter().any(|scores| scores[Score::Ablation].is_some());
    let score = if is_ablated { Score::Ablation } else { Score::Induction };
    let value = |head: usize| layer[head][score].unwrap_or(f64::NEG_INFINITY);
    // Reversed, because `max_by` returns the last of equal elements.
    (0..layer.len()).rev().max_by(|&a, &b| value(a).total_cmp(&value(b))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_by_their_keys() {
        for (index, score) in Score::ALL.into_iter().enumerate() {
            assert_eq!(score as usize, index);
        }
        let json = r#"{"entropy":0.5,"distance":2.0,"self":0.25,"previous":null,"first":0.1,"induction":0.75,"duplicate":null,"zero_ablation":-0.01}"#;
        let scores: HeadScores = serde_json::from_str(json).unwrap();
        assert_eq!((scores[Score::Itself], scores[Score::Previous]), (Some(0.25), None));
        assert_eq!(serde_json::to_string(&scores).unwrap(), json);
        let partial: HeadScores = serde_json::from_str(r#"{"induction":0.75,"another":1.0}"#).unwrap();
        assert_eq!(partial, HeadScores::new(|score| (score == Score::Induction).then_some(0.75)));
        assert_eq!(Score::Ablation.text(-0.0215), "−0.021");
    }

    #[test]
    fn shown_head_prefers_ablation_over_induction() {
        let head = |induction: f64, ablation: Option<f64>| {
            HeadScores::new(|score| match score {
                Score::Induction => Some(induction),
                Score::Ablation => ablation,
                _ => None,
            })
        };
        assert_eq!(shown_head(&[head(0.9, Some(0.1)), head(0.2, Some(3.3)), head(0.5, None)]), 1);
        assert_eq!(shown_head(&[head(0.1, Some(-0.2)), head(0.9, Some(-0.1))]), 1);
        assert_eq!(
            shown_head(&[head(0.4, None), head(0.5, None), head(0.5, None)]),
            1,
            "ties go to the lower index"
        );
        assert_eq!(shown_head(&[HeadScores::default(); 3]), 0);
    }
}
