//! `rate_finder`: the loss of a sweep over learning rates.

use serde::Serialize;

use super::log_range;
use crate::draw::color::{BLUE, GREEN, VERMILION, pale};
use crate::draw::{Axis, Interval, LABEL_SIZE, LEGEND_LINE, LineChart, Mark, Picture, Scale, Series, Text};

/// The training loss at one learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RatePoint {
    /// The learning rate.
    pub rate: f64,
    /// The training loss at the step with this rate.
    pub loss: f64,
    /// The smoothed loss around the step.
    pub smoothed: f64,
}

/// Draws the sweep over learning rates of the config called `name`, by increasing rate. `marks` are the rate of the
/// lowest loss and the suggested rate. The picture has this width. Returns `None` if nothing was swept.
pub fn picture(
    name: &str,
    points: &[RatePoint],
    marks: Option<[f64; 2]>,
    (verdict, width): (&str, f64),
) -> Option<Picture> {
    let losses = || points.iter().flat_map(|point| [point.loss, point.smoothed]);
    let low = losses().fold(f64::INFINITY, f64::min);
    // Exploding losses at high rates are clipped, since they would flatten the rest of the curve.
    let first = points.first()?.loss;
    let high = losses().fold(low, f64::max).min(low + 1.35 * (first - low).max(0.05 * low.abs()));
    let range = Interval::new(low, high).padded(0.06, 0.06);
    let title = format!("{name}: learning rate sweep");
    let mut picture = Picture::new("rate_finder", (width, 400.0), &title, verdict);
    let rates = log_range(points.iter().map(|point| point.rate));
    let x = Axis::new("learning rate", rates, Scale::Logarithmic);
    let y = Axis::new("training loss (nats per token)", range, Scale::Linear);
    let mut chart = LineChart::filling(&picture, x, y);
    let curve = |value: fn(&RatePoint) -> f64| points.iter().map(move |point| (point.rate, value(point)));
    chart.series = vec![
        Series::new("individual steps", pale(BLUE), Mark::Line(1.0), curve(|point| point.loss)),
        Series::new("smoothed", BLUE, Mark::Line(2.25), curve(|point| point.smoothed)),
    ];
    let styles = [(VERMILION, "lowest"), (GREEN, "suggested")];
    let marked = || marks.into_iter().flatten().zip(styles);
    for (rate, (color, name)) in marked() {
        let line = [(rate, range.start), (rate, range.end)];
        chart.series.push(Series::new(name, color, Mark::Dashed(1.5), line));
    }
    chart.draw_with_legend(&mut picture);
    // The suggested rate is the lower one: the labels are on the outer sides of the two lines.
    for (rate, (color, name)) in marked() {
        let (label, style) = (format!("{rate:.1e}"), Text::new(LABEL_SIZE).color(color));
        let (x, bottom) = chart.point(rate, range.start);
        let y = bottom - 10.0;
        let is_lowest = name == "lowest";
        match is_lowest && x + 5.0 + style.width(&label) <= chart.area.right() {
            true => picture.text(&label, (x + 5.0, y), &style),
            // Without room on its right, the label is above the other one.
            false => {
                let above = if is_lowest { LEGEND_LINE } else { 0.0 };
                picture.text(&label, (x - 5.0, y - above), &style.right());
            }
        }
    }
    Some(picture)
}
