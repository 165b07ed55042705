//! `cost`: the accuracy of each trial against what its training cost.

use super::{best_in_words, log_range, mark, marks, widened};
use crate::report::axis::{Axis, wide_area};
use crate::report::color::GREEN;
use crate::report::line_chart::{Entry, LineChart, Mark, Series, Sign, legend};
use crate::report::picture::{HEADING, Picture};
use crate::report::range::{Range, tick_labels};
use crate::tuning::Findings;

const HEIGHT: f64 = 400.0;

/// Accuracy over the operations of training, and the line of those that nothing cheaper beats.
pub fn cost(findings: &Findings) -> Picture {
    let title = format!("{}: accuracy by cost", findings.study);
    let mut picture = Picture::new("cost", HEIGHT, &title, &best_in_words(findings));
    let accuracies = || findings.trials.iter().filter_map(|trial| trial.accuracy);
    let range = Range::new(accuracies().fold(1.0, f64::min), accuracies().fold(0.0, f64::max));
    let range = widened(range, 0.06);
    let ticks = range.ticks(6).into_iter().filter(|tick| (0.0..=1.0).contains(tick)).collect::<Vec<_>>();
    let percent = ticks.iter().map(|tick| tick * 100.0).collect::<Vec<_>>();
    let labels = ticks.into_iter().zip(tick_labels(&percent)).map(|(tick, label)| (tick, label + " %"));
    let y = Axis::labelled("accuracy", range, labels.collect());
    let costs = log_range(findings.trials.iter().map(|trial| trial.operations));
    let x = Axis::logarithmic("floating-point operations of the training", costs);
    let area = wide_area(HEADING + 30.0, HEIGHT - HEADING - 82.0, &y, None);
    let front = front(findings);
    let steps = front.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    let line = steps.chain(front.last().copied());
    let mut chart = LineChart { area, x, y, series: vec![Series::new("", GREEN, Mark::Line(1.5), line)] };
    for (rank, trial) in findings.trials.iter().enumerate().rev() {
        if trial.accuracy.is_some() {
            mark(&mut chart, trial, trial.operations, trial.accuracy, rank == 0);
        }
    }
    chart.draw(&mut picture.canvas);
    let mut entries = marks(findings);
    // One trial alone makes no line.
    if front.len() > 1 {
        entries.push(Entry::new(Sign::Line, GREEN, "the best for so much"));
    }
    legend(&mut picture.canvas, (area.left, HEADING + 8.0), &entries);
    picture
}

/// Cost and accuracy of the trials that are more accurate than all that are cheaper, by cost.
fn front(findings: &Findings) -> Vec<(f64, f64)> {
    let known = findings.trials.iter().filter_map(|trial| Some((trial.operations, trial.accuracy?)));
    let mut known = known.collect::<Vec<_>>();
    known.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut best = f64::NEG_INFINITY;
    known.retain(|&(_, accuracy)| {
        let better = accuracy > best;
        best = best.max(accuracy);
        better
    });
    known
}
