//! A run under way: the loop over steps, and what is due after each.
//!
//! Losses and norms stay on the device until a row, a validation or a checkpoint needs them, so
//! that a step waits for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use burn::module::AutodiffModule;
use burn::prelude::*;
use burn::train::{Interrupter, Learner, TrainLoader, ValidLoader};

use super::checkpoint::{self, Best, State};
use super::checkpoint_writer::CheckpointWriter;
use super::history::{History, Row, Split};
use super::optimizer::Optimizer;
use super::pace::Pace;
use super::run_folder::{RunFolder, write_atomically};
use super::step::StepOutput;
use super::stopping::Ended;
use super::strategy::Parts;
use crate::analysis::{HeadHistory, score_heads};
use crate::backend::DeviceWatch;
use crate::config::{AnalysisConfig, TrainingConfig};
use crate::data::Sequences;
use crate::error::{Error, Result};
use crate::evaluation::evaluate;
use crate::kernels::allocator;
use crate::ops;
use crate::terminal::{Progress, RunStatus};
use crate::weights::native::{self, Description};

/// A run under way: everything but the model.
pub struct Run<B: ops::AutodiffBackend> {
    /// How it is trained.
    pub config: TrainingConfig,
    /// How its heads are scored.
    pub analysis: AnalysisConfig,
    /// What they are scored on.
    pub valid: Sequences,
    /// Their scores.
    pub heads: HeadHistory,
    /// The seed of the noise in each step.
    pub seed: u64,
    /// Steps of the whole run.
    pub total: usize,
    /// The step after which it pauses.
    pub until: Option<usize>,
    /// Steps between validations.
    pub validate_every: usize,
    /// Steps per epoch.
    pub steps_per_epoch: usize,
    /// Where it is written down.
    pub folder: RunFolder,
    /// What it knows of itself.
    pub state: State,
    /// Its rows.
    pub history: History,
    /// The learner's optimizer, by its shared handle.
    pub optimizer: Optimizer<B>,
    /// The model's parameters in visiting order.
    pub parameter_names: Vec<String>,
    /// The model's config and sizes, which go with its weights.
    pub description: Description,
    /// The signal that asks for the end; 0: none.
    pub signal: Arc<AtomicUsize>,
    /// What tells that the device has failed, before anything that it computed is written down.
    pub watch: DeviceWatch,
    /// What a person sees.
    pub progress: Progress,
    /// Step outputs that were not read yet.
    pub unread: Vec<Unread<B::InnerBackend>>,
    /// The last training loss that was read.
    pub train_loss: Option<f64>,
    /// The step of the last checkpoint.
    pub saved: Option<usize>,
    /// Writes its checkpoints.
    pub writer: CheckpointWriter,
    /// When this part of the run began, and what the state counted then.
    pub pace: Pace,
}

/// Steps whose losses stay on the device at most, however rarely somebody asks for them.
const MOST_UNREAD: usize = 256;

/// What a step left on the device: read when somebody asks.
#[derive(Debug)]
pub struct Unread<B: Backend> {
    output: StepOutput<B>,
    gradient_norm: Tensor<B, 1>,
}

impl<B: ops::AutodiffBackend> Run<B> {
    /// Trains until the run ends or pauses; its last checkpoint is then written.
    pub(super) fn steps(
        &mut self,
        learner: &mut Learner<Parts<B>>,
        train: &TrainLoader<Parts<B>>,
        valid: &ValidLoader<Parts<B>>,
        interrupter: &Interrupter,
    ) -> Result<Ended> {
        let ended = self.train(learner, train, valid, interrupter);
        let begun = Instant::now();
        let written = self.writer.finish();
        self.state.checkpoint_seconds += begun.elapsed().as_secs_f64();
        ended.and_then(|ended| written.map(|()| ended))
    }

    /// The loop: one optimizer step after another, and what is due after each.
    fn train(
        &mut self,
        learner: &mut Learner<Parts<B>>,
        train: &TrainLoader<Parts<B>>,
        valid: &ValidLoader<Parts<B>>,
        interrupter: &Interrupter,
    ) -> Result<Ended> {
        if self.state.stopping.is_stale(&self.config) {
            return Ok(Ended::EarlyStopped);
        }
        if self.state.step < self.total && self.is_paused() {
            return Ok(Ended::Paused);
        }
        let device = learner.model().devices()[0].clone();
        self.score_heads(learner, &device)?;
        allocator::keep_freed_memory();
        for batches in train.iter() {
            let begun = Instant::now();
            // Dropout is a pure function of (seed, step).
            B::seed(&device, noise_seed(self.seed, batches.step));
            learner.lr_step();
            let output = learner.train_step(batches);
            learner.optimizer_step(output.grads);
            self.count(output.item, begun);

            let (done, last) = (self.state.step, self.state.step == self.total);
            let log = done.is_multiple_of(self.config.log_every) || last;
            let validate =
                done.is_multiple_of(self.validate_every) || self.config.validate_at.contains(&done) || last;
            let save =
                last || self.config.checkpoint_every > 0 && done.is_multiple_of(self.config.checkpoint_every);
            let stop = self.should_stop(interrupter);
            let much = self.unread.len() >= MOST_UNREAD;
            if log || validate || save || stop.is_some() || much || self.progress.wants_a_loss() {
                self.read(log.then(|| learner.lr_current()))?;
            }
            self.progress.step(&self.status(learner.lr_current()));

            self.score_heads(learner, &device)?;
            let mut early = false;
            if validate {
                early = self.validate(learner, valid)?;
            }
            if save || validate && self.config.checkpoint_every == 0 || stop.is_some() || early {
                self.save(learner)?;
            }
            match stop {
                _ if last => return Ok(Ended::Completed),
                _ if early => return Ok(Ended::EarlyStopped),
                Some(ended) => return Ok(ended),
                None => {}
            }
        }
        Ok(Ended::Completed)
    }

    /// Scores the heads where `analysis.every` asks for it at this step.
    fn score_heads(&mut self, learner: &Learner<Parts<B>>, device: &B::Device) -> Result<()> {
        let (step, every) = (self.state.step, self.analysis.every);
        if every == 0 || !step.is_multiple_of(every) && step != self.total || self.heads.holds(step) {
            return Ok(());
        }
        let (scores, _) = score_heads(
            &learner.model().valid().model,
            &self.valid,
            &self.analysis,
            self.config.batch_size,
            device,
        )?;
        self.watch.check()?;
        self.heads.push(step, scores)
    }

    fn count(&mut self, output: StepOutput<B::InnerBackend>, begun: Instant) {
        self.state.step = output.step + 1;
        self.state.tokens += output.tokens as u64;
        let mut optimizer = self.optimizer.state();
        self.state.updates = optimizer.step;
        if let Some(gradient_norm) = optimizer.gradient_norm.take() {
            self.unread.push(Unread { output, gradient_norm });
        }
        drop(optimizer);
        self.state.seconds += begun.elapsed().as_secs_f64();
        self.state.elapsed = self.pace.elapsed();
    }

    fn is_paused(&self) -> bool {
        self.until.is_some_and(|step| self.state.step >= step)
    }

    fn should_stop(&self, interrupter: &Interrupter) -> Option<Ended> {
        let limit = self.config.max_minutes * 60.0;
        match () {
            () if self.signal.load(Ordering::Relaxed) != 0 => Some(Ended::Interrupted),
            () if interrupter.should_stop() => Some(Ended::Interrupted),
            () if limit > 0.0 && self.state.elapsed >= limit => Some(Ended::TimeLimit),
            () if self.is_paused() => Some(Ended::Paused),
            () => None,
        }
    }

    /// Reads what the steps since the last reading left on the device, in one go; with a learning
    /// rate, the last of them becomes a row.
    ///
    /// # Errors
    /// If a loss or a gradient is not finite: the message names the step.
    fn read(&mut self, row_rate: Option<f64>) -> Result<()> {
        let unread = std::mem::take(&mut self.unread);
        let Some(last) = unread.last().map(|unread| unread.output.clone()) else { return Ok(()) };
        let steps = unread.iter().map(|unread| unread.output.step).collect::<Vec<_>>();
        let (losses, norms) =
            unread.into_iter().map(|unread| (unread.output.loss, unread.gradient_norm)).unzip();
        let begun = Instant::now();
        let (losses, norms) = (to_host(Tensor::cat(losses, 0)), to_host(Tensor::cat(norms, 0)));
        self.watch.check()?;
        // On a device that works ahead, the wait for its results is the time of its steps.
        self.state.seconds += begun.elapsed().as_secs_f64();

        for ((&step, &loss), &norm) in steps.iter().zip(&losses).zip(&norms) {
            if !loss.is_finite() || !norm.is_finite() {
                let what = match loss.is_finite() {
                    false => format!("the loss is {loss}"),
                    true => format!("the norm of the gradients is {norm}"),
                };
                return Err(self.diverged(step + 1, what));
            }
            let clipped = self.config.max_gradient_norm > 0.0 && norm > self.config.max_gradient_norm;
            for count in [&mut self.state.clipped, &mut self.state.clipped_since_row] {
                count.0 += u64::from(clipped);
                count.1 += 1;
            }
        }
        let (loss, norm) = (losses[losses.len() - 1], norms[norms.len() - 1]);
        self.train_loss = Some(loss);
        if let Some(learning_rate) = row_rate {
            let correct = last.correct.map_or(f64::NAN, |correct| to_host(correct)[0]);
            let clipped = std::mem::take(&mut self.state.clipped_since_row);
            self.history.push(Row {
                step: last.step + 1,
                epoch: self.epoch(last.step + 1),
                split: Split::Train,
                loss,
                accuracy: correct / last.tokens as f64,
                learning_rate,
                gradient_norm: Some(norm),
                tokens: self.state.tokens,
                seconds: self.state.seconds,
                clip_rate: Some(clipped.0 as f64 / clipped.1.max(1) as f64),
            })?;
        }
        Ok(())
    }

    /// Scores the whole validation set; true when early stopping asks for the end.
    fn validate(&mut self, learner: &Learner<Parts<B>>, valid: &ValidLoader<Parts<B>>) -> Result<bool> {
        let evaluation = evaluate(&learner.model().valid().model, valid.iter());
        self.watch.check()?;
        let (step, learning_rate) = (self.state.step, learner.lr_current());
        if !evaluation.loss.is_finite() {
            let what = format!("the loss on validation is {}", evaluation.loss);
            return Err(self.diverged(step, what));
        }
        self.history.push(Row {
            step,
            epoch: self.epoch(step),
            split: Split::Valid,
            loss: evaluation.loss,
            accuracy: evaluation.accuracy,
            learning_rate,
            gradient_norm: None,
            tokens: self.state.tokens,
            seconds: self.state.seconds,
            clip_rate: None,
        })?;
        let stop = self.state.stopping.observe(self.history.rows(), &self.config);
        self.progress.validated(&self.status(learning_rate), evaluation.loss, evaluation.accuracy);

        if self.state.best.as_ref().is_none_or(|best| evaluation.loss < best.evaluation.loss) {
            self.state.best = Some(Best { step, evaluation });
            self.save(learner)?;
        }
        Ok(stop)
    }

    /// Writes a checkpoint of this step, unless there is one already, and the best weights if these are they.
    fn save(&mut self, learner: &Learner<Parts<B>>) -> Result<()> {
        if self.saved.replace(self.state.step) == Some(self.state.step) {
            return Ok(());
        }
        let begun = Instant::now();
        self.writer.finish()?;
        let weights = native::collect(&learner.model().model)?;
        let moments = checkpoint::moments_to_tensors(&self.optimizer.state(), &self.parameter_names);
        self.watch.check()?;
        if weights.iter().any(|(_, data)| data.iter::<f32>().any(|weight| !weight.is_finite())) {
            return Err(self.diverged(self.state.step, "a weight is not finite".to_string()));
        }
        self.state.metrics_bytes = self.history.bytes();
        let is_best = self.state.best.as_ref().is_some_and(|best| best.step == self.state.step);
        let size = weights.iter().chain(&moments).map(|(_, data)| data.as_bytes().len()).sum();
        let sync_rows = self.history.sync()?;
        let (folder, description, state) =
            (self.folder.clone(), self.description.clone(), self.state.clone());
        self.writer.write(size, move || {
            sync_rows()?;
            checkpoint::write(&folder, (&weights, &description), &moments, &state)?;
            if is_best {
                // The checkpoint is there before the weights that it explains.
                write_atomically(&folder.model(), &checkpoint::weights(&folder, state.step)?)?;
            }
            checkpoint::prune(&folder)
        })?;
        // Said by the next checkpoint, and by the summary.
        self.state.checkpoint_seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }

    fn diverged(&self, step: usize, what: String) -> Error {
        Error::Diverged { step, what, kept: self.folder.model() }
    }

    fn epoch(&self, step: usize) -> usize {
        step.div_ceil(self.steps_per_epoch).max(1)
    }

    fn status(&self, learning_rate: f64) -> RunStatus {
        RunStatus {
            step: self.state.step,
            total: self.total,
            epoch: self.epoch(self.state.step),
            train_loss: self.train_loss,
            learning_rate,
            tokens_per_second: self.pace.tokens_per_second(&self.state),
            seconds_left: self.pace.seconds_a_step(&self.state) * (self.total - self.state.step) as f64,
        }
    }
}

/// The seed of the noise in a step: SplitMix64's mixing of seed and step, so that neighbours have
/// nothing in common (Steele, Lea and Flood, 2014).
fn noise_seed(seed: u64, step: usize) -> u64 {
    let mut mixed = seed.wrapping_add((step as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn to_host<B: Backend>(values: Tensor<B, 1>) -> Vec<f64> {
    values.into_data().iter::<f64>().collect()
}
