//! `effects`: what each searched key does to the loss.
//!
//! Losses are joined where they can be compared: of trials that were trained to their end, and in a recipe
//! of those that stand in the stage that changes the key.

use super::{LossScale, best_in_words, labels, log_axis, mark, marks, widened};
use crate::report::axis::{Axis, LABEL};
use crate::report::canvas::Rect;
use crate::report::color::VERMILION;
use crate::report::line_chart::{LineChart, Mark, Series, legend};
use crate::report::picture::{HEADING, MARGIN, Picture, WIDTH};
use crate::report::range::Range;
use crate::report::text::Text;
use crate::tuning::{Findings, Trial, number, shown};

/// Charts side by side.
const ACROSS: usize = 3;
const HEIGHT: f64 = 190.0;
/// Below a chart: labels and the key's name.
const BELOW: f64 = 56.0;
const LEGEND: f64 = 30.0;
const LEFT: f64 = 62.0;
const GAP: f64 = 22.0;
/// Positive numbers that span more than this ratio stand on a logarithmic axis.
const WIDE: f64 = 8.0;

/// A small chart for each searched key: its values against the loss, a mark a trial, and a line along
/// the best of each value.
pub fn effects(findings: &Findings) -> Picture {
    let rows = findings.keys.len().div_ceil(ACROSS).max(1);
    let height = HEADING + LEGEND + rows as f64 * (HEIGHT + BELOW) + 4.0;
    let title = format!("{}: what each key does", findings.study);
    let mut picture = Picture::new("effects", height, &title, &best_in_words(findings));
    let across = ACROSS.min(findings.keys.len().max(1));
    let width = (WIDTH - 2.0 * MARGIN - LEFT - GAP * (across - 1) as f64) / across as f64;
    for (index, key) in findings.keys.iter().enumerate() {
        let (row, column) = (index / ACROSS, index % ACROSS);
        let area = Rect {
            left: MARGIN + LEFT + column as f64 * (width + GAP),
            top: HEADING + LEGEND + row as f64 * (HEIGHT + BELOW),
            width,
            height: HEIGHT,
        };
        let mut chart = effect(findings, key, area);
        if column > 0 {
            chart.y = chart.y.without_words();
        }
        chart.draw(&mut picture.canvas);
    }
    legend(&mut picture.canvas, (MARGIN + LEFT, HEADING + 8.0), &marks(findings));
    picture
}

fn effect(findings: &Findings, key: &str, area: Rect) -> LineChart {
    let scale = LossScale::new(findings.floor, findings.trials.iter().filter_map(|trial| trial.loss));
    let values = Values::of(findings, key);
    let (x, few) = values.axis(key, area.width);
    let mut chart = LineChart { area, x, y: scale.axis(), series: Vec::new() };
    if few {
        let comparable = comparable(findings, key);
        let mut best: Vec<(f64, f64)> = Vec::new();
        for trial in comparable {
            let (Some(x), Some(loss)) = (values.place(trial, key), trial.loss) else { continue };
            match best.iter_mut().find(|(place, _)| *place == x) {
                Some((_, least)) => *least = least.min(scale.value(loss)),
                None => best.push((x, scale.value(loss))),
            }
        }
        best.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.series.push(Series::new("", VERMILION, Mark::Line(1.25), best));
    }
    for (rank, trial) in findings.trials.iter().enumerate().rev() {
        if let Some(x) = values.place(trial, key) {
            mark(&mut chart, trial, x, trial.loss.map(|loss| scale.value(loss)), rank == 0);
        }
    }
    chart
}

/// The values of a key that were tried, once each, in order.
enum Values {
    Numbers { values: Vec<f64>, is_logarithmic: bool },
    Words(Vec<String>),
}

impl Values {
    fn of(findings: &Findings, key: &str) -> Self {
        let tried = || findings.trials.iter().filter_map(|trial| trial.setting.get(key));
        match tried().map(number).collect::<Option<Vec<_>>>() {
            Some(mut values) => {
                values.sort_by(f64::total_cmp);
                values.dedup();
                let ends = values.first().copied().zip(values.last().copied());
                let is_logarithmic = ends.is_some_and(|(low, high)| low > 0.0 && high / low > WIDE);
                Self::Numbers { values, is_logarithmic }
            }
            None => {
                let mut words = tried().map(shown).collect::<Vec<_>>();
                words.sort();
                words.dedup();
                Self::Words(words)
            }
        }
    }

    /// Where a trial stands along the axis.
    fn place(&self, trial: &Trial, key: &str) -> Option<f64> {
        let value = trial.setting.get(key)?;
        match self {
            Self::Numbers { is_logarithmic: true, .. } => number(value).map(f64::log10),
            Self::Numbers { .. } => number(value),
            Self::Words(words) => {
                words.iter().position(|word| *word == shown(value)).map(|place| place as f64)
            }
        }
    }

    /// The axis, and whether each value has its own label on it: otherwise there are round ones.
    fn axis(&self, key: &str, width: f64) -> (Axis, bool) {
        let look = Text::new(LABEL);
        let (values, is_logarithmic) = match self {
            Self::Numbers { values, is_logarithmic } => (values, *is_logarithmic),
            Self::Words(words) => {
                let range = Range { start: -0.5, end: words.len() as f64 - 0.5 };
                let room = width / words.len().max(1) as f64 - 4.0;
                let labels = words.iter().map(|word| look.fit(word, room)).collect::<Vec<_>>();
                let ticks = labels.into_iter().enumerate().map(|(place, label)| (place as f64, label));
                return (Axis::labelled(key, range, ticks.collect()), true);
            }
        };
        let ends = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
        let round = match is_logarithmic {
            true => log_axis(key, values.iter().copied()),
            false => Axis::new(key, widened(Range::new(ends.0, ends.1), 0.15)),
        };
        let place = |value: &f64| if is_logarithmic { value.log10() } else { *value };
        let ticks = values.iter().map(place).zip(labels(values)).collect::<Vec<_>>();
        let at = |tick: &(f64, String)| round.at(tick.0) * width;
        let half = |tick: &(f64, String)| look.width(&tick.1) / 2.0;
        let few =
            ticks.windows(2).all(|pair| at(&pair[1]) - at(&pair[0]) >= half(&pair[0]) + half(&pair[1]) + 8.0);
        (if few { Axis::labelled(key, round.range, ticks) } else { round }, few)
    }
}

/// The finished trials that differ in a key and, but for the other keys of its stage, in nothing else: of a
/// study without stages all.
fn comparable<'a>(findings: &'a Findings, key: &str) -> Vec<&'a Trial> {
    let trials = &findings.trials;
    let finished = || trials.iter().filter(|trial| trial.ended.is_finished() && trial.loss.is_some());
    let differs = |stage: &str, key: &str| {
        let mut values = trials.iter().filter(|trial| trial.stage == Some(stage));
        let first = values.next().and_then(|trial| trial.setting.get(key));
        values.any(|trial| trial.setting.get(key) != first)
    };
    let stages = trials.iter().filter_map(|trial| trial.stage);
    let Some(stage) = stages.clone().find(|stage| differs(stage, key)) else {
        return if stages.count() == 0 { finished().collect() } else { Vec::new() };
    };
    let Some(first) = finished().find(|trial| trial.stage == Some(stage)) else { return Vec::new() };
    // What the stage began with was trained in an earlier one.
    let kept = findings.keys.iter().filter(|key| !differs(stage, key)).collect::<Vec<_>>();
    finished()
        .filter(|trial| kept.iter().all(|&key| first.setting.get(key) == trial.setting.get(key)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::study;
    use super::*;

    #[test]
    fn losses_are_joined_of_finished_trials_and_within_the_stage_of_their_key() {
        let joined = |study: &Findings, key: usize| {
            comparable(study, &study.keys[key]).iter().map(|trial| trial.trial).collect::<Vec<_>>()
        };
        let mut study = study(None);
        assert_eq!(joined(&study, 0), [2, 0], "one is pruned, one diverged");
        for trial in &mut study.trials {
            let (stage, rate) = match trial.trial {
                2 => ("rates", 1e-3),
                3 => ("rates", 1e-4),
                _ => ("positions", 1e-3),
            };
            trial.stage = Some(stage);
            trial.setting.insert("training.learning_rate".into(), toml::Value::Float(rate));
            if trial.trial == 3 {
                trial.ended = crate::tuning::TrialEnd::Completed;
            }
        }
        assert_eq!(joined(&study, 0), [2, 3]);
        assert_eq!(joined(&study, 1), [2, 0], "what the stage began with is of the stage before");
    }

    #[test]
    fn rates_stand_where_their_logarithms_do_and_read_alike() {
        let values = Values::Numbers { values: vec![1e-4, 1e-3, 0.1], is_logarithmic: true };
        let mut trial = study(None).trials.swap_remove(0);
        let mut place = |rate: f64| {
            trial.setting.insert("training.learning_rate".into(), toml::Value::Float(rate));
            values.place(&trial, "training.learning_rate").unwrap()
        };
        let (low, middle, high) = (place(1e-4), place(1e-3), place(0.1));
        assert!((2.0 * (middle - low) - (high - middle)).abs() < 1e-12);
        assert_eq!(labels(&[1e-4, 1e-3, 0.1]), ["1e-4", "1e-3", "1e-1"]);
        assert_eq!(labels(&[8.0, 16.0, 1024.0]), ["8", "16", "1024"]);
    }
}
