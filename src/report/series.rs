//! Values along a run: their order statistics, and a curve that shows where they go.

use serde::{Deserialize, Serialize};

/// A value at a training step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The optimizer step.
    pub step: u64,
    /// The value there; one that is not finite is left out of the picture.
    pub value: f64,
}

/// Fewer logged steps than this are drawn as they are.
pub(crate) const FEWEST_TO_SMOOTH: usize = 40;

/// The finite values, in order of size.
pub(crate) fn sorted<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<f64> {
    let mut values: Vec<f64> = points.map(|point| point.value).filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value below which `share` of all lie.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    sorted.get((sorted.len().saturating_sub(1) as f64 * share).round() as usize).copied()
}

/// The mean of each point's neighbourhood, which is as wide on both sides, and narrower towards the
/// ends: the curve is not delayed, and starts and ends where the run does. What the picture cuts
/// counts as its upper edge.
pub(crate) fn smooth(points: &[Point], edge: f64) -> Vec<Point> {
    let finite = points.iter().filter(|point| point.value.is_finite());
    let finite: Vec<Point> =
        finite.map(|point| Point { step: point.step, value: point.value.min(edge) }).collect();
    let widest = finite.len() / 50;
    let mut sums = vec![0.0];
    for point in &finite {
        sums.push(sums[sums.len() - 1] + point.value);
    }
    let mean = |(i, point): (usize, &Point)| {
        let around = widest.min(i).min(finite.len() - 1 - i);
        let sum = sums[i + around + 1] - sums[i - around];
        Point { step: point.step, value: sum / (2 * around + 1) as f64 }
    };
    finite.iter().enumerate().map(mean).collect()
}

/// Steps and values, as a curve takes them.
pub(crate) fn values(points: &[Point]) -> impl Iterator<Item = (f64, f64)> {
    points.iter().map(|point| (point.step as f64, point.value))
}
