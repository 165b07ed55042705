//! `loss`: training and validation loss by step, the entropy floor, and the learning rate.

use serde::Serialize;

use crate::draw::color::{GREEN, GRID, MUTED, PURPLE, VERMILION};
use crate::draw::{
    Axis, HEADING, Interval, LABEL_SIZE, LineChart, Mark, Picture, Scale, Series, Text, legend, round_up,
};
use crate::numbers::{fixed, floor_gap, thousands};
use crate::series::{Point, median, noisy, quantile, sorted, values};

/// The losses of a run in nats per token, with its learning rate.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LossCurve {
    /// The run's name.
    pub run: String,
    /// The training loss at the logged steps, in order.
    pub training: Vec<Point>,
    /// The training loss with label smoothing at the logged steps; empty without label smoothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objective: Vec<Point>,
    /// The validation loss, ordered by step.
    pub validation: Vec<Point>,
    /// The learning rate at the logged steps, in order.
    pub learning_rate: Vec<Point>,
    /// The last step of each epoch.
    pub epoch_ends: Vec<u64>,
    /// The entropy floor, if known.
    pub floor: Option<f64>,
    /// The step at which the run diverged; `None` if it did not.
    pub diverged: Option<u64>,
    /// A description of the stored weights, such as "the weights of step 500"; `None` for the best weights of a run
    /// that has not diverged.
    pub weights: Option<String>,
}

/// The maximum number of validations marked with dots.
const MAX_MARKED_VALIDATIONS: usize = 60;
const PICTURE_HEIGHT: f64 = 463.0;

impl LossCurve {
    fn all(&self) -> impl Iterator<Item = &Point> {
        self.training.iter().chain(&self.validation)
    }

    pub(crate) fn steps(&self) -> Interval {
        let ends = [self.epoch_ends.last().copied(), self.diverged].into_iter().flatten();
        let series = [&self.training, &self.validation, &self.learning_rate];
        let last = series.iter().filter_map(|points| points.last()).map(|point| point.step).chain(ends);
        Interval { start: 0.0, end: last.max().unwrap_or(1).max(1) as f64 }
    }

    /// Returns the range of the loss axis, which starts just below the floor and the curves. Losses far above all
    /// others are outside the range, so that they do not flatten the curves: at the start, in spikes, and at the end of
    /// a diverged run.
    pub(crate) fn losses(&self) -> Interval {
        let all = sorted(self.all());
        let first = self.all().find(|point| point.value.is_finite());
        let (Some(first), Some(&lowest), Some(&highest)) = (first, all.first(), all.last()) else {
            return Interval { start: 0.0, end: self.floor.unwrap_or(1.0).max(1e-3) * 1.5 };
        };
        // Training lowers the loss, so typical losses are below the first one. In a diverged run, this holds
        // only before the divergence, so the median is ignored.
        let median = median(&all).filter(|_| self.diverged.is_none());
        let typical = [Some(first.value), median].into_iter().flatten().fold(lowest, f64::max);
        let typical = quantile(&all, 0.97).unwrap_or(highest).min(typical);
        let low = self.floor.map_or(lowest, |floor| floor.min(lowest));
        let cut = (low + 1.6 * (typical - low)).max(self.floor.unwrap_or(low));
        // Clipping hides the start of the run, so it must save at least a third of the height.
        let high = if highest - low > 1.5 * (cut - low) { cut } else { highest };
        Interval::new(low, high).padded(0.07, 0.05)
    }

    /// Returns the chart of the losses and the floor for a range of steps, from `top` downwards.
    pub(crate) fn chart(&self, picture: &Picture, steps: Interval, (top, height): (f64, f64)) -> LineChart {
        let y = Axis::new("loss (nats per token)", self.losses(), Scale::Linear);
        let mut chart = LineChart::new(picture, (top, height), Axis::new("step", steps, Scale::Integer), y);
        let (Interval { start, end }, losses) = (steps, chart.y.range);
        chart.series.extend(self.floor.map(|floor| {
            let line = [(start, floor), (end, floor)];
            Series::new(&format!("floor {floor:.4} nats"), GREEN, Mark::Dashed(1.5), line)
        }));
        chart.series.extend(noisy("training", &self.training, losses.end));
        let objective = values(&self.objective);
        chart.series.push(Series::new(
            "training objective (with label smoothing)",
            MUTED,
            Mark::Line(1.0),
            objective,
        ));
        let validation = || values(&self.validation);
        chart.series.push(Series::new("validation", VERMILION, Mark::Line(2.0), validation()));
        if self.validation.len() <= MAX_MARKED_VALIDATIONS {
            chart.series.push(Series::new("", VERMILION, Mark::Dot(3.0), validation()));
        }
        chart.series.extend(self.diverged.map(|step| {
            let name = format!("diverged at step {}", thousands(step as f64));
            let line = [(step as f64, losses.start), (step as f64, losses.end)];
            Series::new(&name, MUTED, Mark::Dashed(1.5), line)
        }));
        // Curves entirely above the axes are omitted, so that the legend does not list them.
        chart.series.retain(|series| series.points.iter().any(|&(_, loss)| loss <= losses.end));
        chart
    }

    /// Returns the upper end of the axis of learning rates. It is above the highest rate, and such that a constant rate
    /// does not coincide with the floor's line.
    pub(crate) fn rates_end(&self) -> Option<f64> {
        let highest = *sorted(self.learning_rate.iter()).last()?;
        let losses = self.losses();
        let floor = self.floor.map_or(f64::NEG_INFINITY, |floor| (floor - losses.start) / losses.length());
        let ends = std::iter::successors(Some(round_up(highest * 1.08)), |end| Some(round_up(end * 1.01)));
        ends.take(3).find(|end| (highest / end - floor).abs() > 0.05)
    }

    /// Returns the note below the title: the stored weights, the validation loss and the clipped losses.
    pub(crate) fn note(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.diverged.map(|step| format!("diverged at step {}", thousands(step as f64))));
        parts.extend(self.weights.as_ref().map(|weights| format!("{weights} were kept")));
        let last = self.validation.iter().rev().map(|point| point.value).find(|value| value.is_finite());
        if let (Some(last), Some(&best)) = (last, sorted(self.validation.iter()).first()) {
            let at_best = if last == best { "" } else { &format!(" at the end, {} at best", fixed(best, 4)) };
            parts.push(format!("validation loss {} nats per token{at_best}", fixed(last, 4)));
            parts.extend(self.floor.map(|floor| describe_floor_gap(best - floor)));
        }
        let end = self.losses().end;
        if let Some(highest) = sorted(self.all()).pop().filter(|&highest| highest > end) {
            let highest = if highest < 1e4 { format!("{highest:.2}") } else { format!("{highest:.1e}") };
            parts.push(format!("losses above {end:.2}, up to {highest}, are clipped"));
        }
        parts.join("; ")
    }

    /// Draws the picture `loss`, `width` logical pixels wide.
    pub fn picture(&self, width: f64) -> Picture {
        let title = format!("{}: loss by step", self.run);
        let mut picture = Picture::new("loss", (width, PICTURE_HEIGHT), &title, &self.note());
        let height = PICTURE_HEIGHT - HEADING - 83.0;
        let mut chart = self.chart(&picture, self.steps(), (HEADING + 31.0, height));
        let rates = self.rates_end().map(|end| {
            let axis = Axis::new("learning rate", Interval { start: 0.0, end }, Scale::Linear);
            let y = Axis { color: Some(PURPLE), ..axis };
            chart.area.width -= y.width(height) + 8.0;
            let rates = values(&self.learning_rate);
            let series = vec![Series::new("learning rate (right axis)", PURPLE, Mark::Line(1.25), rates)];
            LineChart { y, series, ..chart.clone() }
        });
        self.draw_epochs(&mut picture, &chart);
        chart.draw(&mut picture);
        if let Some(rates) = &rates {
            rates.y.draw_right(&mut picture, rates.area);
            rates.draw_series(&mut picture);
        }
        let named = chart.named().into_iter().chain(rates.iter().flat_map(|rates| &rates.series));
        legend(&mut picture, (chart.area.left, HEADING + 4.0), named);
        if !self.all().any(|point| point.value.is_finite()) {
            let style = Text::new(14.0).color(MUTED).centered();
            picture.text("no step was logged", chart.area.center(), &style);
        }
        picture
    }

    /// Draws a thin line at the end of each epoch, with the number of the epoch above it if there is room.
    fn draw_epochs(&self, picture: &mut Picture, chart: &LineChart) {
        let area = chart.area;
        let room = area.width / self.epoch_ends.len().max(1) as f64;
        let epochs = Interval { start: 0.0, end: self.epoch_ends.len() as f64 };
        let ticks = epochs.ticks((area.width / 34.0) as usize);
        let stride = ticks.get(1).map_or(1.0, |tick| tick.max(1.0)) as usize;
        let (style, above) = (Text::new(LABEL_SIZE).color(MUTED), area.top - 12.0);
        for (i, end) in self.epoch_ends.iter().enumerate() {
            let x = area.left + chart.x.at(*end as f64) * area.width;
            let is_labelled = (i + 1) % stride == 0;
            if is_labelled || room >= 14.0 {
                picture.line(&[(x, area.top), (x, area.bottom())], GRID, 0.75);
            }
            if is_labelled {
                picture.text(&(i + 1).to_string(), (x, above), &style.centered());
            }
            if i + 1 == stride {
                // The word is to the left of the first number, outside the chart if there is too little room.
                let fits = x - area.left > 62.0;
                let (x, style) = if fits { (area.left, style) } else { (area.left - 10.0, style.right()) };
                picture.text("epoch", (x, above), &style);
            }
        }
    }
}

/// Formats a distance from the floor as text.
pub(crate) fn describe_floor_gap(distance: f64) -> String {
    let is_at = fixed(distance.abs(), 4) == "0.0000";
    if is_at { "at the floor".to_string() } else { floor_gap(distance, 0.0, 4) }
}
