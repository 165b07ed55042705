//! `schedule`: the learning rate by step.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, LABEL, MARGIN, Plot, WIDTH, heading};
use super::canvas::{Canvas, Rect};
use super::color::{GRID, MUTED, PURPLE, SHADE};
use super::picture::Picture;
use super::range::{Range, round_up, significant, whole};
use super::series::{Point, sorted, values};
use super::text::Text;
use crate::error::{Error, Result};

/// The learning rate along a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ScheduleCurve {
    /// The run's name.
    pub run: String,
    /// The schedule in words, as "linear warm-up, then cosine"; may be empty.
    pub schedule: String,
    /// The learning rate, in the order of steps.
    pub learning_rate: Vec<Point>,
    /// The steps over which it rises at the start; 0 where it does not.
    pub warmup: u64,
}

const HEIGHT: u32 = 360;

impl ScheduleCurve {
    fn summary(&self) -> String {
        let rates = sorted(self.learning_rate.iter());
        let mut parts = vec![self.schedule.clone()];
        if let (Some(highest), Some(last)) = (rates.last(), self.learning_rate.last()) {
            parts.push(format!(
                "at most {}, {} at step {}",
                significant(*highest),
                significant(last.value),
                whole(last.step)
            ));
        }
        parts.retain(|part| !part.is_empty());
        parts.join("; ")
    }
}

impl Picture for ScheduleCurve {
    const NAME: &'static str = "schedule";

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn check(&self) -> Result<()> {
        if sorted(self.learning_rate.iter()).is_empty() {
            return Err(Error::Shape("a schedule needs the learning rate of at least one step".to_string()));
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let area = Rect {
            left: MARGIN + 64.0,
            top: HEADING + 14.0,
            width: f64::from(WIDTH) - 2.0 * MARGIN - 64.0,
            height: f64::from(HEIGHT) - HEADING - 14.0 - 52.0,
        };
        let highest = sorted(self.learning_rate.iter()).last().copied().unwrap_or(1.0);
        let last = self.learning_rate.last().map_or(1, |point| point.step).max(1) as f64;
        let x = Range { start: 0.0, end: last };
        let plot = Plot { area, x, y: Range { start: 0.0, end: round_up(highest * 1.08) } };
        heading(canvas, &format!("{}: learning rate by step", self.run), &self.summary())?;
        if self.warmup > 0 {
            let (end, _) = plot.place((self.warmup as f64).min(last), 0.0);
            canvas.rect(Rect { width: end - area.left, ..area }, SHADE)?;
            let look = Text::new(LABEL).color(MUTED);
            let words = "warm-up";
            if look.width(words) + 12.0 < area.right() - end {
                canvas.text(words, (end + 6.0, area.top + 10.0), &look)?;
            }
            canvas.line(&[(end, area.top), (end, area.bottom())], GRID, 1.0)?;
        }
        plot.y_axis(canvas, "learning rate")?;
        plot.x_axis(canvas, "step")?;
        plot.curve(canvas, values(&self.learning_rate), PURPLE, 2.25)
    }
}
