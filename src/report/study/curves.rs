//! `trials`: the validation loss of every trial of a study.

use super::{LossScale, below_the_edge, best_in_words, color, lost};
use crate::report::axis::{Axis, wide_area};
use crate::report::color::{BLUE, VERMILION, mix, pale};
use crate::report::line_chart::{Entry, LineChart, Mark, Series, Sign, legend};
use crate::report::picture::{HEADING, Picture};
use crate::report::range::Range;
use crate::tuning::{Findings, Trial, TrialEnd};

const HEIGHT: f64 = 480.0;

/// Every trial's validation loss by the tokens it was trained on.
pub fn trials(findings: &Findings) -> Picture {
    let trials = &findings.trials;
    let of = if findings.seeds > 1 { ", of the first seed" } else { "" };
    let title = format!("{}: validation loss of {} trials{of}", findings.study, trials.len());
    let mut picture = Picture::new("trials", HEIGHT, &title, &best_in_words(findings));
    let points = || trials.iter().flat_map(|trial| &trial.curve);
    let last = points().map(|&(tokens, _)| tokens).fold(1.0, f64::max);
    let scale = LossScale::new(findings.floor, points().map(|&(_, loss)| loss));
    let (x, y) = (Axis::whole("tokens trained on", Range { start: 0.0, end: last }), scale.axis());
    let area = wide_area(HEADING + 30.0, HEIGHT - HEADING - 82.0, &y, None);
    let finished = mix(BLUE, pale(BLUE), 0.25);
    let mut chart = LineChart { area, x, y, series: Vec::new() };
    // The best is drawn last, above all others.
    for (rank, trial) in trials.iter().enumerate().rev() {
        let (color_of, width) = match rank {
            0 => (VERMILION, 3.0),
            _ if trial.ended.is_finished() => (finished, 1.5),
            _ => (pale(BLUE), 1.0),
        };
        // What lies above the frame as a whole runs along its upper edge: each trial is seen.
        let edge = below_the_edge(&chart, 1.0);
        let is_above = trial.curve.iter().all(|&(_, loss)| scale.value(loss) > edge);
        let place = |&(tokens, loss): &(f64, f64)| {
            (tokens, if is_above { edge.min(scale.value(loss)) } else { scale.value(loss) })
        };
        if let (Some(end), TrialEnd::Diverged) = (trial.curve.last(), trial.ended) {
            let (tokens, loss) = place(end);
            let cross = [(tokens, chart.y.clamped(loss))];
            chart.series.push(Series::new("", color(trial, false), Mark::Cross(4.0, 1.75), cross));
        }
        chart.series.push(Series::new("", color_of, Mark::Line(width), trial.curve.iter().map(place)));
    }
    chart.draw(&mut picture.canvas);
    let mut entries = vec![Entry::new(Sign::Line, VERMILION, "best")];
    let mut named = |is: &dyn Fn(&Trial) -> bool, color, text| {
        let any = trials.iter().skip(1).any(is);
        entries.extend(any.then(|| Entry::new(Sign::Line, color, text)));
    };
    named(&|trial| trial.ended.is_finished(), finished, "trained to the end");
    named(&|trial| trial.ended == TrialEnd::Pruned, pale(BLUE), "pruned");
    named(&|trial| trial.ended == TrialEnd::Unfinished, pale(BLUE), "not finished yet");
    entries.extend(lost(findings));
    legend(&mut picture.canvas, (area.left, HEADING + 8.0), &entries);
    picture
}
