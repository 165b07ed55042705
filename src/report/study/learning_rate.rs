//! `learning_rate`: the learning rate of each trial against its loss.

use plotters::backend::DrawingBackend;

use super::{StudyResult, Value, log_axis, log_range, mark, marks, plot_area};
use crate::error::{Error, Result};
use crate::report::axis::{HEADING, Plot, WIDTH, heading, legend};
use crate::report::canvas::Canvas;
use crate::report::picture::Picture;

/// The loss over the learning rate, where it was searched: wide bowls are what one hopes for.
#[derive(Debug, Clone, Copy)]
pub struct RateAgainstLoss<'a>(pub &'a StudyResult);

const HEIGHT: u32 = 400;
const KEY: &str = "training.learning_rate";

impl RateAgainstLoss<'_> {
    /// Whether there is anything to draw: more than one rate was tried.
    pub fn is_searched(&self) -> bool {
        let rates = (0..self.0.trials.len()).filter_map(|trial| self.rate(trial)).collect::<Vec<_>>();
        rates.iter().any(|&rate| rate != rates[0])
    }

    fn rate(&self, trial: usize) -> Option<f64> {
        let column = self.0.keys.iter().position(|key| key == KEY)?;
        match self.0.trials[trial].values.get(column)? {
            Value::Number(rate) => Some(*rate).filter(|&rate| rate > 0.0),
            Value::Name(_) => None,
        }
    }
}

impl Picture for RateAgainstLoss<'_> {
    const NAME: &'static str = "learning_rate";

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn check(&self) -> Result<()> {
        self.0.check()?;
        match self.is_searched() {
            true => Ok(()),
            false => Err(Error::Shape("the learning rate was not searched".to_string())),
        }
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let Self(result) = self;
        let area = plot_area(HEIGHT);
        let rates = (0..result.trials.len()).filter_map(|trial| self.rate(trial));
        let scale = result.scale(result.trials.iter().filter_map(|trial| trial.loss));
        let plot = Plot { area, x: log_range(rates), y: scale.range };
        heading(canvas, &format!("{}: loss by learning rate", result.study), &result.best_in_words())?;
        scale.axis(canvas, &plot, true)?;
        log_axis(canvas, &plot, "learning rate")?;
        for (rank, trial) in result.trials.iter().enumerate().rev() {
            let Some(rate) = self.rate(rank) else { continue };
            mark(canvas, &plot, trial, (rate.log10(), trial.loss.map(|loss| scale.at(loss))), rank == 0)?;
        }
        legend(canvas, (area.left, HEADING + 8.0), &marks(result))
    }
}
