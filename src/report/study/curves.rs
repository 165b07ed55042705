//! `trials`: the validation loss of every trial of a study.

use super::{StudyResult, TrialEnding, lost};
use crate::report::axis::{Axis, wide_area};
use crate::report::color::{BLUE, VERMILION, mix, pale};
use crate::report::line_chart::{Entry, LineChart, Mark, Series, Sign, legend};
use crate::report::picture::{HEADING, Picture};
use crate::report::range::Range;

const HEIGHT: f64 = 480.0;

/// Every trial's validation loss by the tokens it was trained on.
pub fn trial_curves(result: &StudyResult) -> Picture {
    let of = if result.seeds > 1 { ", of the first seed" } else { "" };
    let title = format!("{}: validation loss of {} trials{of}", result.study, result.trials.len());
    let mut picture = Picture::new("trials", HEIGHT, &title, &result.best_in_words());
    let points = || result.trials.iter().flat_map(|trial| &trial.curve);
    let last = points().map(|&(tokens, _)| tokens).fold(1.0, f64::max);
    let scale = result.scale(points().map(|&(_, loss)| loss));
    let (x, y) = (Axis::whole("tokens trained on", Range { start: 0.0, end: last }), scale.axis());
    let area = wide_area(HEADING + 30.0, HEIGHT - HEADING - 82.0, &y, None);
    let finished = mix(BLUE, pale(BLUE), 0.25);
    let mut chart = LineChart { area, x, y, series: Vec::new() };
    // The best is drawn last, above all others.
    for (rank, trial) in result.trials.iter().enumerate().rev() {
        let (color, width) = match trial.ended {
            _ if rank == 0 => (VERMILION, 3.0),
            TrialEnding::Finished => (finished, 1.5),
            TrialEnding::Pruned | TrialEnding::Unfinished | TrialEnding::Diverged | TrialEnding::Failed => {
                (pale(BLUE), 1.0)
            }
        };
        // What lies above the frame as a whole runs along its upper edge: each trial is seen.
        let above = trial.curve.iter().all(|&(_, loss)| chart.y.at(scale.value(loss)) > 1.0);
        let edge = |value: f64| if above { chart.y.clamped(value) } else { value };
        let places = trial.curve.iter().map(|&(tokens, loss)| (tokens, edge(scale.value(loss))));
        let curve = Series::new("", color, Mark::Line(width), places);
        if let (Some(&(tokens, loss)), TrialEnding::Diverged) = (trial.curve.last(), trial.ended) {
            let place = (tokens, chart.y.clamped(scale.value(loss)));
            chart.series.push(Series::new("", trial.color(false), Mark::Cross(4.0, 1.75), [place]));
        }
        chart.series.push(curve);
    }
    chart.draw(&mut picture.canvas);
    let mut entries = vec![Entry::new(Sign::Line, VERMILION, "best")];
    let any = |ended| result.trials.iter().skip(1).any(|trial| trial.ended == ended);
    for (ended, color, text) in [
        (TrialEnding::Finished, finished, "trained to the end"),
        (TrialEnding::Pruned, pale(BLUE), "pruned"),
        (TrialEnding::Unfinished, pale(BLUE), "not finished yet"),
    ] {
        entries.extend(any(ended).then(|| Entry::new(Sign::Line, color, text)));
    }
    entries.extend(lost(result));
    legend(&mut picture.canvas, (area.left, HEADING + 8.0), &entries);
    picture
}
