//! A study's trials as pictures and as a page.

mod cost;
mod curves;
mod effects;
mod learning_rate;
mod page;
mod sweep;

use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use super::axis::Axis;
use super::color::{BLUE, MUTED, VERMILION, pale};
use super::line_chart::{Entry, LineChart, Mark, Series, Sign};
use super::range::{Range, tick_labels};
use super::series::quantile;
use crate::error::{Error, Result};

pub use cost::cost;
pub use curves::trial_curves;
pub use effects::key_effects;
pub use learning_rate::learning_rate;
pub use page::StudyPage;
pub use sweep::{SweepCurve, SweepPoint};

/// A study: what was tried, and what came of it. Losses are in nats a token.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyResult {
    /// The study's name.
    pub study: String,
    /// The searched keys, each with its section.
    pub keys: Vec<String>,
    /// The trials, best first.
    pub trials: Vec<StudyTrial>,
    /// The loss of the best possible predictor, where it is known.
    pub floor: Option<f64>,
    /// Runs of each trial, whose losses are means; curves are those of the first.
    pub seeds: usize,
}

/// One trial of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyTrial {
    /// Its number.
    pub trial: usize,
    /// The stage of a recipe that asked for it; none where the study has no stages.
    pub stage: Option<String>,
    /// The values of the searched keys, in their order.
    pub values: Vec<Value>,
    /// How it ended.
    pub ended: TrialEnding,
    /// The lowest validation loss; none where it diverged.
    pub loss: Option<f64>,
    /// The standard deviation of that over several seeds.
    pub loss_spread: Option<f64>,
    /// Share of the validation targets predicted.
    pub accuracy: Option<f64>,
    /// The standard deviation of the training loss over the last logged steps.
    pub train_spread: Option<f64>,
    /// Logged steps whose training loss stands out.
    /// None where there are too few to tell.
    pub spikes: Option<usize>,
    /// Trained numbers in the model.
    pub parameters: usize,
    /// Steps of all its runs.
    pub steps: usize,
    /// Seconds that they trained.
    pub seconds: f64,
    /// Floating-point operations of its training.
    pub operations: f64,
    /// The validation loss by tokens trained on.
    pub curve: Vec<(f64, f64)>,
}

/// The value of a searched key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word, as a scheme's name.
    Name(String),
}

/// How a trial ended, as far as pictures tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialEnding {
    /// Trained to its end.
    Finished,
    /// Not gone on with: others were better.
    Pruned,
    /// Still to be gone on with.
    Unfinished,
    /// A loss or gradient was not finite.
    Diverged,
    /// It could not be trained.
    Failed,
}

impl Value {
    /// As it is shown.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Number(number) => tick_labels(&[*number]).concat(),
            Self::Name(name) => name.clone(),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Name(_) => None,
        }
    }
}

impl StudyTrial {
    /// The colour of its marks: the best one stands out, what was given up stands back.
    fn color(&self, best: bool) -> RGBColor {
        match self.ended {
            _ if best => VERMILION,
            TrialEnding::Finished => BLUE,
            TrialEnding::Pruned | TrialEnding::Unfinished => pale(BLUE),
            TrialEnding::Diverged | TrialEnding::Failed => MUTED,
        }
    }
}

impl StudyResult {
    /// What a picture needs: a trial that was validated.
    fn check(&self) -> Result<()> {
        match self.trials.iter().any(|trial| trial.loss.is_some()) {
            true => Ok(()),
            false => Err(Error::Shape("a study needs at least one trial with a loss".to_string())),
        }
    }

    /// The best trial in words.
    fn best_in_words(&self) -> String {
        let Some((best, loss)) = self.trials.first().and_then(|best| Some((best, best.loss?))) else {
            return String::new();
        };
        let gap = self.floor.map_or_else(String::new, |floor| {
            format!(", {:.4} above the floor", loss - floor).replace('-', "−")
        });
        format!("best: trial {:03} with {loss:.4} nats a token{gap}", best.trial)
    }

    /// How losses are drawn: above the floor on a logarithmic scale, so that what is near it can be told
    /// apart; where no floor is known, as they are.
    fn scale(&self, losses: impl Iterator<Item = f64>) -> LossScale {
        let scale = LossScale { floor: self.floor, range: Range { start: 0.0, end: 1.0 } };
        let place = |loss: f64| if self.floor.is_some() { scale.value(loss).log10() } else { loss };
        let mut places: Vec<f64> = losses.filter(|loss| loss.is_finite()).map(place).collect();
        places.sort_by(f64::total_cmp);
        let low = places.first().copied().unwrap_or(0.0);
        let high = quantile(&places, 0.98).unwrap_or(1.0);
        let range = Range::new(low, high);
        let range =
            Range { start: range.start - 0.06 * range.length(), end: range.end + 0.06 * range.length() };
        LossScale { range, ..scale }
    }
}

/// The y axis of losses.
#[derive(Debug, Clone, Copy)]
struct LossScale {
    floor: Option<f64>,
    range: Range,
}

/// Nearer to the floor than this, losses are drawn as if they were here.
const NEAREST: f64 = 1e-4;

impl LossScale {
    /// What is drawn of a loss: its distance from the floor, where that is known.
    fn value(&self, loss: f64) -> f64 {
        self.floor.map_or(loss, |floor| (loss - floor).max(NEAREST))
    }

    fn axis(&self) -> Axis {
        match self.floor {
            Some(_) => Axis::logarithmic("loss above the floor (nats)", self.range),
            None => Axis::new("validation loss (nats)", self.range),
        }
    }
}

/// A logarithmic x axis over positive values.
fn log_range(values: impl Iterator<Item = f64>) -> Range {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
        (low, high) = (low.min(value.log10()), high.max(value.log10()));
    }
    if low > high {
        return Range { start: 0.0, end: 1.0 };
    }
    // A single value stands in the middle of its decade.
    let range =
        if high - low < 1e-9 { Range { start: low - 0.5, end: high + 0.5 } } else { Range::new(low, high) };
    Range { start: range.start - 0.05 * range.length(), end: range.end + 0.05 * range.length() }
}

/// Adds a trial's mark at `x`: a dot, a ring where it was given up, a cross at the top where it has no loss.
fn mark(chart: &mut LineChart, trial: &StudyTrial, x: f64, y: Option<f64>, best: bool) {
    let mark = match (trial.ended, y) {
        (TrialEnding::Diverged | TrialEnding::Failed, _) | (_, None) => Mark::Cross(4.0, 1.75),
        (TrialEnding::Pruned | TrialEnding::Unfinished, Some(_)) => Mark::Ring(3.5, 1.5),
        (TrialEnding::Finished, Some(_)) => Mark::Dot(if best { 5.5 } else { 4.0 }),
    };
    // A cross stands below the upper edge, what lies beyond an edge on it.
    let inset = 7.0 / chart.area.height;
    let y = match mark {
        Mark::Cross(..) => chart.y.value_at(1.0 - inset),
        _ => chart.y.clamped(y.unwrap_or(f64::NAN)),
    };
    chart.series.push(Series::new("", trial.color(best), mark, [(x, y)]));
}

/// What a legend says of these marks, as far as there are any.
fn marks(result: &StudyResult) -> Vec<Entry> {
    let any = |ended: TrialEnding| result.trials.iter().any(|trial| trial.ended == ended);
    let mut entries = vec![Entry::new(Sign::Dot, VERMILION, "best")];
    if result.trials.iter().skip(1).any(|trial| trial.ended == TrialEnding::Finished) {
        entries.push(Entry::new(Sign::Dot, BLUE, "trained to the end"));
    }
    if any(TrialEnding::Pruned) {
        entries.push(Entry::new(Sign::Ring, pale(BLUE), "pruned, as it stood then"));
    }
    if any(TrialEnding::Unfinished) {
        entries.push(Entry::new(Sign::Ring, pale(BLUE), "not finished yet"));
    }
    entries.extend(lost(result));
    entries
}

/// What a legend says of trials that have no loss.
fn lost(result: &StudyResult) -> Option<Entry> {
    let any = |ended: TrialEnding| result.trials.iter().any(|trial| trial.ended == ended);
    let text = match (any(TrialEnding::Diverged), any(TrialEnding::Failed)) {
        (true, true) => "diverged or failed",
        (true, false) => "diverged",
        (false, true) => "failed",
        (false, false) => return None,
    };
    Some(Entry::new(Sign::Cross, MUTED, text))
}

#[cfg(test)]
mod tests;
