//! `effects`: what each searched key does to the loss.
//!
//! Losses are joined where they can be compared: of trials that were trained to their end, and in a recipe
//! of those that stand in the stage that changes the key.

use super::{StudyResult, StudyTrial, TrialEnding, Value, log_range, mark, marks};
use crate::report::axis::{Axis, LABEL};
use crate::report::canvas::Rect;
use crate::report::color::VERMILION;
use crate::report::line_chart::{LineChart, Mark, Series, legend};
use crate::report::picture::{HEADING, MARGIN, Picture, WIDTH};
use crate::report::range::Range;
use crate::report::text::Text;

/// Charts side by side.
const ACROSS: usize = 3;
const HEIGHT: f64 = 190.0;
/// Below a chart: labels and the key's name.
const BELOW: f64 = 56.0;
const LEGEND: f64 = 30.0;
const LEFT: f64 = 62.0;
const GAP: f64 = 22.0;

/// A small chart for each searched key: its values against the loss, a mark a trial, and a line along
/// the best of each value.
pub fn key_effects(result: &StudyResult) -> Picture {
    let rows = result.keys.len().div_ceil(ACROSS).max(1);
    let height = HEADING + LEGEND + rows as f64 * (HEIGHT + BELOW) + 4.0;
    let title = format!("{}: what each key does", result.study);
    let mut picture = Picture::new("effects", height, &title, &result.best_in_words());
    let across = ACROSS.min(result.keys.len().max(1));
    let width = (WIDTH - 2.0 * MARGIN - LEFT - GAP * (across - 1) as f64) / across as f64;
    for index in 0..result.keys.len() {
        let (row, column) = (index / ACROSS, index % ACROSS);
        let area = Rect {
            left: MARGIN + LEFT + column as f64 * (width + GAP),
            top: HEADING + LEGEND + row as f64 * (HEIGHT + BELOW),
            width,
            height: HEIGHT,
        };
        let mut chart = effect(result, index, area);
        if column > 0 {
            chart.y = chart.y.without_words();
        }
        chart.draw(&mut picture.canvas);
    }
    legend(&mut picture.canvas, (MARGIN + LEFT, HEADING + 8.0), &marks(result));
    picture
}

fn effect(result: &StudyResult, index: usize, area: Rect) -> LineChart {
    let key = &result.keys[index];
    let scale = result.scale(result.trials.iter().filter_map(|trial| trial.loss));
    let values = || result.trials.iter().filter_map(|trial| trial.values.get(index));
    let places = distinct(values());
    let numbers = values().filter_map(Value::number).collect::<Vec<_>>();
    let labels = places.iter().map(Value::text).collect::<Vec<_>>();
    // Values stand side by side, each in a place of its own, while their labels fit; of more numbers,
    // the distance counts.
    let look = Text::new(LABEL);
    let widest = labels.iter().map(|label| look.width(label)).fold(0.0, f64::max);
    let fits = (widest + 8.0) * places.len() as f64 <= area.width;
    let side_by_side = fits || numbers.len() < values().count();
    let is_logarithmic = numbers.iter().all(|&number| number > 0.0);
    let x = if side_by_side {
        let range = Range { start: -0.5, end: places.len() as f64 - 0.5 };
        let room = area.width / places.len() as f64 - 4.0;
        let labels = labels.iter().enumerate().map(|(i, label)| (i as f64, look.fit(label, room)));
        Axis::labelled(key, range, labels.collect())
    } else if is_logarithmic {
        Axis::logarithmic(key, log_range(numbers.iter().copied()))
    } else {
        let ends = numbers.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &number| {
            (low.min(number), high.max(number))
        });
        Axis::new(key, Range::new(ends.0, ends.1))
    };
    let at = |value: &Value| match value {
        value if side_by_side => places.iter().position(|place| place == value).unwrap_or(0) as f64,
        Value::Number(number) => *number,
        Value::Name(_) => 0.0,
    };
    let mut chart = LineChart { area, x, y: scale.axis(), series: Vec::new() };
    if side_by_side {
        let comparable = comparable(result, index);
        let best = |place: &Value| {
            let trials = comparable.iter().filter(|trial| trial.values.get(index) == Some(place));
            trials.filter_map(|trial| trial.loss).min_by(f64::total_cmp)
        };
        let line = places.iter().filter_map(|place| Some((at(place), scale.value(best(place)?))));
        chart.series.push(Series::new("", VERMILION, Mark::Line(1.25), line));
    }
    for (rank, trial) in result.trials.iter().enumerate().rev() {
        let Some(value) = trial.values.get(index) else { continue };
        mark(&mut chart, trial, at(value), trial.loss.map(|loss| scale.value(loss)), rank == 0);
    }
    chart
}

/// The finished trials that differ in a key and, but for the other keys of its stage, in nothing else: of a
/// study without stages all.
fn comparable(result: &StudyResult, index: usize) -> Vec<&StudyTrial> {
    let finished =
        || result.trials.iter().filter(|trial| trial.ended == TrialEnding::Finished && trial.loss.is_some());
    let differs = |stage: &str, key: usize| {
        let mut values = result.trials.iter().filter(|trial| trial.stage.as_deref() == Some(stage));
        let first = values.next().and_then(|trial| trial.values.get(key));
        values.any(|trial| trial.values.get(key) != first)
    };
    let stages = result.trials.iter().filter_map(|trial| trial.stage.as_deref());
    let Some(stage) = stages.clone().find(|stage| differs(stage, index)) else {
        return if stages.count() == 0 { finished().collect() } else { Vec::new() };
    };
    let of_stage = finished().filter(|trial| trial.stage.as_deref() == Some(stage)).collect::<Vec<_>>();
    let kept = (0..result.keys.len()).filter(|&key| !differs(stage, key)).collect::<Vec<_>>();
    // What the stage began with was trained in an earlier one.
    let fits = |trial: &&StudyTrial| {
        of_stage
            .first()
            .is_some_and(|first| kept.iter().all(|&key| first.values.get(key) == trial.values.get(key)))
    };
    finished().filter(fits).collect()
}

/// Every value once: numbers by their size, words by the alphabet.
fn distinct<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let mut distinct: Vec<Value> = Vec::new();
    for value in values {
        if !distinct.contains(value) {
            distinct.push(value.clone());
        }
    }
    distinct.sort_by(|a, b| match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.total_cmp(b),
        (Value::Name(a), Value::Name(b)) => a.cmp(b),
        (Value::Number(_), Value::Name(_)) => std::cmp::Ordering::Less,
        (Value::Name(_), Value::Number(_)) => std::cmp::Ordering::Greater,
    });
    distinct
}

#[cfg(test)]
mod tests {
    use super::super::tests::study;
    use super::*;

    #[test]
    fn losses_are_joined_of_finished_trials_and_within_the_stage_of_their_key() {
        let joined = |study: &StudyResult, key| {
            comparable(study, key).iter().map(|trial| trial.trial).collect::<Vec<_>>()
        };
        let mut study = study(None);
        assert_eq!(joined(&study, 0), [2, 0], "one is pruned, one diverged");
        for trial in &mut study.trials {
            let (stage, rate) = match trial.trial {
                2 => ("rates", 1e-3),
                3 => ("rates", 1e-4),
                _ => ("positions", 1e-3),
            };
            trial.stage = Some(stage.to_string());
            trial.values[0] = Value::Number(rate);
            if trial.trial == 3 {
                trial.ended = TrialEnding::Finished;
            }
        }
        assert_eq!(joined(&study, 0), [2, 3]);
        assert_eq!(joined(&study, 1), [2, 0], "what the stage began with is of the stage before");
    }
}
