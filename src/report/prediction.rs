//! `prediction`: predicted against true tokens over time steps.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{WIDTH, heading};
use super::canvas::Canvas;
use super::picture::Picture;
use super::range::{counted, whole};
use super::token_row::{MOST_STEPS, Outcome, Step, TokenRow, Words};
use crate::error::{Error, Result};

/// What a model predicted along one sequence, each time after the true tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Predictions {
    /// The run's name.
    pub run: String,
    /// Which sequence it is, as "validation sequence 0".
    pub sequence: String,
    /// The targets in order; the first is the token after the first input.
    pub steps: Vec<PredictedToken>,
}

/// One target and what was predicted for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PredictedToken {
    /// The text of the true token.
    pub truth: String,
    /// The text of the most probable token.
    pub predicted: String,
    /// Whether the tokens before it determine the true one. Where they do not, a perfect model can
    /// only guess, and a miss is none.
    pub determined: bool,
}

const WORDS: Words = Words {
    predicted: "predicted",
    hit: "predicted right",
    miss: "missed",
    unknown: "guessed",
    shade: "cannot be known",
};

impl PredictedToken {
    fn outcome(&self) -> Outcome {
        match (self.determined, self.truth == self.predicted) {
            (false, _) => Outcome::Unknown,
            (true, true) => Outcome::Hit,
            (true, false) => Outcome::Miss,
        }
    }
}

impl Predictions {
    fn row(&self) -> TokenRow {
        let steps = self.steps.iter().map(|step| Step {
            truth: Some(step.truth.clone()),
            predicted: Some(step.predicted.clone()),
            outcome: step.outcome(),
        });
        TokenRow { steps: steps.collect(), words: WORDS }
    }

    fn summary(&self) -> String {
        let right = |determined| {
            let of_kind = self.steps.iter().filter(|step| step.determined == determined);
            (of_kind.clone().filter(|step| step.truth == step.predicted).count(), of_kind.count())
        };
        let result = match (right(true), right(false)) {
            ((hits, known), (_, 0)) => format!("{hits} of {} are right", counted(known, "token")),
            ((_, 0), (guessed, all)) => {
                format!("nothing determines these tokens; {guessed} of {} guessed right", whole(all as u64))
            }
            ((hits, known), (_, unknowable)) => format!(
                "{hits} of the {} that can be known are right; {} cannot be known",
                counted(known, "token"),
                whole(unknowable as u64)
            ),
        };
        let cut = match self.steps.len() {
            all if all > MOST_STEPS => {
                format!("; the first {} of {} steps", whole(MOST_STEPS as u64), whole(all as u64))
            }
            _ => String::new(),
        };
        format!("{}: {result}{cut}", self.sequence)
    }
}

impl Picture for Predictions {
    const NAME: &'static str = "prediction";

    fn size(&self) -> (u32, u32) {
        (WIDTH, self.row().height())
    }

    fn check(&self) -> Result<()> {
        if self.steps.is_empty() {
            return Err(Error::Shape("predictions need at least one step".to_string()));
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        heading(canvas, &format!("{}: predicted and true tokens", self.run), &self.summary())?;
        self.row().draw(canvas)
    }
}
