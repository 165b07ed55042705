//! `prediction`: predicted against true tokens over time steps.
//!
//! Integers of a short sequence are drawn as a chart, token by step. Everything else, as characters
//! and words of large vocabularies, is set like text: each cell the true token above the predicted
//! one.

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, LABEL, MARGIN, Plot, Sign, WIDTH, heading, legend};
use super::canvas::{Canvas, Rect};
use super::color::{BACKGROUND, BLUE, GRID, INK, MUTED, SHADE, VERMILION, mix};
use super::picture::Picture;
use super::range::{Range, counted, tick_labels, whole};
use super::text::Text;
use super::token::visible;
use crate::error::{Error, Result};

/// What a model predicted along one sequence.
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

/// How a prediction came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Hit,
    Miss,
    /// The token could not be known.
    Unknowable,
}

impl PredictedToken {
    fn outcome(&self) -> Outcome {
        match (self.determined, self.truth == self.predicted) {
            (false, _) => Outcome::Unknowable,
            (true, true) => Outcome::Hit,
            (true, false) => Outcome::Miss,
        }
    }
}

/// Charts have at most so many steps, and tokens between 0 and this number.
const CHART_STEPS: usize = 100;
const CHART_TOKENS: u32 = 40;
const CHART_HEIGHT: f64 = 300.0;
/// Longer sequences are cut, which the picture says.
const MOST_STEPS: usize = 1_024;

/// Cells set like text.
const TOKEN: f64 = 11.0;
const CELL_HEIGHT: f64 = 34.0;
const LINE_HEIGHT: f64 = CELL_HEIGHT + 9.0;
const GUTTER: f64 = 100.0;
const NARROWEST: f64 = 19.0;

/// A cell of text: its step, its left edge and its width.
type Cell = (usize, f64, f64);

impl Predictions {
    fn shown(&self) -> &[PredictedToken] {
        &self.steps[..self.steps.len().min(MOST_STEPS)]
    }

    /// The tokens as numbers, where a chart of them can be read.
    fn numbers(&self) -> Option<Vec<(u32, u32)>> {
        if self.steps.len() > CHART_STEPS {
            return None;
        }
        let number = |text: &str| text.parse().ok().filter(|&number| number <= CHART_TOKENS);
        self.steps.iter().map(|step| Some((number(&step.truth)?, number(&step.predicted)?))).collect()
    }

    /// Cells as wide as their tokens, from left to right and line by line.
    fn lines(&self) -> Vec<Vec<Cell>> {
        let (look, bold) = (Text::new(TOKEN), Text::new(TOKEN).bold());
        let mut lines = vec![Vec::new()];
        let start = MARGIN + GUTTER;
        let mut x = start;
        for (i, step) in self.shown().iter().enumerate() {
            let tokens = look.width(&visible(&step.truth)).max(bold.width(&visible(&step.predicted)));
            let width = (tokens + 8.0).max(NARROWEST).ceil();
            if x + width > f64::from(WIDTH) - MARGIN {
                lines.push(Vec::new());
                x = start;
            }
            if let Some(line) = lines.last_mut() {
                line.push((i, x, width));
            }
            x += width + 2.0;
        }
        lines
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
        let height = match self.numbers() {
            Some(_) => HEADING + 34.0 + CHART_HEIGHT + 52.0,
            None => HEADING + 34.0 + self.lines().len() as f64 * LINE_HEIGHT + MARGIN,
        };
        (WIDTH, height.ceil() as u32)
    }

    fn check(&self) -> Result<()> {
        if self.steps.is_empty() {
            return Err(Error::Shape("predictions need at least one step".to_string()));
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        heading(canvas, &format!("{}: predicted and true tokens", self.run), &self.summary())?;
        match self.numbers() {
            Some(numbers) => self.chart(canvas, &numbers),
            None => self.text(canvas),
        }
    }
}

/// The tint behind a cell.
pub(crate) fn tint(outcome: Outcome) -> RGBColor {
    match outcome {
        Outcome::Hit => mix(BLUE, BACKGROUND, 0.86),
        Outcome::Miss => mix(VERMILION, BACKGROUND, 0.72),
        Outcome::Unknowable => SHADE,
    }
}

impl Predictions {
    fn has(&self, outcome: Outcome) -> bool {
        self.steps.iter().any(|step| step.outcome() == outcome)
    }

    fn chart<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>, numbers: &[(u32, u32)]) -> Result<()> {
        let area = Rect {
            left: MARGIN + 58.0,
            top: HEADING + 34.0,
            width: f64::from(WIDTH) - 2.0 * MARGIN - 58.0,
            height: CHART_HEIGHT,
        };
        let largest = numbers.iter().map(|&(truth, predicted)| truth.max(predicted)).max().unwrap_or(0);
        let plot = Plot {
            area,
            x: Range { start: -0.5, end: numbers.len() as f64 - 0.5 },
            y: Range { start: -0.6, end: f64::from(largest) + 0.6 },
        };
        let step_width = area.width / numbers.len() as f64;
        for (i, step) in self.steps.iter().enumerate() {
            if !step.determined {
                let left = area.left + i as f64 * step_width;
                canvas.rect(Rect { left, width: step_width, ..area }, SHADE)?;
            }
        }
        let ticks = plot.y.whole_ticks(12);
        for (tick, label) in ticks.iter().zip(tick_labels(&ticks)) {
            let (_, y) = plot.place(0.0, *tick);
            canvas.line(&[(area.left, y), (area.right(), y)], GRID, 0.75)?;
            canvas.text(&label, (area.left - 8.0, y), &Text::new(LABEL).color(MUTED).right())?;
        }
        let middle = area.top + area.height / 2.0;
        canvas.text("token", (area.left - 38.0, middle), &Text::new(12.0).centered().upward())?;
        plot.x_axis(canvas, "time step")?;
        let radius = (step_width * 0.3).clamp(2.6, 6.0);
        let truth = numbers.iter().enumerate().map(|(i, &(truth, _))| (i as f64, f64::from(truth)));
        plot.curve(canvas, truth, mix(MUTED, BACKGROUND, 0.55), 1.0)?;
        for (i, (step, &(truth, predicted))) in self.steps.iter().zip(numbers).enumerate() {
            let at = |token: u32| plot.place(i as f64, f64::from(token));
            if step.outcome() == Outcome::Miss {
                canvas.line(&[at(truth), at(predicted)], VERMILION, 1.0)?;
            }
            canvas.ring(at(truth), radius, INK, 1.25)?;
            match step.outcome() {
                Outcome::Hit => canvas.dot(at(predicted), radius * 0.55, BLUE)?,
                Outcome::Miss => canvas.cross(at(predicted), radius * 0.9, VERMILION, 1.75)?,
                Outcome::Unknowable => canvas.dot(at(predicted), radius * 0.55, MUTED)?,
            }
        }
        let mut entries =
            vec![(Sign::Ring(INK), "true".to_string()), (Sign::Dot(BLUE), "predicted right".to_string())];
        if self.has(Outcome::Miss) {
            entries.push((Sign::Cross(VERMILION), "missed".to_string()));
        }
        if self.has(Outcome::Unknowable) {
            entries.push((Sign::Dot(MUTED), "guessed".to_string()));
            entries.push((Sign::Square(SHADE), "cannot be known".to_string()));
        }
        legend(canvas, (area.left, HEADING + 10.0), &entries)
    }

    fn text<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let steps = self.shown();
        let mut entries = vec![(Sign::Square(tint(Outcome::Hit)), "right".to_string())];
        if self.has(Outcome::Miss) {
            entries.push((Sign::Square(tint(Outcome::Miss)), "missed".to_string()));
        }
        if self.has(Outcome::Unknowable) {
            entries.push((Sign::Square(tint(Outcome::Unknowable)), "cannot be known".to_string()));
        }
        legend(canvas, (MARGIN + GUTTER, HEADING + 10.0), &entries)?;
        let top = HEADING + 34.0;
        for (row, line) in self.lines().iter().enumerate() {
            let y = top + row as f64 * LINE_HEIGHT;
            let (upper, lower) = (y + 10.0, y + CELL_HEIGHT - 10.0);
            let gutter = Text::new(9.5).color(MUTED).right();
            canvas.text("true", (MARGIN + GUTTER - 8.0, upper), &gutter)?;
            canvas.text("predicted", (MARGIN + GUTTER - 8.0, lower), &gutter)?;
            if let Some((first, ..)) = line.first() {
                canvas.text(&whole(*first as u64), (MARGIN + 30.0, y + CELL_HEIGHT / 2.0), &gutter)?;
            }
            for &(i, left, width) in line {
                let outcome = steps[i].outcome();
                canvas.rect(Rect { left, top: y, width, height: CELL_HEIGHT }, tint(outcome))?;
                let middle = left + width / 2.0;
                let look = Text::new(TOKEN).centered();
                canvas.text(&visible(&steps[i].truth), (middle, upper), &look)?;
                let look = match outcome {
                    Outcome::Hit => look.color(BLUE),
                    Outcome::Miss => look.color(VERMILION).bold(),
                    Outcome::Unknowable => look.color(MUTED),
                };
                canvas.text(&visible(&steps[i].predicted), (middle, lower), &look)?;
            }
        }
        Ok(())
    }
}
