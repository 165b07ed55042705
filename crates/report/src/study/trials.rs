//! `trials`: the validation loss of every trial of a study.

use super::{Study, TrialEnd, below_top_edge, describe_best, drawn, loss_axis, style, trials_legend};
use crate::draw::color::{BACKGROUND, BLUE, MUTED, VERMILION, mix, pale};
use crate::draw::{Axis, Interval, LineChart, Mark, Picture, Scale, Series};
use crate::numbers::counted;

/// The number of trials from which on only the best ones are highlighted, and the number of these.
const MANY_TRIALS: usize = 40;
const HIGHLIGHTED_OF_MANY: usize = 8;
/// The maximum number of curves.
pub(super) const MAX_CURVES: usize = 400;

/// Returns the number of highlighted trials, counted from the best one.
pub(super) fn highlighted(study: &Study) -> usize {
    if study.trials.len() < MANY_TRIALS { study.trials.len() } else { HIGHLIGHTED_OF_MANY }
}

/// Draws the validation loss of the trials by the number of tokens trained on.
pub fn picture(study: &Study, width: f64) -> Picture {
    let trials = &study.trials[..study.trials.len().min(MAX_CURVES)];
    let seed = if study.seeds > 1 { " (first seed)" } else { "" };
    let count = counted(study.trials.len(), "trial");
    let title = format!("{}: validation loss of {count}{seed}", study.name);
    let mut note = describe_best(study);
    if trials.len() < study.trials.len() {
        note += &format!("; only the best {} trials are drawn", trials.len());
    }
    let mut picture = Picture::new("trials", (width, 480.0), &title, &note);
    let points = || trials.iter().flat_map(|trial| &trial.curve);
    let last = points().map(|&(tokens, _)| tokens).fold(1.0, f64::max);
    let x = Axis::new("tokens trained on", Interval { start: 0.0, end: last }, Scale::Integer);
    let mut chart = LineChart::filling(&picture, x, loss_axis(study, points().map(|&(_, loss)| loss)));
    let edge = below_top_edge(&chart, 1.0);
    let highlighted = highlighted(study);
    let finished = if highlighted < trials.len() { "next best" } else { "finished" };
    // The best trial is drawn last, on top of all others.
    for (rank, trial) in trials.iter().enumerate().rev() {
        let (color, line, name) = match trial.ended {
            _ if rank == 0 => (VERMILION, 3.0, "best"),
            _ if rank >= highlighted => (mix(MUTED, BACKGROUND, 0.6), 0.75, "others"),
            TrialEnd::Completed | TrialEnd::EarlyStopped => (mix(BLUE, pale(BLUE), 0.25), 1.5, finished),
            TrialEnd::Pruned => (pale(BLUE), 1.0, "pruned"),
            TrialEnd::Unfinished => (pale(BLUE), 1.0, "unfinished"),
            TrialEnd::Diverged | TrialEnd::Failed => (pale(BLUE), 1.0, ""),
        };
        // A curve entirely above the frame is drawn along the frame's upper edge, so that every trial is visible.
        let is_above = trial.curve.iter().all(|&(_, loss)| drawn(study, loss) > edge);
        let highest = if is_above { edge } else { f64::INFINITY };
        let curve: Vec<_> =
            trial.curve.iter().map(|&(tokens, loss)| (tokens, drawn(study, loss).min(highest))).collect();
        if trial.ended.is_lost() {
            // A trial without a validation is marked below the upper edge, at the number of tokens that it was trained
            // on.
            let fallback = ((trial.tokens as f64).min(last), below_top_edge(&chart, 7.0));
            let end = curve.last().map_or(fallback, |&(tokens, loss)| (tokens, chart.y.clamped(loss)));
            let (color, mark, name) = style(trial, false);
            chart.series.push(Series::new(name, color, mark, [end]));
        }
        chart.series.push(Series::new(name, color, Mark::Line(line), curve));
    }
    chart.draw(&mut picture);
    trials_legend(&mut picture, chart.area.left, &chart.series, &[]);
    picture
}
