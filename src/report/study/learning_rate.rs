//! `learning_rate`: the learning rate of each trial against its loss.

use super::{StudyResult, StudyTrial, Value, log_range, mark, marks};
use crate::report::axis::{Axis, wide_area};
use crate::report::line_chart::{LineChart, legend};
use crate::report::picture::{HEADING, Picture};

const HEIGHT: f64 = 400.0;
const KEY: &str = "training.learning_rate";

/// The loss over the learning rate: wide bowls are what one hopes for. None where no more than one rate was
/// tried.
pub fn learning_rate(result: &StudyResult) -> Option<Picture> {
    let column = result.keys.iter().position(|key| key == KEY)?;
    let rate = |trial: &StudyTrial| match trial.values.get(column)? {
        Value::Number(rate) => Some(*rate).filter(|&rate| rate > 0.0),
        Value::Name(_) => None,
    };
    let rates = result.trials.iter().filter_map(rate).collect::<Vec<_>>();
    if rates.iter().all(|&rate| rate == rates[0]) {
        return None;
    }
    let title = format!("{}: loss by learning rate", result.study);
    let mut picture = Picture::new("learning_rate", HEIGHT, &title, &result.best_in_words());
    let scale = result.scale(result.trials.iter().filter_map(|trial| trial.loss));
    let (x, y) = (Axis::logarithmic("learning rate", log_range(rates.into_iter())), scale.axis());
    let area = wide_area(HEADING + 30.0, HEIGHT - HEADING - 82.0, &y, None);
    let mut chart = LineChart { area, x, y, series: Vec::new() };
    for (rank, trial) in result.trials.iter().enumerate().rev() {
        let Some(rate) = rate(trial) else { continue };
        mark(&mut chart, trial, rate, trial.loss.map(|loss| scale.value(loss)), rank == 0);
    }
    chart.draw(&mut picture.canvas);
    legend(&mut picture.canvas, (area.left, HEADING + 8.0), &marks(result));
    Some(picture)
}
