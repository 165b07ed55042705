//! A study's trials as pictures and as a page.

mod cost;
mod curves;
mod effects;
mod learning_rate;
mod page;
mod sweep;

use std::path::PathBuf;

use plotters::style::RGBColor;

use super::axis::Axis;
use super::color::{BLUE, MUTED, VERMILION, pale};
use super::line_chart::{Entry, LineChart, Mark, Series, Sign};
use super::picture::Style;
use super::range::{Range, log_ticks, significant};
use super::run_data::save_all;
use super::series::quantile;
use crate::error::Result;
use crate::tuning::{Findings, Study, Trial, TrialEnd};

pub use sweep::rate_finder;

/// Draws a study into its `plots/`, writes its `report.html`, and says where the pictures are; none are drawn
/// where no trial has a loss yet.
///
/// # Errors
/// If they cannot be written.
pub fn draw_study(study: &Study, style: &Style) -> Result<Vec<PathBuf>> {
    let Some(findings) = study.findings() else { return Ok(Vec::new()) };
    let mut pictures = vec![curves::trials(&findings), effects::effects(&findings), cost::cost(&findings)];
    pictures.extend(learning_rate::learning_rate(&findings));
    let drawn = save_all(&pictures, &study.folder().plots(), style)?;
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let page = page::StudyPage {
        summary: page::summary(&findings),
        config: text(study.folder().config()),
        best: text(study.folder().best()),
        pages: findings.trials.iter().filter_map(|trial| Some((trial.trial, study.page(trial)?))).collect(),
        result: findings,
    };
    page.write(&study.folder().report())?;
    Ok(drawn)
}

/// The best trial in words.
fn best_in_words(findings: &Findings) -> String {
    let Some((best, loss)) = findings.trials.first().and_then(|best| Some((best, best.loss?))) else {
        return String::new();
    };
    let gap = findings
        .floor
        .map_or_else(String::new, |floor| format!(", {:.4} above the floor", loss - floor).replace('-', "−"));
    format!("best: trial {:03} with {loss:.4} nats per token{gap}", best.trial)
}

/// The colour of a trial's marks: the best one stands out, what was given up stands back.
fn color(trial: &Trial, best: bool) -> RGBColor {
    match trial.ended {
        _ if best => VERMILION,
        TrialEnd::Completed | TrialEnd::EarlyStopped => BLUE,
        TrialEnd::Pruned | TrialEnd::Unfinished => pale(BLUE),
        TrialEnd::Diverged | TrialEnd::Failed => MUTED,
    }
}

/// The y axis of losses: above the floor on a logarithmic scale, so that what is near it can be told apart;
/// where no floor is known, as they are.
#[derive(Debug, Clone, Copy)]
struct LossScale {
    floor: Option<f64>,
    range: Range,
}

/// Nearer to the floor than this, losses are drawn as if they were here.
const NEAREST: f64 = 1e-4;

impl LossScale {
    fn new(floor: Option<f64>, losses: impl Iterator<Item = f64>) -> Self {
        let scale = Self { floor, range: Range { start: 0.0, end: 1.0 } };
        let place = |loss: f64| if floor.is_some() { scale.value(loss).log10() } else { loss };
        let mut places: Vec<f64> = losses.filter(|loss| loss.is_finite()).map(place).collect();
        places.sort_by(f64::total_cmp);
        let low = places.first().copied().unwrap_or(0.0);
        let high = quantile(&places, 0.98).unwrap_or(1.0);
        Self { range: widened(Range::new(low, high), 0.06), ..scale }
    }

    /// What is drawn of a loss: its distance from the floor, where that is known.
    fn value(&self, loss: f64) -> f64 {
        self.floor.map_or(loss, |floor| (loss - floor).max(NEAREST))
    }

    fn axis(&self) -> Axis {
        match self.floor {
            Some(_) => Axis::logarithmic("loss above the floor (nats)", self.range),
            None => Axis::new("validation loss (nats)", self.range),
        }
    }
}

/// A range with so large a share of its length more on both sides.
fn widened(range: Range, share: f64) -> Range {
    Range { start: range.start - share * range.length(), end: range.end + share * range.length() }
}

/// The range of the decimal logarithms of positive values.
fn log_range(values: impl Iterator<Item = f64>) -> Range {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
        (low, high) = (low.min(value.log10()), high.max(value.log10()));
    }
    if low > high {
        return Range { start: 0.0, end: 1.0 };
    }
    // A single value stands in the middle of its decade.
    let single = Range { start: low - 0.5, end: high + 0.5 };
    widened(if high - low < 1e-9 { single } else { Range::new(low, high) }, 0.05)
}

/// A logarithmic axis whose labels have one format; what is drawn along it is drawn by its decimal logarithm.
fn log_axis(title: &str, values: impl Iterator<Item = f64>) -> Axis {
    let range = log_range(values);
    let ticks = log_ticks(range);
    Axis::labelled(title, range, ticks.iter().map(|tick| tick.log10()).zip(labels(&ticks)).collect())
}

/// Labels of values of one key, all in one format.
fn labels(values: &[f64]) -> Vec<String> {
    let is_plain = |value: &f64| *value == 0.0 || (1e-2..1e6).contains(&value.abs());
    let scientific = |value: f64| {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        format!("{digits}e{power}")
    };
    match values.iter().all(is_plain) {
        true => values.iter().map(|&value| plain(value)).collect(),
        false => values.iter().map(|&value| scientific(value)).collect(),
    }
}

fn plain(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value}") } else { significant(value) }
}

/// Adds a trial's mark at `x`: a dot, a ring where it was given up, a cross at the top where it has no loss.
fn mark(chart: &mut LineChart, trial: &Trial, x: f64, y: Option<f64>, best: bool) {
    let mark = match trial.ended {
        ended if ended.is_lost() || y.is_none() => Mark::Cross(4.0, 1.75),
        TrialEnd::Pruned | TrialEnd::Unfinished => Mark::Ring(3.5, 1.5),
        _ => Mark::Dot(if best { 5.5 } else { 4.0 }),
    };
    // A cross stands below the upper edge, what lies beyond an edge on it.
    let y = match mark {
        Mark::Cross(..) => below_the_edge(chart, 7.0),
        _ => y.map_or(f64::NAN, |y| chart.y.clamped(y)),
    };
    chart.series.push(Series::new("", color(trial, best), mark, [(x, y)]));
}

/// The value so many pixels below the upper edge of a chart.
fn below_the_edge(chart: &LineChart, pixels: f64) -> f64 {
    chart.y.value_at(1.0 - pixels / chart.area.height)
}

/// What a legend says of these marks, as far as there are any.
fn marks(findings: &Findings) -> Vec<Entry> {
    let any = |ended: TrialEnd| findings.trials.iter().any(|trial| trial.ended == ended);
    let mut entries = vec![Entry::new(Sign::Dot, VERMILION, "best")];
    if findings.trials.iter().skip(1).any(|trial| trial.ended.is_finished()) {
        entries.push(Entry::new(Sign::Dot, BLUE, "trained to the end"));
    }
    if any(TrialEnd::Pruned) {
        entries.push(Entry::new(Sign::Ring, pale(BLUE), "pruned, as it stood then"));
    }
    if any(TrialEnd::Unfinished) {
        entries.push(Entry::new(Sign::Ring, pale(BLUE), "not finished yet"));
    }
    entries.extend(lost(findings));
    entries
}

/// What a legend says of trials that have no loss.
fn lost(findings: &Findings) -> Option<Entry> {
    let any = |ended: TrialEnd| findings.trials.iter().any(|trial| trial.ended == ended);
    let text = match (any(TrialEnd::Diverged), any(TrialEnd::Failed)) {
        (true, true) => "diverged or failed",
        (true, false) => "diverged",
        (false, true) => "failed",
        (false, false) => return None,
    };
    Some(Entry::new(Sign::Cross, MUTED, text))
}

#[cfg(test)]
mod tests;
