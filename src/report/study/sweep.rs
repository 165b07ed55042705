//! `rate_finder`: the loss along a sweep over learning rates.

use super::{log_range, widened};
use crate::report::axis::{Axis, LABEL, wide_area};
use crate::report::color::{BLUE, GREEN, VERMILION, pale};
use crate::report::line_chart::{LineChart, Mark, Series, legend};
use crate::report::picture::{HEADING, Picture};
use crate::report::range::Range;
use crate::report::text::Text;
use crate::tuning::{RatePoint, RateSweep, Verdict};

const HEIGHT: f64 = 400.0;

/// The sweep over learning rates of the config that is called `name`; none where nothing was swept.
pub fn rate_finder(name: &str, sweep: &RateSweep) -> Option<Picture> {
    let points = &sweep.points;
    let losses = || points.iter().flat_map(|point| [point.loss, point.smoothed]);
    let low = losses().fold(f64::INFINITY, f64::min);
    // What follows the blow-up would squash the fall.
    let first = points.first()?.loss;
    let high = losses().fold(low, f64::max).min(low + 1.35 * (first - low).max(0.05 * low.abs()));
    let range = widened(Range::new(low, high), 0.06);
    let title = format!("{name}: sweep over learning rates");
    let mut picture = Picture::new("rate_finder", HEIGHT, &title, &sweep.verdict.finding());
    let y = Axis::new("training loss (nats per token)", range);
    let rates = log_range(points.iter().map(|point| point.rate));
    let area = wide_area(HEADING + 30.0, HEIGHT - HEADING - 82.0, &y, None);
    let curve = |value: fn(&RatePoint) -> f64| points.iter().map(move |point| (point.rate, value(point)));
    let mut series = vec![
        Series::new("single steps", pale(BLUE), Mark::Line(1.0), curve(|point| point.loss)),
        Series::new("smoothed", BLUE, Mark::Line(2.25), curve(|point| point.smoothed)),
    ];
    let marked = match sweep.verdict {
        Verdict::Minimum { rate, suggested } => {
            vec![(rate, VERMILION, "lowest"), (suggested, GREEN, "suggested")]
        }
        Verdict::NeverFalls | Verdict::NeverRises => Vec::new(),
    };
    for &(rate, color, name) in &marked {
        let line = [(rate, range.start), (rate, range.end)];
        series.push(Series::new(name, color, Mark::Dashed(1.5), line));
    }
    let chart = LineChart { area, x: Axis::logarithmic("learning rate", rates), y, series };
    chart.draw(&mut picture.canvas);
    for (rate, color, _) in marked {
        let (x, _) = chart.place(rate, range.start);
        let look = Text::new(LABEL).color(color).right();
        picture.canvas.text(&format!("{rate:.1e}"), (x - 5.0, area.bottom() - 10.0), &look);
    }
    legend(&mut picture.canvas, (area.left, HEADING + 8.0), &chart.entries());
    Some(picture)
}
