//! `scaling`: the predicted efficiency per worker by the number of workers.

use crate::draw::color::{BLUE, VERMILION};
use crate::draw::{Axis, Interval, LineChart, Mark, Picture, Scale, Series};

/// The predicted efficiency of several workers: sequences per second per worker, relative to a single worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Efficiency {
    /// The number of workers.
    pub workers: usize,
    /// The efficiency if each worker has the batch size of the config.
    pub weak_scaling: f64,
    /// The efficiency if all workers share one batch of that size; `None` if it is not divisible by their number.
    pub strong_scaling: Option<f64>,
}

/// Draws the predicted efficiency by the number of workers for the config called `name`, in a picture of this width.
pub fn picture(name: &str, scaled: &[Efficiency], note: &str, width: f64) -> Picture {
    let title = format!("{name}: predicted efficiency by number of workers");
    let mut picture = Picture::new("scaling", (width, 400.0), &title, note);
    let logarithm =
        |scaled: Option<&Efficiency>| scaled.map_or(0.0, |scaled| (scaled.workers as f64).log10());
    let range = Interval::new(logarithm(scaled.first()), logarithm(scaled.last())).padded(0.03, 0.03);
    let labels = scaled.iter().map(|scaled| (scaled.workers as f64, scaled.workers.to_string())).collect();
    let x = Axis { labels: Some(labels), ..Axis::new("workers", range, Scale::Logarithmic) };
    let curve = |value: fn(&Efficiency) -> Option<f64>| {
        let points = scaled.iter().filter_map(|scaled| Some((scaled.workers as f64, 100.0 * value(scaled)?)));
        points.collect::<Vec<_>>()
    };
    let curves = [
        ("weak scaling: batch per worker", BLUE, curve(|at| Some(at.weak_scaling))),
        ("strong scaling: batch in total", VERMILION, curve(|at| at.strong_scaling)),
    ];
    // Several workers add fewer shards in total than one worker, which can raise the efficiency above 100 %.
    let highest = curves.iter().flat_map(|curve| &curve.2).fold(100.0, |high: f64, point| high.max(point.1));
    let y = Axis::new("efficiency (%)", Interval::new(0.0, highest).padded(0.0, 0.06), Scale::Linear);
    let mut chart = LineChart::filling(&picture, x, y);
    for (name, color, points) in curves {
        chart.series.push(Series::new(name, color, Mark::Line(1.75), points.clone()));
        chart.series.push(Series::new("", color, Mark::Dot(2.5), points));
    }
    chart.draw_with_legend(&mut picture);
    picture
}
