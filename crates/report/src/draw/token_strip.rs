//! Token strips: the true and the predicted tokens of a sequence.
//!
//! Small integers of a short sequence are drawn as a chart of tokens by position. All other tokens, such as characters
//! and words, are laid out as text, with the true token above the predicted one.

use plotters::style::RGBColor;

use super::axis::{Axis, Scale};
use super::color::{BACKGROUND, BLUE, GRID, INK, MUTED, SHADE, VERMILION, mix};
use super::line_chart::{LineChart, Mark, Series, legend};
use super::number::Interval;
use super::picture::{HEADING, MARGIN, Picture, Rect};
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
    /// One of the tokens is missing, or the tokens are the same and the true token is undetermined.
    Unknown,
    /// The tokens differ, but the true token is undetermined.
    WrongGuess,
}

/// A position of a sequence, with its true token, its predicted token or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedToken {
    /// The true token.
    pub truth: Option<String>,
    /// The predicted token.
    pub predicted: Option<String>,
    /// The comparison of the two tokens.
    pub outcome: Outcome,
}

/// The tokens of a sequence by position, with the names for the legend of the picture.
#[derive(Debug, Clone)]
pub struct TokenStrip {
    /// The tokens, one per position.
    pub tokens: Vec<ComparedToken>,
    /// The name of the predicted tokens.
    pub predicted: &'static str,
    /// The name of the shaded background.
    pub shade: &'static str,
    /// The names of a hit, a miss, an unknown outcome, and a wrong guess.
    pub outcomes: [&'static str; 4],
}

/// The limits of a chart: the least width of a position, and the largest token. Beyond them, tokens are laid out as text.
const MIN_CHART_PITCH: f64 = 8.0;
const MAX_CHART_TOKEN: f64 = 40.0;
const CHART_HEIGHT: f64 = 300.0;
/// The maximum number of positions; longer sequences are truncated, which the note reports.
const MAX_POSITIONS: usize = 1_024;
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
    /// Draws the strip in a picture of this width. If the strip is truncated, the number of positions is appended to `note`.
    pub fn picture(&self, name: &'static str, width: f64, title: &str, note: &str) -> Picture {
        let [shown, all] = [MAX_POSITIONS, self.tokens.len()].map(|count| thousands(count as f64));
        let is_cut = self.tokens.len() > MAX_POSITIONS;
        let cut = if is_cut { format!("; first {shown} of {all} positions") } else { String::new() };
        let (numbers, lines) = (self.numbers(width), self.lines(width));
        let text_height = lines.len() as f64 * LINE_HEIGHT + MARGIN;
        let height = numbers.as_ref().map_or(text_height, |_| CHART_HEIGHT + 52.0);
        let mut picture = Picture::new(name, (width, TOP + height), title, &format!("{note}{cut}"));
        match numbers {
            Some(numbers) => self.draw_chart(&mut picture, &numbers),
            None => self.draw_text(&mut picture, &lines),
        }
        picture
    }

    fn any(&self, predicate: impl Fn(&ComparedToken) -> bool) -> bool {
        self.tokens.iter().any(predicate)
    }

    /// Returns the name of the true tokens; `None` if no position has both a true and a predicted token.
    fn truth(&self) -> Option<&'static str> {
        self.any(|token| token.truth.is_some() && token.predicted.is_some()).then_some("true")
    }

    /// Returns the true and predicted tokens as numbers, if they are few and small enough for a chart.
    fn numbers(&self, width: f64) -> Option<Vec<[Option<f64>; 2]>> {
        let number = |token: &Option<String>| {
            let number = token.as_ref().map(|text| text.parse::<u32>().map(f64::from)).transpose().ok()?;
            number.is_none_or(|number| number <= MAX_CHART_TOKEN).then_some(number)
        };
        let numbers = self.tokens.iter().map(|pair| Some([number(&pair.truth)?, number(&pair.predicted)?]));
        if self.tokens.len() as f64 * MIN_CHART_PITCH > width - 94.0 { None } else { numbers.collect() }
    }

    fn draw_chart(&self, picture: &mut Picture, numbers: &[[Option<f64>; 2]]) {
        let largest = numbers.iter().flatten().flatten().copied().fold(0.0, f64::max);
        let x = Interval { start: -0.5, end: numbers.len() as f64 - 0.5 };
        let y = Axis::new("token", Interval { start: -0.6, end: largest + 0.6 }, Scale::Integer);
        let mut chart =
            LineChart::new(picture, (TOP, CHART_HEIGHT), Axis::new("position", x, Scale::Integer), y);
        let width = chart.area.width / numbers.len() as f64;
        for (i, _) in self.tokens.iter().enumerate().filter(|(_, token)| token.is_shaded()) {
            picture.rect(Rect { left: chart.area.left + i as f64 * width, width, ..chart.area }, SHADE);
        }
        let points =
            || (0..).zip(&self.tokens).zip(numbers).map(|((i, token), &pair)| (f64::from(i), token, pair));
        let of = |outcome: Outcome| points().filter(move |(_, token, _)| token.outcome == outcome);
        let known = points().map(|(x, _, [truth, predicted])| (x, truth.or(predicted).unwrap_or(f64::NAN)));
        chart.series.push(Series::new("", mix(MUTED, BACKGROUND, 0.55), Mark::Line(1.0), known));
        for (x, _, pair) in of(Outcome::Miss) {
            let ends = pair.into_iter().flatten().map(|token| (x, token));
            chart.series.push(Series::new("", VERMILION, Mark::Line(1.0), ends));
        }
        let radius = (width * 0.3).clamp(2.6, 6.0);
        let truth = points().filter_map(|(x, _, [truth, _])| Some((x, truth?)));
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
        self.any(ComparedToken::is_shaded).then(|| Series::new(self.shade, SHADE, Mark::Column, []))
    }

    /// Returns the cells line by line, each as wide as its tokens and with its position.
    fn lines(&self, picture_width: f64) -> Vec<Vec<(usize, Rect)>> {
        let (mut lines, mut left) = (vec![Vec::new()], FIRST_CELL);
        for (i, token) in self.tokens.iter().take(MAX_POSITIONS).enumerate() {
            let styles =
                [(&token.truth, Text::new(TOKEN_SIZE)), (&token.predicted, Text::new(TOKEN_SIZE).bold())];
            let widths =
                styles.map(|(text, style)| text.as_ref().map_or(0.0, |text| style.width(&visible(text))));
            let width = (widths[0].max(widths[1]) + 8.0).max(MIN_CELL_WIDTH).ceil();
            if left + width > picture_width - MARGIN {
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
        let named = named.into_iter().filter(|&(outcome, ..)| self.any(|token| token.outcome == outcome));
        let named = named.map(|(_, name, color, mark)| Series::new(name, color, mark, []));
        legend(picture, (FIRST_CELL, HEADING + 10.0), &named.chain(self.shade()).collect::<Vec<_>>());
        let gutter = Text::new(9.5).color(MUTED).right();
        for line in lines {
            let (first, Rect { top, height, .. }) = line[0];
            let any = |has: fn(&ComparedToken) -> bool| line.iter().any(|&(i, _)| has(&self.tokens[i]));
            if any(|token| token.truth.is_some()) {
                picture.text(
                    self.truth().unwrap_or(self.shade),
                    (FIRST_CELL - 8.0, top + TRUTH_LINE),
                    &gutter,
                );
            }
            if any(|token| token.predicted.is_some()) {
                picture.text(self.predicted, (FIRST_CELL - 8.0, top + PREDICTION_LINE), &gutter);
            }
            picture.text(&thousands(first as f64), (MARGIN + 30.0, top + height / 2.0), &gutter);
            line.iter().for_each(|&(i, cell)| self.tokens[i].draw(picture, cell));
        }
    }
}

/// The vertical centres of the true and the predicted token in a cell.
const TRUTH_LINE: f64 = 9.0;
const PREDICTION_LINE: f64 = CELL_HEIGHT - 10.0;

impl ComparedToken {
    /// Returns true if the background is shaded: the true token is part of the prompt or undetermined.
    fn is_shaded(&self) -> bool {
        self.truth.is_some() && !matches!(self.outcome, Outcome::Hit | Outcome::Miss)
    }

    fn draw(&self, picture: &mut Picture, cell: Rect) {
        let ComparedToken { truth, predicted, outcome } = self;
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
        // A wrong guess has a frame, since a line through or below a character could change how it reads. The frame is
        // below the descenders of the true token.
        if *outcome == Outcome::WrongGuess {
            let (left, top, width) = (cell.left + 1.5, cell.top + PREDICTION_LINE - 7.0, cell.width - 3.0);
            picture.frame(Rect { left, top, width, height: 15.5 }, MUTED, 0.75);
        }
    }
}
