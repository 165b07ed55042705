//! The loop over steps, and what follows each.
//!
//! Losses and norms stay on the device until a row, a validation or a checkpoint needs them, so
//! that a step waits for nothing.

use std::sync::atomic::Ordering;
use std::time::Instant;

use burn::module::AutodiffModule;
use burn::prelude::*;
use burn::train::{Interrupter, Learner, TrainLoader, ValidLoader};

use super::run::{Course, Parts, Run, Unread};
use super::step::StepOutput;
use super::stopping::Ended;
use crate::analysis::score_heads;
use crate::error::Result;
use crate::kernels::allocator;
use crate::ops;

/// Steps whose losses stay on the device at most, however rarely somebody asks for them.
const MOST_UNREAD: usize = 256;

/// What follows a step.
struct Due {
    log: bool,
    validate: bool,
    save: bool,
    stop: Option<Ended>,
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
        let written = self.outputs.writer.finish();
        self.course.state.checkpoint_seconds += begun.elapsed().as_secs_f64();
        ended.and_then(|ended| written.map(|()| ended))
    }

    /// The loop: one optimizer step after another, and what follows each.
    fn train(
        &mut self,
        learner: &mut Learner<Parts<B>>,
        train: &TrainLoader<Parts<B>>,
        valid: &ValidLoader<Parts<B>>,
        interrupter: &Interrupter,
    ) -> Result<Ended> {
        let state = &self.course.state;
        if state.stopping.is_stale(&self.settings.config.training) {
            return Ok(Ended::EarlyStopped);
        }
        if state.step < self.settings.total && self.is_paused() {
            return Ok(Ended::Paused);
        }
        let device = learner.model().devices()[0].clone();
        self.score_heads(learner, &device)?;
        allocator::keep_freed_memory();
        for batches in train.iter() {
            let begun = Instant::now();
            // Dropout is a pure function of (seed, step).
            B::seed(&device, noise_seed(self.settings.config.run.seed, batches.step));
            learner.lr_step();
            let output = learner.train_step(batches);
            learner.optimizer_step(output.grads);
            self.count(output.item, begun);

            let Due { log, validate, save, stop } = self.due(interrupter);
            let much = self.course.unread.len() >= MOST_UNREAD;
            if log || validate || save || stop.is_some() || much || self.outputs.progress.wants_a_loss() {
                self.read(log.then(|| learner.lr_current()))?;
            }
            let status = self.status(learner.lr_current());
            self.outputs.progress.step(&status);

            self.score_heads(learner, &device)?;
            let is_stale = validate && self.validate(learner, valid)?;
            let checkpoint_at_validation = self.settings.config.training.checkpoint_every == 0;
            if save || validate && checkpoint_at_validation || stop.is_some() || is_stale {
                self.save(learner)?;
            }
            match stop {
                _ if self.is_last() => return Ok(Ended::Completed),
                _ if is_stale => return Ok(Ended::EarlyStopped),
                Some(ended) => return Ok(ended),
                None => {}
            }
        }
        Ok(Ended::Completed)
    }

    /// What follows the step that was just done.
    fn due(&self, interrupter: &Interrupter) -> Due {
        let (training, done, last) = (&self.settings.config.training, self.course.state.step, self.is_last());
        Due {
            log: done.is_multiple_of(training.log_every) || last,
            validate: self.settings.validates_at(done),
            save: last || training.checkpoint_every > 0 && done.is_multiple_of(training.checkpoint_every),
            stop: self.should_stop(interrupter),
        }
    }

    /// Scores the heads where `analysis.every` asks for it at this step.
    fn score_heads(&mut self, learner: &Learner<Parts<B>>, device: &B::Device) -> Result<()> {
        let (config, step) = (&self.settings.config, self.course.state.step);
        let every = config.analysis.every;
        let is_asked_for = every > 0 && (step.is_multiple_of(every) || self.is_last());
        if !is_asked_for || self.course.heads.holds(step) {
            return Ok(());
        }
        let model = learner.model().valid().model;
        let rows = config.training.batch_size;
        let (scores, _) = score_heads(&model, &self.settings.valid, &config.analysis, rows, device)?;
        self.outputs.watch.check()?;
        self.course.heads.push(step, scores)
    }

    fn count(&mut self, output: StepOutput<B::InnerBackend>, begun: Instant) {
        let Course { state, unread, pace, .. } = &mut self.course;
        state.step = output.step + 1;
        state.tokens += output.tokens as u64;
        let mut optimizer = self.optimizer.state();
        state.updates = optimizer.step;
        if let Some(gradient_norm) = optimizer.gradient_norm.take() {
            unread.push(Unread { output, gradient_norm });
        }
        drop(optimizer);
        state.seconds += begun.elapsed().as_secs_f64();
        state.elapsed = pace.elapsed();
    }

    fn is_paused(&self) -> bool {
        self.settings.until.is_some_and(|step| self.course.state.step >= step)
    }

    fn should_stop(&self, interrupter: &Interrupter) -> Option<Ended> {
        let limit = self.settings.config.training.max_minutes * 60.0;
        match () {
            () if self.outputs.signal.load(Ordering::Relaxed) != 0 => Some(Ended::Interrupted),
            () if interrupter.should_stop() => Some(Ended::Interrupted),
            () if limit > 0.0 && self.course.state.elapsed >= limit => Some(Ended::TimeLimit),
            () if self.is_paused() => Some(Ended::Paused),
            () => None,
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
