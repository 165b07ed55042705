//! What a run writes down: rows of its metrics, validations, checkpoints, and how it ended.

use std::time::Instant;

use burn::module::{AutodiffModule, Module};
use burn::prelude::*;

use super::checkpoint::{self, Best, State};
use super::history::{Row, Split};
use super::loader::valid_batches;
use super::run::{Course, Run};
use super::stopping::Ended;
use super::summary::Summary;
use crate::error::Result;
use crate::evaluation::evaluate;
use crate::files::write_atomically;
use crate::ops;
use crate::weights::file::WeightsFile;
use crate::weights::native;

impl<B: ops::AutodiffBackend> Run<B> {
    /// Reads what the steps since the last reading left on the device, in one go. The last of them becomes a row
    /// where it `is_logged`.
    ///
    /// # Errors
    /// If a loss or a gradient is not finite: the message names the step.
    pub(super) fn read(&mut self, is_logged: bool) -> Result<()> {
        let (outputs, norms): (Vec<_>, Vec<_>) = std::mem::take(&mut self.course.unread).into_iter().unzip();
        let Some(last) = outputs.last().cloned() else { return Ok(()) };
        let begun = Instant::now();
        let steps = outputs.iter().map(|output| output.step + 1).collect::<Vec<_>>();
        let losses = to_host(Tensor::cat(outputs.into_iter().map(|output| output.loss).collect(), 0));
        let norms = to_host(Tensor::cat(norms, 0));
        self.outputs.watch.check()?;
        // On a device that works ahead, the wait for its results is the time of its steps.
        self.course.state.seconds += begun.elapsed().as_secs_f64();

        let most = self.settings.config.training.max_gradient_norm;
        for ((&step, &loss), &norm) in steps.iter().zip(&losses).zip(&norms) {
            if !loss.is_finite() {
                return Err(self.diverged(step, format!("the loss is {loss}")));
            }
            if !norm.is_finite() {
                return Err(self.diverged(step, format!("the norm of the gradients is {norm}")));
            }
            self.course.state.count_clipping(most > 0.0 && norm > most);
            self.course.train_loss = Some(loss);
        }
        if is_logged {
            let correct = last.correct.map_or(f64::NAN, |correct| to_host(correct)[0]);
            let (clipped, all) = std::mem::take(&mut self.course.state.clipped_since_row);
            let row = Row {
                gradient_norm: norms.last().copied(),
                clip_rate: Some(clipped as f64 / all.max(1) as f64),
                ..self.row(Split::Train, losses[losses.len() - 1], correct / last.tokens as f64)
            };
            self.course.history.push(row)?;
        }
        Ok(())
    }

    /// A row of the step that was just done.
    fn row(&self, split: Split, loss: f64, accuracy: f64) -> Row {
        let State { step, tokens, seconds, .. } = self.course.state;
        let (epoch, learning_rate) = (self.settings.epoch(step), self.learner.lr_current());
        let (gradient_norm, clip_rate) = (None, None);
        Row { step, epoch, split, loss, accuracy, learning_rate, gradient_norm, tokens, seconds, clip_rate }
    }

    /// Scores the whole validation set; true when early stopping asks for the end.
    pub(super) fn validate(&mut self) -> Result<bool> {
        let batches = valid_batches::<B::InnerBackend>(&self.settings.valid_loader, &self.device);
        let evaluation = evaluate(&self.learner.model().valid().model, batches);
        self.outputs.watch.check()?;
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        let (row, status) = (self.row(Split::Valid, loss, accuracy), self.status());
        if !loss.is_finite() {
            return Err(self.diverged(row.step, format!("the loss on validation is {loss}")));
        }
        let Course { state, history, .. } = &mut self.course;
        history.push(row)?;
        let is_stale = state.stopping.observe(history.rows(), &self.settings.config.training);
        self.outputs.progress.validated(&status, loss, accuracy);

        if state.best.as_ref().is_none_or(|best| loss < best.evaluation.loss) {
            state.best = Some(Best { step: state.step, evaluation });
            self.save()?;
        }
        Ok(is_stale)
    }

    /// Writes a checkpoint of this step, unless there is one already, and the best weights if these are they.
    pub(super) fn save(&mut self) -> Result<()> {
        let step = self.course.state.step;
        if std::mem::replace(&mut self.outputs.saved, step) == step {
            return Ok(());
        }
        let begun = Instant::now();
        self.outputs.writer.finish()?;
        let weights = native::collect(&self.learner.model().model)?;
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

    /// How the run ended, once `model.safetensors` is written.
    pub(super) fn summary(&self, ended: Ended, diverged_step: Option<usize>) -> Result<Summary> {
        let (Course { state, history, .. }, settings) = (&self.course, &self.settings);
        let best = state.best.as_ref();
        let last = |split: Split| history.rows().iter().rev().find(|row| row.split == split);
        Ok(Summary {
            best_valid_loss: best.map(|best| best.evaluation.loss),
            best_step: best.map(|best| best.step),
            last_valid_loss: last(Split::Valid).map(|row| row.loss),
            last_train_loss: last(Split::Train).map(|row| row.loss),
            floor: settings.floor,
            accuracy: best.map(|best| best.evaluation.accuracy),
            determined_accuracy: best.and_then(|best| best.evaluation.determined_accuracy),
            parameters: self.learner.model().num_params(),
            steps: state.step,
            steps_per_epoch: settings.steps_per_epoch as f64,
            tokens: state.tokens,
            seconds: state.seconds,
            checkpoint_seconds: state.checkpoint_seconds,
            tokens_per_second: state.tokens as f64 / state.seconds.max(f64::MIN_POSITIVE),
            clip_rate: state.clipped.0 as f64 / state.clipped.1.max(1) as f64,
            backend: settings.control.device.backend.name().to_string(),
            device: settings.control.device.name.clone(),
            seed: settings.config.run.seed,
            ended,
            diverged_step,
            weights_sha256: Some(WeightsFile::open(self.outputs.folder.model())?.sha256()),
            warnings: settings.warnings.clone(),
        })
    }
}

fn to_host<B: Backend>(values: Tensor<B, 1>) -> Vec<f64> {
    values.into_data().iter::<f64>().collect()
}
