//! `rate_finder`: the loss along a sweep over learning rates.

use serde::{Deserialize, Serialize};

use super::log_range;
use crate::report::axis::{Axis, LABEL, wide_area};
use crate::report::color::{BLUE, GREEN, VERMILION, pale};
use crate::report::line_chart::{LineChart, Mark, Series, legend};
use crate::report::picture::{HEADING, Picture};
use crate::report::range::Range;
use crate::report::text::Text;

/// A sweep over learning rates. Losses are in nats a token.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SweepCurve {
    /// What was swept.
    pub run: String,
    /// The steps, by rising rate.
    pub points: Vec<SweepPoint>,
    /// The rate at which the loss is lowest, where it has a minimum.
    pub lowest: Option<f64>,
    /// The rate to train with.
    pub suggested: Option<f64>,
    /// What the curve says, in a sentence.
    pub verdict: String,
}

/// One step of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Its learning rate.
    pub rate: f64,
    /// Its training loss.
    pub loss: f64,
    /// The mean of the losses around it.
    pub smoothed: f64,
}

const HEIGHT: f64 = 400.0;

impl SweepCurve {
    /// The picture `rate_finder`; none where nothing was swept.
    pub fn picture(&self) -> Option<Picture> {
        let losses = || self.points.iter().flat_map(|point| [point.loss, point.smoothed]);
        let low = losses().fold(f64::INFINITY, f64::min);
        // What follows the blow-up would squash the fall.
        let first = self.points.first()?.loss;
        let high = losses().fold(low, f64::max).min(low + 1.35 * (first - low).max(0.05 * low.abs()));
        let range = Range::new(low, high);
        let range =
            Range { start: range.start - 0.06 * range.length(), end: range.end + 0.06 * range.length() };
        let title = format!("{}: sweep over learning rates", self.run);
        let mut picture = Picture::new("rate_finder", HEIGHT, &title, &self.verdict);
        let y = Axis::new("training loss (nats per token)", range);
        let rates = log_range(self.points.iter().map(|point| point.rate));
        let area = wide_area(HEADING + 30.0, HEIGHT - HEADING - 82.0, &y, None);
        let curve =
            |value: fn(&SweepPoint) -> f64| self.points.iter().map(move |point| (point.rate, value(point)));
        let mut series = vec![
            Series::new("single steps", pale(BLUE), Mark::Line(1.0), curve(|point| point.loss)),
            Series::new("smoothed", BLUE, Mark::Line(2.25), curve(|point| point.smoothed)),
        ];
        let marked = [(self.lowest, VERMILION, "lowest"), (self.suggested, GREEN, "suggested")];
        for (rate, color, name) in marked {
            let Some(rate) = rate else { continue };
            let line = [(rate, range.start), (rate, range.end)];
            series.push(Series::new(name, color, Mark::Dashed(1.5), line));
        }
        let chart = LineChart { area, x: Axis::logarithmic("learning rate", rates), y, series };
        chart.draw(&mut picture.canvas);
        for (rate, color, _) in marked {
            let Some(rate) = rate else { continue };
            let (x, _) = chart.place(rate, range.start);
            let look = Text::new(LABEL).color(color).right();
            picture.canvas.text(&format!("{rate:.1e}"), (x - 5.0, area.bottom() - 10.0), &look);
        }
        legend(&mut picture.canvas, (area.left, HEADING + 8.0), &chart.entries());
        Some(picture)
    }
}
