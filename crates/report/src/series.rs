//! Values by training step: their order statistics and a smoothed curve.

use serde::Serialize;

use crate::draw::color::{BLUE, pale};
use crate::draw::{Axis, Interval, Mark, Scale, Series, round_up};
use crate::numbers::counted;

/// A value at a training step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// The optimizer step.
    pub step: u64,
    /// The value; pictures omit it if it is not finite.
    pub value: f64,
}

/// Returns the finite values in ascending order.
pub(crate) fn sorted<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<f64> {
    let mut values: Vec<f64> = points.map(|point| point.value).filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the sorted value nearest to the quantile at `share`.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    sorted.get((sorted.len().saturating_sub(1) as f64 * share).round() as usize).copied()
}

/// Returns the median of sorted values.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// Returns the distance of a loss above the floor, at least 1e-4, or the loss itself if the floor is unknown.
pub(crate) fn floor_distance(loss: f64, floor: Option<f64>) -> f64 {
    floor.map_or(loss, |floor| (loss - floor).max(1e-4))
}

/// Returns the y axis for values of [`floor_distance`]. It is logarithmic for losses above a floor, to separate losses
/// near the floor, and linear otherwise.
pub(crate) fn axis_of_losses(is_above_floor: bool, losses: impl Iterator<Item = f64>) -> Axis {
    let (title, scale) = match is_above_floor {
        true => ("loss above the floor (nats)", Scale::Logarithmic),
        false => ("validation loss (nats)", Scale::Linear),
    };
    let height = |loss: f64| if is_above_floor { loss.log10() } else { loss };
    let mut heights: Vec<f64> = losses.map(height).filter(|height| height.is_finite()).collect();
    heights.sort_by(f64::total_cmp);
    let low = heights.first().copied().unwrap_or(0.0);
    let high = quantile(&heights, 0.98).unwrap_or(1.0);
    Axis::new(title, Interval::new(low, high).padded(0.06, 0.06), scale)
}

/// Returns steps and values as the points of a chart.
pub(crate) fn values(points: &[Point]) -> impl Iterator<Item = (f64, f64)> {
    points.iter().map(|point| (point.step as f64, point.value))
}

/// The minimum number of points for smoothing: two of the smallest windows. Fewer points are readable individually.
const MIN_POINTS_TO_SMOOTH: usize = 20;
/// The smoothing window as a fraction of all steps, and its minimum number of points.
const WINDOW_FRACTION: f64 = 0.05;
const MIN_WINDOW_POINTS: f64 = 10.0;

/// Smooths values by local linear regression in a window around each step. At the ends of the run the window is not
/// centred but keeps its length, so that trends are not distorted. Values above `edge` count as `edge`. Returns the
/// length of the window in steps and the smoothed points, or `None` if there are too few points.
pub(crate) fn smooth(points: &[Point], edge: f64) -> Option<(u64, Vec<Point>)> {
    let finite = points.iter().filter(|point| point.value.is_finite());
    let finite: Vec<(f64, f64)> = finite.map(|point| (point.step as f64, point.value.min(edge))).collect();
    let (&(first, _), &(last, _)) = (finite.first()?, finite.last()?);
    if finite.len() < MIN_POINTS_TO_SMOOTH {
        return None;
    }
    let spacing = (last - first) / (finite.len() - 1) as f64;
    let window =
        round_up((WINDOW_FRACTION * last).max(MIN_WINDOW_POINTS * spacing)).min(last - first).round();
    // Prefix sums give the sums of any window. Steps are measured from the middle of the run for numerical accuracy.
    let middle = (first + last) / 2.0;
    let mut sums = vec![[0.0; 5]];
    for &(step, value) in &finite {
        let (x, before) = (step - middle, sums[sums.len() - 1]);
        let terms = [1.0, x, x * x, value, x * value];
        sums.push(std::array::from_fn(|i| before[i] + terms[i]));
    }
    let fitted = finite.iter().map(|&(step, _)| {
        let start = (step - window / 2.0).clamp(first, last - window);
        let from = finite.partition_point(|point| point.0 < start);
        let to = finite.partition_point(|point| point.0 <= start + window);
        let [count, x, xx, y, xy]: [f64; 5] = std::array::from_fn(|i| sums[to][i] - sums[from][i]);
        let spread = xx - x * x / count;
        let slope = if spread > 0.0 { (xy - x * y / count) / spread } else { 0.0 };
        Point { step: step as u64, value: y / count + slope * (step - middle - x / count) }
    });
    Some((window as u64, fitted.collect()))
}

/// Returns true if a picture clips a finite value above `edge`.
pub(crate) fn is_clipped(points: &[Point], edge: f64) -> bool {
    points.iter().any(|point| point.value.is_finite() && point.value > edge)
}

/// Returns the series of the individual steps and, if there are many, of the smoothed curve. The picture clips values
/// above `edge`.
pub(crate) fn noisy(name: &str, points: &[Point], edge: f64) -> Vec<Series> {
    match smooth(points, edge) {
        None => vec![Series::new(name, BLUE, Mark::Line(2.0), values(points))],
        Some((window, smoothed)) => {
            let clipped = if is_clipped(points, edge) { " after clipping" } else { "" };
            let name = format!("{name}, smoothed over {}{clipped}", counted(window as usize, "step"));
            vec![
                Series::new("individual steps", pale(BLUE), Mark::Line(0.75), values(points)),
                Series::new(&name, BLUE, Mark::Line(2.0), values(&smoothed)),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_even_counts_lie_between_the_middles() {
        assert_eq!(median(&[1.0, 2.0, 4.0, 8.0]), Some(3.0));
        assert_eq!(median(&[1.0, 2.0, 4.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }

    fn points_of(steps: u64, value: impl Fn(u64) -> f64) -> Vec<Point> {
        (1..=steps).map(|i| Point { step: 10 * i, value: value(i) }).collect()
    }

    #[test]
    fn smoothing_preserves_linear_trends_to_both_ends() {
        let points = points_of(500, |i| 4.0 - 0.003 * i as f64);
        let (window, smoothed) = smooth(&points, f64::INFINITY).unwrap();
        assert_eq!(window, 250);
        let close = |(a, b): (&Point, &Point)| a.step == b.step && (a.value - b.value).abs() < 1e-9;
        assert!(smoothed.iter().zip(&points).all(close));
    }

    #[test]
    fn smoothed_ends_are_robust_to_outliers() {
        for count in [40, 64, 400] {
            let mut points = points_of(count, |i| 2.0 + 0.1 * (i as f64 * 2.4).sin());
            points[0].value = 3.0;
            points[count as usize - 1].value = 3.0;
            let smoothed = smooth(&points, f64::INFINITY).unwrap().1;
            let ends = [smoothed[0].value, smoothed[count as usize - 1].value];
            assert!(ends.into_iter().all(|end| end < 2.5), "{count}: {ends:?}");
        }
    }

    #[test]
    fn twenty_points_are_enough_for_smoothing() {
        let points = points_of(20, |i| if i % 2 == 0 { 1.0 } else { 3.0 });
        let smoothed = smooth(&points, f64::INFINITY).unwrap().1;
        assert!(smoothed.iter().all(|point| (point.value - 2.0).abs() < 0.4), "{smoothed:?}");
        assert_eq!(smooth(&points[..19], f64::INFINITY), None);
    }

    #[test]
    fn smoothing_clamps_outliers_and_skips_nan() {
        let mut points = points_of(100, |_| 2.0);
        points[50].value = 1e9;
        points[51].value = f64::NAN;
        let smoothed = smooth(&points, 4.0).unwrap().1;
        assert_eq!(smoothed.len(), 99);
        assert!(smoothed.iter().all(|point| (2.0 - 1e-9..2.7).contains(&point.value)), "{smoothed:?}");
    }
}
