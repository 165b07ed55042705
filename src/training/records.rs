//! Reading results from the device, validations, and the events of observers.

use std::time::Instant;

use burn::module::AutodiffModule;
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;

use super::control::Stop;
use super::intervene::StepHooks;
use super::metrics::{Row, Split};
use super::observers::{Decision, ModelAccess, Moment};
use super::setup::Setup;
use super::side_by_side;
use super::state::{Best, RunState, RunTime};
use super::stopping::Ended;
use super::trainer::{Learning, Trainer};
use crate::analysis::{HeadScores, Sample, View, inspect_sample, score_heads};
use crate::error::Result;
use crate::evaluation::{Evaluation, Tally, evaluate};
use crate::hooks::Patch;
use crate::model::Model;
use crate::ops::sum_in_order;
use crate::weights::native::{self, Tensors};

impl<B: AutodiffBackend> Trainer<B> {
    /// Reads the outputs of all unread steps from the device in one transfer. Logs a row of the last step if
    /// `is_logged`.
    ///
    /// # Errors
    /// If a loss or a gradient is not finite. The message names the step.
    pub(super) fn read(&mut self, is_logged: bool) -> Result<()> {
        let outputs = std::mem::take(&mut self.learning.unread);
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
            let is_clipped = max_norm > 0.0 && norm > max_norm;
            self.state.clipping.count(is_clipped);
            self.observers.iter_mut().for_each(|observer| observer.loss(step, loss));
        }
        if is_logged {
            let objective = losses[losses.len() - 1];
            let plain = last.plain.clone().map(|plain| to_host([plain])[0]);
            let loss = plain.unwrap_or(objective);
            let correct = last.correct.clone().map_or(f64::NAN, |correct| to_host([correct])[0]);
            let row = Row {
                gradient_norm: norms.last().copied(),
                clip_rate: Some(self.state.clipping.take_rate()),
                objective: plain.map(|_| objective),
                ..self.row(Split::Train, loss, correct / last.tokens as f64)
            };
            self.log(row)?;
        }
        Ok(())
    }

    /// Returns a row of the last step.
    fn row(&self, split: Split, loss: f64, accuracy: f64) -> Row {
        let RunState { step, tokens, time: RunTime { seconds, .. }, .. } = self.state;
        Row {
            step,
            epoch: self.setup.epoch(&self.state),
            split,
            loss,
            accuracy,
            learning_rate: self.setup.learning_rate(&self.state),
            gradient_norm: None,
            tokens,
            seconds,
            clip_rate: None,
            objective: None,
        }
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
        if !is_due || self.state.is_validated() {
            return Ok(false);
        }
        let is_stale = self.validate()?;
        if self.state.is_validated() {
            // The checkpoint of this step did not include the validation.
            self.checkpoint()?;
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
        let model = self.learning.model();
        // The last step that was done, or the first one.
        let hooks = StepHooks::at(&self.setup.config.training.intervene, self.state.step.saturating_sub(1));
        let items = shards.own.clone().map(|shard| (model.clone(), shard));
        let tally = |(model, shard): (Model<B::InnerBackend>, usize)| {
            let batches = valid.batches(rows).skip(shard).step_by(shards.count);
            let batches = batches.take_while(|_| !(may_be_cut_short && signal.received().is_some()));
            Tally::of::<B::InnerBackend>(&model, &mut hooks.clone(), batches, &self.learning.device)
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
        let is_last = self.is_last() || self.state.stop == Some(Stop::TimeLimit);
        let Self { observers, setup, state, .. } = self;
        for observer in observers {
            let is_ending = is_last || decisions.contains(&Decision::Stop);
            decisions.push(observer.validation(&Moment { setup, state, is_ending })?);
        }
        let state = &mut self.state;
        let is_best = state.best.as_ref().is_none_or(|best| loss < best.evaluation.loss);
        if is_best && !decisions.contains(&Decision::Distrust) {
            state.best = Some(Best { step: state.step, evaluation });
            self.checkpoint()?;
        }
        Ok(decisions.contains(&Decision::Stop))
    }

    /// Adds a row of metrics.
    fn log(&mut self, row: Row) -> Result<()> {
        self.state.rows.push(row);
        let Self { observers, state, .. } = self;
        observers.iter_mut().try_for_each(|observer| observer.row(&state.rows))
    }

    /// Returns how and why the run has ended already, according to its observers.
    pub(super) fn finished(&self) -> Option<(Ended, String)> {
        let moment = Moment { setup: &self.setup, state: &self.state, is_ending: false };
        self.observers.iter().find_map(|observer| observer.finished(&moment))
    }

    /// Returns true if an observer wants a checkpoint after this step.
    pub(super) fn wants_checkpoint(&self) -> bool {
        let moment = Moment { setup: &self.setup, state: &self.state, is_ending: self.is_last() };
        self.observers.iter().any(|observer| observer.wants_checkpoint(&moment))
    }

    /// Passes a step to the observers.
    pub(super) fn observe_step(&mut self) {
        let is_ending = self.is_last();
        let Self { observers, setup, state, .. } = self;
        let moment = Moment { setup, state, is_ending };
        observers.iter_mut().for_each(|observer| observer.step(&moment));
    }

    /// Passes the model to the observers that want it at this step.
    pub(super) fn observe_model(&mut self) -> Result<()> {
        let is_ending = self.is_last();
        let moment = Moment { setup: &self.setup, state: &self.state, is_ending };
        if !self.observers.iter().any(|observer| observer.wants_model(&moment)) {
            return Ok(());
        }
        // Returns an error if the run has diverged, so that no diverged model is recorded.
        self.read(false)?;
        if !self.setup.control.workers.is_first() {
            return Ok(());
        }
        let Self { observers, setup, state, learning, .. } = self;
        let moment = Moment { setup, state, is_ending };
        let mut wanting = observers.iter_mut().filter(|observer| observer.wants_model(&moment));
        wanting.try_for_each(|observer| observer.model(&moment, learning))
    }

    /// Passes a state from which the run can resume to the observers.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        // Returns an error if the run has diverged.
        self.read(false)?;
        let begun = Instant::now();
        self.collect_parts();
        let is_ending = self.is_last();
        let Self { observers, setup, state, learning, .. } = self;
        let moment = Moment { setup, state, is_ending };
        observers.iter_mut().try_for_each(|observer| observer.checkpoint(&moment, learning))?;
        // The next checkpoint and the summary record this time.
        self.state.time.checkpoint_seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Copies the parts of the observers into the state.
    pub(super) fn collect_parts(&mut self) {
        let parts = self.observers.iter().filter_map(|observer| observer.part());
        self.state.parts = parts.map(|(name, part)| (name.to_string(), part)).collect();
    }
}

fn to_host<B: Backend>(values: impl IntoIterator<Item = Tensor<B, 1>>) -> Vec<f64> {
    Tensor::cat(values.into_iter().collect(), 0).into_data().iter::<f64>().collect()
}

impl<B: AutodiffBackend> Learning<B> {
    /// Returns the model without autodiff.
    fn model(&self) -> Model<B::InnerBackend> {
        self.learner.model().valid().model
    }
}

impl<B: AutodiffBackend> ModelAccess for Learning<B> {
    fn score_heads(&self, setup: &Setup) -> Result<Vec<Vec<HeadScores>>> {
        let (config, valid) = (&setup.config, &setup.dataset.valid);
        let rows = config.training.batch_size;
        let (scores, _) = score_heads(&self.model(), valid, &config.analysis, rows, &self.device)?;
        self.watch.check()?;
        Ok(scores)
    }

    fn evaluate(&self, setup: &Setup) -> Result<Evaluation> {
        let (valid, rows) = (&setup.dataset.valid, setup.config.training.batch_size);
        let batches = valid.batches(rows).take(setup.config.analysis.sequences.div_ceil(rows));
        let evaluation = evaluate(&self.model(), batches, &self.device);
        self.watch.check()?;
        Ok(evaluation)
    }

    fn view(&self, sample: &Sample) -> Result<View> {
        let (view, _) =
            inspect_sample((&self.model(), &Patch::default()), sample, None::<fn(u64)>, &self.device)?;
        self.watch.check()?;
        Ok(view)
    }

    fn weights(&self) -> Result<Tensors> {
        let weights = native::collect(&self.learner.model().model)?;
        self.watch.check()?;
        Ok(weights)
    }

    fn moments(&self) -> Result<Tensors> {
        let moments = self.optimizer.record(&native::names(&self.learner.model().model));
        self.watch.check()?;
        Ok(moments)
    }
}
