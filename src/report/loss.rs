//! `loss`: training and validation loss by step, the floor, and the learning rate.

use serde::{Deserialize, Serialize};

use super::axis::{Axis, LABEL, wide_area};
use super::canvas::Canvas;
use super::color::{GREEN, GRID, MUTED, PURPLE, VERMILION};
use super::line_chart::{LineChart, Mark, Series, legend};
use super::picture::{HEADING, Picture};
use super::range::{Range, round_up, whole};
use super::series::{Point, noisy, points, quantile, sorted, values};
use super::text::Text;
use crate::training::{Ended, Row, Split, Summary};

/// The loss along a run. Losses are in nats per token.
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
    /// The step at which the run diverged.
    #[serde(default)]
    pub diverged: Option<u64>,
    /// The step of the best weights.
    #[serde(default)]
    pub best_step: Option<u64>,
}

/// Up to so many validations are marked each by a dot.
const MOST_MARKED: usize = 60;
const HEIGHT: f64 = 480.0;

/// A loss in words: four digits after the point.
fn nats(loss: f64) -> String {
    format!("{loss:.4}")
}

impl LossCurve {
    /// The course that a run's rows and summary tell.
    pub fn new(run: String, rows: &[Row], summary: &Summary) -> Self {
        let last = rows.last().map_or(0, |row| row.step) as f64;
        let epochs = (last / summary.steps_per_epoch).floor() as u64;
        let epoch_end = |epoch: u64| (epoch as f64 * summary.steps_per_epoch).ceil() as u64;
        Self {
            run,
            training: points(rows, Split::Train, |row| Some(row.loss)),
            validation: points(rows, Split::Valid, |row| Some(row.loss)),
            learning_rate: points(rows, Split::Train, |row| Some(row.learning_rate)),
            epoch_ends: (1..=epochs).map(epoch_end).collect(),
            floor: summary.floor,
            diverged: (summary.ended == Ended::Diverged).then_some(summary.steps as u64),
            best_step: summary.best_step.map(|step| step as u64),
        }
    }

    pub(crate) fn steps(&self) -> Range {
        let ends = [self.epoch_ends.last().copied(), self.diverged].into_iter().flatten();
        let series = [&self.training, &self.validation, &self.learning_rate];
        let last = series.iter().filter_map(|points| points.last()).map(|point| point.step).chain(ends);
        Range { start: 0.0, end: last.max().unwrap_or(1).max(1) as f64 }
    }

    /// From just below the floor and the curves up to where the run starts. Losses far above all others are
    /// cut, so that they do not squash the rest: a start, spikes, and what follows where a run diverges.
    pub(crate) fn losses(&self) -> Range {
        let all = sorted(self.training.iter().chain(&self.validation));
        let first = self.training.iter().chain(&self.validation).find(|point| point.value.is_finite());
        let (Some(first), Some(&lowest), Some(&highest)) = (first, all.first(), all.last()) else {
            return Range { start: 0.0, end: self.floor.unwrap_or(1.0).max(1e-3) * 1.5 };
        };
        // Training lowers the loss: what is usual lies below where it began.
        let usual = [first.value, quantile(&all, 0.5).unwrap_or(highest)].into_iter().fold(lowest, f64::max);
        let usual = quantile(&all, 0.97).unwrap_or(highest).min(usual);
        let low = self.floor.map_or(lowest, |floor| floor.min(lowest));
        let cut = (low + 1.6 * (usual - low)).max(self.floor.unwrap_or(low));
        // A cut hides how the run began: only for half as much room again.
        let high = if highest - low > 1.5 * (cut - low) { cut } else { highest };
        let range = Range::new(low, high);
        Range { start: range.start - 0.07 * range.length(), end: range.end + 0.05 * range.length() }
    }

    /// The losses and the floor on axes of the given range of steps, from `top` on.
    pub(crate) fn chart(&self, steps: Range, top: f64, height: f64, right: Option<&Axis>) -> LineChart {
        let (x, y) = (Axis::whole("step", steps), Axis::new("loss (nats per token)", self.losses()));
        let across = |level: f64| [(steps.start, level), (steps.end, level)];
        let mut series = Vec::new();
        let floor = self.floor.map(|floor| {
            Series::new(format!("floor {} nats", nats(floor)), GREEN, Mark::Dashed(1.5), across(floor))
        });
        series.extend(floor);
        series.extend(noisy("training", &self.training, y.range.end));
        if !self.validation.is_empty() {
            let curve = || values(&self.validation);
            series.push(Series::new("validation", VERMILION, Mark::Line(2.0), curve()));
            if self.validation.len() <= MOST_MARKED {
                series.push(Series::new("", VERMILION, Mark::Dot(3.0), curve()));
            }
        }
        series.extend(self.diverged.map(|step| {
            let line = [(step as f64, y.range.start), (step as f64, y.range.end)];
            Series::new(format!("diverged at step {}", whole(step)), MUTED, Mark::Dashed(1.5), line)
        }));
        series.retain(|series| !series.points.is_empty());
        LineChart { area: wide_area(top, height, &y, right), x, y, series }
    }

    /// What stands below a picture's title.
    pub(crate) fn note(&self) -> String {
        let mut parts = Vec::new();
        if let Some(step) = self.diverged {
            let kept = self.best_step.map_or_else(String::new, |step| {
                format!(", the weights kept are those of step {}", whole(step))
            });
            parts.push(format!("diverged at step {}{kept}", whole(step)));
        }
        let finite = || self.validation.iter().map(|point| point.value).filter(|value| value.is_finite());
        if let (Some(last), best) = (finite().next_back(), finite().fold(f64::INFINITY, f64::min)) {
            let at_best =
                if last == best { String::new() } else { format!(" at the end, {} at best", nats(best)) };
            parts.push(format!("validation loss {} nats per token{at_best}", nats(last)));
            parts.extend(self.floor.map(|floor| above_floor(best - floor)));
        }
        let all = sorted(self.training.iter().chain(&self.validation));
        let end = self.losses().end;
        if let Some(highest) = all.last().filter(|&&highest| highest > end) {
            let highest = if *highest < 1e4 { format!("{highest:.2}") } else { format!("{highest:.1e}") };
            parts.push(format!("losses above {end:.2}, up to {highest}, are cut"));
        }
        parts.join("; ")
    }

    /// The picture `loss`.
    pub fn picture(&self) -> Picture {
        let mut picture = Picture::new("loss", HEIGHT, &format!("{}: loss by step", self.run), &self.note());
        let canvas = &mut picture.canvas;
        let largest = sorted(self.learning_rate.iter()).last().copied();
        let rates = largest.map(|largest| {
            let range = Range { start: 0.0, end: round_up(largest * 1.08) };
            Axis::new("learning rate", range).colored(PURPLE)
        });
        let chart = self.chart(self.steps(), HEADING + 48.0, HEIGHT - HEADING - 100.0, rates.as_ref());
        self.epochs(canvas, &chart);
        chart.draw(canvas);
        let mut entries = chart.entries();
        if let Some(axis) = rates {
            axis.draw_right(canvas, chart.area);
            let name = "learning rate (right axis)";
            let curve = Series::new(name, PURPLE, Mark::Line(1.25), values(&self.learning_rate));
            let rates = LineChart { y: axis, series: vec![curve], ..chart.clone() };
            rates.draw_series(canvas);
            entries.extend(rates.entries());
        }
        legend(canvas, (chart.area.left, HEADING + 8.0), &entries);
        if !self.training.iter().chain(&self.validation).any(|point| point.value.is_finite()) {
            let look = Text::new(14.0).color(MUTED).centered();
            canvas.text("no step was logged", chart.area.center(), &look);
        }
        picture
    }

    /// A thin line at the end of each epoch, and its number above where there is room.
    fn epochs(&self, canvas: &mut Canvas, chart: &LineChart) {
        let area = chart.area;
        let room = area.width / self.epoch_ends.len().max(1) as f64;
        let every = Range { start: 0.0, end: self.epoch_ends.len() as f64 };
        let every = every.ticks((area.width / 34.0) as usize);
        let every = every.get(1).map_or(1.0, |tick| tick.max(1.0)) as usize;
        let (look, above) = (Text::new(LABEL).color(MUTED), area.top - 12.0);
        for (i, end) in self.epoch_ends.iter().enumerate() {
            let x = area.left + chart.x.at(*end as f64) * area.width;
            let is_labelled = (i + 1) % every == 0;
            if is_labelled || room >= 14.0 {
                canvas.line(&[(x, area.top), (x, area.bottom())], GRID, 0.75);
            }
            if is_labelled {
                canvas.text(&(i + 1).to_string(), (x, above), &look.centered());
            }
            if i + 1 == every {
                // The word stands before the first number, outside where there is no room.
                let fits = x - area.left > 62.0;
                let (place, look) = if fits { (area.left, look) } else { (area.left - 10.0, look.right()) };
                canvas.text("epoch", (place, above), &look);
            }
        }
    }
}

/// A distance from the floor in words.
pub(crate) fn above_floor(distance: f64) -> String {
    match format!("{:.4}", distance.abs()) {
        zero if zero == "0.0000" => "at the floor".to_string(),
        distance_in_words if distance < 0.0 => format!("{distance_in_words} below the floor"),
        distance_in_words => format!("{distance_in_words} above the floor"),
    }
}
