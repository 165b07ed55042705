//! The scores by which heads are compared: one list of them, which every table, picture and page reads.

use std::collections::HashMap;
use std::ops::Index;

use causal_attention_report::scores::ScoreKind;
use serde::{Deserialize, Serialize, Serializer};

/// What a head is measured by. All but the ablation are means over the queries of a set of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Score {
    /// Entropy of the weights over the keys, in nats.
    Entropy,
    /// Tokens from the query back to the keys, weighed by attention.
    Distance,
    /// Weight on the query itself.
    Itself,
    /// Weight on the token before the query.
    Previous,
    /// Weight on the first token of the sequence, over the later queries.
    First,
    /// Weight on the tokens that follow earlier occurrences of the query's token, summed over all of
    /// them: what an induction head attends to (Olsson et al., 2022, arXiv 2209.11895).
    Induction,
    /// Weight on earlier occurrences of the query's token, summed over all of them.
    Duplicate,
    /// Rise of the validation loss when the head's output is zeroed, in nats per token.
    Ablation,
}

impl Score {
    /// All scores, in the order in which they are shown.
    pub const ALL: [Score; 8] = {
        use Score::*;
        [Entropy, Distance, Itself, Previous, First, Induction, Duplicate, Ablation]
    };

    /// What files and pictures say of it.
    pub fn about(self) -> ScoreKind {
        let (key, name, unit, meaning, digits) = match self {
            Score::Entropy => ("entropy", "entropy", "nats", "how widely the weights spread, in nats", 2),
            Score::Distance => {
                ("distance", "distance", "tokens", "tokens back to the keys, weighed by attention", 1)
            }
            Score::Itself => ("self", "self", "weight", "weight on the query itself", 2),
            Score::Previous => ("previous", "previous token", "weight", "weight on the token before", 2),
            Score::First => ("first", "first token", "weight", "weight on the first token", 2),
            Score::Induction => {
                ("induction", "induction", "weight", "weight on what followed the same token earlier", 2)
            }
            Score::Duplicate => {
                ("duplicate", "duplicate token", "weight", "weight on the same token earlier", 2)
            }
            Score::Ablation => (
                "zero_ablation",
                "zero ablation",
                "nats of loss",
                "rise of the validation loss when the head is zero-ablated, in nats",
                3,
            ),
        };
        ScoreKind { key, name, unit, meaning, digits, is_weight: unit == "weight" }
    }

    /// A value as text.
    pub fn text(self, value: f64) -> String {
        self.about().text(value)
    }
}

/// The scores of one head; none where no query could tell, or the ablation was not tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(from = "HashMap<String, Option<f64>>")]
pub struct HeadScores(pub(super) [Option<f64>; Score::ALL.len()]);

impl HeadScores {
    /// The scores that `value` gives.
    pub fn new(value: impl FnMut(Score) -> Option<f64>) -> Self {
        Self(Score::ALL.map(value))
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

/// The head of a layer that is shown first: the one without which the loss rises most, where that is
/// known of any, and else the one with the highest induction score; the first of equals.
pub fn shown_head(layer: &[HeadScores]) -> usize {
    let is_known = layer.iter().any(|scores| scores[Score::Ablation].is_some());
    let score = if is_known { Score::Ablation } else { Score::Induction };
    let value = |head: usize| layer[head][score].unwrap_or(f64::NEG_INFINITY);
    // From the last to the first: `max_by` takes the last of equals.
    (0..layer.len()).rev().max_by(|&a, &b| value(a).total_cmp(&value(b))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_by_their_keys() {
        for (place, score) in Score::ALL.into_iter().enumerate() {
            assert_eq!(score as usize, place);
        }
        let json = r#"{"entropy":0.5,"distance":2.0,"self":0.25,"previous":null,"first":0.1,"induction":0.75,"duplicate":null,"zero_ablation":-0.01}"#;
        let scores: HeadScores = serde_json::from_str(json).unwrap();
        assert_eq!((scores[Score::Itself], scores[Score::Previous]), (Some(0.25), None));
        assert_eq!(serde_json::to_string(&scores).unwrap(), json);
        let fewer: HeadScores = serde_json::from_str(r#"{"induction":0.75,"another":1.0}"#).unwrap();
        assert_eq!(fewer, HeadScores::new(|score| (score == Score::Induction).then_some(0.75)));
        assert_eq!(Score::Ablation.text(-0.0215), "−0.021");
    }

    #[test]
    fn the_head_shown_first_is_worth_most_and_else_the_most_inductive() {
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
            "the first of equals"
        );
        assert_eq!(shown_head(&[HeadScores::default(); 3]), 0);
    }
}
