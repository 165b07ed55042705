//! `generated`: what a model goes on to write by itself, beside what truly follows.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{WIDTH, heading};
use super::canvas::Canvas;
use super::picture::Picture;
use super::range::{counted, whole};
use super::token_row::{MOST_STEPS, Outcome, Step, TokenRow, Words};
use crate::error::{Error, Result};

/// A continuation that runs free: after the prompt the model reads what it wrote itself, so that one
/// wrong token can lead to others.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Generation {
    /// The run's name.
    pub run: String,
    /// Where the prompt comes from, as "validation sequence 0".
    pub sequence: String,
    /// The tokens that the model was given.
    pub prompt: Vec<String>,
    /// The tokens that it wrote.
    pub generated: Vec<String>,
    /// The tokens that truly follow the prompt, as far as they are known; there may be none.
    pub truth: Vec<String>,
}

const WORDS: Words = Words {
    predicted: "generated",
    hit: "as in truth",
    miss: "different",
    unknown: "generated",
    shade: "prompt",
};

impl Generation {
    fn row(&self) -> TokenRow {
        let given = self.prompt.iter().map(|token| Step {
            truth: Some(token.clone()),
            predicted: None,
            outcome: Outcome::Given,
        });
        let written = self.generated.iter().enumerate().map(|(i, token)| {
            let truth = self.truth.get(i);
            let outcome = match truth {
                None => Outcome::Unknown,
                Some(truth) if truth == token => Outcome::Hit,
                Some(_) => Outcome::Miss,
            };
            Step { truth: truth.cloned(), predicted: Some(token.clone()), outcome }
        });
        TokenRow { steps: given.chain(written).collect(), words: WORDS }
    }

    fn summary(&self) -> String {
        let prompt = counted(self.prompt.len(), "token");
        let compared = self.generated.len().min(self.truth.len());
        let same = self.generated.iter().zip(&self.truth).filter(|(written, truth)| written == truth).count();
        let first = self.generated.iter().zip(&self.truth).position(|(written, truth)| written != truth);
        let result = match first {
            _ if compared == 0 => format!("{} generated", counted(self.generated.len(), "token")),
            None => format!("all {} as in truth", counted(compared, "token")),
            Some(first) => format!(
                "{same} of {} as in truth; the first difference at step {}",
                counted(compared, "token"),
                whole((self.prompt.len() + first) as u64)
            ),
        };
        let cut = match self.prompt.len() + self.generated.len() {
            all if all > MOST_STEPS => {
                format!("; the first {} of {} steps", whole(MOST_STEPS as u64), whole(all as u64))
            }
            _ => String::new(),
        };
        format!("{}, after {prompt}: {result}{cut}", self.sequence)
    }
}

impl Picture for Generation {
    const NAME: &'static str = "generated";

    fn size(&self) -> (u32, u32) {
        (WIDTH, self.row().height())
    }

    fn check(&self) -> Result<()> {
        if self.generated.is_empty() {
            return Err(Error::Shape("a continuation needs at least one generated token".to_string()));
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        heading(canvas, &format!("{}: free-running continuation", self.run), &self.summary())?;
        self.row().draw(canvas)
    }
}
