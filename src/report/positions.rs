//! `positions`: loss by position in the sequence: how much of what a token depends on is used.

use super::axis::{Axis, wide_area};
use super::color::{BLUE, GREEN};
use super::line_chart::{LineChart, Mark, Series, legend};
use super::picture::{HEADING, Picture};
use super::range::Range;
use crate::analysis::Analysis;

const HEIGHT: f64 = 400.0;
/// Up to so many positions are marked each by a dot, and their floor by a dash.
const MOST_MARKED: usize = 130;

/// The loss at each position of a sequence and its floor; none where the run was never validated.
pub fn positions(run: &str, analysis: &Analysis) -> Option<Picture> {
    let places = |values: &[Option<f64>]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(i, value)| (i as f64, value.unwrap_or(f64::NAN))).collect()
    };
    let count = analysis.loss_by_position.len();
    let losses = places(&analysis.loss_by_position);
    let floor = places(&analysis.floor_by_position.iter().copied().map(Some).collect::<Vec<_>>());
    if losses.is_empty() {
        return None;
    }
    let title = format!("{run}: loss by position");
    let mut picture = Picture::new("positions", HEIGHT, &title, &note(&losses, &floor));
    let x = Range { start: -0.5, end: count as f64 - 0.5 };
    let x = Axis::whole("position of the input whose successor is predicted", x);
    let y = Axis::new("loss (nats per token)", range(losses.iter().chain(&floor)));
    let area = wide_area(HEADING + 30.0, HEIGHT - HEADING - 82.0, &y, None);
    let is_marked = count <= MOST_MARKED;
    let mut series = Vec::new();
    if !floor.is_empty() {
        // A floor is a level at each position: a dash under each dot.
        let mark = if is_marked { Mark::Level(2.0) } else { Mark::Line(1.5) };
        series.push(Series::new("floor", GREEN, mark, floor));
    }
    let width = if is_marked { 1.75 } else { 1.25 };
    series.push(Series::new("loss", BLUE, Mark::Line(width), losses.clone()));
    if is_marked {
        let radius = (area.width / count as f64 * 0.3).clamp(2.0, 3.0);
        series.push(Series::new("", BLUE, Mark::Dot(radius), losses));
    }
    let chart = LineChart { area, x, y, series };
    chart.draw(&mut picture.canvas);
    legend(&mut picture.canvas, (area.left, HEADING + 8.0), &chart.entries());
    Some(picture)
}

/// From zero, unless all losses are far from it.
fn range<'a>(points: impl Iterator<Item = &'a (f64, f64)>) -> Range {
    let (mut low, mut high) = (f64::INFINITY, 0f64);
    for (_, loss) in points.filter(|point| point.1.is_finite()) {
        (low, high) = (low.min(*loss), high.max(*loss));
    }
    if !low.is_finite() {
        return Range { start: 0.0, end: 1.0 };
    }
    let low = if low > high * 0.4 { low } else { low.min(0.0) };
    let range = Range::new(low, high);
    let below = if low == 0.0 { 0.03 } else { 0.08 };
    Range { start: range.start - below * range.length(), end: range.end + 0.06 * range.length() }
}

fn note(losses: &[(f64, f64)], floor: &[(f64, f64)]) -> String {
    let mut parts = vec!["the whole validation set".to_string()];
    let known = || losses.iter().filter(|point| point.1.is_finite());
    if let Some((position, loss)) = known().max_by(|a, b| a.1.total_cmp(&b.1)) {
        parts.push(format!("highest loss {loss:.3} nats at position {position}"));
    }
    let above = known().filter_map(|(position, loss)| Some(loss - floor.get(*position as usize)?.1));
    let (count, sum) = above.fold((0, 0.0), |(count, sum), gap| (count + 1, sum + gap));
    if count > 0 {
        parts.push(format!("{:.3} above the floor on average", sum / f64::from(count)).replace('-', "−"));
    }
    parts.join("; ")
}
