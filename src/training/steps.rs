//! The loop over steps, and what follows each.
//!
//! Losses and norms stay on the device until a row, a validation or a checkpoint needs them, so
//! that a step waits for nothing.

use std::sync::atomic::Ordering;
use std::time::Instant;

use burn::module::AutodiffModule;

use super::loader::TrainSteps;
use super::run::{Course, Run};
use super::step::StepOutput;
use super::stopping::Ended;
use crate::analysis::score_heads;
use crate::error::Result;
use crate::kernels::allocator;
use crate::ops;

/// Steps whose losses stay on the device at most, however rarely somebody asks for them.
const MOST_UNREAD: usize = 256;

impl<B: ops::AutodiffBackend> Run<B> {
    /// Trains until the run ends or pauses; its last checkpoint is then written.
    pub(super) fn train(&mut self, steps: &TrainSteps<B>) -> Result<Ended> {
        let ended = self.steps(steps);
        let begun = Instant::now();
        let written = self.outputs.writer.finish();
        self.course.state.checkpoint_seconds += begun.elapsed().as_secs_f64();
        self.outputs.progress.finish();
        ended.and_then(|ended| written.map(|()| ended))
    }

    /// The loop: one optimizer step after another, and what follows each.
    fn steps(&mut self, steps: &TrainSteps<B>) -> Result<Ended> {
        let training = self.settings.config.training.clone();
        if self.course.state.stopping.is_stale(&training) {
            return Ok(Ended::EarlyStopped);
        }
        if !self.is_last() && self.is_paused() {
            return Ok(Ended::Paused);
        }
        self.score_heads()?;
        allocator::keep_freed_memory();
        for batches in steps.iter() {
            let begun = Instant::now();
            // Dropout is a pure function of (seed, step).
            B::seed(&self.device, noise_seed(self.settings.config.run.seed, batches.step));
            self.learner.lr_step();
            let output = self.learner.train_step(batches);
            self.learner.optimizer_step(output.grads);
            self.count(output.item, begun);

            let (step, is_last, stop) = (self.course.state.step, self.is_last(), self.should_stop());
            let logs = step.is_multiple_of(training.log_every) || is_last;
            let validates = self.settings.validates_at(step);
            let is_checkpoint = match training.checkpoint_every {
                0 => validates,
                every => step.is_multiple_of(every),
            };
            let saves = is_checkpoint || is_last || stop.is_some();
            let much = self.course.unread.len() >= MOST_UNREAD;
            if logs || validates || saves || much || self.outputs.progress.wants_a_loss() {
                self.read(logs)?;
            }
            let status = self.status();
            self.outputs.progress.step(&status);

            self.score_heads()?;
            let is_stale = validates && self.validate()?;
            if saves || is_stale {
                self.save()?;
            }
            match stop {
                _ if is_last => return Ok(Ended::Completed),
                _ if is_stale => return Ok(Ended::EarlyStopped),
                Some(ended) => return Ok(ended),
                None => {}
            }
        }
        Ok(Ended::Completed)
    }

    /// Scores the heads where `analysis.every` asks for it at this step.
    fn score_heads(&mut self) -> Result<()> {
        let (config, step) = (&self.settings.config, self.course.state.step);
        let every = config.analysis.every;
        let is_asked_for = every > 0 && (step.is_multiple_of(every) || self.is_last());
        if !is_asked_for || self.course.heads.holds(step) {
            return Ok(());
        }
        let model = self.learner.model().valid().model;
        let rows = config.training.batch_size;
        let (scores, _) = score_heads(&model, &self.settings.valid, &config.analysis, rows, &self.device)?;
        self.outputs.watch.check()?;
        self.course.heads.push(step, scores)
    }

    /// Counts a step that began at `begun`.
    fn count(&mut self, output: StepOutput<B::InnerBackend>, begun: Instant) {
        let Course { state, unread, begun: (start, before), .. } = &mut self.course;
        state.step = output.step + 1;
        state.tokens += output.tokens as u64;
        let mut optimizer = self.optimizer.state();
        state.updates = optimizer.step;
        unread.extend(optimizer.gradient_norm.take().map(|norm| (output, norm)));
        state.seconds += begun.elapsed().as_secs_f64();
        state.elapsed = before.elapsed + start.elapsed().as_secs_f64();
    }

    fn is_paused(&self) -> bool {
        self.settings.control.until.is_some_and(|step| self.course.state.step >= step)
    }

    fn should_stop(&self) -> Option<Ended> {
        let limit = self.settings.config.training.max_minutes * 60.0;
        match () {
            () if self.settings.control.signal.load(Ordering::Relaxed) != 0 => Some(Ended::Interrupted),
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
