//! `cost`: the accuracy of each trial by the cost of its training.

use super::{Study, describe_best, log_range, marks, trials_legend};
use crate::draw::{Axis, Interval, LineChart, Mark, Picture, Scale, Series, color::GREEN, tick_labels};

/// Draws the accuracy by the number of training operations, with the Pareto front: the highest accuracy up to each
/// cost.
pub fn picture(study: &Study, width: f64) -> Picture {
    let title = format!("{}: accuracy by cost", study.name);
    let mut picture = Picture::new("cost", (width, 400.0), &title, &describe_best(study));
    let range = Interval::of(study.trials.iter().filter_map(|trial| trial.accuracy));
    let range = range.unwrap_or(Interval::new(1.0, 1.0)).padded(0.06, 0.06);
    let ticks = range.ticks(6).into_iter().filter(|tick| (0.0..=1.0).contains(tick)).collect::<Vec<_>>();
    let percent = ticks.iter().map(|tick| tick * 100.0).collect::<Vec<_>>();
    let labels = ticks.into_iter().zip(tick_labels(&percent)).map(|(tick, label)| (tick, label + " %"));
    let y = Axis { labels: Some(labels.collect()), ..Axis::new("accuracy", range, Scale::Linear) };
    let costs = log_range(study.trials.iter().map(|trial| trial.operations));
    let x = Axis::new("training cost (floating-point operations)", costs, Scale::Logarithmic);
    let mut chart = LineChart::filling(&picture, x, y);
    let marks =
        marks(study, &chart, |_, trial| trial.accuracy.map(|accuracy| (trial.operations, Some(accuracy))));
    let front = front(study);
    let steps = front.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    let line = steps.chain(front.last().copied());
    let line = Series::new("highest accuracy up to this cost", GREEN, Mark::Line(1.5), line);
    // A front of one trial does not form a line, so the legend omits it.
    let others = if front.len() > 1 { std::slice::from_ref(&line) } else { &[] };
    trials_legend(&mut picture, chart.area.left, &marks, others);
    chart.series = std::iter::once(line).chain(marks).collect();
    chart.draw(&mut picture);
    picture
}

/// Returns the cost and accuracy of the trials on the Pareto front, ordered by cost. Each is more accurate than all
/// cheaper trials.
fn front(study: &Study) -> Vec<(f64, f64)> {
    let known = study.trials.iter().filter_map(|trial| Some((trial.operations, trial.accuracy?)));
    let mut known = known.collect::<Vec<_>>();
    known.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut best = f64::NEG_INFINITY;
    known.retain(|&(_, accuracy)| {
        let is_better = accuracy > best;
        best = best.max(accuracy);
        is_better
    });
    known
}
