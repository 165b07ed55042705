//! `effects`: the loss by the value of each searched key. `learning_rate`: a larger chart of the loss by learning rate.
//!
//! A line connects the lowest losses of comparable trials. In a recipe, these are the finished trials of the stage that
//! changes the key; otherwise all finished trials.

use super::{
    SettingValue, Study, Trial, describe_best, drawn, final_loss_axis, log_range, marks, trials_legend,
};
use crate::draw::color::VERMILION;
use crate::draw::{
    Axis, HEADING, Interval, LABEL_SIZE, LineChart, MARGIN, Mark, Picture, Rect, Scale, Series, Text, labels,
};

/// The maximum number of charts in a row, and their minimum width if there are several.
const MAX_CHARTS_PER_ROW: usize = 3;
const MIN_CHART_WIDTH: f64 = 190.0;
const CHART_HEIGHT: f64 = 190.0;
/// The height of the labels and the key's name below a chart.
const LABELS_HEIGHT: f64 = 56.0;
const LEGEND_HEIGHT: f64 = 30.0;
const AXIS_WIDTH: f64 = 62.0;
const GAP: f64 = 22.0;
/// The ratio above which positive numbers are drawn on a logarithmic axis.
const MIN_LOGARITHMIC_RATIO: f64 = 8.0;

/// Draws a small chart per searched key: the loss by the key's value, with one mark per trial and a line through the
/// lowest loss at each value.
pub fn picture(study: &Study, picture_width: f64) -> Picture {
    let room = picture_width - 2.0 * MARGIN - AXIS_WIDTH;
    let columns = MAX_CHARTS_PER_ROW.min((room / MIN_CHART_WIDTH) as usize).min(study.keys.len()).max(1);
    let rows = study.keys.len().div_ceil(columns).max(1);
    let height = HEADING + LEGEND_HEIGHT + rows as f64 * (CHART_HEIGHT + LABELS_HEIGHT) + 4.0;
    let title = format!("{}: loss by searched key", study.name);
    let mut picture = Picture::new("effects", (picture_width, height), &title, &describe_best(study));
    let width = (room - GAP * (columns - 1) as f64) / columns as f64;
    let mut named = Vec::new();
    for (index, key) in study.keys.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let left = MARGIN + AXIS_WIDTH + column as f64 * (width + GAP);
        let top = HEADING + LEGEND_HEIGHT + row as f64 * (CHART_HEIGHT + LABELS_HEIGHT);
        let area = Rect { left, top, width, height: CHART_HEIGHT };
        let (x, positions, has_line) = positions(study, key, width);
        let y = Axis { is_labelled: column == 0, ..final_loss_axis(study) };
        let mut chart = LineChart { area, x, y, series: Vec::new() };
        let loss = |trial: &Trial| trial.loss.map(|loss| drawn(study, loss));
        if has_line {
            let points = comparable(study, key).into_iter();
            let points = points.filter_map(|(rank, trial)| Some((positions[rank]?, loss(trial)?)));
            let mut best: Vec<(f64, f64)> = points.collect();
            best.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            best.dedup_by_key(|point| point.0);
            chart.series.push(Series::new("", VERMILION, Mark::Line(1.25), best));
        }
        let marks = marks(study, &chart, |rank, trial| Some((positions[rank]?, loss(trial))));
        chart.series.extend(marks);
        chart.draw(&mut picture);
        named.extend(chart.series);
    }
    trials_legend(&mut picture, MARGIN + AXIS_WIDTH, &named, &[]);
    picture
}

/// Draws the loss by learning rate. A wide minimum means that the choice of the rate is uncritical. Returns `None` if
/// only one rate was tried.
pub fn learning_rate(study: &Study, width: f64) -> Option<Picture> {
    let key = study.learning_rate.as_ref()?;
    let rate = |trial: &Trial| trial.setting.get(key).and_then(|rate| rate.number);
    let rate = |trial: &Trial| rate(trial).filter(|&rate| rate > 0.0);
    let rates = study.trials.iter().filter_map(rate).collect::<Vec<_>>();
    if rates.iter().all(|&rate| rate == rates[0]) {
        return None;
    }
    let title = format!("{}: loss by learning rate", study.name);
    let mut picture = Picture::new("learning_rate", (width, 400.0), &title, &describe_best(study));
    let x = Axis::new("learning rate", log_range(rates.into_iter()), Scale::Logarithmic);
    let mut chart = LineChart::filling(&picture, x, final_loss_axis(study));
    chart.series =
        marks(study, &chart, |_, trial| Some((rate(trial)?, trial.loss.map(|loss| drawn(study, loss)))));
    trials_legend(&mut picture, chart.area.left, &chart.series, &[]);
    chart.draw(&mut picture);
    Some(picture)
}

/// Returns the axis for a key's values and the position of each trial along it. The flag is true if each tried value
/// has a label, and false if the labels are round values.
fn positions(study: &Study, key: &str, width: f64) -> (Axis, Vec<Option<f64>>, bool) {
    let tried: Vec<_> = study.trials.iter().map(|trial| trial.setting.get(key)).collect();
    let style = Text::new(LABEL_SIZE);
    let Some(mut values) = tried.iter().flatten().map(|value| value.number).collect::<Option<Vec<_>>>()
    else {
        let mut words: Vec<&String> = tried.iter().flatten().map(|value| &value.text).collect();
        words.sort();
        words.dedup();
        let position = |value: &SettingValue| {
            words.iter().position(|word| **word == value.text).map(|position| position as f64)
        };
        let positions = tried.into_iter().map(|value| position(value?)).collect();
        let room = width / words.len().max(1) as f64 - 4.0;
        let ticks = words.iter().enumerate().map(|(position, word)| (position as f64, style.fit(word, room)));
        let range = Interval { start: -0.5, end: words.len() as f64 - 0.5 };
        let axis = Axis { labels: Some(ticks.collect()), ..Axis::new(key, range, Scale::Linear) };
        return (axis, positions, true);
    };
    values.sort_by(f64::total_cmp);
    values.dedup();
    let (low, high) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
    let round = match low > 0.0 && high / low > MIN_LOGARITHMIC_RATIO {
        true => Axis::new(key, log_range(values.iter().copied()), Scale::Logarithmic),
        false => Axis::new(key, Interval::new(low, high).padded(0.15, 0.15), Scale::Linear),
    };
    let positions = tried.into_iter().map(|value| value?.number).collect();
    let ticks: Vec<_> = values.iter().copied().zip(labels(&values)).collect();
    let at = |tick: &(f64, String)| round.at(tick.0) * width;
    let half = |tick: &(f64, String)| style.width(&tick.1) / 2.0;
    let is_apart =
        |pair: &[(f64, String)]| at(&pair[1]) - at(&pair[0]) >= half(&pair[0]) + half(&pair[1]) + 8.0;
    match ticks.windows(2).all(is_apart) {
        true => (Axis { labels: Some(ticks), ..round }, positions, true),
        false => (round, positions, false),
    }
}

/// Returns the finished trials whose losses are comparable for a key, each with its rank. They differ only in that key
/// and the other keys of its stage; in a study without stages, all finished trials are comparable.
fn comparable<'a>(study: &'a Study, key: &str) -> Vec<(usize, &'a Trial)> {
    let trials = &study.trials;
    let is_finished = |trial: &Trial| trial.ended.is_finished() && trial.loss.is_some();
    let finished = || trials.iter().enumerate().filter(|(_, trial)| is_finished(trial));
    let differs = |stage: &str, key: &str| {
        let mut values = trials.iter().filter(|trial| trial.stage == Some(stage));
        let first = values.next().and_then(|trial| trial.setting.get(key));
        values.any(|trial| trial.setting.get(key) != first)
    };
    let stages = trials.iter().filter_map(|trial| trial.stage);
    let Some(stage) = stages.clone().find(|stage| differs(stage, key)) else {
        return if stages.count() == 0 { finished().collect() } else { Vec::new() };
    };
    let Some((_, first)) = finished().find(|(_, trial)| trial.stage == Some(stage)) else {
        return Vec::new();
    };
    // The stage starts from settings of an earlier stage, whose trials are also comparable.
    let kept = study.keys.iter().filter(|key| !differs(stage, key)).collect::<Vec<_>>();
    finished()
        .filter(|(_, trial)| kept.iter().all(|&key| first.setting.get(key) == trial.setting.get(key)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{rate_of, study},
        *,
    };

    #[test]
    fn only_completed_trials_of_one_stage_are_compared() {
        let compared = |study: &Study, key: usize| {
            comparable(study, &study.keys[key]).iter().map(|(_, trial)| trial.number).collect::<Vec<_>>()
        };
        let mut study = study(None);
        assert_eq!(compared(&study, 0), [2, 0], "one trial is pruned, one diverged");
        for trial in &mut study.trials {
            let (stage, rate) = match trial.number {
                2 => ("rates", 1e-3),
                3 => ("rates", 1e-4),
                _ => ("positions", 1e-3),
            };
            trial.stage = Some(stage);
            trial.setting.insert("training.learning_rate".into(), rate_of(rate));
            if trial.number == 3 {
                trial.ended = super::super::TrialEnd::Completed;
            }
        }
        assert_eq!(compared(&study, 0), [2, 3]);
        assert_eq!(compared(&study, 1), [2, 0], "the first settings of a stage come from the stage before");
    }

    #[test]
    fn rates_are_log_spaced_with_uniform_labels() {
        let mut study = study(None);
        let key = "training.learning_rate";
        for (trial, rate) in study.trials.iter_mut().zip([1e-4, 1e-3, 0.1, 0.1]) {
            trial.setting.insert(key.into(), rate_of(rate));
        }
        let (axis, positions, _) = positions(&study, key, 200.0);
        let [low, middle, high] = [0, 1, 2].map(|trial| axis.at(positions[trial].unwrap()));
        assert!((2.0 * (middle - low) - (high - middle)).abs() < 1e-12);
        assert_eq!(labels(&[1e-4, 1e-3, 0.1]), ["1e-4", "1e-3", "1e-1"]);
        assert_eq!(labels(&[8.0, 16.0, 1024.0]), ["8", "16", "1024"]);
        assert_eq!(labels(&[0.9, 0.95, 0.999]), ["0.900", "0.950", "0.999"]);
    }
}
