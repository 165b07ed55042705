//! `rate_finder`: the loss along a sweep over learning rates.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::{log_axis, log_range, plot_area};
use crate::error::{Error, Result};
use crate::report::axis::{HEADING, LABEL, Plot, Sign, WIDTH, heading, legend};
use crate::report::canvas::Canvas;
use crate::report::color::{BLUE, GREEN, VERMILION, pale};
use crate::report::picture::Picture;
use crate::report::range::Range;
use crate::report::text::Text;

/// A sweep over learning rates. Losses are in nats a token.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SweepCurve {
    /// What was swept.
    pub run: String,
    /// The steps, by rising rate.
    pub points: Vec<SweepPoint>,
    /// The rate at which the loss is lowest, where it has a minimum.
    pub lowest: Option<f64>,
    /// The rate to train with.
    pub suggested: Option<f64>,
    /// What the curve says, in a sentence.
    pub verdict: String,
}

/// One step of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Its learning rate.
    pub rate: f64,
    /// Its training loss.
    pub loss: f64,
    /// The mean of the losses around it.
    pub smoothed: f64,
}

const HEIGHT: u32 = 400;

impl Picture for SweepCurve {
    const NAME: &'static str = "rate_finder";

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn check(&self) -> Result<()> {
        match self.points.is_empty() {
            true => Err(Error::Shape("a sweep needs at least one step".to_string())),
            false => Ok(()),
        }
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let area = plot_area(HEIGHT);
        let losses = || self.points.iter().flat_map(|point| [point.loss, point.smoothed]);
        let low = losses().fold(f64::INFINITY, f64::min);
        // What follows the blow-up would squash the fall.
        let high =
            losses().fold(low, f64::max).min(low + 1.35 * (self.points[0].loss - low).max(0.05 * low.abs()));
        let range = Range::new(low, high);
        let y = Range { start: range.start - 0.06 * range.length(), end: range.end + 0.06 * range.length() };
        let plot = Plot { area, x: log_range(self.points.iter().map(|point| point.rate)), y };
        heading(canvas, &format!("{}: sweep over learning rates", self.run), &self.verdict)?;
        plot.y_axis(canvas, "training loss (nats a token)")?;
        log_axis(canvas, &plot, "learning rate")?;
        let curve = |value: fn(&SweepPoint) -> f64| {
            self.points.iter().map(move |point| (point.rate.log10(), value(point)))
        };
        plot.curve(canvas, curve(|point| point.loss), pale(BLUE), 1.0)?;
        plot.curve(canvas, curve(|point| point.smoothed), BLUE, 2.25)?;
        let mut entries = vec![
            (Sign::Line(BLUE), "smoothed".to_string()),
            (Sign::Line(pale(BLUE)), "single steps".to_string()),
        ];
        for (rate, color, name) in [(self.lowest, VERMILION, "lowest"), (self.suggested, GREEN, "suggested")]
        {
            let Some(rate) = rate else { continue };
            let (x, _) = plot.place(rate.log10(), y.start);
            canvas.dashed((x, area.top), (x, area.bottom()), color, 1.5)?;
            let look = Text::new(LABEL).color(color).right();
            canvas.text(&format!("{rate:.1e}"), (x - 5.0, area.bottom() - 10.0), &look)?;
            entries.push((Sign::Dashed(color), name.to_string()));
        }
        legend(canvas, (area.left, HEADING + 8.0), &entries)
    }
}
