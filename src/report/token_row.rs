//! Tokens of a sequence, true and predicted, over time steps.
//!
//! Integers of a short sequence are drawn as a chart, token by step. Everything else, as characters
//! and words of large vocabularies, is set like text: each cell the true token above the predicted
//! one.

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

use super::axis::{HEADING, LABEL, MARGIN, Plot, Sign, WIDTH, legend};
use super::canvas::{Canvas, Rect};
use super::color::{BACKGROUND, BLUE, GRID, INK, MUTED, SHADE, VERMILION, mix};
use super::range::{Range, tick_labels, whole};
use super::text::Text;
use super::token::visible;
use crate::error::Result;

/// How a predicted token came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Hit,
    Miss,
    /// The true token could not be known, or is not.
    Unknown,
    /// Nothing was predicted here.
    Given,
}

/// One position; it has at least one of both tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub truth: Option<String>,
    pub predicted: Option<String>,
    pub outcome: Outcome,
}

impl Step {
    /// Whether something else was predicted than what is true.
    fn misses(&self) -> bool {
        self.truth.is_some() && self.predicted.is_some() && self.truth != self.predicted
    }

    /// Whether the ground behind the step is shaded.
    fn shaded(&self) -> bool {
        match self.outcome {
            Outcome::Given => true,
            // A guess at what could not be known; what is not known at all has no true token.
            Outcome::Unknown => self.truth.is_some(),
            Outcome::Hit | Outcome::Miss => false,
        }
    }
}

/// What a picture calls its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub predicted: &'static str,
    pub hit: &'static str,
    pub miss: &'static str,
    pub unknown: &'static str,
    /// The shaded ground.
    pub shade: &'static str,
}

/// The steps of one sequence.
#[derive(Debug, Clone)]
pub(crate) struct TokenRow {
    pub steps: Vec<Step>,
    pub words: Words,
}

/// Charts have at most so many steps, and tokens between 0 and this number.
const CHART_STEPS: usize = 100;
const CHART_TOKENS: u32 = 40;
const CHART_HEIGHT: f64 = 300.0;
/// Longer sequences are cut, which the pictures say.
pub(crate) const MOST_STEPS: usize = 1_024;

/// Cells set like text.
const TOKEN: f64 = 11.0;
const CELL_HEIGHT: f64 = 34.0;
const LINE_HEIGHT: f64 = CELL_HEIGHT + 9.0;
const GUTTER: f64 = 100.0;
const NARROWEST: f64 = 19.0;

/// A cell of text: its step, its left edge and its width.
type Cell = (usize, f64, f64);

/// The tint behind a cell.
pub(crate) fn tint(outcome: Outcome) -> RGBColor {
    match outcome {
        Outcome::Hit => mix(BLUE, BACKGROUND, 0.86),
        Outcome::Miss => mix(VERMILION, BACKGROUND, 0.72),
        Outcome::Unknown | Outcome::Given => SHADE,
    }
}

impl TokenRow {
    /// The height of a picture with this row below its heading.
    pub fn height(&self) -> u32 {
        let height = match self.numbers() {
            Some(_) => HEADING + 34.0 + CHART_HEIGHT + 52.0,
            None => HEADING + 34.0 + self.lines().len() as f64 * LINE_HEIGHT + MARGIN,
        };
        height.ceil() as u32
    }

    /// Draws the row below the heading.
    pub fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        match self.numbers() {
            Some(numbers) => self.chart(canvas, &numbers),
            None => self.text(canvas),
        }
    }

    fn has(&self, outcome: Outcome) -> bool {
        self.steps.iter().any(|step| step.outcome == outcome)
    }

    /// Whether a predicted token stands beside a true one anywhere.
    fn compared(&self) -> bool {
        self.steps.iter().any(|step| step.truth.is_some() && step.predicted.is_some())
    }

    /// The tokens as numbers, true and predicted, where a chart of them can be read.
    fn numbers(&self) -> Option<Vec<[Option<u32>; 2]>> {
        if self.steps.len() > CHART_STEPS {
            return None;
        }
        let number = |token: &Option<String>| match token {
            None => Some(None),
            Some(text) => text.parse().ok().filter(|&number: &u32| number <= CHART_TOKENS).map(Some),
        };
        self.steps.iter().map(|step| Some([number(&step.truth)?, number(&step.predicted)?])).collect()
    }

    fn chart<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        numbers: &[[Option<u32>; 2]],
    ) -> Result<()> {
        let area = Rect {
            left: MARGIN + 58.0,
            top: HEADING + 34.0,
            width: f64::from(WIDTH) - 2.0 * MARGIN - 58.0,
            height: CHART_HEIGHT,
        };
        let largest = numbers.iter().flatten().flatten().max().copied().unwrap_or(0);
        let plot = Plot {
            area,
            x: Range { start: -0.5, end: numbers.len() as f64 - 0.5 },
            y: Range { start: -0.6, end: f64::from(largest) + 0.6 },
        };
        let step_width = area.width / numbers.len() as f64;
        for (i, _) in self.steps.iter().enumerate().filter(|(_, step)| step.shaded()) {
            let left = area.left + i as f64 * step_width;
            canvas.rect(Rect { left, width: step_width, ..area }, SHADE)?;
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
        let known = numbers
            .iter()
            .enumerate()
            .map(|(i, [truth, predicted])| (i as f64, truth.or(*predicted).map_or(f64::NAN, f64::from)));
        plot.curve(canvas, known, mix(MUTED, BACKGROUND, 0.55), 1.0)?;
        for (i, (step, numbers)) in self.steps.iter().zip(numbers).enumerate() {
            let [truth, predicted] =
                numbers.map(|token| token.map(|token| plot.place(i as f64, token.into())));
            if let (Outcome::Miss, Some(truth), Some(predicted)) = (step.outcome, truth, predicted) {
                canvas.line(&[truth, predicted], VERMILION, 1.0)?;
            }
            if let Some(truth) = truth {
                canvas.ring(truth, radius, INK, 1.25)?;
            }
            if let Some(predicted) = predicted {
                match step.outcome {
                    Outcome::Hit => canvas.dot(predicted, radius * 0.55, BLUE)?,
                    Outcome::Miss => canvas.cross(predicted, radius * 0.9, VERMILION, 1.75)?,
                    Outcome::Unknown if step.misses() => {
                        canvas.cross(predicted, radius * 0.8, MUTED, 1.25)?
                    }
                    Outcome::Unknown | Outcome::Given => canvas.dot(predicted, radius * 0.55, MUTED)?,
                }
            }
        }
        self.chart_legend(canvas, area.left)
    }

    fn chart_legend<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>, left: f64) -> Result<()> {
        let mut entries = Vec::new();
        if self.compared() {
            entries.push((Sign::Ring(INK), "true".to_string()));
        }
        for (outcome, sign, word) in [
            (Outcome::Hit, Sign::Dot(BLUE), self.words.hit),
            (Outcome::Miss, Sign::Cross(VERMILION), self.words.miss),
            (Outcome::Unknown, Sign::Dot(MUTED), self.words.unknown),
        ] {
            if self.has(outcome) {
                entries.push((sign, word.to_string()));
            }
        }
        if self.steps.iter().any(|step| step.outcome == Outcome::Unknown && step.misses()) {
            entries.push((Sign::Cross(MUTED), format!("{} wrong", self.words.unknown)));
        }
        if self.steps.iter().any(Step::shaded) {
            entries.push((Sign::Square(SHADE), self.words.shade.to_string()));
        }
        legend(canvas, (left, HEADING + 10.0), &entries)
    }

    fn shown(&self) -> &[Step] {
        &self.steps[..self.steps.len().min(MOST_STEPS)]
    }

    /// Cells as wide as their tokens, from left to right and line by line.
    fn lines(&self) -> Vec<Vec<Cell>> {
        let width = |token: &Option<String>, look: &Text| {
            token.as_ref().map_or(0.0, |token| look.width(&visible(token)))
        };
        let mut lines = vec![Vec::new()];
        let start = MARGIN + GUTTER;
        let mut x = start;
        for (i, step) in self.shown().iter().enumerate() {
            let tokens = width(&step.truth, &Text::new(TOKEN));
            let tokens = tokens.max(width(&step.predicted, &Text::new(TOKEN).bold()));
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

    fn text<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let mut entries = Vec::new();
        for (outcome, word) in [(Outcome::Hit, self.words.hit), (Outcome::Miss, self.words.miss)] {
            if self.has(outcome) {
                entries.push((Sign::Square(tint(outcome)), word.to_string()));
            }
        }
        if self.steps.iter().any(|step| step.outcome == Outcome::Unknown && step.misses()) {
            entries.push((Sign::Line(MUTED), format!("{} wrong", self.words.unknown)));
        }
        if self.steps.iter().any(Step::shaded) {
            entries.push((Sign::Square(SHADE), self.words.shade.to_string()));
        }
        legend(canvas, (MARGIN + GUTTER, HEADING + 10.0), &entries)?;
        let top = HEADING + 34.0;
        for (row, line) in self.lines().iter().enumerate() {
            let y = top + row as f64 * LINE_HEIGHT;
            let (upper, lower) = (y + 10.0, y + CELL_HEIGHT - 10.0);
            let gutter = Text::new(9.5).color(MUTED).right();
            let steps = || line.iter().map(|&(i, ..)| &self.steps[i]);
            if steps().any(|step| step.truth.is_some()) {
                let word = if self.compared() { "true" } else { self.words.shade };
                canvas.text(word, (MARGIN + GUTTER - 8.0, upper), &gutter)?;
            }
            if steps().any(|step| step.predicted.is_some()) {
                canvas.text(self.words.predicted, (MARGIN + GUTTER - 8.0, lower), &gutter)?;
            }
            if let Some((first, ..)) = line.first() {
                canvas.text(&whole(*first as u64), (MARGIN + 30.0, y + CELL_HEIGHT / 2.0), &gutter)?;
            }
            for &(i, left, width) in line {
                let Step { truth, predicted, outcome } = &self.steps[i];
                let cell = Rect { left, top: y, width, height: CELL_HEIGHT };
                if self.steps[i].shaded() || *outcome != Outcome::Unknown {
                    canvas.rect(cell, tint(*outcome))?;
                } else {
                    canvas.frame(cell, GRID, 1.0)?;
                }
                let middle = left + width / 2.0;
                let look = Text::new(TOKEN).centered();
                if let Some(truth) = truth {
                    canvas.text(&visible(truth), (middle, upper), &look)?;
                }
                let look = match outcome {
                    Outcome::Hit => look.color(BLUE),
                    Outcome::Miss => look.color(VERMILION).bold(),
                    Outcome::Unknown if truth.is_none() => look,
                    Outcome::Unknown | Outcome::Given => look.color(MUTED),
                };
                if let Some(predicted) = predicted {
                    canvas.text(&visible(predicted), (middle, lower), &look)?;
                    if *outcome == Outcome::Unknown && self.steps[i].misses() {
                        let half = Text::new(TOKEN).width(&visible(predicted)) / 2.0 + 1.0;
                        canvas.line(&[(middle - half, lower), (middle + half, lower)], MUTED, 1.0)?;
                    }
                }
            }
        }
        Ok(())
    }
}
