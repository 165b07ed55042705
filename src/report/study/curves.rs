//! `trials`: the validation loss of every trial of a study.

use plotters::backend::DrawingBackend;

use super::{StudyResult, TrialEnding, lost, plot_area};
use crate::error::Result;
use crate::report::axis::{HEADING, Plot, Sign, WIDTH, heading, legend};
use crate::report::canvas::Canvas;
use crate::report::color::{BLUE, VERMILION, mix, pale};
use crate::report::picture::Picture;
use crate::report::range::Range;

/// Every trial's validation loss by the tokens it was trained on.
#[derive(Debug, Clone, Copy)]
pub struct TrialCurves<'a>(pub &'a StudyResult);

const HEIGHT: u32 = 480;

impl Picture for TrialCurves<'_> {
    const NAME: &'static str = "trials";

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let Self(result) = self;
        let area = plot_area(HEIGHT);
        let points = || result.trials.iter().flat_map(|trial| &trial.curve);
        let last = points().map(|&(tokens, _)| tokens).fold(1.0, f64::max);
        let scale = result.scale(points().map(|&(_, loss)| loss));
        let plot = Plot { area, x: Range { start: 0.0, end: last }, y: scale.range };
        let of = if result.seeds > 1 { ", of the first seed" } else { "" };
        let title = format!("{}: validation loss of {} trials{of}", result.study, result.trials.len());
        heading(canvas, &title, &result.best_in_words())?;
        scale.axis(canvas, &plot, true)?;
        plot.x_axis(canvas, "tokens trained on")?;
        // The best is drawn last, above all others.
        for (rank, trial) in result.trials.iter().enumerate().rev() {
            let (color, width) = match trial.ended {
                _ if rank == 0 => (VERMILION, 3.0),
                TrialEnding::Finished => (mix(BLUE, pale(BLUE), 0.25), 1.5),
                TrialEnding::Pruned
                | TrialEnding::Unfinished
                | TrialEnding::Diverged
                | TrialEnding::Failed => (pale(BLUE), 1.0),
            };
            // What lies above the frame as a whole runs along its upper edge: each trial is seen.
            let above = trial.curve.iter().all(|&(_, loss)| scale.at(loss) > plot.y.end);
            let edge = if above { plot.y.end } else { f64::INFINITY };
            let places = trial.curve.iter().map(|&(tokens, loss)| {
                let place = scale.at(loss);
                (tokens, if place.is_finite() { place.min(edge) } else { place })
            });
            plot.curve(canvas, places, color, width)?;
            if let (Some(&(tokens, loss)), TrialEnding::Diverged) = (trial.curve.last(), trial.ended) {
                let place = plot.place(tokens, scale.at(loss).clamp(plot.y.start, plot.y.end));
                canvas.cross(place, 4.0, trial.color(false), 1.75)?;
            }
        }
        let mut entries = vec![(Sign::Line(VERMILION), "best".to_string())];
        let any = |ended| result.trials.iter().skip(1).any(|trial| trial.ended == ended);
        if any(TrialEnding::Finished) {
            entries.push((Sign::Line(mix(BLUE, pale(BLUE), 0.25)), "trained to the end".to_string()));
        }
        if any(TrialEnding::Pruned) {
            entries.push((Sign::Line(pale(BLUE)), "pruned".to_string()));
        }
        if any(TrialEnding::Unfinished) {
            entries.push((Sign::Line(pale(BLUE)), "not finished yet".to_string()));
        }
        entries.extend(lost(result));
        legend(canvas, (area.left, HEADING + 8.0), &entries)
    }
}
