//! `phases`: the losses and the scores of heads by step around the phases of a run, with the phases as bands.

use plotters::style::RGBColor;
use serde::Serialize;

use crate::draw::color::{BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SHADE, SKY, VERMILION};
use crate::draw::{Axis, HEADING, Interval, LineChart, Mark, Picture, Rect, Scale, Series, Text, legend};
use crate::series::{Point, values};

const LOSS_HEIGHT: f64 = 230.0;
const SCORE_HEIGHT: f64 = 170.0;
/// The room for the legend above a chart.
const LEGEND: f64 = 34.0;
/// The steps that the picture shows, as a multiple of the last step of a phase.
const SHOWN: f64 = 2.5;
const SCORE_COLORS: [RGBColor; 6] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY];

/// The curves of a run around its phases.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PhaseCurves {
    /// The run's name.
    pub run: String,
    /// The number of steps of the run.
    pub steps: u64,
    /// The training loss at the logged steps.
    pub training: Vec<Point>,
    /// The validation loss.
    pub validation: Vec<Point>,
    /// The loss of the targets that the optimal predictor knows, in the phases.
    pub determined: Vec<Point>,
    /// The loss of the other targets, in the phases.
    pub undetermined: Vec<Point>,
    /// The scores that change in the phases, each with its name.
    pub scores: Vec<(String, Vec<Point>)>,
    /// The first and the last step of each phase.
    pub bands: Vec<[u64; 2]>,
    /// A description of the phases.
    pub note: String,
}

impl PhaseCurves {
    /// Draws the picture, `width` logical pixels wide. Returns `None` without a phase.
    pub fn picture(&self, width: f64) -> Option<Picture> {
        let last = self.bands.iter().map(|band| band[1]).max()?;
        let steps =
            Interval { start: 0.0, end: (SHOWN * last as f64).min(self.steps.max(last) as f64).max(1.0) };
        let has_scores = !self.scores.is_empty();
        let scores = if has_scores { LEGEND + SCORE_HEIGHT + 18.0 } else { 0.0 };
        let height = HEADING + LEGEND + LOSS_HEIGHT + scores + 52.0;
        let title = format!("{}: phases", self.run);
        let mut picture = Picture::new("phases", (width, height), &title, &self.note);

        let x = Axis::new("step", steps, Scale::Integer);
        let y = Axis::new("loss (nats per token)", self.losses(steps.end), Scale::Linear);
        let mut losses = LineChart::new(&picture, (HEADING + LEGEND, LOSS_HEIGHT), x, y);
        losses.x.is_labelled = !has_scores;
        losses.series = self.loss_series(steps.end);
        self.draw_chart(&mut picture, &losses, true);
        if has_scores {
            let area =
                Rect { top: losses.area.bottom() + 18.0 + LEGEND, height: SCORE_HEIGHT, ..losses.area };
            let x = Axis { is_labelled: true, ..losses.x.clone() };
            let shown = self.scores.iter().zip(SCORE_COLORS);
            let series = shown.map(|((name, points), color)| {
                Series::new(name, color, Mark::Line(1.75), until(points, steps.end))
            });
            let series: Vec<Series> = series.collect();
            let y = Axis::new("score", scores_range(&series), Scale::Linear);
            self.draw_chart(&mut picture, &LineChart { area, x, y, series }, false);
        }
        Some(picture)
    }

    /// Draws a chart with its legend, on the bands of the phases, which are numbered if `is_numbered`.
    fn draw_chart(&self, picture: &mut Picture, chart: &LineChart, is_numbered: bool) {
        let area = chart.area;
        for (index, band) in self.bands.iter().enumerate() {
            let [left, right] = band.map(|step| chart.point(step as f64, 0.0).0.min(area.right()));
            let band = Rect { left, width: (right - left).max(1.5), ..area };
            picture.rect(band, SHADE);
            if is_numbered {
                let style = Text::new(11.0).color(INK).centered();
                picture.text(&(index + 1).to_string(), (band.center().0, area.top + 10.0), &style);
            }
        }
        chart.draw(picture);
        legend(picture, (area.left, area.top - LEGEND + 12.0), chart.named());
    }

    fn loss_series(&self, end: f64) -> Vec<Series> {
        let line = |name: &str, color: RGBColor, width: f64, points: &[Point]| {
            Series::new(name, color, Mark::Line(width), until(points, end))
        };
        // Smoothing would blur the phases.
        let mut series = vec![
            line("training", BLUE, 1.0, &self.training),
            line("validation", VERMILION, 2.0, &self.validation),
            Series::new("", VERMILION, Mark::Dot(3.0), until(&self.validation, end)),
            line("determined targets", GREEN, 2.0, &self.determined),
            line("other targets", MUTED, 2.0, &self.undetermined),
        ];
        series.retain(|series| !series.points.is_empty());
        series
    }

    /// Returns the range of the losses up to a step.
    fn losses(&self, end: f64) -> Interval {
        let all = [&self.training, &self.validation, &self.determined, &self.undetermined];
        let shown = all.into_iter().flat_map(|points| until(points, end)).map(|(_, loss)| loss);
        let finite = shown.filter(|loss| loss.is_finite());
        let [low, high] = finite
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], loss| [low.min(loss), high.max(loss)]);
        if low > high {
            Interval { start: 0.0, end: 1.0 }
        } else {
            Interval::new(low, high).padded(0.07, 0.1)
        }
    }
}

/// Returns the values of points up to a step.
fn until(points: &[Point], end: f64) -> Vec<(f64, f64)> {
    values(points).filter(|&(step, _)| step <= end).collect()
}

/// Returns the range of scores, which contains 0 and, for attention weights, ends at 1.
fn scores_range(series: &[Series]) -> Interval {
    let values = series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    let highest = values.filter(|value| value.is_finite()).fold(1.0, f64::max);
    Interval { start: 0.0, end: if highest > 1.0 { highest * 1.06 } else { 1.0 } }
}
