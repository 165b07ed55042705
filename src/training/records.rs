//! What a run writes down: rows of its metrics, validations and checkpoints.

use std::time::Instant;

use burn::module::AutodiffModule;
use burn::prelude::*;
use burn::train::{Learner, ValidLoader};

use super::checkpoint::{self, Best, State};
use super::history::{Row, Split};
use super::run::{Course, Parts, Run};
use crate::error::Result;
use crate::evaluation::evaluate;
use crate::files::write_atomically;
use crate::ops;
use crate::weights::native;

impl<B: ops::AutodiffBackend> Run<B> {
    /// Reads what the steps since the last reading left on the device, in one go; with a learning
    /// rate, the last of them becomes a row.
    ///
    /// # Errors
    /// If a loss or a gradient is not finite: the message names the step.
    pub(super) fn read(&mut self, row_rate: Option<f64>) -> Result<()> {
        let unread = std::mem::take(&mut self.course.unread);
        let Some(last) = unread.last().map(|unread| unread.output.clone()) else { return Ok(()) };
        let steps = unread.iter().map(|unread| unread.output.step).collect::<Vec<_>>();
        let (losses, norms) =
            unread.into_iter().map(|unread| (unread.output.loss, unread.gradient_norm)).unzip();
        let begun = Instant::now();
        let (losses, norms) = (to_host(Tensor::cat(losses, 0)), to_host(Tensor::cat(norms, 0)));
        self.outputs.watch.check()?;
        // On a device that works ahead, the wait for its results is the time of its steps.
        self.course.state.seconds += begun.elapsed().as_secs_f64();

        let most = self.settings.config.training.max_gradient_norm;
        for ((&step, &loss), &norm) in steps.iter().zip(&losses).zip(&norms) {
            if !loss.is_finite() {
                return Err(self.diverged(step + 1, format!("the loss is {loss}")));
            }
            if !norm.is_finite() {
                return Err(self.diverged(step + 1, format!("the norm of the gradients is {norm}")));
            }
            self.course.state.count_clipping(most > 0.0 && norm > most);
        }
        let (loss, norm) = (losses[losses.len() - 1], norms[norms.len() - 1]);
        self.course.train_loss = Some(loss);
        if let Some(learning_rate) = row_rate {
            let correct = last.correct.map_or(f64::NAN, |correct| to_host(correct)[0]);
            let (clipped, all) = std::mem::take(&mut self.course.state.clipped_since_row);
            let row = Row {
                gradient_norm: Some(norm),
                clip_rate: Some(clipped as f64 / all.max(1) as f64),
                ..self.row(Split::Train, last.step + 1, learning_rate)
            };
            let accuracy = correct / last.tokens as f64;
            self.course.history.push(Row { loss, accuracy, ..row })?;
        }
        Ok(())
    }

    /// A row of this step that says no more than how far the run has got.
    fn row(&self, split: Split, step: usize, learning_rate: f64) -> Row {
        let State { tokens, seconds, .. } = self.course.state;
        let (loss, accuracy, gradient_norm, clip_rate) = (f64::NAN, f64::NAN, None, None);
        let epoch = self.settings.epoch(step);
        Row { step, epoch, split, loss, accuracy, learning_rate, gradient_norm, tokens, seconds, clip_rate }
    }

    /// Scores the whole validation set; true when early stopping asks for the end.
    pub(super) fn validate(
        &mut self,
        learner: &Learner<Parts<B>>,
        valid: &ValidLoader<Parts<B>>,
    ) -> Result<bool> {
        let evaluation = evaluate(&learner.model().valid().model, valid.iter());
        self.outputs.watch.check()?;
        let (step, learning_rate) = (self.course.state.step, learner.lr_current());
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        if !loss.is_finite() {
            return Err(self.diverged(step, format!("the loss on validation is {loss}")));
        }
        let row = Row { loss, accuracy, ..self.row(Split::Valid, step, learning_rate) };
        let status = self.status(learning_rate);
        let Course { state, history, .. } = &mut self.course;
        history.push(row)?;
        let is_stale = state.stopping.observe(history.rows(), &self.settings.config.training);
        self.outputs.progress.validated(&status, loss, accuracy);

        if state.best.as_ref().is_none_or(|best| loss < best.evaluation.loss) {
            state.best = Some(Best { step, evaluation });
            self.save(learner)?;
        }
        Ok(is_stale)
    }

    /// Writes a checkpoint of this step, unless there is one already, and the best weights if these are they.
    pub(super) fn save(&mut self, learner: &Learner<Parts<B>>) -> Result<()> {
        let step = self.course.state.step;
        if std::mem::replace(&mut self.outputs.saved, step) == step {
            return Ok(());
        }
        let begun = Instant::now();
        self.outputs.writer.finish()?;
        let weights = native::collect(&learner.model().model)?;
        let moments = self.optimizer.record(&self.settings.parameter_names);
        self.outputs.watch.check()?;
        if weights.iter().any(|(_, data)| data.iter::<f32>().any(|weight| !weight.is_finite())) {
            return Err(self.diverged(step, "a weight is not finite".to_string()));
        }
        let Course { state, history, .. } = &mut self.course;
        state.metrics_bytes = history.bytes();
        let is_best = state.best.as_ref().is_some_and(|best| best.step == step);
        let size = weights.iter().chain(&moments).map(|(_, data)| data.as_bytes().len()).sum();
        let sync_rows = history.sync()?;
        let (folder, description, kept) =
            (self.outputs.folder.clone(), self.settings.description.clone(), state.clone());
        self.outputs.writer.write(size, move || {
            sync_rows()?;
            checkpoint::write(&folder, (&weights, &description), &moments, &kept)?;
            if is_best {
                // The checkpoint is there before the weights that it explains.
                write_atomically(&folder.model(), &checkpoint::weights(&folder, kept.step)?)?;
            }
            checkpoint::prune(&folder)
        })?;
        // Said by the next checkpoint, and by the summary.
        self.course.state.checkpoint_seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }
}

fn to_host<B: Backend>(values: Tensor<B, 1>) -> Vec<f64> {
    values.into_data().iter::<f64>().collect()
}
