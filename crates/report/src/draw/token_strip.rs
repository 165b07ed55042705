//! The third of three kinds of charts: the true and the predicted tokens of a sequence.
//!
//! Small integers of a short sequence are drawn as a chart of tokens by position. All other tokens, such as characters
//! and words, are laid out as text, with the true token above the predicted one.

use plotters::style::RGBColor;

use super::axis::{Axis, Scale};
use super::color::{BACKGROUND, BLUE, GRID, INK, MUTED, SHADE, VERMILION, mix};
use super::line_chart::{LineChart, Mark, Series, legend};
use super::number::Interval;
use super::picture::{HEADING, MARGIN, Picture, Rect, WIDTH};
use super::text::Text;
use super::token_axis::visible;
use crate::numbers::thousands;

/// The comparison of a predicted token with the true token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The tokens are the same.
    Hit,
    /// The tokens differ.
    Miss,
    /// One of the tokens is missing, or the true token is undetermined and was guessed right.
    Unknown,
    /// The tokens differ, but the true token is undetermined.
    WrongGuess,
}

/// A position of a sequence, with its true token, its predicted token or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The true token.
    pub truth: Option<String>,
    /// The predicted token.
    pub predicted: Option<String>,
    /// The comparison of the two tokens.
    pub outcome: Outcome,
}

/// The steps of a sequence, with the names shown in the picture.
#[derive(Debug, Clone)]
pub struct TokenStrip {
    /// The steps.
    pub steps: Vec<Step>,
    /// The name of the predicted tokens.
    pub predicted: &'static str,
    /// The name of the shaded background.
    pub shade: &'static str,
    /// The names of a hit, a miss, an unknown outcome, and a wrong guess.
    pub outcomes: [&'static str; 4],
}

/// The limits of a chart: the number of steps, and the largest token. Beyond them, tokens are laid out as text.
const MAX_CHART_STEPS: usize = 100;
const MAX_CHART_TOKEN: f64 = 40.0;
const CHART_HEIGHT: f64 = 300.0;
/// The maximum number of steps; longer sequences are truncated, which the note reports.
const MAX_STEPS: usize = 1_024;
/// The vertical position at which a strip begins, below the legend.
const TOP: f64 = HEADING + 34.0;

/// The dimensions of cells laid out as text.
const TOKEN_SIZE: f64 = 11.0;
const CELL_HEIGHT: f64 = 34.0;
const LINE_HEIGHT: f64 = CELL_HEIGHT + 9.0;
const FIRST_CELL: f64 = MARGIN + 100.0;
const MIN_CELL_WIDTH: f64 = 19.0;

/// Returns the background colour of a cell.
pub(crate) fn tint(outcome: Outcome) -> RGBColor {
    match outcome {
        Outcome::Hit => mix(BLUE, BACKGROUND, 0.86),
        Outcome::Miss => mix(VERMILION, BACKGROUND, 0.72),
        Outcome::Unknown | Outcome::WrongGuess => SHADE,
    }
}

impl TokenStrip {
    /// Draws the strip. If the strip is truncated, the number of positions is appended to `note`.
    pub fn picture(&self, name: &'static str, title: &str, note: &str) -> Picture {
        let [shown, all] = [MAX_STEPS, self.steps.len()].map(|steps| thousands(steps as f64));
        let is_cut = self.steps.len() > MAX_STEPS;
        let cut = if is_cut { format!("; first {shown} of {all} positions") } else { String::new() };
        let (numbers, lines) = (self.numbers(), self.lines());
        let text_height = lines.len() as f64 * LINE_HEIGHT + MARGIN;
        let height = numbers.as_ref().map_or(text_height, |_| CHART_HEIGHT + 52.0);
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

    /// Returns the name of the true tokens; `None` if no step has both a true and a predicted token.
    fn truth(&self) -> Option<&'static str> {
        self.has(|step| step.truth.is_some() && step.predicted.is_some()).then_some("true")
    }

    /// Returns the true and predicted tokens as numbers, if they are few and small enough for a chart.
    fn numbers(&self) -> Option<Vec<[Option<f64>; 2]>> {
        let number = |token: &Option<String>| {
            let number = token.as_ref().map(|text| text.parse::<u32>().map(f64::from)).transpose().ok()?;
            number.is_none_or(|number| number <= MAX_CHART_TOKEN).then_some(number)
        };
        let numbers = self.steps.iter().map(|step| Some([number(&step.truth)?, number(&step.predicted)?]));
        if self.steps.len() > MAX_CHART_STEPS { None } else { numbers.collect() }
    }

    fn draw_chart(&self, picture: &mut Picture, numbers: &[[Option<f64>; 2]]) {
        let largest = numbers.iter().flatten().flatten().copied().fold(0.0, f64::max);
        let x = Interval { start: -0.5, end: numbers.len() as f64 - 0.5 };
        let y = Axis::new("token", Interval { start: -0.6, end: largest + 0.6 }, Scale::Integer);
        let mut chart = LineChart::new(TOP, CHART_HEIGHT, Axis::new("time step", x, Scale::Integer), y);
        let width = chart.area.width / numbers.len() as f64;
        for (i, _) in self.steps.iter().enumerate().filter(|(_, step)| step.is_shaded()) {
            picture.rect(Rect { left: chart.area.left + i as f64 * width, width, ..chart.area }, SHADE);
        }
        let steps =
            || (0..).zip(&self.steps).zip(numbers).map(|((i, step), &tokens)| (f64::from(i), step, tokens));
        let of = |outcome: Outcome| steps().filter(move |(_, step, _)| step.outcome == outcome);
        let known = steps().map(|(x, _, [truth, predicted])| (x, truth.or(predicted).unwrap_or(f64::NAN)));
        chart.series.push(Series::new("", mix(MUTED, BACKGROUND, 0.55), Mark::Line(1.0), known));
        for (x, _, tokens) in of(Outcome::Miss) {
            let ends = tokens.into_iter().flatten().map(|token| (x, token));
            chart.series.push(Series::new("", VERMILION, Mark::Line(1.0), ends));
        }
        let radius = (width * 0.3).clamp(2.6, 6.0);
        let truth = steps().filter_map(|(x, _, [truth, _])| Some((x, truth?)));
        chart.series.push(Series::new(self.truth().unwrap_or(""), INK, Mark::Ring(radius, 1.25), truth));
        let styles = [
            (Outcome::Hit, BLUE, Mark::Dot(radius * 0.55)),
            (Outcome::Miss, VERMILION, Mark::Cross(radius * 0.9, 1.75)),
            (Outcome::Unknown, MUTED, Mark::Dot(radius * 0.55)),
            (Outcome::WrongGuess, MUTED, Mark::Cross(radius * 0.8, 1.25)),
        ];
        for ((outcome, color, mark), name) in styles.into_iter().zip(self.outcomes) {
            let points = of(outcome).filter_map(|(x, _, [_, predicted])| Some((x, predicted?)));
            chart.series.push(Series::new(name, color, mark, points));
        }
        chart.series.retain(|series| !series.points.is_empty());
        chart.draw(picture);
        legend(picture, (chart.area.left, HEADING + 10.0), chart.named().into_iter().chain(&self.shade()));
    }

    /// Returns the legend entry for the shaded background.
    fn shade(&self) -> Option<Series> {
        self.has(Step::is_shaded).then(|| Series::new(self.shade, SHADE, Mark::Column, []))
    }

    /// Returns the cells line by line, each as wide as its tokens and with the index of its step.
    fn lines(&self) -> Vec<Vec<(usize, Rect)>> {
        let (mut lines, mut left) = (vec![Vec::new()], FIRST_CELL);
        for (i, step) in self.steps.iter().take(MAX_STEPS).enumerate() {
            let styles =
                [(&step.truth, Text::new(TOKEN_SIZE)), (&step.predicted, Text::new(TOKEN_SIZE).bold())];
            let widths =
                styles.map(|(token, style)| token.as_ref().map_or(0.0, |token| style.width(&visible(token))));
            let width = (widths[0].max(widths[1]) + 8.0).max(MIN_CELL_WIDTH).ceil();
            if left + width > WIDTH - MARGIN {
                lines.push(Vec::new());
                left = FIRST_CELL;
            }
            let row = lines.len() - 1;
            let top = TOP + row as f64 * LINE_HEIGHT;
            lines[row].push((i, Rect { left, top, width, height: CELL_HEIGHT }));
            left += width + 2.0;
        }
        lines
    }

    fn draw_text(&self, picture: &mut Picture, lines: &[Vec<(usize, Rect)>]) {
        let [hit, miss, _, wrong_guess] = self.outcomes;
        let named = [
            (Outcome::Hit, hit, tint(Outcome::Hit), Mark::Column),
            (Outcome::Miss, miss, tint(Outcome::Miss), Mark::Column),
            (Outcome::WrongGuess, wrong_guess, MUTED, Mark::Frame(12.0)),
        ];
        let named = named.into_iter().filter(|&(outcome, ..)| self.has(|step| step.outcome == outcome));
        let named = named.map(|(_, name, color, mark)| Series::new(name, color, mark, []));
        legend(picture, (FIRST_CELL, HEADING + 10.0), &named.chain(self.shade()).collect::<Vec<_>>());
        let gutter = Text::new(9.5).color(MUTED).right();
        for line in lines {
            let (first, Rect { top, height, .. }) = line[0];
            let any = |has: fn(&Step) -> bool| line.iter().any(|&(i, _)| has(&self.steps[i]));
            if any(|step| step.truth.is_some()) {
                picture.text(
                    self.truth().unwrap_or(self.shade),
                    (FIRST_CELL - 8.0, top + TRUTH_LINE),
                    &gutter,
                );
            }
            if any(|step| step.predicted.is_some()) {
                picture.text(self.predicted, (FIRST_CELL - 8.0, top + PREDICTION_LINE), &gutter);
            }
            picture.text(&thousands(first as f64), (MARGIN + 30.0, top + height / 2.0), &gutter);
            line.iter().for_each(|&(i, cell)| self.steps[i].draw(picture, cell));
        }
    }
}

/// The vertical centres of the true token and of the predicted one in a cell.
const TRUTH_LINE: f64 = 10.0;
const PREDICTION_LINE: f64 = CELL_HEIGHT - 10.0;

impl Step {
    /// Returns true if the background of the step is shaded: it shows a given token or a guess at an undetermined one.
    /// A step without a true token is not shaded.
    fn is_shaded(&self) -> bool {
        self.truth.is_some() && !matches!(self.outcome, Outcome::Hit | Outcome::Miss)
    }

    fn draw(&self, picture: &mut Picture, cell: Rect) {
        let Step { truth, predicted, outcome } = self;
        if *outcome == Outcome::Unknown && truth.is_none() {
            picture.frame(cell, GRID, 1.0);
        } else {
            picture.rect(cell, tint(*outcome));
        }
        let (middle, _) = cell.center();
        let plain = Text::new(TOKEN_SIZE).centered();
        let style = match outcome {
            Outcome::Hit => plain.color(BLUE),
            Outcome::Miss => plain.color(VERMILION).bold(),
            Outcome::Unknown if truth.is_none() => plain,
            Outcome::Unknown | Outcome::WrongGuess => plain.color(MUTED),
        };
        for (token, style, line) in [(truth, plain, TRUTH_LINE), (predicted, style, PREDICTION_LINE)] {
            if let Some(token) = token {
                picture.text(&visible(token), (middle, cell.top + line), &style);
            }
        }
        // A line through or below a character could make it look like another one, so a frame marks a wrong guess.
        if *outcome == Outcome::WrongGuess {
            let (left, top, width) = (cell.left + 1.5, cell.top + PREDICTION_LINE - 8.0, cell.width - 3.0);
            picture.frame(Rect { left, top, width, height: 16.0 }, MUTED, 0.75);
        }
    }
}
