//! `loss`: training and validation loss by step, the floor, and the learning rate.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, LABEL, MARGIN, Plot, Sign, WIDTH, heading, legend};
use super::canvas::{Canvas, Rect};
use super::color::{GREEN, GRID, MUTED, PURPLE, VERMILION};
use super::picture::Picture;
use super::range::{Range, round_up, tick_labels};
use super::series::{Point, quantile, sorted, values};
use super::text::Text;
use crate::error::Result;

/// The loss along a run. Losses are in nats a token.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LossCurve {
    /// The run's name.
    pub run: String,
    /// Training loss at the logged steps, in order.
    pub training: Vec<Point>,
    /// Validation loss, in the order of steps.
    pub validation: Vec<Point>,
    /// The learning rate at the logged steps, in order.
    pub learning_rate: Vec<Point>,
    /// The last step of each epoch.
    pub epoch_ends: Vec<u64>,
    /// The loss of the best possible predictor, where it is known.
    pub floor: Option<f64>,
}

/// Up to so many validations are marked each by a dot.
const MOST_MARKED: usize = 60;
const HEIGHT: u32 = 480;

impl LossCurve {
    fn is_empty(&self) -> bool {
        !self.training.iter().chain(&self.validation).any(|point| point.value.is_finite())
    }

    pub(crate) fn steps(&self) -> Range {
        let last_epoch = self.epoch_ends.last().copied();
        let series = [&self.training, &self.validation, &self.learning_rate];
        let last = series.iter().filter_map(|points| points.last()).map(|point| point.step).chain(last_epoch);
        Range { start: 0.0, end: last.max().unwrap_or(1).max(1) as f64 }
    }

    /// From just below the floor and the curves up to where the run starts; a start far above all
    /// that follows is cut, so that it does not squash the rest.
    pub(crate) fn losses(&self) -> Range {
        let all = sorted(self.training.iter().chain(&self.validation));
        let (Some(&highest), Some(usual)) = (all.last(), quantile(&all, 0.97)) else {
            return Range { start: 0.0, end: self.floor.unwrap_or(1.0).max(1e-3) * 1.5 };
        };
        let validation = sorted(self.validation.iter());
        let low = [quantile(&all, 0.01), validation.first().copied(), self.floor].into_iter().flatten();
        let low = low.fold(f64::INFINITY, f64::min);
        let cut = (low + 1.6 * (usual - low)).max(self.floor.unwrap_or(low));
        // A cut hides how the run began: only for half as much room again.
        let high = if highest - low > 1.5 * (cut - low) { cut } else { highest };
        let range = Range::new(low, high);
        Range { start: range.start - 0.07 * range.length(), end: range.end + 0.05 * range.length() }
    }
}

/// A loss in words: four digits after the point.
fn nats(loss: f64) -> String {
    format!("{loss:.4}")
}

impl Picture for LossCurve {
    const NAME: &'static str = "loss";

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let right = if self.learning_rate.is_empty() { MARGIN } else { MARGIN + 66.0 };
        let area = Rect {
            left: MARGIN + 58.0,
            top: HEADING + 48.0,
            width: f64::from(WIDTH) - MARGIN - 58.0 - right,
            height: f64::from(HEIGHT) - HEADING - 48.0 - 52.0,
        };
        let plot = Plot { area, x: self.steps(), y: self.losses() };
        heading(canvas, &format!("{}: loss by step", self.run), &self.summary(&plot))?;
        self.epochs(canvas, &plot)?;
        plot.y_axis(canvas, "loss (nats a token)")?;
        plot.x_axis(canvas, "step")?;
        if !self.learning_rate.is_empty() {
            self.rates(canvas, &plot)?;
        }
        let mut entries = self.curves(canvas, &plot)?;
        if !self.learning_rate.is_empty() {
            entries.push((Sign::Line(PURPLE), "learning rate (right axis)".to_string()));
        }
        legend(canvas, (area.left, HEADING + 8.0), &entries)
    }
}

impl LossCurve {
    /// Draws the losses and the floor, and returns what a legend says of them.
    pub(crate) fn curves<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        plot: &Plot,
    ) -> Result<Vec<(Sign, String)>> {
        let area = plot.area;
        if let Some(floor) = self.floor {
            let (_, y) = plot.place(0.0, floor);
            canvas.dashed((area.left, y), (area.right(), y), GREEN, 1.5)?;
        }
        let mut entries = plot.noisy_curve(canvas, &self.training, "training")?;
        if !self.validation.is_empty() {
            plot.curve(canvas, values(&self.validation), VERMILION, 2.0)?;
            let marked = if self.validation.len() <= MOST_MARKED { &self.validation[..] } else { &[] };
            for (step, loss) in values(marked) {
                if (plot.y.start..=plot.y.end).contains(&loss) {
                    canvas.dot(plot.place(step, loss), 3.0, VERMILION)?;
                }
            }
            entries.push((Sign::Line(VERMILION), "validation".to_string()));
        }
        if let Some(floor) = self.floor {
            entries.push((Sign::Dashed(GREEN), format!("floor {} nats", nats(floor))));
        }
        if self.is_empty() {
            let middle = (area.left + area.width / 2.0, area.top + area.height / 2.0);
            canvas.text("no step was logged", middle, &Text::new(14.0).color(MUTED).centered())?;
        }
        Ok(entries)
    }
}

impl LossCurve {
    pub(crate) fn summary(&self, plot: &Plot) -> String {
        let mut parts = Vec::new();
        let finite = || self.validation.iter().map(|point| point.value).filter(|value| value.is_finite());
        if let (Some(last), best) = (finite().next_back(), finite().fold(f64::INFINITY, f64::min)) {
            let at_best =
                if last == best { String::new() } else { format!(" at the end, {} at best", nats(best)) };
            parts.push(format!("validation loss {} nats a token{at_best}", nats(last)));
            if let Some(floor) = self.floor {
                parts.push(format!("{} above the floor", nats(best - floor)).replace("-", "−"));
            }
        }
        let all = sorted(self.training.iter().chain(&self.validation));
        if let Some(highest) = all.last().filter(|&&highest| highest > plot.y.end) {
            parts.push(format!("losses above {:.2}, up to {highest:.2}, are cut", plot.y.end));
        }
        parts.join("; ")
    }

    /// A thin line at the end of each epoch, and its number above where there is room.
    fn epochs<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>, plot: &Plot) -> Result<()> {
        let room = plot.area.width / self.epoch_ends.len().max(1) as f64;
        let every = Range { start: 0.0, end: self.epoch_ends.len() as f64 };
        let every = every.ticks((plot.area.width / 34.0) as usize);
        let every = every.get(1).map_or(1.0, |tick| tick.max(1.0)) as usize;
        let look = Text::new(LABEL).color(MUTED).centered();
        let mut first = true;
        for (i, end) in self.epoch_ends.iter().enumerate() {
            let (x, _) = plot.place(*end as f64, 0.0);
            let labelled = (i + 1) % every == 0;
            if labelled || room >= 14.0 {
                canvas.line(&[(x, plot.area.top), (x, plot.area.bottom())], GRID, 0.75)?;
            }
            if labelled {
                canvas.text(&(i + 1).to_string(), (x, plot.area.top - 12.0), &look)?;
                if first && x - plot.area.left > 62.0 {
                    canvas.text(
                        "epoch",
                        (plot.area.left, plot.area.top - 12.0),
                        &Text::new(LABEL).color(MUTED),
                    )?;
                } else if first {
                    canvas.text(
                        "epoch",
                        (plot.area.left - 10.0, plot.area.top - 12.0),
                        &Text::new(LABEL).color(MUTED).right(),
                    )?;
                }
                first = false;
            }
        }
        Ok(())
    }

    /// The learning rate with its own axis on the right.
    fn rates<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>, plot: &Plot) -> Result<()> {
        let largest = sorted(self.learning_rate.iter()).last().copied().unwrap_or(1.0);
        let top = round_up(largest * 1.08);
        let plot = Plot { y: Range { start: 0.0, end: top }, ..*plot };
        plot.curve(canvas, values(&self.learning_rate), PURPLE, 1.25)?;
        let ticks = plot.y.ticks((plot.area.height / 60.0) as usize);
        let right = plot.area.right();
        for (tick, label) in ticks.iter().zip(tick_labels(&ticks)) {
            let (_, y) = plot.place(0.0, *tick);
            canvas.line(&[(right, y), (right + 4.0, y)], PURPLE, 1.0)?;
            canvas.text(&label, (right + 7.0, y), &Text::new(LABEL).color(PURPLE))?;
        }
        let middle = plot.area.top + plot.area.height / 2.0;
        let look = Text::new(12.0).color(PURPLE).centered().upward();
        canvas.text("learning rate", (right + 58.0, middle), &look)
    }
}
