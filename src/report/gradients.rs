//! `gradients`: the norm of the gradients by step with the limit to which they are cut, and how
//! often they were.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, MARGIN, Plot, Sign, WIDTH, heading, legend};
use super::canvas::{Canvas, Rect};
use super::color::{BACKGROUND, MUTED, VERMILION, mix};
use super::picture::Picture;
use super::range::{Range, log_ticks, significant, tick_labels};
use super::series::{Point, quantile, sorted};
use crate::error::{Error, Result};

/// The gradients along a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GradientCurve {
    /// The run's name.
    pub run: String,
    /// The norm of all gradients together before they are cut, in the order of steps.
    pub norm: Vec<Point>,
    /// The share of steps whose gradients were cut, 0 to 1, since the point before.
    pub clip_rate: Vec<Point>,
    /// The norm to which gradients are cut; none where they never are.
    pub clip_limit: Option<f64>,
}

const NORM: f64 = 240.0;
const RATE: f64 = 84.0;
const GAP: f64 = 22.0;
/// Above the first area: the legend.
const LEGEND: f64 = 30.0;

impl GradientCurve {
    /// Whether the share of cut steps is drawn.
    fn clips(&self) -> bool {
        self.clip_limit.is_some() && !self.clip_rate.is_empty()
    }

    fn steps(&self) -> Range {
        let last = [&self.norm, &self.clip_rate].into_iter().filter_map(|points| points.last());
        Range { start: 0.0, end: last.map(|point| point.step).max().unwrap_or(1).max(1) as f64 }
    }

    /// The range of the norms' logarithms, without a few that are far below all others.
    fn logarithms(&self) -> Range {
        let norms: Vec<f64> = sorted(self.norm.iter()).into_iter().filter(|&norm| norm > 0.0).collect();
        let (Some(low), Some(high)) = (quantile(&norms, 0.002), norms.last().copied()) else {
            return Range { start: -1.0, end: 1.0 };
        };
        let limit = self.clip_limit.filter(|&limit| limit > 0.0 && limit.is_finite());
        let range =
            Range::new(low.min(limit.unwrap_or(low)).log10(), high.max(limit.unwrap_or(high)).log10());
        Range { start: range.start - 0.06 * range.length(), end: range.end + 0.06 * range.length() }
    }

    /// The share of all steps whose gradients were cut: a point tells it of those since the one before.
    fn cut(&self) -> f64 {
        let mut before = 0;
        let cut = self.clip_rate.iter().filter(|point| point.value.is_finite()).map(|point| {
            let steps = point.step.saturating_sub(before);
            before = point.step;
            point.value * steps as f64
        });
        cut.sum::<f64>() / before.max(1) as f64
    }

    fn summary(&self) -> String {
        let norms = sorted(self.norm.iter());
        let mut parts = Vec::new();
        if let (Some(median), Some(highest)) = (quantile(&norms, 0.5), norms.last()) {
            parts.push(format!(
                "norm {} in the median, at most {}",
                significant(median),
                significant(*highest)
            ));
        }
        if self.clips() {
            parts.push(format!("{:.0} % of steps cut", self.cut() * 100.0));
        } else if self.clip_limit.is_none() {
            parts.push("gradients are not cut".to_string());
        }
        parts.join("; ")
    }
}

impl Picture for GradientCurve {
    const NAME: &'static str = "gradients";

    fn size(&self) -> (u32, u32) {
        let rate = if self.clips() { GAP + RATE } else { 0.0 };
        (WIDTH, (HEADING + LEGEND + NORM + rate + 52.0).ceil() as u32)
    }

    fn check(&self) -> Result<()> {
        if self.norm.is_empty() {
            return Err(Error::Shape("gradients need the norm of at least one step".to_string()));
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        heading(canvas, &format!("{}: gradients by step", self.run), &self.summary())?;
        let area = Rect {
            left: MARGIN + 58.0,
            top: HEADING + LEGEND,
            width: f64::from(WIDTH) - 2.0 * MARGIN - 58.0,
            height: NORM,
        };
        let plot = Plot { area, x: self.steps(), y: self.logarithms() };
        let ticks = log_ticks(plot.y);
        let labels = ticks.iter().map(|tick| tick_labels(&[*tick]).concat()).collect::<Vec<_>>();
        let ticks: Vec<f64> = ticks.iter().map(|tick| tick.log10()).collect();
        plot.y_axis_at(canvas, "gradient norm", &ticks, &labels)?;
        let logarithms: Vec<Point> =
            self.norm.iter().map(|point| Point { value: point.value.log10(), ..*point }).collect();
        let mut entries = plot.noisy_curve(canvas, &logarithms, "norm")?;
        if let Some(limit) = self.clip_limit.filter(|&limit| limit > 0.0 && limit.is_finite()) {
            let (_, y) = plot.place(0.0, limit.log10());
            canvas.dashed((area.left, y), (area.right(), y), VERMILION, 1.5)?;
            entries.push((Sign::Dashed(VERMILION), format!("cut to {}", significant(limit))));
        }
        if self.clips() {
            canvas.line(&[(area.left, area.bottom()), (area.right(), area.bottom())], MUTED, 1.0)?;
            let area = Rect { top: area.bottom() + GAP, height: RATE, ..area };
            self.rates(canvas, &Plot { area, y: Range { start: 0.0, end: 1.0 }, ..plot })?;
        } else {
            plot.x_axis(canvas, "step")?;
        }
        legend(canvas, (area.left, HEADING + 8.0), &entries)
    }
}

impl GradientCurve {
    /// The share of cut steps, as columns that each reach back to the point before.
    fn rates<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>, plot: &Plot) -> Result<()> {
        let labels = ["0 %", "50 %", "100 %"].map(str::to_string);
        plot.y_axis_at(canvas, "steps cut", &[0.0, 0.5, 1.0], &labels)?;
        let mut before = 0;
        for point in self.clip_rate.iter().filter(|point| point.value.is_finite()) {
            let (left, top) = plot.place(before as f64, point.value.clamp(0.0, 1.0));
            let (right, bottom) = plot.place(point.step as f64, 0.0);
            let column = Rect { left, top, width: right - left, height: bottom - top };
            canvas.rect(column, mix(VERMILION, BACKGROUND, 0.45))?;
            before = point.step;
        }
        plot.x_axis(canvas, "step")
    }
}
