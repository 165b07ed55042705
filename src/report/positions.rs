//! `positions`: loss by position in the sequence: how much of what a token depends on is used.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, MARGIN, Plot, Sign, WIDTH, heading, legend};
use super::canvas::{Canvas, Rect};
use super::color::{BLUE, GREEN};
use super::picture::Picture;
use super::range::{Range, counted};
use crate::error::{Error, Result};

/// The loss at each position of a sequence. Losses are in nats a token.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LossByPosition {
    /// The run's name.
    pub run: String,
    /// What the losses were taken on, as "512 validation sequences".
    pub measured_on: String,
    /// The mean loss at each position; none where no target counts.
    pub losses: Vec<Option<f64>>,
    /// The loss of the best possible predictor at each position; empty where it is not known.
    pub floor: Vec<Option<f64>>,
}

const HEIGHT: u32 = 400;
/// Up to so many positions are marked each by a dot, and their floor by a dash.
const MOST_MARKED: usize = 130;

fn finite(values: &[Option<f64>]) -> impl Iterator<Item = f64> + '_ {
    values.iter().flatten().copied().filter(|value| value.is_finite())
}

fn places(values: &[Option<f64>]) -> impl Iterator<Item = (f64, f64)> + '_ {
    values.iter().enumerate().map(|(position, value)| (position as f64, value.unwrap_or(f64::NAN)))
}

impl LossByPosition {
    /// From zero, unless all losses are far from it.
    fn range(&self) -> Range {
        let all = || finite(&self.losses).chain(finite(&self.floor));
        let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        if !low.is_finite() {
            return Range { start: 0.0, end: 1.0 };
        }
        let low = if low > high * 0.4 { low } else { low.min(0.0) };
        let range = Range::new(low, high);
        let below = if low == 0.0 { 0.03 } else { 0.08 };
        Range { start: range.start - below * range.length(), end: range.end + 0.06 * range.length() }
    }

    fn summary(&self) -> String {
        let mut parts = vec![self.measured_on.clone()];
        let named = self.losses.iter().enumerate();
        let named =
            named.filter_map(|(position, loss)| Some((position, loss.filter(|loss| loss.is_finite())?)));
        if let Some((position, loss)) = named.clone().max_by(|a, b| a.1.total_cmp(&b.1)) {
            parts.push(format!("highest loss {loss:.3} nats at position {position}"));
        }
        let above = named.filter_map(|(position, loss)| Some(loss - self.floor.get(position).copied()??));
        let (count, sum) = above.fold((0, 0.0), |(count, sum), gap| (count + 1, sum + gap));
        if count > 0 {
            parts
                .push(format!("{:.3} above the floor in the mean", sum / f64::from(count)).replace('-', "−"));
        }
        parts.join("; ")
    }
}

impl Picture for LossByPosition {
    const NAME: &'static str = "positions";

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn check(&self) -> Result<()> {
        if self.losses.is_empty() {
            return Err(Error::Shape("losses by position need at least one position".to_string()));
        }
        if !self.floor.is_empty() && self.floor.len() != self.losses.len() {
            return Err(Error::Shape(format!(
                "the floor of {} does not fit losses of {}",
                counted(self.floor.len(), "position"),
                counted(self.losses.len(), "position"),
            )));
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let area = Rect {
            left: MARGIN + 58.0,
            top: HEADING + 30.0,
            width: f64::from(WIDTH) - 2.0 * MARGIN - 58.0,
            height: f64::from(HEIGHT) - HEADING - 30.0 - 52.0,
        };
        let positions = self.losses.len();
        let plot = Plot { area, x: Range { start: -0.5, end: positions as f64 - 0.5 }, y: self.range() };
        heading(canvas, &format!("{}: loss by position", self.run), &self.summary())?;
        plot.y_axis(canvas, "loss (nats a token)")?;
        plot.x_axis(canvas, "position of the input whose successor is predicted")?;
        let mut entries = vec![(Sign::Line(BLUE), "loss".to_string())];
        if finite(&self.floor).next().is_some() {
            if positions <= MOST_MARKED {
                // A floor is a level at each position: a dash under each dot.
                for (position, floor) in places(&self.floor).filter(|(_, floor)| floor.is_finite()) {
                    let (from, to) = (plot.place(position - 0.38, floor), plot.place(position + 0.38, floor));
                    canvas.line(&[from, to], GREEN, 2.0)?;
                }
                entries.push((Sign::Dashed(GREEN), "floor".to_string()));
            } else {
                plot.curve(canvas, places(&self.floor), GREEN, 1.5)?;
                entries.push((Sign::Line(GREEN), "floor".to_string()));
            }
        }
        plot.curve(canvas, places(&self.losses), BLUE, if positions <= MOST_MARKED { 1.75 } else { 1.25 })?;
        if positions <= MOST_MARKED {
            let radius = (area.width / positions as f64 * 0.3).clamp(2.0, 3.0);
            for (position, loss) in places(&self.losses).filter(|(_, loss)| loss.is_finite()) {
                canvas.dot(plot.place(position, loss), radius, BLUE)?;
            }
        }
        legend(canvas, (area.left, HEADING + 8.0), &entries)
    }
}
