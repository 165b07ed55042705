//! What a run writes down: rows of its metrics, validations, checkpoints, and how it ended.

use std::{panic::resume_unwind, thread::Builder, time::Instant};

use burn::module::{AutodiffModule, Module};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;

use super::checkpoint::{self, Best, State};
use super::control::is_heard;
use super::metrics::{Row, Split};
use super::run::Run;
use super::side_by_side;
use super::stopping::Ended;
use super::summary::{Hashes, Summary, speed};
use crate::error::{Error, Result};
use crate::evaluation::Tally;
use crate::files::digits;
use crate::model::Model;
use crate::numbers::{fixed, thousands};
use crate::ops::sum_in_order;
use crate::weights::native;

/// Bytes of weights and moments from which a checkpoint is large.
const LARGE: usize = 16 << 20;

impl<B: AutodiffBackend> Run<B> {
    /// Reads what the steps since the last reading left on the device, in one go. The last of them becomes a row
    /// where it `is_logged`.
    ///
    /// # Errors
    /// If a loss or a gradient is not finite: the message names the step.
    pub(super) fn read(&mut self, is_logged: bool) -> Result<()> {
        let outputs = std::mem::take(&mut self.unread);
        let Some(last) = outputs.last() else { return Ok(()) };
        let begun = Instant::now();
        let losses = to_host(outputs.iter().map(|output| output.loss.clone()));
        let norms = to_host(outputs.iter().filter_map(|output| output.gradient_norm.clone()));
        self.watch.check()?;
        // On a device that works ahead, the wait for its results is the time of its steps.
        self.state.seconds += begun.elapsed().as_secs_f64();

        let most = self.config.training.max_gradient_norm;
        for (index, ((output, &loss), &norm)) in outputs.iter().zip(&losses).zip(&norms).enumerate() {
            let step = output.step + 1;
            let what = match (loss.is_finite(), norm.is_finite()) {
                (true, true) => None,
                (true, false) => Some(format!("the norm of the gradients is {norm}")),
                (false, _) => Some(format!("the loss is {loss}")),
            };
            if let Some(what) = what {
                // The steps behind it were under way already, and count for nothing: neither their tokens nor
                // their share of the time.
                let void = &outputs[index + 1..];
                self.state.tokens -= void.iter().map(|later| later.tokens as u64).sum::<u64>();
                let share = void.len() as f64 / outputs.len() as f64;
                self.state.seconds -= share * (self.state.seconds - outputs[0].began);
                self.state.step = step;
                return Err(self.diverged(what));
            }
            for (clipped, all) in [&mut self.state.clipped, &mut self.state.clipped_since_row] {
                *clipped += u64::from(most > 0.0 && norm > most);
                *all += 1;
            }
            self.state.explosion.train(loss, step == 1);
            // What is shown beside the validation loss is the same quantity.
            if self.config.training.label_smoothing == 0.0 {
                self.train_loss = Some(loss);
            }
        }
        if is_logged {
            let objective = losses[losses.len() - 1];
            let plain = last.plain.clone().map(|plain| to_host([plain])[0]);
            let loss = plain.unwrap_or(objective);
            self.train_loss = Some(loss);
            let correct = last.correct.clone().map_or(f64::NAN, |correct| to_host([correct])[0]);
            let (clipped, all) = std::mem::take(&mut self.state.clipped_since_row);
            let row = Row {
                gradient_norm: norms.last().copied(),
                clip_rate: Some(clipped as f64 / all.max(1) as f64),
                objective: plain.map(|_| objective),
                ..self.row(Split::Train, loss, correct / last.tokens as f64)
            };
            self.history.push(row)?;
        }
        Ok(())
    }

    /// A row of the step that was just done.
    fn row(&self, split: Split, loss: f64, accuracy: f64) -> Row {
        let State { step, tokens, seconds, .. } = self.state;
        Row {
            step,
            epoch: self.epoch(),
            split,
            loss,
            accuracy,
            learning_rate: self.learning_rate(),
            gradient_norm: None,
            tokens,
            seconds,
            clip_rate: None,
            objective: None,
        }
    }

    /// Returns whether the state has been validated.
    pub(super) fn is_validated(&self) -> bool {
        let validations = self.history.rows.iter().rev().filter(|row| row.split == Split::Valid);
        validations.take_while(|row| row.step >= self.state.step).any(|row| row.step == self.state.step)
    }

    /// Validates the weights of another run before the first step, and a state whose validation a signal prevented.
    /// Returns true when early stopping asks for the end.
    pub(super) fn catch_up(&mut self) -> Result<bool> {
        let is_start = self.state.step == 0;
        let is_due = if is_start { self.config.run.start().is_some() } else { self.validates() };
        if !is_due || self.is_validated() {
            return Ok(false);
        }
        if !is_start {
            // Its checkpoint does not know of the validation.
            self.saved = usize::MAX;
        }
        let is_stale = self.validate()?;
        match self.is_validated() {
            true if !is_start => self.save()?,
            true if self.control.workers.is_first() => {
                checkpoint::keep_weights(&self.folder, 0)?;
            }
            _ => self.saved = self.state.step,
        }
        Ok(is_stale)
    }

    /// Returns whether a signal has asked this process, which trains alone, to end before the next validation. Where a
    /// study pauses the run, it needs that validation.
    pub(super) fn is_cut_short(&self) -> bool {
        self.control.workers.count() == 1 && self.control.is_interrupted() && !self.is_paused()
    }

    /// Scores the whole validation set, unless a signal ends that; true when early stopping asks for the end.
    ///
    /// # Errors
    /// If the loss is not finite, or the run ends with exploded losses.
    pub(super) fn validate(&mut self) -> Result<bool> {
        let (shards, signal) = (&self.shards, self.control.signal.clone());
        let may_be_cut_short = self.control.workers.count() == 1 && !self.is_paused();
        // Batches have as many rows as a shard, and the shards take turns.
        let (valid, rows) = (&self.dataset.valid, self.config.training.batch_size / shards.count);
        let model = self.learner.model().valid().model;
        let items = shards.own.clone().map(|shard| (model.clone(), shard));
        let tally = |(model, shard): (Model<B::InnerBackend>, usize)| {
            let batches = valid.batches(rows).skip(shard).step_by(shards.count);
            let batches = batches.take_while(|_| !(may_be_cut_short && is_heard(&signal)));
            Tally::of::<B::InnerBackend>(&model, batches, &self.device)
        };
        let tallies = side_by_side::map(self.at_once, items.collect(), tally);
        let mut tally =
            sum_in_order(tallies.into_iter().map(Some), Tally::plus).expect("every worker has a shard");
        if self.control.workers.count() > 1 {
            let mut numbers = tally.numbers(self.dataset.valid.time());
            let add = |sums: &mut [f64], others: &[f64]| {
                sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
            };
            self.control.workers.sum(&mut numbers, &mut Vec::new(), add)?;
            tally = Tally::from_numbers(&numbers);
        }
        if self.is_cut_short() {
            return Ok(false);
        }
        let evaluation = tally.evaluation();
        self.watch.check()?;
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        let (row, status) = (self.row(Split::Valid, loss, accuracy), self.status());
        if !loss.is_finite() {
            return Err(self.diverged(format!("the loss on validation is {loss}")));
        }
        self.history.push(row)?;
        let is_stale = self.state.stopping.observe(&self.history.rows, &self.config.training);
        self.progress.validated(&status, loss, accuracy);
        let is_exploded = self.check_explosion(loss, is_stale)?;

        let state = &mut self.state;
        if !is_exploded && state.best.as_ref().is_none_or(|best| loss < best.evaluation.loss) {
            state.best = Some(Best { step: state.step, evaluation });
            self.save()?;
        }
        Ok(is_stale)
    }

    /// Returns whether the training loss and this validation `loss` have exploded.
    ///
    /// # Errors
    /// [`Error::Diverged`] where the run ends so, or has been so for several validations after the warm-up.
    fn check_explosion(&mut self, loss: f64, is_stale: bool) -> Result<bool> {
        let uniform = (self.description.sizes.vocab as f64).ln();
        let start = self.history.rows.first().filter(|row| row.step == 0).map(|row| row.loss);
        let explosion = &mut self.state.explosion;
        let Some(began) = explosion.validate(loss, uniform, start) else { return Ok(false) };
        let is_warm = self.state.step >= self.schedule().warmup;
        if !(self.is_last() || is_stale || is_warm && self.state.explosion.lasts()) {
            return Ok(true);
        }
        let shown = |loss: f64| if loss < 1e4 { fixed(loss, 2) } else { thousands(loss) };
        let train = self.state.explosion.last.unwrap_or(loss);
        Err(self.diverged(format!(
            "the loss has risen to {} nats in training and {} on validation, where a model that has learned nothing has \
             {}",
            shown(train),
            shown(loss),
            shown(began)
        )))
    }

    /// Writes a checkpoint of this step, unless there is one already, and the best weights if these are they.
    pub(super) fn save(&mut self) -> Result<()> {
        let step = self.state.step;
        if std::mem::replace(&mut self.saved, step) == step {
            return Ok(());
        }
        let begun = Instant::now();
        self.finish_writing()?;
        let weights = native::collect(&self.learner.model().model)?;
        let moments = self.optimizer.record(&self.parameter_names);
        self.watch.check()?;
        if weights.iter().any(|(_, data)| data.iter::<f32>().any(|weight| !weight.is_finite())) {
            return Err(self.diverged("a weight is not finite".to_string()));
        }
        if !self.control.workers.is_first() {
            return Ok(());
        }
        self.state.metrics_bytes = self.history.bytes;
        self.state.metrics_sha256 = Some(digits(&self.history.hash));
        let is_best = self.state.best.as_ref().is_some_and(|best| best.step == step);
        let size = weights.iter().chain(&moments).map(|(_, data)| data.as_bytes().len()).sum::<usize>();
        let sync_rows = self.history.sync()?;
        let (folder, description, kept) = (self.folder.clone(), self.description.clone(), self.state.clone());
        let write = move || {
            sync_rows()?;
            checkpoint::write(&folder, (&weights, &description), &moments, &kept)?;
            if is_best {
                // The checkpoint is there before the weights that it explains.
                checkpoint::keep_weights(&folder, kept.step)?;
            }
            checkpoint::prune(&folder)
        };
        // A small one takes its time waiting for the disk, which is done beside the steps that follow. Copies of a
        // large one would add to what these take.
        if size > LARGE {
            write()?;
        } else {
            let thread = Builder::new().name("checkpoint".into()).spawn(write);
            self.writing = Some(thread.map_err(|_| Error::Threads)?);
        }
        // Said by the next checkpoint, and by the summary.
        self.state.checkpoint_seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Waits for the checkpoint that is being written.
    ///
    /// # Errors
    /// If it could not be written.
    pub(super) fn finish_writing(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        writing.join().unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// How the run ended, once `model.safetensors` is written.
    pub(super) fn summary(&self, ended: Ended) -> Summary {
        let (state, device) = (&self.state, &self.control.device);
        let best = state.best.as_ref();
        let last = |split| self.history.last(split);
        Summary {
            best_valid_loss: best.map(|best| best.evaluation.loss),
            best_step: best.map(|best| best.step),
            last_valid_loss: last(Split::Valid).map(|row| row.loss),
            last_train_loss: last(Split::Train).map(|row| row.loss),
            floor: self.dataset.floor.map(|floor| floor.valid),
            accuracy: best.map(|best| best.evaluation.accuracy),
            determined_accuracy: best.and_then(|best| best.evaluation.determined_accuracy),
            parameters: self.learner.model().num_params(),
            steps: state.step,
            steps_per_epoch: self.steps_per_epoch as f64,
            tokens: state.tokens,
            seconds: state.seconds,
            checkpoint_seconds: state.checkpoint_seconds,
            tokens_per_second: speed(state.tokens, state.seconds),
            clip_rate: state.clipped.0 as f64 / state.clipped.1.max(1) as f64,
            backend: device.backend.name().to_string(),
            device: device.name.clone(),
            workers: self.control.workers.count(),
            seed: self.config.run.seed,
            ended,
            diverged_step: (ended == Ended::Diverged).then_some(state.step),
            heads_worth_most: Vec::new(),
            hashes: Hashes::of(&self.folder),
            warnings: self.warnings.clone(),
        }
    }
}

fn to_host<B: Backend>(values: impl IntoIterator<Item = Tensor<B, 1>>) -> Vec<f64> {
    Tensor::cat(values.into_iter().collect(), 0).into_data().iter::<f64>().collect()
}
