//! A study's trials as pictures and as a page.

mod cost;
mod effects;
mod rate_finder;
mod trials;

use std::{collections::BTreeMap, path::PathBuf};

use plotters::style::RGBColor;
use serde_json::json;

use super::draw::color::{BLUE, MUTED, VERMILION, pale};
use super::draw::{Axis, HEADING, Interval, LineChart, Mark, Picture, Series, Style, legend};
use super::loss::above_floor;
use super::page::{colors, filled, harmless};
use super::run_data::save_all;
use super::series::{axis_of_losses, beside_floor};
use crate::config::Config;
use crate::error::Result;
use crate::files::write_atomically;
use crate::terminal::{clock, thousands};
use crate::tuning::{Findings, Study, Trial, TrialEnd, best};

pub use rate_finder::rate_finder;

/// Draws a study into its `plots/`, writes its `report.html`, and says where the pictures are; none are drawn
/// where no trial has a loss yet.
///
/// # Errors
/// If they cannot be written.
pub fn draw_study(study: &Study, style: &Style) -> Result<Vec<PathBuf>> {
    let Some(findings) = study.findings() else { return Ok(Vec::new()) };
    let mut pictures =
        vec![trials::picture(&findings), effects::picture(&findings), cost::picture(&findings)];
    pictures.extend(effects::learning_rate(&findings));
    let drawn = save_all(&pictures, &study.folder.plots(), style)?;
    let texts = [study.folder.config(), best(&study.folder)];
    // A page is handed on: it says nothing of the folders of this machine.
    let texts = texts.map(|path| {
        Config::load(Some(&path), &[]).map_or_else(|_| String::new(), |config| config.to_shared_toml())
    });
    let pages = findings.trials.iter().filter_map(|trial| Some((trial.trial, study.page(trial)?))).collect();
    write_atomically(&study.folder.report(), page(findings, texts, &pages).as_bytes())?;
    Ok(drawn)
}

const TEMPLATE: &str = include_str!("../../../assets/report/study.html");
/// In the order in which they read; the first three are those of a run's page.
const SCRIPTS: [&str; 5] = [
    include_str!("../../../assets/report/data.js"),
    include_str!("../../../assets/report/color.js"),
    include_str!("../../../assets/report/chart.js"),
    include_str!("../../../assets/report/table.js"),
    include_str!("../../../assets/report/study.js"),
];

/// The page of a study: its table, to be sorted, and its trials as curves and dots that light up together.
/// `config` and `best` are the texts of its config and of its best setting; `pages` are those of its trials,
/// relative to the study's folder.
fn page(mut findings: Findings, [config, best]: [String; 2], pages: &BTreeMap<usize, String>) -> String {
    let summary = summary(&findings);
    findings.trials.iter_mut().skip(trials::MOST_DRAWN).for_each(|trial| trial.curve.clear());
    let data = json!({
        "result": findings, "summary": summary, "config": config, "best": best, "pages": pages,
        "strong": trials::strong(&findings), "drawn": trials::MOST_DRAWN, "colors": colors(),
    });
    filled(TEMPLATE, &findings.study, harmless(data.to_string()), SCRIPTS.join("\n"))
}

/// How a study went.
fn summary(findings: &Findings) -> Vec<(String, String)> {
    let trials = &findings.trials;
    let mut lines = Vec::new();
    if let Some(best) = trials.first() {
        lines.push(("best trial", format!("{:03}", best.trial)));
        lines.extend(best.loss.map(|loss| ("its loss", format!("{loss:.4} nats"))));
        lines.extend(best.floor.map(|floor| ("floor", format!("{floor:.4} nats"))));
        lines.extend(best.accuracy.map(|accuracy| ("its accuracy", format!("{:.1} %", accuracy * 100.0))));
    }
    for (ended, name) in TrialEnd::NAMED {
        let count = trials.iter().filter(|trial| trial.ended == ended).count();
        lines.extend((count > 0).then(|| (name, thousands(count as f64))));
    }
    lines.push(("steps", thousands(trials.iter().map(|trial| trial.steps).sum::<usize>() as f64)));
    lines.push(("time of training", clock(trials.iter().map(|trial| trial.seconds).sum())));
    lines.into_iter().map(|(name, value)| (name.replace('_', " "), value)).collect()
}

/// The best trial in words.
fn best_in_words(findings: &Findings) -> String {
    let Some((best, loss)) = findings.trials.first().and_then(|best| Some((best, best.loss?))) else {
        return String::new();
    };
    let gap = findings.floor.map_or_else(String::new, |floor| format!(", {}", above_floor(loss - floor)));
    format!("best: trial {:03} with {loss:.4} nats per token{gap}", best.trial)
}

/// How a trial is marked, and what a legend says of it: the best one stands out, what was given up stands back.
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
/// What lies beyond an edge stands on it, and a cross for what has no value below the upper one.
fn marks(
    findings: &Findings,
    chart: &LineChart,
    place: impl Fn(usize, &Trial) -> Option<(f64, Option<f64>)>,
) -> Vec<Series> {
    let marks = findings.trials.iter().enumerate().rev().filter_map(|(rank, trial)| {
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

/// What is drawn of a loss.
fn drawn(findings: &Findings, loss: f64) -> f64 {
    beside_floor(loss, findings.floor)
}

/// The y axis of losses.
fn loss_axis(findings: &Findings, losses: impl Iterator<Item = f64>) -> Axis {
    axis_of_losses(findings.floor.is_some(), losses.map(|loss| drawn(findings, loss)))
}

/// The axis of the final losses of all trials.
fn final_losses(findings: &Findings) -> Axis {
    loss_axis(findings, findings.trials.iter().filter_map(|trial| trial.loss))
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
