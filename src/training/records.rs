//! The records of a run: rows of metrics, validations, checkpoints, and the summary.

use std::{panic::resume_unwind, thread::Builder, time::Instant};

use burn::module::{AutodiffModule, Module};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;

use super::checkpoint::{self, Best, RunTime, State};
use super::control::has_signal;
use super::history::MetricsPart;
use super::metrics::{Row, Split};
use super::observers::{Decision, ModelAccess, Moment};
use super::setup::Setup;
use super::side_by_side;
use super::stopping::Ended;
use super::summary::{Hashes, Losses, Machine, Summary, Work, speed};
use super::trainer::{Learning, Trainer};
use crate::analysis::{HeadScores, Sample, View, inspect_sample, score_heads};
use crate::backend::DeviceWatch;
use crate::error::{Error, Result};
use crate::evaluation::Tally;
use crate::model::Model;
use crate::ops::sum_in_order;
use crate::weights::native::{self, Tensors};

/// The maximum size of a checkpoint that is written in the background, in bytes.
const MAX_BACKGROUND_BYTES: usize = 16 << 20;

impl<B: AutodiffBackend> Trainer<B> {
    /// Reads the outputs of all unread steps from the device in one transfer. Logs a row of the last step if
    /// `is_logged`.
    ///
    /// # Errors
    /// If a loss or a gradient is not finite. The message names the step.
    pub(super) fn read(&mut self, is_logged: bool) -> Result<()> {
        let outputs = std::mem::take(&mut self.unread);
        let Some(last) = outputs.last() else { return Ok(()) };
        let begun = Instant::now();
        let losses = to_host(outputs.iter().map(|output| output.loss.clone()));
        let norms = to_host(outputs.iter().filter_map(|output| output.gradient_norm.clone()));
        self.learning.watch.check()?;
        // On an asynchronous device, the wait for results is the time of the steps.
        self.state.time.seconds += begun.elapsed().as_secs_f64();

        let max_norm = self.setup.config.training.max_gradient_norm;
        for (index, ((output, &loss), &norm)) in outputs.iter().zip(&losses).zip(&norms).enumerate() {
            let step = output.step + 1;
            let what = match (loss.is_finite(), norm.is_finite()) {
                (true, true) => None,
                (true, false) => Some(format!("the norm of the gradients is {norm}")),
                (false, _) => Some(format!("the loss is {loss}")),
            };
            if let Some(what) = what {
                // The later steps had already started. Neither their tokens nor their share of the time counts.
                let discarded = &outputs[index + 1..];
                self.state.tokens -= discarded.iter().map(|later| later.tokens as u64).sum::<u64>();
                let share = discarded.len() as f64 / outputs.len() as f64;
                self.state.time.seconds -= share * (self.state.time.seconds - outputs[0].began);
                self.state.step = step;
                return Err(self.setup.diverged(self.state.step, what));
            }
            self.history.count_clipped(max_norm > 0.0 && norm > max_norm);
            self.observers.iter_mut().for_each(|observer| observer.loss(step, loss));
            // The progress display compares this loss with the validation loss, so both are without label smoothing.
            if self.setup.config.training.label_smoothing == 0.0 {
                self.train_loss = Some(loss);
            }
        }
        if is_logged {
            let objective = losses[losses.len() - 1];
            let plain = last.plain.clone().map(|plain| to_host([plain])[0]);
            let loss = plain.unwrap_or(objective);
            self.train_loss = Some(loss);
            let correct = last.correct.clone().map_or(f64::NAN, |correct| to_host([correct])[0]);
            let row = Row {
                gradient_norm: norms.last().copied(),
                clip_rate: Some(self.history.take_clip_rate()),
                objective: plain.map(|_| objective),
                ..self.row(Split::Train, loss, correct / last.tokens as f64)
            };
            self.log(row)?;
        }
        Ok(())
    }

    /// Returns a row of the last step.
    fn row(&self, split: Split, loss: f64, accuracy: f64) -> Row {
        let State { step, tokens, time: RunTime { seconds, .. }, .. } = self.state;
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

    /// Returns true if the current state has been validated.
    pub(super) fn is_validated(&self) -> bool {
        let validations = self.history.rows.iter().rev().filter(|row| row.split == Split::Valid);
        validations.take_while(|row| row.step >= self.state.step).any(|row| row.step == self.state.step)
    }

    /// Validates the weights of another run before the first step, or a state whose validation a signal has prevented.
    /// Returns true if early stopping ends the run.
    pub(super) fn catch_up(&mut self) -> Result<bool> {
        let is_start = self.state.step == 0;
        let is_due = if is_start {
            self.setup.config.run.start().is_some()
        } else {
            self.setup.validates_at(self.state.step)
        };
        if !is_due || self.is_validated() {
            return Ok(false);
        }
        if !is_start {
            // The checkpoint of this step does not include the validation, so it is written again.
            self.saving.step = usize::MAX;
        }
        let is_stale = self.validate()?;
        match self.is_validated() {
            true if !is_start => self.save()?,
            true if self.setup.control.workers.is_first() => {
                checkpoint::keep_weights(&self.setup.folder, 0)?;
            }
            _ => self.saving.step = self.state.step,
        }
        Ok(is_stale)
    }

    /// Scores the entire validation set, unless a signal interrupts it. Returns true if early stopping ends the run.
    ///
    /// # Errors
    /// If the loss is not finite, or the run ends with exploded losses.
    pub(super) fn validate(&mut self) -> Result<bool> {
        let (shards, signal) = (&self.parallel.shards, self.setup.control.signal.clone());
        let may_be_cut_short = self.setup.control.workers.count() == 1 && !self.is_paused();
        // Batches have as many rows as a shard, and are assigned to the shards in turn.
        let (valid, rows) = (&self.setup.dataset.valid, self.setup.config.training.batch_size / shards.count);
        let model = self.learning.learner.model().valid().model;
        let items = shards.own.clone().map(|shard| (model.clone(), shard));
        let tally = |(model, shard): (Model<B::InnerBackend>, usize)| {
            let batches = valid.batches(rows).skip(shard).step_by(shards.count);
            let batches = batches.take_while(|_| !(may_be_cut_short && has_signal(&signal)));
            Tally::of::<B::InnerBackend>(&model, batches, &self.learning.device)
        };
        let tallies = side_by_side::map(self.parallel.at_once, items.collect(), tally);
        let tally =
            sum_in_order(tallies.into_iter().map(Some), Tally::plus).expect("every worker has a shard");
        let tally = self.parallel.reduce.tally(tally, self.setup.dataset.valid.time())?;
        if self.is_cut_short() {
            return Ok(false);
        }
        let evaluation = tally.evaluation();
        self.learning.watch.check()?;
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        if !loss.is_finite() {
            return Err(self.setup.diverged(self.state.step, format!("the validation loss is {loss}")));
        }
        self.log(self.row(Split::Valid, loss, accuracy))?;
        let mut decisions = Vec::with_capacity(self.observers.len());
        let (is_last, status) = (self.is_last() || self.requests.is_late, self.status());
        let Self { observers, setup, state, history, .. } = self;
        for observer in observers {
            let is_ending = is_last || decisions.contains(&Decision::Stop);
            let (rows, status) = (&history.rows[..], status.clone());
            decisions.push(observer.validation(&Moment { setup, state, rows, status, is_ending })?);
        }
        let state = &mut self.state;
        let is_best = state.best.as_ref().is_none_or(|best| loss < best.evaluation.loss);
        if is_best && !decisions.contains(&Decision::Distrust) {
            state.best = Some(Best { step: state.step, evaluation });
            self.save()?;
        }
        Ok(decisions.contains(&Decision::Stop))
    }

    /// Appends a row to `metrics.csv`.
    fn log(&mut self, row: Row) -> Result<()> {
        self.history.push(row)?;
        let Self { observers, history, .. } = self;
        observers.iter_mut().try_for_each(|observer| observer.row(&history.rows))
    }

    /// Passes a step to the observers.
    pub(super) fn observe_step(&mut self) {
        let (is_ending, status) = (self.is_last(), self.status());
        let Self { observers, setup, state, history, .. } = self;
        let moment = Moment { setup, state, rows: &history.rows, status, is_ending };
        observers.iter_mut().for_each(|observer| observer.step(&moment));
    }

    /// Passes the model to the observers that want it at this step.
    pub(super) fn observe_model(&mut self) -> Result<()> {
        let (is_ending, status) = (self.is_last(), self.status());
        let moment =
            Moment { setup: &self.setup, state: &self.state, rows: &self.history.rows, status, is_ending };
        if !self.observers.iter().any(|observer| observer.wants_model(&moment)) {
            return Ok(());
        }
        // Returns an error if the run has diverged, so that no diverged model is recorded.
        self.read(false)?;
        if !self.setup.control.workers.is_first() {
            return Ok(());
        }
        let status = self.status();
        let Self { observers, setup, state, history, learning, .. } = self;
        let moment = Moment { setup, state, rows: &history.rows, status, is_ending };
        let Learning { device, watch, learner, .. } = learning;
        let model = OnDevice::<B::InnerBackend> { model: learner.model().valid().model, device, watch };
        let mut wanting = observers.iter_mut().filter(|observer| observer.wants_model(&moment));
        wanting.try_for_each(|observer| observer.model(&moment, &model))
    }

    /// Writes a checkpoint of this step, unless there is one already, and the best weights if this step is the best.
    pub(super) fn save(&mut self) -> Result<()> {
        let step = self.state.step;
        if std::mem::replace(&mut self.saving.step, step) == step {
            return Ok(());
        }
        let begun = Instant::now();
        self.finish_writing()?;
        let weights = native::collect(&self.learning.learner.model().model)?;
        let moments = self.learning.optimizer.record(&self.learning.parameter_names);
        self.learning.watch.check()?;
        if weights.iter().any(|(_, data)| data.iter::<f32>().any(|weight| !weight.is_finite())) {
            return Err(self.setup.diverged(self.state.step, "a weight is not finite".to_string()));
        }
        if !self.setup.control.workers.is_first() {
            return Ok(());
        }
        self.collect_parts();
        let is_best = self.state.best.as_ref().is_some_and(|best| best.step == step);
        let size = weights.iter().chain(&moments).map(|(_, data)| data.as_bytes().len()).sum::<usize>();
        let sync_rows = self.history.sync()?;
        let (folder, description, kept) =
            (self.setup.folder.clone(), self.setup.description.clone(), self.state.clone());
        let write = move || {
            sync_rows()?;
            checkpoint::write(&folder, (&weights, &description), &moments, &kept)?;
            if is_best {
                // The checkpoint is written first, because it holds the hash of the best weights.
                checkpoint::keep_weights(&folder, kept.step)?;
            }
            checkpoint::prune(&folder)
        };
        // A small checkpoint mostly waits for the disk, so it is written in the background. A large one is not: its
        // copies of the weights and moments would add to the memory of the steps.
        if size > MAX_BACKGROUND_BYTES {
            write()?;
        } else {
            let thread = Builder::new().name("checkpoint".into()).spawn(write);
            self.saving.writing = Some(thread.map_err(|_| Error::Threads)?);
        }
        // The next checkpoint and the summary record this time.
        self.state.time.checkpoint_seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Copies the parts of the observers and of `metrics.csv` into the state.
    pub(super) fn collect_parts(&mut self) {
        let parts = self.observers.iter().filter_map(|observer| observer.part());
        let parts = parts.chain([(MetricsPart::NAME, self.history.part())]);
        self.state.parts = parts.map(|(name, part)| (name.to_string(), part)).collect();
    }

    /// Waits for the checkpoint that is being written.
    ///
    /// # Errors
    /// If the checkpoint could not be written.
    pub(super) fn finish_writing(&mut self) -> Result<()> {
        let Some(writing) = self.saving.writing.take() else { return Ok(()) };
        writing.join().unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Returns the summary of the run, once `model.safetensors` is written.
    pub(super) fn summary(&self, ended: Ended) -> Summary {
        let (state, device) = (&self.state, &self.setup.control.device);
        let best = state.best.as_ref();
        let last = |split| self.history.last(split);
        let guesses = state.guesses.iter().filter(|guess| !self.setup.warnings.contains(guess));
        Summary {
            losses: Losses {
                best_valid_loss: best.map(|best| best.evaluation.loss),
                best_step: best.map(|best| best.step),
                last_valid_loss: last(Split::Valid).map(|row| row.loss),
                last_train_loss: last(Split::Train).map(|row| row.loss),
                floor: self.setup.dataset.floor.map(|floor| floor.valid),
                accuracy: best.map(|best| best.evaluation.accuracy),
                determined_accuracy: best.and_then(|best| best.evaluation.determined_accuracy),
            },
            work: Work {
                parameters: self.learning.learner.model().num_params(),
                steps: state.step,
                steps_per_epoch: self.setup.steps_per_epoch as f64,
                tokens: state.tokens,
                seconds: state.time.seconds,
                checkpoint_seconds: state.time.checkpoint_seconds,
                tokens_per_second: speed(state.tokens, state.time.seconds),
                clip_rate: self.history.clip_rate(),
            },
            machine: Machine {
                backend: device.backend.name().to_string(),
                device: device.name.clone(),
                workers: self.setup.control.workers.count(),
            },
            seed: self.setup.config.run.seed,
            ended,
            diverged_step: (ended == Ended::Diverged).then_some(state.step),
            heads_worth_most: Vec::new(),
            hashes: Hashes::of(&self.setup.folder),
            warnings: self.setup.warnings.iter().chain(guesses).chain(&state.changes).cloned().collect(),
        }
    }
}

fn to_host<B: Backend>(values: impl IntoIterator<Item = Tensor<B, 1>>) -> Vec<f64> {
    Tensor::cat(values.into_iter().collect(), 0).into_data().iter::<f64>().collect()
}

/// The model on its device.
struct OnDevice<'a, B: Backend> {
    model: Model<B>,
    device: &'a B::Device,
    watch: &'a DeviceWatch,
}

impl<B: Backend> ModelAccess for OnDevice<'_, B> {
    fn score_heads(&self, setup: &Setup) -> Result<Vec<Vec<HeadScores>>> {
        let (config, valid) = (&setup.config, &setup.dataset.valid);
        let rows = config.training.batch_size;
        let (scores, _) = score_heads(&self.model, valid, &config.analysis, rows, self.device)?;
        self.watch.check()?;
        Ok(scores)
    }

    fn view(&self, sample: &Sample) -> Result<View> {
        let (view, _) = inspect_sample(&self.model, sample, None::<fn(u64)>, self.device)?;
        self.watch.check()?;
        Ok(view)
    }

    fn weights(&self) -> Result<Tensors> {
        let weights = native::collect(&self.model)?;
        self.watch.check()?;
        Ok(weights)
    }
}
