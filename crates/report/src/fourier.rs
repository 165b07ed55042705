//! `fourier`: the progress measures of a run on modular addition, and the frequencies of its embedding and logits.

use plotters::style::RGBColor;
use serde::Serialize;

use crate::draw::color::{BLUE, GREEN, INK, ORANGE, PURPLE, SHADE, VERMILION};
use crate::draw::{Axis, HEADING, Interval, LineChart, Mark, Picture, Rect, Scale, Series, Text, legend};
use crate::series::{Point, values};

const LOSS_HEIGHT: f64 = 240.0;
const SHARE_HEIGHT: f64 = 150.0;
/// The room for the legend above a chart.
const LEGEND: f64 = 34.0;
/// The room for the labels below a chart.
const LABELS: f64 = 52.0;
/// The size of the names of stages, and the width of a character. A stage is named if its name fits.
const NAME_SIZE: f64 = 10.0;
const CHARACTER_WIDTH: f64 = 5.4;

/// The Fourier analysis of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct FourierCurves {
    /// The run's name.
    pub run: String,
    /// The training loss at the steps at which the run kept its weights; all curves are empty if it kept none.
    pub training: Vec<Point>,
    /// The validation loss.
    pub validation: Vec<Point>,
    /// The loss with only the key frequencies.
    pub restricted: Vec<Point>,
    /// The loss on the training set without the key frequencies.
    pub excluded: Vec<Point>,
    /// The first and last step of each stage, with its name.
    pub stages: Vec<(String, [u64; 2])>,
    /// The share of each frequency, from 1, in the variance of the embedding.
    pub embedding: Vec<f64>,
    /// The share of each frequency, from 1, in the variance of the logits over the sums.
    pub logits: Vec<f64>,
    /// A description of the frequencies.
    pub note: String,
}

impl FourierCurves {
    /// Draws the picture, `width` logical pixels wide.
    pub fn picture(&self, width: f64) -> Picture {
        let has_curves = self.training.len() > 1;
        let losses = if has_curves { LEGEND + LOSS_HEIGHT + LABELS } else { 0.0 };
        let height = HEADING + losses + LEGEND + SHARE_HEIGHT + LABELS;
        let title = format!("{}: Fourier analysis", self.run);
        let mut picture = Picture::new("fourier", (width, height), &title, &self.note);
        if has_curves {
            self.draw_losses(&mut picture);
        }
        self.draw_shares(&mut picture, HEADING + losses + LEGEND);
        picture
    }

    fn draw_losses(&self, picture: &mut Picture) {
        let line = |name: &str, color: RGBColor, points: &[Point]| {
            Series::new(name, color, Mark::Line(2.0), values(points))
        };
        let series = vec![
            line("training", BLUE, &self.training),
            line("validation", VERMILION, &self.validation),
            line("restricted to the key frequencies", GREEN, &self.restricted),
            line("training without them (excluded)", PURPLE, &self.excluded),
        ];
        let end = self.training.last().map_or(1.0, |last| last.step as f64);
        let all = series.iter().flat_map(|series| &series.points).map(|point| point.1);
        let highest = all.filter(|loss| loss.is_finite()).fold(0.0, f64::max);
        let x = Axis::new("step", Interval { start: 0.0, end }, Scale::Integer);
        let y =
            Axis::new("loss (nats)", Interval::new(0.0, highest.max(1e-3)).padded(0.03, 0.12), Scale::Linear);
        let mut chart = LineChart::new(picture, (HEADING + LEGEND, LOSS_HEIGHT), x, y);
        chart.series = series;
        for (index, (name, steps)) in self.stages.iter().enumerate() {
            let [left, right] = steps.map(|step| chart.point(step as f64, 0.0).0);
            let band = Rect { left, width: (right - left).max(1.5), ..chart.area };
            if index % 2 == 1 {
                picture.rect(band, SHADE);
            }
            if band.width >= CHARACTER_WIDTH * name.len() as f64 {
                let style = Text::new(NAME_SIZE).color(INK).centered();
                picture.text(name, (band.center().0, band.top + 10.0), &style);
            }
        }
        chart.draw(picture);
        legend(picture, (chart.area.left, chart.area.top - LEGEND + 12.0), chart.named());
    }

    fn draw_shares(&self, picture: &mut Picture, top: f64) {
        let count = self.logits.len().max(1) as f64;
        let stems = |name: &str, color: RGBColor, shares: &[f64], offset: f64| {
            let columns = shares.iter().enumerate().flat_map(|(index, &share)| {
                let middle = index as f64 + 1.0 + offset;
                // A column reaches from the previous point to its own.
                [(middle - 0.2, 0.0), (middle + 0.2, share)]
            });
            Series::new(name, color, Mark::Column, columns)
        };
        let highest = self.embedding.iter().chain(&self.logits).copied().fold(0.0, f64::max);
        let x = Axis::new("frequency", Interval { start: 0.4, end: count + 0.6 }, Scale::Integer);
        let y = Axis::new(
            "share",
            Interval { start: 0.0, end: (highest * 1.08).clamp(1e-3, 1.0) },
            Scale::Linear,
        );
        let mut chart = LineChart::new(picture, (top, SHARE_HEIGHT), x, y);
        chart.series = vec![
            stems("variance of the token embedding", ORANGE, &self.embedding, -0.2),
            stems("variance of the logits over the sums", BLUE, &self.logits, 0.2),
        ];
        chart.draw(picture);
        legend(picture, (chart.area.left, chart.area.top - LEGEND + 12.0), chart.named());
    }
}
