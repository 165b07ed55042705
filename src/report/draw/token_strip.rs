//! The third of three marks: the tokens of a sequence, true and predicted, over time steps.
//!
//! Integers of a short sequence are drawn as a chart, token by step. Everything else, as characters
//! and words of large vocabularies, is set like text: each cell the true token above the predicted
//! one.

use plotters::style::RGBColor;

use super::axis::{Axis, Scale};
use super::color::{BACKGROUND, BLUE, GRID, INK, MUTED, SHADE, VERMILION, mix};
use super::line_chart::{LineChart, Mark, Series, legend};
use super::number::Range;
use super::picture::{HEADING, MARGIN, Picture, Rect, WIDTH};
use super::text::Text;
use super::token_axis::visible;
use crate::terminal::thousands;

/// How a predicted token came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Hit,
    Miss,
    /// The true token could not be known, or is not.
    Unknown,
    /// Something else was guessed than what is true, where it could not be known.
    WrongGuess,
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
    /// Whether the ground behind the step is shaded: of what was given, and of guesses at what could not be
    /// known; what is not known at all has no true token.
    fn is_shaded(&self) -> bool {
        self.truth.is_some() && !matches!(self.outcome, Outcome::Hit | Outcome::Miss)
    }
}

/// What a picture calls its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub predicted: &'static str,
    pub hit: &'static str,
    pub miss: &'static str,
    pub unknown: &'static str,
    pub wrong_guess: &'static str,
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
/// Below this line, under the legend, a strip begins.
const TOP: f64 = HEADING + 34.0;

/// Cells set like text.
const TOKEN: f64 = 11.0;
const CELL_HEIGHT: f64 = 34.0;
const LINE_HEIGHT: f64 = CELL_HEIGHT + 9.0;
const START: f64 = MARGIN + 100.0;
const NARROWEST: f64 = 19.0;

/// The tint behind a cell.
pub(crate) fn tint(outcome: Outcome) -> RGBColor {
    match outcome {
        Outcome::Hit => mix(BLUE, BACKGROUND, 0.86),
        Outcome::Miss => mix(VERMILION, BACKGROUND, 0.72),
        Outcome::Unknown | Outcome::WrongGuess | Outcome::Given => SHADE,
    }
}

impl TokenStrip {
    /// A picture of the strip alone, whose `note` says where it is cut.
    pub fn picture(&self, name: &'static str, title: &str, note: &str) -> Picture {
        let cut = match self.steps.len() {
            all if all > MOST_STEPS => {
                format!("; the first {} of {} steps", thousands(MOST_STEPS as f64), thousands(all as f64))
            }
            _ => String::new(),
        };
        let (numbers, lines) = (self.numbers(), self.lines());
        let height = match numbers {
            Some(_) => CHART_HEIGHT + 52.0,
            None => lines.len() as f64 * LINE_HEIGHT + MARGIN,
        };
        let mut picture = Picture::new(name, TOP + height, title, &format!("{note}{cut}"));
        match numbers {
            Some(numbers) => self.draw_chart(&mut picture, &numbers),
            None => self.draw_text(&mut picture, &lines),
        }
        picture
    }

    fn has(&self, is_meant: impl Fn(&Step) -> bool) -> bool {
        self.steps.iter().any(is_meant)
    }

    /// Whether a predicted token stands beside a true one anywhere.
    fn is_compared(&self) -> bool {
        self.has(|step| step.truth.is_some() && step.predicted.is_some())
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

    fn draw_chart(&self, picture: &mut Picture, numbers: &[[Option<u32>; 2]]) {
        let largest = numbers.iter().flatten().flatten().max().copied().unwrap_or(0);
        let tokens = Range { start: -0.6, end: f64::from(largest) + 0.6 };
        let steps = Range { start: -0.5, end: numbers.len() as f64 - 0.5 };
        let x = Axis::new("time step", steps, Scale::Whole);
        let mut chart = LineChart::new(TOP, CHART_HEIGHT, x, Axis::new("token", tokens, Scale::Whole));
        let width = chart.area.width / numbers.len() as f64;
        for (i, _) in self.steps.iter().enumerate().filter(|(_, step)| step.is_shaded()) {
            picture.rect(Rect { left: chart.area.left + i as f64 * width, width, ..chart.area }, SHADE);
        }
        let steps = || self.steps.iter().zip(numbers).enumerate();
        let known = steps()
            .map(|(i, (_, [truth, predicted]))| (i as f64, truth.or(*predicted).map_or(f64::NAN, f64::from)));
        let mut series = vec![Series::new("", mix(MUTED, BACKGROUND, 0.55), Mark::Line(1.0), known)];
        for (i, (_, tokens)) in steps().filter(|(_, (step, _))| step.outcome == Outcome::Miss) {
            let ends = tokens.iter().flatten().map(|&token| (i as f64, token.into()));
            series.push(Series::new("", VERMILION, Mark::Line(1.0), ends));
        }
        let (radius, words) = ((width * 0.3).clamp(2.6, 6.0), &self.words);
        let truth = steps().filter_map(|(i, (_, tokens))| Some((i as f64, tokens[0]?.into())));
        let name = if self.is_compared() { "true" } else { "" };
        series.push(Series::new(name, INK, Mark::Ring(radius, 1.25), truth));
        for (outcome, name, color, mark) in [
            (Outcome::Hit, words.hit, BLUE, Mark::Dot(radius * 0.55)),
            (Outcome::Miss, words.miss, VERMILION, Mark::Cross(radius * 0.9, 1.75)),
            (Outcome::Unknown, words.unknown, MUTED, Mark::Dot(radius * 0.55)),
            (Outcome::WrongGuess, words.wrong_guess, MUTED, Mark::Cross(radius * 0.8, 1.25)),
        ] {
            let meant = steps().filter(|(_, (step, _))| step.outcome == outcome);
            let points = meant.filter_map(|(i, (_, tokens))| Some((i as f64, tokens[1]?.into())));
            series.push(Series::new(name, color, mark, points));
        }
        series.retain(|series| !series.points.is_empty());
        chart.series = series;
        chart.draw(picture);
        let shade = self.shade();
        legend(picture, (chart.area.left, HEADING + 10.0), chart.named().into_iter().chain(&shade));
    }

    /// What a legend says of the shaded ground.
    fn shade(&self) -> Option<Series> {
        self.has(Step::is_shaded).then(|| Series::new(self.words.shade, SHADE, Mark::Column, []))
    }

    /// Cells as wide as their tokens, from left to right and line by line: each the place of its step, its left
    /// edge and its width.
    fn lines(&self) -> Vec<Vec<(usize, f64, f64)>> {
        let width = |token: &Option<String>, look: &Text| {
            token.as_ref().map_or(0.0, |token| look.width(&visible(token)))
        };
        let (mut lines, mut line, mut x) = (Vec::new(), Vec::new(), START);
        for (i, step) in self.steps.iter().take(MOST_STEPS).enumerate() {
            let tokens = width(&step.truth, &Text::new(TOKEN));
            let tokens = tokens.max(width(&step.predicted, &Text::new(TOKEN).bold()));
            let width = (tokens + 8.0).max(NARROWEST).ceil();
            if x + width > WIDTH - MARGIN {
                lines.push(std::mem::take(&mut line));
                x = START;
            }
            line.push((i, x, width));
            x += width + 2.0;
        }
        lines.push(line);
        lines
    }

    fn draw_text(&self, picture: &mut Picture, lines: &[Vec<(usize, f64, f64)>]) {
        let words = &self.words;
        let named = [
            (Outcome::Hit, words.hit, tint(Outcome::Hit), Mark::Column),
            (Outcome::Miss, words.miss, tint(Outcome::Miss), Mark::Column),
            (Outcome::WrongGuess, words.wrong_guess, MUTED, Mark::Frame(12.0)),
        ];
        let named = named.into_iter().filter(|&(outcome, ..)| self.has(|step| step.outcome == outcome));
        let named = named.map(|(_, name, color, mark)| Series::new(name, color, mark, []));
        legend(picture, (START, HEADING + 10.0), &named.chain(self.shade()).collect::<Vec<_>>());
        let gutter = Text::new(9.5).color(MUTED).right();
        for (row, line) in lines.iter().enumerate() {
            let y = TOP + row as f64 * LINE_HEIGHT;
            let (upper, lower) = (y + 10.0, y + CELL_HEIGHT - 10.0);
            let any = |has: fn(&Step) -> bool| line.iter().any(|&(i, ..)| has(&self.steps[i]));
            if any(|step| step.truth.is_some()) {
                let word = if self.is_compared() { "true" } else { words.shade };
                picture.text(word, (START - 8.0, upper), &gutter);
            }
            if any(|step| step.predicted.is_some()) {
                picture.text(words.predicted, (START - 8.0, lower), &gutter);
            }
            if let Some((first, ..)) = line.first() {
                let place = (MARGIN + 30.0, y + CELL_HEIGHT / 2.0);
                picture.text(&thousands(*first as f64), place, &gutter);
            }
            for &(i, left, width) in line {
                let cell = Rect { left, top: y, width, height: CELL_HEIGHT };
                self.steps[i].draw(picture, cell, (upper, lower));
            }
        }
    }
}

impl Step {
    /// Draws the true token above the predicted one, each in the middle of its line.
    fn draw(&self, picture: &mut Picture, cell: Rect, (upper, lower): (f64, f64)) {
        let Step { truth, predicted, outcome } = self;
        if *outcome == Outcome::Unknown && truth.is_none() {
            picture.frame(cell, GRID, 1.0);
        } else {
            picture.rect(cell, tint(*outcome));
        }
        let (middle, _) = cell.center();
        let look = Text::new(TOKEN).centered();
        if let Some(truth) = truth {
            picture.text(&visible(truth), (middle, upper), &look);
        }
        let look = match outcome {
            Outcome::Hit => look.color(BLUE),
            Outcome::Miss => look.color(VERMILION).bold(),
            Outcome::Unknown if truth.is_none() => look,
            Outcome::Unknown | Outcome::WrongGuess | Outcome::Given => look.color(MUTED),
        };
        if let Some(predicted) = predicted {
            picture.text(&visible(predicted), (middle, lower), &look);
        }
        // A line through or below a sign would make another of it.
        if *outcome == Outcome::WrongGuess {
            let (top, width) = (lower - 8.0, cell.width - 3.0);
            picture.frame(Rect { left: cell.left + 1.5, top, width, height: 16.0 }, MUTED, 0.75);
        }
    }
}
