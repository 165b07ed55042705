//! `learning_rate`: the learning rate of each trial against its loss.

use super::{LossScale, best_in_words, log_axis, mark, marks};
use crate::report::axis::wide_area;
use crate::report::line_chart::{LineChart, legend};
use crate::report::picture::{HEADING, Picture};
use crate::tuning::{Findings, Trial, number};

const HEIGHT: f64 = 400.0;

/// The loss over the learning rate: wide bowls are what one hopes for. None where no more than one rate was
/// tried.
pub fn learning_rate(findings: &Findings) -> Option<Picture> {
    let rate = |trial: &Trial| trial.setting.get("training.learning_rate").and_then(number);
    let rate = |trial: &Trial| rate(trial).filter(|&rate| rate > 0.0);
    let rates = findings.trials.iter().filter_map(rate).collect::<Vec<_>>();
    if rates.iter().all(|&rate| rate == rates[0]) {
        return None;
    }
    let title = format!("{}: loss by learning rate", findings.study);
    let mut picture = Picture::new("learning_rate", HEIGHT, &title, &best_in_words(findings));
    let scale = LossScale::new(findings.floor, findings.trials.iter().filter_map(|trial| trial.loss));
    let (x, y) = (log_axis("learning rate", rates.into_iter()), scale.axis());
    let area = wide_area(HEADING + 30.0, HEIGHT - HEADING - 82.0, &y, None);
    let mut chart = LineChart { area, x, y, series: Vec::new() };
    for (rank, trial) in findings.trials.iter().enumerate().rev() {
        if let Some(rate) = rate(trial) {
            mark(&mut chart, trial, rate.log10(), trial.loss.map(|loss| scale.value(loss)), rank == 0);
        }
    }
    chart.draw(&mut picture.canvas);
    legend(&mut picture.canvas, (area.left, HEADING + 8.0), &marks(findings));
    Some(picture)
}
