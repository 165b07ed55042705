//! The third of three marks: the tokens of a sequence, true and predicted, over time steps.
//!
//! Integers of a short sequence are drawn as a chart, token by step. Everything else, as characters
//! and words of large vocabularies, is set like text: each cell the true token above the predicted
//! one.

use plotters::style::RGBColor;

use super::axis::{Axis, wide_area};
use super::canvas::{Canvas, Rect};
use super::color::{BACKGROUND, BLUE, GRID, INK, MUTED, SHADE, VERMILION, mix};
use super::line_chart::{Entry, LineChart, Mark, Series, Sign, legend};
use super::picture::{HEADING, MARGIN, WIDTH};
use super::range::{Range, whole};
use super::text::Text;
use super::token::visible;

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
    /// Whether something else was guessed than what is true, where it could not be known.
    fn is_wrong_guess(&self) -> bool {
        self.outcome == Outcome::Unknown
            && self.truth.is_some()
            && self.predicted.is_some()
            && self.truth != self.predicted
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
pub(crate) struct TokenStrip {
    pub steps: Vec<Step>,
    pub words: Words,
}

/// Charts have at most so many steps, and tokens between 0 and this number.
const CHART_STEPS: usize = 100;
const CHART_TOKENS: u32 = 40;
const CHART_HEIGHT: f64 = 300.0;
/// Longer sequences are cut, which the pictures say.
const MOST_STEPS: usize = 1_024;

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

impl TokenStrip {
    /// The height of a picture with this strip below its heading.
    pub fn height(&self) -> f64 {
        match self.numbers() {
            Some(_) => HEADING + 34.0 + CHART_HEIGHT + 52.0,
            None => HEADING + 34.0 + self.lines().len() as f64 * LINE_HEIGHT + MARGIN,
        }
    }

    /// What a note adds where the strip is cut.
    pub fn cut(&self) -> String {
        match self.steps.len() {
            all if all > MOST_STEPS => {
                format!("; the first {} of {} steps", whole(MOST_STEPS as u64), whole(all as u64))
            }
            _ => String::new(),
        }
    }

    /// Draws the strip below the heading.
    pub fn draw(&self, canvas: &mut Canvas) {
        match self.numbers() {
            Some(numbers) => self.chart(canvas, &numbers),
            None => self.text(canvas),
        }
    }

    fn has(&self, outcome: Outcome) -> bool {
        self.steps.iter().any(|step| step.outcome == outcome)
    }

    fn guesses_wrong(&self) -> bool {
        self.steps.iter().any(Step::is_wrong_guess)
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

    fn chart(&self, canvas: &mut Canvas, numbers: &[[Option<u32>; 2]]) {
        let largest = numbers.iter().flatten().flatten().max().copied().unwrap_or(0);
        let y = Axis::whole("token", Range { start: -0.6, end: f64::from(largest) + 0.6 });
        let x = Axis::whole("time step", Range { start: -0.5, end: numbers.len() as f64 - 0.5 });
        let area = wide_area(HEADING + 34.0, CHART_HEIGHT, &y, None);
        let width = area.width / numbers.len() as f64;
        for (i, _) in self.steps.iter().enumerate().filter(|(_, step)| step.shaded()) {
            canvas.rect(Rect { left: area.left + i as f64 * width, width, ..area }, SHADE);
        }
        let steps = || self.steps.iter().zip(numbers).enumerate();
        // The places of those steps' true or predicted tokens for which `is_meant` holds.
        let tokens = |which: usize, is_meant: &dyn Fn(&Step) -> bool| -> Vec<(f64, f64)> {
            let meant = steps().filter(|(_, (step, _))| is_meant(step));
            meant.filter_map(|(i, (_, tokens))| Some((i as f64, tokens[which]?.into()))).collect()
        };
        let known = steps()
            .map(|(i, (_, [truth, predicted]))| (i as f64, truth.or(*predicted).map_or(f64::NAN, f64::from)));
        let mut series = vec![Series::new("", mix(MUTED, BACKGROUND, 0.55), Mark::Line(1.0), known)];
        for (i, (_, tokens)) in steps().filter(|(_, (step, _))| step.outcome == Outcome::Miss) {
            let ends = tokens.iter().flatten().map(|&token| (i as f64, token.into()));
            series.push(Series::new("", VERMILION, Mark::Line(1.0), ends));
        }
        let radius = (width * 0.3).clamp(2.6, 6.0);
        let truth = if self.compared() { "true" } else { "" };
        series.push(Series::new(truth, INK, Mark::Ring(radius, 1.25), tokens(0, &|_| true)));
        let predicted = |is_meant: &dyn Fn(&Step) -> bool| tokens(1, is_meant);
        let is = |outcome: Outcome| move |step: &Step| step.outcome == outcome && !step.is_wrong_guess();
        let (hit, miss, words) = (is(Outcome::Hit), is(Outcome::Miss), &self.words);
        series.extend([
            Series::new(words.hit, BLUE, Mark::Dot(radius * 0.55), predicted(&hit)),
            Series::new(words.miss, VERMILION, Mark::Cross(radius * 0.9, 1.75), predicted(&miss)),
            Series::new(words.unknown, MUTED, Mark::Dot(radius * 0.55), predicted(&is(Outcome::Unknown))),
            Series::new(
                format!("{} wrong", words.unknown),
                MUTED,
                Mark::Cross(radius * 0.8, 1.25),
                predicted(&Step::is_wrong_guess),
            ),
        ]);
        series.retain(|series| !series.points.is_empty());
        let chart = LineChart { area, x, y, series };
        chart.draw(canvas);
        let mut entries = chart.entries();
        entries.extend(self.shade_entry());
        legend(canvas, (area.left, HEADING + 10.0), &entries);
    }

    fn shade_entry(&self) -> Option<Entry> {
        let is_shaded = self.steps.iter().any(Step::shaded);
        is_shaded.then(|| Entry::new(Sign::Square, SHADE, self.words.shade))
    }

    /// Cells as wide as their tokens, from left to right and line by line.
    fn lines(&self) -> Vec<Vec<Cell>> {
        let width = |token: &Option<String>, look: &Text| {
            token.as_ref().map_or(0.0, |token| look.width(&visible(token)))
        };
        let mut lines = vec![Vec::new()];
        let start = MARGIN + GUTTER;
        let mut x = start;
        for (i, step) in self.steps.iter().take(MOST_STEPS).enumerate() {
            let tokens = width(&step.truth, &Text::new(TOKEN));
            let tokens = tokens.max(width(&step.predicted, &Text::new(TOKEN).bold()));
            let width = (tokens + 8.0).max(NARROWEST).ceil();
            if x + width > WIDTH - MARGIN {
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

    fn text(&self, canvas: &mut Canvas) {
        let outcomes = [(Outcome::Hit, self.words.hit), (Outcome::Miss, self.words.miss)];
        let outcomes = outcomes.into_iter().filter(|(outcome, _)| self.has(*outcome));
        let mut entries: Vec<Entry> =
            outcomes.map(|(outcome, word)| Entry::new(Sign::Square, tint(outcome), word)).collect();
        if self.guesses_wrong() {
            entries.push(Entry::new(Sign::Box, MUTED, format!("{} wrong", self.words.unknown)));
        }
        entries.extend(self.shade_entry());
        legend(canvas, (MARGIN + GUTTER, HEADING + 10.0), &entries);
        for (row, line) in self.lines().iter().enumerate() {
            let y = HEADING + 34.0 + row as f64 * LINE_HEIGHT;
            let (upper, lower) = (y + 10.0, y + CELL_HEIGHT - 10.0);
            let gutter = Text::new(9.5).color(MUTED).right();
            let steps = || line.iter().map(|&(i, ..)| &self.steps[i]);
            if steps().any(|step| step.truth.is_some()) {
                let word = if self.compared() { "true" } else { self.words.shade };
                canvas.text(word, (MARGIN + GUTTER - 8.0, upper), &gutter);
            }
            if steps().any(|step| step.predicted.is_some()) {
                canvas.text(self.words.predicted, (MARGIN + GUTTER - 8.0, lower), &gutter);
            }
            if let Some((first, ..)) = line.first() {
                canvas.text(&whole(*first as u64), (MARGIN + 30.0, y + CELL_HEIGHT / 2.0), &gutter);
            }
            for &(i, left, width) in line {
                let cell = Rect { left, top: y, width, height: CELL_HEIGHT };
                self.steps[i].draw(canvas, cell, (upper, lower));
            }
        }
    }
}

impl Step {
    /// Draws the true token above the predicted one, each in the middle of its line.
    fn draw(&self, canvas: &mut Canvas, cell: Rect, (upper, lower): (f64, f64)) {
        let Step { truth, predicted, outcome } = self;
        if self.shaded() || *outcome != Outcome::Unknown {
            canvas.rect(cell, tint(*outcome));
        } else {
            canvas.frame(cell, GRID, 1.0);
        }
        let (middle, _) = cell.center();
        let look = Text::new(TOKEN).centered();
        if let Some(truth) = truth {
            canvas.text(&visible(truth), (middle, upper), &look);
        }
        let look = match outcome {
            Outcome::Hit => look.color(BLUE),
            Outcome::Miss => look.color(VERMILION).bold(),
            Outcome::Unknown if truth.is_none() => look,
            Outcome::Unknown | Outcome::Given => look.color(MUTED),
        };
        if let Some(predicted) = predicted {
            canvas.text(&visible(predicted), (middle, lower), &look);
            // A line through or below a sign would make another of it.
            if self.is_wrong_guess() {
                let ground =
                    Rect { left: cell.left + 1.5, top: lower - 8.0, width: cell.width - 3.0, height: 16.0 };
                canvas.frame(ground, MUTED, 0.75);
            }
        }
    }
}
