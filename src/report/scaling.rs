//! `scaling`: how much of each worker is left to the work where there are more of them.

use super::draw::color::{BLUE, VERMILION};
use super::draw::{Axis, Interval, LineChart, Mark, Picture, Scale, Series};
use crate::scaling::Scaled;

/// The predicted efficiency by the number of workers, of the config that is called `name`; `note` says of which link.
pub fn scaling_picture(name: &str, scaled: &[Scaled], note: &str) -> Picture {
    let mut picture =
        Picture::new("scaling", 400.0, &format!("{name}: predicted efficiency by workers"), note);
    let logarithm = |scaled: Option<&Scaled>| scaled.map_or(0.0, |scaled| (scaled.workers as f64).log10());
    let range = Interval::new(logarithm(scaled.first()), logarithm(scaled.last())).padded(0.03, 0.03);
    let labels = scaled.iter().map(|scaled| (scaled.workers as f64, scaled.workers.to_string())).collect();
    let x = Axis { labels: Some(labels), ..Axis::new("workers", range, Scale::Logarithmic) };
    let curve = |value: fn(&Scaled) -> Option<f64>| {
        let points = scaled.iter().filter_map(|scaled| Some((scaled.workers as f64, 100.0 * value(scaled)?)));
        points.collect::<Vec<_>>()
    };
    let curves = [
        ("each keeps the batch of the config", BLUE, curve(|scaled| Some(scaled.growing.efficiency))),
        ("all share the batch of the config", VERMILION, curve(|scaled| Some(scaled.shared?.efficiency))),
    ];
    // Additions of shards that fall away can make it more than all.
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
