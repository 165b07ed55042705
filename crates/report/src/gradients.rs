//! `gradients`: the gradient norm by step with the clipping limit, and the fraction of steps that are clipped.

use crate::draw::color::{BACKGROUND, VERMILION, mix};
use crate::draw::{Axis, HEADING, Interval, LineChart, Mark, Picture, Rect, Scale, Series, significant};
use crate::series::{Point, median, noisy, quantile, sorted, values};

const NORM_HEIGHT: f64 = 240.0;
const CLIP_RATE_HEIGHT: f64 = 84.0;
const GAP: f64 = 22.0;
/// The height of the legend above the chart of norms.
const LEGEND_HEIGHT: f64 = 30.0;

/// The gradient norm and the clip rate during a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GradientCurve {
    /// The norm at the logged steps, in order.
    pub norms: Vec<Point>,
    /// The fraction of steps clipped since the previous logged step.
    pub clip_rates: Vec<Point>,
    /// The norm to which gradients are clipped; 0 without clipping.
    pub limit: f64,
    /// The fraction of all steps that were clipped.
    pub clipped: f64,
}

/// Draws the gradients of a run in a picture of this width. Returns `None` if no step was logged.
pub fn picture(run: &str, curve: &GradientCurve, width: f64) -> Option<Picture> {
    let GradientCurve { norms, clip_rates: rates, limit, clipped } = curve;
    let limit = Some(*limit).filter(|&limit| limit > 0.0 && limit.is_finite());
    let last = norms.last()?.step.max(1) as f64;
    let rates = limit.map(|_| rates).filter(|rates| !rates.is_empty());
    let height = HEADING + LEGEND_HEIGHT + NORM_HEIGHT + 52.0 + rates.map_or(0.0, |_| GAP + CLIP_RATE_HEIGHT);
    let title = format!("{run}: gradients by step");
    let note = note(norms, limit, rates.is_some().then_some(*clipped));
    let mut picture = Picture::new("gradients", (width, height), &title, &note);

    let x = Axis::new("step", Interval { start: 0.0, end: last }, Scale::Integer);
    let y = Axis::new("gradient norm", logarithms(norms, limit), Scale::Logarithmic);
    let mut chart = LineChart::new(&picture, (HEADING + LEGEND_HEIGHT, NORM_HEIGHT), x.clone(), y);
    // The norms are smoothed on a logarithmic scale, as they are drawn.
    let logarithm = |point: &Point| Point { value: point.value.log10(), ..*point };
    chart.series = noisy("norm", &norms.iter().map(logarithm).collect::<Vec<_>>(), f64::INFINITY);
    let points = chart.series.iter_mut().flat_map(|series| &mut series.points);
    points.for_each(|point| point.1 = 10f64.powf(point.1));
    chart.series.extend(limit.map(|limit| {
        let name = format!("clipping limit {}", significant(limit));
        Series::new(&name, VERMILION, Mark::Dashed(1.5), [(0.0, limit), (last, limit)])
    }));
    if let Some(rates) = rates {
        chart.x.is_labelled = false;
        let area = Rect { top: chart.area.bottom() + GAP, height: CLIP_RATE_HEIGHT, ..chart.area };
        let ticks = [(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")].map(|(at, text)| (at, text.to_string()));
        let share = Interval { start: 0.0, end: 1.0 };
        let y = Axis { labels: Some(ticks.to_vec()), ..Axis::new("steps clipped", share, Scale::Linear) };
        let columns = Series::new("", mix(VERMILION, BACKGROUND, 0.45), Mark::Column, values(rates));
        let lower = LineChart { area, x, y, series: vec![columns] };
        lower.y.draw_left(&mut picture, area);
        lower.draw_series(&mut picture);
        lower.x.draw_below(&mut picture, area);
    }
    chart.draw_with_legend(&mut picture);
    Some(picture)
}

/// Returns the range of the norms' logarithms, without the lowest outliers.
fn logarithms(norms: &[Point], limit: Option<f64>) -> Interval {
    let norms: Vec<f64> = sorted(norms.iter()).into_iter().filter(|&norm| norm > 0.0).collect();
    let (Some(low), Some(high)) = (quantile(&norms, 0.002), norms.last().copied()) else {
        return Interval { start: -1.0, end: 1.0 };
    };
    let (low, high) = (low.min(limit.unwrap_or(low)), high.max(limit.unwrap_or(high)));
    Interval::new(low.log10(), high.log10()).padded(0.06, 0.06)
}

fn note(norms: &[Point], limit: Option<f64>, clipped: Option<f64>) -> String {
    let norms = sorted(norms.iter());
    let mut parts = Vec::new();
    if let (Some(median), Some(highest)) = (median(&norms), norms.last()) {
        parts.push(format!(
            "norm at the logged steps: median {}, maximum {}",
            significant(median),
            significant(*highest)
        ));
    }
    parts.extend(clipped.map(|share| format!("{:.0} % of all steps clipped", share * 100.0)));
    parts.extend(limit.is_none().then(|| "no gradient clipping".to_string()));
    parts.join("; ")
}
