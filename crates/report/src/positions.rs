//! `positions`: the loss by position in the sequence, compared with the floor.

use crate::draw::color::{BLUE, GREEN};
use crate::draw::{Axis, Interval, LineChart, Mark, Picture, Scale, Series};
use crate::numbers::fixed;

/// The least width of a position at which losses are marked with dots, and floors with short lines.
const MIN_MARKED_PITCH: f64 = 6.2;

/// Draws the known losses and the floor by position in a picture of this width; `floor` may be empty. Returns `None`
/// for an empty sequence.
pub fn picture(run: &str, losses: &[Option<f64>], floor: &[f64], width: f64) -> Option<Picture> {
    let losses = losses.iter().map(|loss| loss.unwrap_or(f64::NAN));
    let losses: Vec<(f64, f64)> = losses.enumerate().map(|(i, loss)| (i as f64, loss)).collect();
    let floor = floor.iter().enumerate();
    let floor: Vec<(f64, f64)> = floor.map(|(i, &floor)| (i as f64, floor)).collect();
    let count = losses.len();
    if count == 0 {
        return None;
    }
    let title = format!("{run}: loss by position");
    let mut picture = Picture::new("positions", (width, 400.0), &title, &note(&losses, &floor));
    let x = Interval { start: -0.5, end: count as f64 - 0.5 };
    let x = Axis::new("input position", x, Scale::Integer);
    let y = Axis::new("loss (nats per token)", range(losses.iter().chain(&floor)), Scale::Linear);
    let mut chart = LineChart::filling(&picture, x, y);
    let is_marked = count as f64 * MIN_MARKED_PITCH <= chart.area.width;
    if !floor.is_empty() {
        // The floor has one value per position, drawn as a short line under each dot.
        let mark = if is_marked { Mark::Level(2.0) } else { Mark::Line(1.5) };
        chart.series.push(Series::new("floor", GREEN, mark, floor));
    }
    let line = Mark::Line(if is_marked { 1.75 } else { 1.25 });
    chart.series.push(Series::new("loss", BLUE, line, losses.clone()));
    if is_marked {
        let radius = (chart.area.width / count as f64 * 0.3).clamp(2.0, 3.0);
        chart.series.push(Series::new("", BLUE, Mark::Dot(radius), losses));
    }
    chart.draw_with_legend(&mut picture);
    Some(picture)
}

/// Returns the range of the losses. It starts at zero, unless all losses are far from zero.
fn range<'a>(points: impl Iterator<Item = &'a (f64, f64)>) -> Interval {
    let losses = points.map(|point| point.1).filter(|loss| loss.is_finite());
    let (low, high) = losses.fold((f64::INFINITY, 0f64), |(low, high), loss| (low.min(loss), high.max(loss)));
    match low {
        f64::INFINITY => Interval { start: 0.0, end: 1.0 },
        low if (0.0..=high * 0.4).contains(&low) => Interval::new(0.0, high).padded(0.03, 0.06),
        low => Interval::new(low, high).padded(0.08, 0.06),
    }
}

fn note(losses: &[(f64, f64)], floor: &[(f64, f64)]) -> String {
    let mut parts = vec!["entire validation split".to_string()];
    let known = || losses.iter().filter(|point| point.1.is_finite());
    if let Some((position, loss)) = known().max_by(|a, b| a.1.total_cmp(&b.1)) {
        parts.push(format!("highest loss {loss:.3} nats at position {position}"));
    }
    let above = known().filter_map(|(position, loss)| Some(loss - floor.get(*position as usize)?.1));
    let (count, sum) = above.fold((0, 0.0), |(count, sum), gap| (count + 1, sum + gap));
    if count > 0 {
        parts.push(format!("{} above the floor, averaged over positions", fixed(sum / f64::from(count), 3)));
    }
    parts.join("; ")
}
