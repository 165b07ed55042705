//! `trials`, `effects`, `learning_rate`, `cost` and `rate_finder`: a hyper-parameter search as pictures and as a page.

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
use crate::loss::above_floor;
use crate::page::{colors, filled, harmless};
use crate::series::{axis_of_losses, beside_floor};

pub use rate_finder::{RatePoint, picture as rate_finder};

/// A hyper-parameter search.
#[derive(Debug, Clone, Default)]
pub struct Study {
    /// The name.
    pub name: String,
    /// The searched keys.
    pub keys: Vec<String>,
    /// The trials, the best first.
    pub trials: Vec<Trial>,
    /// The loss of the optimal predictor, where it is known.
    pub floor: Option<f64>,
    /// The number of runs of each trial, whose losses are means; curves are those of the first.
    pub seeds: usize,
}

/// A trial. Losses are in nats per token.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The number, counted from 0.
    pub number: usize,
    /// The stage of a recipe that asked for the trial.
    pub stage: Option<&'static str>,
    /// The values of the searched keys.
    pub setting: BTreeMap<String, SettingValue>,
    /// The end.
    pub ended: TrialEnd,
    /// The lowest validation loss.
    pub loss: Option<f64>,
    /// The share of the validation targets predicted, where the loss was lowest.
    pub accuracy: Option<f64>,
    /// The targets trained on.
    pub tokens: u64,
    /// The floating-point operations of the training.
    pub operations: f64,
    /// The validation loss by targets trained on.
    pub curve: Vec<(f64, f64)>,
}

/// The value of a searched key.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingValue {
    /// The value as text.
    pub text: String,
    /// The value as a number, where it is one.
    pub number: Option<f64>,
}

/// The end of a trial, all its seeds together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialEnd {
    /// Every run did all its steps.
    Completed,
    /// Every run ended, some of them because they no longer improved.
    EarlyStopped,
    /// Others were better at a rung.
    Pruned,
    /// A loss or gradient was not finite.
    Diverged,
    /// It could not be trained, as a model that no memory holds.
    Failed,
    /// Not yet.
    Unfinished,
}

impl TrialEnd {
    /// All of them, the best first, with their names in files.
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

    /// Returns true where the trial was trained to its end.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::EarlyStopped)
    }

    /// Returns true where the trial has no loss.
    pub fn is_lost(self) -> bool {
        matches!(self, Self::Diverged | Self::Failed)
    }
}

/// Draws the trials by tokens, by searched key, by cost, and by learning rate where several were tried.
pub fn pictures(study: &Study) -> Vec<Picture> {
    let mut pictures = vec![trials::picture(study), effects::picture(study), cost::picture(study)];
    pictures.extend(effects::learning_rate(study));
    pictures
}

const TEMPLATE: &str = include_str!("../../page/study.html");
/// In the order in which they read; the first three are those of a run's page.
const SCRIPTS: [&str; 5] = [
    include_str!("../../page/data.js"),
    include_str!("../../page/color.js"),
    include_str!("../../page/chart.js"),
    include_str!("../../page/table.js"),
    include_str!("../../page/study.js"),
];

/// The page of a study: its table, to be sorted, and its trials as curves and dots that light up together.
#[derive(Debug, Clone, Default)]
pub struct StudyPage {
    /// The study as the page's script reads it.
    pub result: Value,
    /// The result, as names and values that are shown as they are.
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
        for trial in self.result["trials"].as_array_mut().into_iter().flatten().skip(trials::MOST_DRAWN) {
            trial["curve"] = json!([]);
        }
        let Self { result, summary, config, best, pages } = self;
        let data = json!({
            "result": result, "summary": summary, "config": config, "best": best, "pages": pages,
            "strong": trials::strong(study), "drawn": trials::MOST_DRAWN, "colors": colors(),
        });
        filled(TEMPLATE, &study.name, harmless(data.to_string()), SCRIPTS.join("\n"))
    }
}

/// Returns the best trial in words.
fn best_in_words(study: &Study) -> String {
    let Some((best, loss)) = study.trials.first().and_then(|best| Some((best, best.loss?))) else {
        return String::new();
    };
    let gap = study.floor.map_or_else(String::new, |floor| format!(", {}", above_floor(loss - floor)));
    format!("best: trial {:03} with {loss:.4} nats per token{gap}", best.number)
}

/// Returns the colour, the mark and the name of a trial: the best one stands out, those given up stand back.
fn look(trial: &Trial, is_best: bool) -> (RGBColor, Mark, &'static str) {
    match trial.ended {
        _ if is_best => (VERMILION, Mark::Dot(5.5), "best"),
        TrialEnd::Completed | TrialEnd::EarlyStopped => (BLUE, Mark::Dot(4.0), "trained to the end"),
        TrialEnd::Pruned => (pale(BLUE), Mark::Ring(3.5, 1.5), "pruned (loss at its last rung)"),
        TrialEnd::Unfinished => (pale(BLUE), Mark::Ring(3.5, 1.5), "not finished yet"),
        TrialEnd::Diverged => (MUTED, Mark::Cross(4.0, 1.75), "diverged"),
        TrialEnd::Failed => (MUTED, Mark::Cross(4.0, 1.75), "failed"),
    }
}

/// The marks of all trials in a chart, each at the `place` that it has: the best is the last, above all others.
/// A value beyond an edge is drawn on it, and a trial without a value as a cross below the upper one.
fn marks(
    study: &Study,
    chart: &LineChart,
    place: impl Fn(usize, &Trial) -> Option<(f64, Option<f64>)>,
) -> Vec<Series> {
    let marks = study.trials.iter().enumerate().rev().filter_map(|(rank, trial)| {
        let (x, y) = place(rank, trial)?;
        let (color, mark, name) = look(trial, rank == 0);
        let (mark, y) = match y {
            Some(y) if !trial.ended.is_lost() => (mark, chart.y.clamped(y)),
            _ => (Mark::Cross(4.0, 1.75), below_the_edge(chart, 7.0)),
        };
        Some(Series::new(name, color, mark, [(x, y)]))
    });
    marks.collect()
}

/// The value so many pixels below the upper edge of a chart.
fn below_the_edge(chart: &LineChart, pixels: f64) -> f64 {
    chart.y.value_at(1.0 - pixels / chart.area.height)
}

/// Draws a legend of the series of trials, the best one first, and of what else there is after them.
fn legend_of(picture: &mut Picture, left: f64, trials: &[Series], others: &[Series]) {
    legend(picture, (left, HEADING + 8.0), trials.iter().rev().chain(others));
}

/// Returns the value that is drawn for a loss.
fn drawn(study: &Study, loss: f64) -> f64 {
    beside_floor(loss, study.floor)
}

/// The y axis of losses.
fn loss_axis(study: &Study, losses: impl Iterator<Item = f64>) -> Axis {
    axis_of_losses(study.floor.is_some(), losses.map(|loss| drawn(study, loss)))
}

/// The axis of the final losses of all trials.
fn final_losses(study: &Study) -> Axis {
    loss_axis(study, study.trials.iter().filter_map(|trial| trial.loss))
}

/// The range of the decimal logarithms of positive values.
fn log_range(values: impl Iterator<Item = f64>) -> Interval {
    let mut logarithms: Vec<f64> = values.map(f64::log10).filter(|value| value.is_finite()).collect();
    logarithms.sort_by(f64::total_cmp);
    match logarithms[..] {
        [] => Interval { start: 0.0, end: 1.0 },
        // A single value stands in the middle of its decade.
        [low, .., high] if high - low > 1e-9 => Interval::new(low, high).padded(0.05, 0.05),
        [low, ..] => Interval { start: low - 0.5, end: low + 0.5 }.padded(0.05, 0.05),
    }
}

#[cfg(test)]
mod tests;
