//! `losses`: the loss curves of all runs in one chart, and below it the result of each run by setting.

use std::collections::BTreeSet;

use super::{ComparedRun, Comparison, Setting, XAxisQuantity, color};
use crate::draw::color::{INK, MUTED, pale};
use crate::draw::{
    Axis, HEADING, Interval, LABEL_SIZE, LineChart, MARGIN, Mark, Picture, Rect, Scale, Series, Text, legend,
};
use crate::numbers::{counted, fixed};
use crate::series::{axis_of_losses, floor_distance};

const CURVES_HEIGHT: f64 = 300.0;
/// The height of a setting's row in the lower chart.
const ROW_HEIGHT: f64 = 26.0;
/// The maximum number of settings with a name and a row, best first.
const MAX_SETTINGS: usize = 16;
/// The maximum width of the names of settings, also as a fraction of the picture's width; wider names are truncated.
const MAX_NAME_WIDTH: f64 = 250.0;
const MAX_NAME_FRACTION: f64 = 0.4;

/// Draws the loss curves of all runs and their results.
pub fn picture(comparison: &Comparison, x_axis: XAxisQuantity, width: f64) -> Picture {
    let settings = &comparison.settings[..comparison.settings.len().min(MAX_SETTINGS)];
    let is_above = comparison.is_above_floor;
    let lines = settings.len().min(super::COLORS.len() + 1);
    let top = HEADING + 14.0 + 17.0 * lines as f64;
    let rows = ROW_HEIGHT * settings.len() as f64;
    let height = top + CURVES_HEIGHT + 84.0 + rows + 56.0;
    let settings_count = counted(comparison.settings.len(), "setting");
    let title = format!("{}: validation loss", counted(comparison.runs.len(), "run"));
    let value = |run: &ComparedRun, loss: f64| floor_distance(loss, run.floor.filter(|_| is_above));
    let losses =
        || comparison.runs.iter().flat_map(|run| run.curve.iter().map(move |row| value(run, row.loss)));
    let y = axis_of_losses(is_above, losses());
    let cut = match losses().any(|loss| y.at(loss) > 1.0) {
        true => format!("; losses above {} are clipped", fixed(y.value_at(1.0), 2)),
        false => String::new(),
    };
    let mut picture = Picture::new(
        "losses",
        (width, height),
        &title,
        &format!("{settings_count}; {}{cut}", note(comparison)),
    );
    let last_rows = comparison.runs.iter().filter_map(|run| run.curve.last());
    let last = last_rows.map(|row| x_axis.of(row)).fold(1.0, f64::max);
    let scale = if x_axis == XAxisQuantity::Seconds { Scale::Linear } else { Scale::Integer };
    let x = Axis::new(x_axis.title(), Interval { start: 0.0, end: last }, scale);
    let mut chart = LineChart::new(&picture, (top, CURVES_HEIGHT), x, y);
    let style = Text::new(11.5);
    let room = width - 2.0 * MARGIN - 100.0;
    let shown = settings.len().min(super::COLORS.len());
    let names = names_with_runs(comparison, &comparison.settings[..shown], &style, room);
    // The best run is drawn last, on top of all others.
    for run in comparison.runs.iter().rev() {
        let curve = run.curve.iter().map(|row| (x_axis.of(row), value(run, row.loss)));
        let mark = Mark::Line(if run.setting == 0 { 2.25 } else { 1.5 });
        let name = names.get(run.setting).map_or("other settings", String::as_str);
        chart.series.push(Series::new(name, color(run.setting), mark, curve));
    }
    chart.draw(&mut picture);
    // One name per line, because names are long.
    let mut named: Vec<&Series> = chart.series.iter().rev().collect();
    let mut seen = BTreeSet::new();
    named.retain(|series| seen.insert(&series.name));
    for (line, series) in named.into_iter().enumerate() {
        legend(&mut picture, (chart.area.left, HEADING + 8.0 + 17.0 * line as f64), [series]);
    }
    let area = Rect { top: chart.area.bottom() + 84.0, height: rows, ..chart.area };
    draw_results(&mut picture, comparison, settings, area);
    picture
}

/// Draws the result of each run: one dot per run, a bar for the confidence interval of the mean, a line at the mean.
fn draw_results(picture: &mut Picture, comparison: &Comparison, settings: &[Setting], area: Rect) {
    let style = Text::new(LABEL_SIZE);
    let names =
        names_within(comparison, settings, &style, MAX_NAME_WIDTH.min(MAX_NAME_FRACTION * picture.width()));
    let widest = names.iter().map(|name| style.width(name)).fold(0.0, f64::max);
    let left = MARGIN + widest + 12.0;
    let area = Rect { left, width: picture.width() - MARGIN - left, ..area };

    let intervals = settings.iter().filter_map(|setting| setting.interval).flatten();
    let shown = comparison.runs.iter().filter(|run| run.setting < settings.len());
    let range = Interval::of(shown.clone().filter_map(|run| run.result).chain(intervals));
    let range = range.map_or(Interval { start: 0.0, end: 1.0 }, |range| range.padded(0.05, 0.05));
    let title = format!("lowest validation {} (nats per token)", comparison.measure());
    let x = Axis::new(&title, range, Scale::Linear);
    let rows = Interval { start: 0.0, end: settings.len() as f64 };
    let y = Axis { is_labelled: false, labels: Some(Vec::new()), ..Axis::new("", rows, Scale::Linear) };
    let mut chart = LineChart { area, x, y, series: Vec::new() };
    let height = |setting: usize| settings.len() as f64 - setting as f64 - 0.5;
    for (number, setting) in settings.iter().enumerate() {
        let y = height(number);
        if let Some([low, high]) = setting.interval {
            chart.series.push(Series::new("", pale(color(number)), Mark::Line(7.0), [(low, y), (high, y)]));
        }
        if let Some(mean) = setting.mean {
            let stroke = [(mean, y - 0.32), (mean, y + 0.32)];
            chart.series.push(Series::new("", INK, Mark::Line(1.5), stroke));
        }
    }
    for run in shown {
        let point = run.result.map(|result| (result, height(run.setting)));
        chart.series.push(Series::new("", color(run.setting), Mark::Dot(3.5), point));
    }
    let note = "one dot per run; the line is the mean of a setting, the bar its 95 % confidence interval";
    let room = picture.width() - 2.0 * MARGIN;
    picture.panel_name("Lowest validation loss of each run", note, (MARGIN, area.top - 16.0), room);
    chart.draw(picture);
    for (number, name) in names.iter().enumerate() {
        let (_, y) = chart.point(0.0, height(number));
        picture.text(name, (area.left - 8.0, y), &style.right());
        if let Some(reason) = &settings[number].excluded {
            let excluded = style.fit(&format!("excluded: {reason}"), area.width - 8.0);
            picture.text(&excluded, (area.left + 8.0, y), &style.color(MUTED));
        }
    }
}

/// Returns the names of the runs of a setting.
fn run_names(comparison: &Comparison, setting: usize) -> String {
    let runs = comparison.runs.iter().filter(|run| run.setting == setting);
    runs.map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the names of the first settings within `width`. If one of them is wider, returns the names of their runs
/// instead, since shortened names could be equal.
fn names_within(comparison: &Comparison, settings: &[Setting], style: &Text, width: f64) -> Vec<String> {
    let names: Vec<String> = settings.iter().map(|setting| setting.name.clone()).collect();
    if names.iter().all(|name| style.width(name) <= width) {
        return names;
    }
    let runs: Vec<String> = (0..names.len()).map(|setting| run_names(comparison, setting)).collect();
    style.fit_distinct(&runs, width)
}

/// Returns the names of the first settings, each with its runs, within `width`; the names of the runs alone if the names
/// of settings are too wide.
fn names_with_runs(comparison: &Comparison, settings: &[Setting], style: &Text, width: f64) -> Vec<String> {
    let names = names_within(comparison, settings, style, width);
    if names.iter().zip(settings).any(|(name, setting)| *name != setting.name) {
        return names;
    }
    let with_runs = names.into_iter().enumerate().map(|(setting, name)| {
        let runs = run_names(comparison, setting);
        let room = width - style.width(&format!("{name}: "));
        match style.fit_distinct(std::slice::from_ref(&runs), room).concat() {
            runs if runs.is_empty() || name.contains(&runs) => name,
            runs => format!("{name}: {runs}"),
        }
    });
    with_runs.collect()
}

/// Returns the lowest mean result and its setting, for the note below the title.
fn note(comparison: &Comparison) -> String {
    let best = comparison.settings.first().and_then(|best| Some((best, best.mean?)));
    best.map_or_else(String::new, |(best, mean)| {
        format!("lowest {} {mean:.4} nats: {}", comparison.measure(), best.name)
    })
}
