//! `learning_rate`: the learning rate of each trial against its loss.

use super::{best_in_words, drawn, final_losses, legend_of, log_axis, marks};
use crate::report::draw::{LineChart, Picture};
use crate::tuning::{Findings, Trial, number};

/// The loss over the learning rate: wide bowls are what one hopes for. None where no more than one rate was
/// tried.
pub fn picture(findings: &Findings) -> Option<Picture> {
    let rate = |trial: &Trial| trial.setting.get("training.learning_rate").and_then(number);
    let rate = |trial: &Trial| rate(trial).filter(|&rate| rate > 0.0);
    let rates = findings.trials.iter().filter_map(rate).collect::<Vec<_>>();
    if rates.iter().all(|&rate| rate == rates[0]) {
        return None;
    }
    let title = format!("{}: loss by learning rate", findings.study);
    let mut picture = Picture::new("learning_rate", 400.0, &title, &best_in_words(findings));
    let x = log_axis("learning rate", rates.into_iter());
    let mut chart = LineChart::filling(&picture, x, final_losses(findings));
    chart.series = marks(findings, &chart, |_, trial| {
        Some((rate(trial)?.log10(), trial.loss.map(|loss| drawn(findings, loss))))
    });
    legend_of(&mut picture, chart.area.left, &chart.series, &[]);
    chart.draw(&mut picture);
    Some(picture)
}
