//! Hyper-parameter searches: the pictures `trials`, `effects`, `learning_rate`, `cost` and `rate_finder`, and a page.

mod cost;
mod effects;
mod rate_finder;
mod trials;

use std::collections::BTreeMap;

use plotters::style::RGBColor;
use serde::Serialize;
use serde_json::{Value, json};

use crate::draw::color::{BLUE, MUTED, VERMILION, pale};
use crate::draw::{Axis, HEADING, Interval, LineChart, Mark, Picture, Series, legend};
use crate::loss::describe_floor_gap;
use crate::page::{colors, escape_json, fill_template};
use crate::series::{axis_of_losses, floor_distance};

pub use rate_finder::{RatePoint, picture as rate_finder};

/// A hyper-parameter search.
#[derive(Debug, Clone, Default)]
pub struct Study {
    /// The name.
    pub name: String,
    /// The searched keys.
    pub keys: Vec<String>,
    /// The key of the learning rate, if it was searched.
    pub learning_rate: Option<String>,
    /// The trials, best first.
    pub trials: Vec<Trial>,
    /// The entropy floor, if known.
    pub floor: Option<f64>,
    /// The number of runs (seeds) per trial. Losses are means over the seeds; curves are from the first run.
    pub seeds: usize,
}

/// A trial, with losses in nats per token.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The number, counted from 0.
    pub number: usize,
    /// The stage of the recipe that started the trial.
    pub stage: Option<&'static str>,
    /// The values of the searched keys.
    pub setting: BTreeMap<String, SettingValue>,
    /// The outcome.
    pub ended: TrialEnd,
    /// The lowest validation loss.
    pub loss: Option<f64>,
    /// The fraction of validation targets predicted correctly at the lowest loss.
    pub accuracy: Option<f64>,
    /// The number of targets trained on.
    pub tokens: u64,
    /// The number of floating-point operations in training.
    pub operations: f64,
    /// The validation loss by number of targets trained on.
    pub curve: Vec<(f64, f64)>,
}

/// The value of a searched key.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingValue {
    /// The value as text.
    pub text: String,
    /// The value as a number, if it is one.
    pub number: Option<f64>,
}

/// The outcome of a trial over all its seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialEnd {
    /// Every run completed all its steps.
    Completed,
    /// Every run ended, at least one of them by early stopping.
    EarlyStopped,
    /// The trial was worse than others at a rung.
    Pruned,
    /// A loss or gradient was not finite.
    Diverged,
    /// The trial could not be trained, for example because the model did not fit into memory.
    Failed,
    /// The trial has not ended yet.
    Unfinished,
}

impl TrialEnd {
    /// All outcomes, best first, with their names in files.
    pub const NAMED: [(Self, &'static str); 6] = [
        (Self::Completed, "completed"),
        (Self::EarlyStopped, "early_stopped"),
        (Self::Pruned, "pruned"),
        (Self::Unfinished, "unfinished"),
        (Self::Diverged, "diverged"),
        (Self::Failed, "failed"),
    ];

    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        Self::NAMED.into_iter().find(|(end, _)| *end == self).map_or("", |(_, name)| name)
    }

    /// Returns true if the trial was trained to the end.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::EarlyStopped)
    }

    /// Returns true if the trial ended without a loss.
    pub fn is_lost(self) -> bool {
        matches!(self, Self::Diverged | Self::Failed)
    }
}

/// Draws the losses of the trials by tokens and by searched key, the accuracy by cost, and the losses by learning rate
/// if several rates were tried, in pictures of this width.
pub fn pictures(study: &Study, width: f64) -> Vec<Picture> {
    let mut pictures =
        vec![trials::picture(study, width), effects::picture(study, width), cost::picture(study, width)];
    pictures.extend(effects::learning_rate(study, width));
    pictures
}

const TEMPLATE: &str = include_str!("../../page/study.html");
/// The scripts of the page in loading order.
const SCRIPTS: [&str; 6] = [
    include_str!("../../page/data.js"),
    include_str!("../../page/color.js"),
    include_str!("../../page/chart.js"),
    include_str!("../../page/table.js"),
    include_str!("../../page/save.js"),
    include_str!("../../page/study.js"),
];

/// The page of a study: a sortable table of the trials, their loss curves, and a scatter plot.
#[derive(Debug, Clone, Default)]
pub struct StudyPage {
    /// The study in the format of the page's script.
    pub result: Value,
    /// The results: names and values, displayed unchanged.
    pub summary: Vec<(String, String)>,
    /// The study's config as text.
    pub config: String,
    /// The best setting as text.
    pub best: String,
    /// The pages of trials, relative to the study's folder.
    pub pages: BTreeMap<usize, String>,
}

impl StudyPage {
    /// Returns the page of `study` as one HTML file.
    pub fn html(mut self, study: &Study) -> String {
        for trial in self.result["trials"].as_array_mut().into_iter().flatten().skip(trials::MAX_CURVES) {
            trial["curve"] = json!([]);
        }
        let Self { result, summary, config, best, pages } = self;
        let data = json!({
            "result": result, "summary": summary, "config": config, "best": best, "pages": pages,
            "learning_rate": study.learning_rate,
            "highlighted": trials::highlighted(study), "max_curves": trials::MAX_CURVES, "colors": colors(),
        });
        fill_template(TEMPLATE, &study.name, escape_json(data.to_string()), SCRIPTS.join("\n"))
    }
}

/// Describes the best trial; empty if it has no loss.
fn describe_best(study: &Study) -> String {
    let Some((best, loss)) = study.trials.first().and_then(|best| Some((best, best.loss?))) else {
        return String::new();
    };
    let gap = study.floor.map_or_else(String::new, |floor| format!(", {}", describe_floor_gap(loss - floor)));
    format!("best: trial {:03} with {loss:.4} nats per token{gap}", best.number)
}

/// Returns the colour, the mark and the name of a trial. The best trial has the strongest colour; pruned and
/// unfinished trials have a pale one.
fn style(trial: &Trial, is_best: bool) -> (RGBColor, Mark, &'static str) {
    match trial.ended {
        _ if is_best => (VERMILION, Mark::Dot(5.5), "best"),
        TrialEnd::Completed | TrialEnd::EarlyStopped => (BLUE, Mark::Dot(4.0), "finished"),
        TrialEnd::Pruned => (pale(BLUE), Mark::Ring(3.5, 1.5), "pruned (at its last rung)"),
        TrialEnd::Unfinished => (pale(BLUE), Mark::Ring(3.5, 1.5), "unfinished"),
        TrialEnd::Diverged => (MUTED, Mark::Cross(4.0, 1.75), "diverged"),
        TrialEnd::Failed => (MUTED, Mark::Cross(4.0, 1.75), "failed"),
    }
}

/// Returns the marks of all trials in a chart, at the points that `point` returns. The best trial is last, on top of
/// the others. Values outside the axis are drawn at its edge; trials without a value are crosses below the upper edge.
fn marks(
    study: &Study,
    chart: &LineChart,
    point: impl Fn(usize, &Trial) -> Option<(f64, Option<f64>)>,
) -> Vec<Series> {
    let marks = study.trials.iter().enumerate().rev().filter_map(|(rank, trial)| {
        let (x, y) = point(rank, trial)?;
        let (color, mark, name) = style(trial, rank == 0);
        let (mark, y) = match y {
            Some(y) if !trial.ended.is_lost() => (mark, chart.y.clamped(y)),
            _ => (Mark::Cross(4.0, 1.75), below_top_edge(chart, 7.0)),
        };
        Some(Series::new(name, color, mark, [(x, y)]))
    });
    marks.collect()
}

/// Returns the y value at `pixels` logical pixels below the upper edge of a chart.
fn below_top_edge(chart: &LineChart, pixels: f64) -> f64 {
    chart.y.value_at(1.0 - pixels / chart.area.height)
}

/// Draws a legend of the trials' series, best first, followed by other series.
fn trials_legend(picture: &mut Picture, left: f64, trials: &[Series], others: &[Series]) {
    legend(picture, (left, HEADING + 8.0), trials.iter().rev().chain(others));
}

/// Returns the value that is drawn for a loss: its distance above the floor, if known.
fn drawn(study: &Study, loss: f64) -> f64 {
    floor_distance(loss, study.floor)
}

/// Returns the y axis for losses.
fn loss_axis(study: &Study, losses: impl Iterator<Item = f64>) -> Axis {
    axis_of_losses(study.floor.is_some(), losses.map(|loss| drawn(study, loss)))
}

/// Returns the axis for the losses of all trials.
fn final_loss_axis(study: &Study) -> Axis {
    loss_axis(study, study.trials.iter().filter_map(|trial| trial.loss))
}

/// Returns the range of the decimal logarithms of positive values.
fn log_range(values: impl Iterator<Item = f64>) -> Interval {
    let mut logarithms: Vec<f64> = values.map(f64::log10).filter(|value| value.is_finite()).collect();
    logarithms.sort_by(f64::total_cmp);
    match logarithms[..] {
        [] => Interval { start: 0.0, end: 1.0 },
        // A single value is centred in a range of one decade.
        [low, .., high] if high - low > 1e-9 => Interval::new(low, high).padded(0.05, 0.05),
        [low, ..] => Interval { start: low - 0.5, end: low + 0.5 }.padded(0.05, 0.05),
    }
}

#[cfg(test)]
pub(crate) mod tests;
