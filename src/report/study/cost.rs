//! `cost`: the accuracy of each trial against what its training cost.

use plotters::backend::DrawingBackend;

use super::{StudyResult, log_axis, log_range, mark, marks, plot_area};
use crate::error::Result;
use crate::report::axis::{HEADING, Plot, Sign, WIDTH, heading, legend};
use crate::report::canvas::Canvas;
use crate::report::color::GREEN;
use crate::report::picture::Picture;
use crate::report::range::{Range, tick_labels};

/// Accuracy over the operations of training, and the line of those that nothing cheaper beats.
#[derive(Debug, Clone, Copy)]
pub struct CostAgainstAccuracy<'a>(pub &'a StudyResult);

const HEIGHT: u32 = 400;

impl CostAgainstAccuracy<'_> {
    /// Cost and accuracy of the trials that are more accurate than all that are cheaper, by cost.
    fn front(&self) -> Vec<(f64, f64)> {
        let known = self.0.trials.iter().filter_map(|trial| Some((trial.operations, trial.accuracy?)));
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
}

impl Picture for CostAgainstAccuracy<'_> {
    const NAME: &'static str = "cost";

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let Self(result) = self;
        let area = plot_area(HEIGHT);
        let accuracies = || result.trials.iter().filter_map(|trial| trial.accuracy);
        let range = Range::new(accuracies().fold(1.0, f64::min), accuracies().fold(0.0, f64::max));
        let y = Range { start: range.start - 0.06 * range.length(), end: range.end + 0.06 * range.length() };
        let plot = Plot { area, x: log_range(result.trials.iter().map(|trial| trial.operations)), y };
        heading(canvas, &format!("{}: accuracy by cost", result.study), &result.best_in_words())?;
        let ticks = y.ticks(6).into_iter().filter(|tick| (0.0..=1.0).contains(tick)).collect::<Vec<_>>();
        let percent = ticks.iter().map(|tick| tick * 100.0).collect::<Vec<_>>();
        let labels = tick_labels(&percent).into_iter().map(|label| label + " %").collect::<Vec<_>>();
        plot.y_axis_at(canvas, "accuracy", &ticks, &labels)?;
        log_axis(canvas, &plot, "floating-point operations of the training")?;
        let front = self.front();
        let steps = front.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
        let line = steps.chain(front.last().copied()).map(|(cost, accuracy)| (cost.log10(), accuracy));
        plot.curve(canvas, line.collect::<Vec<_>>(), GREEN, 1.5)?;
        for (rank, trial) in result.trials.iter().enumerate().rev() {
            if trial.accuracy.is_some() {
                mark(canvas, &plot, trial, (trial.operations.log10(), trial.accuracy), rank == 0)?;
            }
        }
        let mut entries = marks(result);
        entries.push((Sign::Line(GREEN), "the best for so much".to_string()));
        legend(canvas, (area.left, HEADING + 8.0), &entries)
    }
}
