//! The story of a run: the loop over steps, what follows each, and how it ends.
//!
//! Losses and norms stay on the device until a row, a validation or a checkpoint needs them, so
//! that a step waits for nothing.

use std::{sync::atomic::Ordering, time::Instant};

use burn::module::{AutodiffModule, Module};
use burn::tensor::backend::AutodiffBackend;
use burn::train::TrainStep;

use super::checkpoint::{self, Best};
use super::control::release;
use super::gradients::{self, Learned, Notes, SIGNALS};
use super::loader::train_steps;
use super::run::Run;
use super::run_folder::{Lock, RunFolder};
use super::side_by_side;
use super::step::{StepBatches, StepOutput};
use super::stopping::Ended;
use super::summary::Summary;
use crate::analysis::{Analysis, ScoredStep, Snapshot, examine, is_taken, look_at, score_heads, shown_head};
use crate::error::{Error, Result};
use crate::files::{sha256, write_atomically};
use crate::kernels::allocator;
use crate::ops::{self, sum_in_order};
use crate::terminal::PieceProgress;
use crate::weights::{file::WeightsFile, native};
use crate::workers::Shards;

/// Steps whose losses stay on the device at most, however rarely somebody asks for them.
const MOST_UNREAD: usize = 256;

/// What a run leaves behind.
#[derive(Debug)]
pub struct Outcome {
    /// Its folder.
    pub folder: RunFolder,
    /// How it ended.
    pub summary: Summary,
    /// The signal that interrupted it; 0: none.
    pub signal: usize,
    /// The folder stays taken until the outcome is dropped; none on a worker that does not write.
    pub lock: Option<Lock>,
}

impl<B: AutodiffBackend> Run<B> {
    /// Trains the run, whose folder `lock` takes, to its end. Worker 0 writes down what came of it.
    pub(super) fn conduct(mut self, lock: Option<Lock>) -> Result<Outcome> {
        // A run that diverged keeps its best weights, and shows them.
        let (ended, diverged) = match self.train() {
            Ok(ended) => (ended, None),
            Err(Error::Diverged { step, what, advice, kept, .. }) => {
                (Ended::Diverged, Some((step, what, advice, kept)))
            }
            Err(error) => return Err(error),
        };
        if !self.control.workers.is_first() {
            let summary = self.summary(ended);
            return Ok(Outcome { folder: self.folder, summary, signal: self.signal, lock });
        }
        if self.state.best.is_none() {
            // Stopped before the first validation: the newest checkpoint holds finite weights. Where the losses have
            // exploded, only the start is known to be good.
            let (newest, _) = checkpoint::newest(&self.folder)?;
            let exploded = self.state.explosion.validations > 0 && ended == Ended::Diverged;
            if !exploded || checkpoint::keep_weights(&self.folder, 0).is_err() {
                checkpoint::keep_weights(&self.folder, newest.state.step)?;
            }
        }
        let mut summary = self.summary(ended);
        if let Some(warning) = self.nothing_gained(ended) {
            log::warn!("{warning}");
            summary.warnings.push(warning);
        }
        summary.write(&self.folder)?;
        // All is saved: from here on a signal ends the program at once.
        let late_signal = release(&self.control.signal);
        let signal = if self.signal == 0 { late_signal } else { self.signal };
        // A run that pauses or is interrupted is analysed when it ends.
        let is_analysed = signal == 0 && ended != Ended::Paused;
        if let Some(best) = self.state.best.as_ref().filter(|_| is_analysed) {
            let analysis = self.analyse(best)?;
            summary.hashes.analysis_sha256 = sha256(&self.folder.analysis()).ok();
            summary.heads_worth_most = analysis.heads.iter().map(|layer| shown_head(layer)).collect();
            summary.write(&self.folder)?;
        }
        match diverged {
            None => Ok(Outcome { folder: self.folder, summary, signal, lock }),
            Some((step, what, advice, kept)) => {
                let weights = self.folder.weights_in_words(&summary, &self.config).unwrap_or_default();
                Err(Error::Diverged { step, what, advice, kept, weights })
            }
        }
    }

    /// Writes the analysis of the best weights, with progress.
    fn analyse(&self, best: &Best) -> Result<Analysis> {
        let weights = WeightsFile::open_own(self.folder.model())?;
        let (model, _) = native::load_model::<B::InnerBackend>(&weights, &self.device)?;
        let (config, trained) = (&self.config, self.state.tokens);
        let heads = config.model.heads * config.model.blocks();
        let progress = PieceProgress::of(self.control.progress, heads, "heads analysed; the run is saved");
        let ablated = |heads: u64| progress.done(heads as usize);
        let best = (best.step, &best.evaluation);
        let analysis = examine(&model, &self.dataset, config, best, trained, ablated, &self.device)?;
        self.watch.check()?;
        let json = serde_json::to_vec(&analysis).expect("an analysis holds plain values");
        write_atomically(&self.folder.analysis(), &json)?;
        Ok(analysis)
    }

    /// Returns the warning that no validation was better than that of the weights which the run started from.
    fn nothing_gained(&self, ended: Ended) -> Option<String> {
        let has_ended = matches!(ended, Ended::Completed | Ended::EarlyStopped | Ended::TimeLimit);
        let start = self.state.best.as_ref().filter(|best| best.step == 0)?;
        (has_ended && self.state.step > 0).then(|| {
            format!(
                "no validation was better than that of the start, {:.4} nats: model.safetensors holds the weights that the \
                 run started from. {}",
                start.evaluation.loss,
                self.config.training.calmer()
            )
        })
    }

    /// Trains until the run ends or pauses; its last checkpoint is then written.
    fn train(&mut self) -> Result<Ended> {
        let ended = self.steps();
        let begun = Instant::now();
        let written = self.finish_writing();
        self.state.checkpoint_seconds += begun.elapsed().as_secs_f64();
        self.progress.finish();
        ended.and_then(|ended| written.map(|()| ended))
    }

    /// Does what is due before the next step, and returns how the run ends where there is none.
    fn ends_at_once(&mut self) -> Result<Option<Ended>> {
        if self.state.stopping.is_stale(&self.config.training) {
            return Ok(Some(Ended::EarlyStopped));
        }
        if !self.is_last() && self.is_paused() {
            return Ok(Some(Ended::Paused));
        }
        self.score_heads()?;
        self.take_snapshot()?;
        let is_stale = self.catch_up()?;
        match self.should_stop() {
            _ if is_stale && !self.is_last() => Ok(Some(Ended::EarlyStopped)),
            Some(Ended::Interrupted) => Ok(Some(Ended::Interrupted)),
            _ => Ok(None),
        }
    }

    /// The loop: one optimizer step after another, and what follows each.
    fn steps(&mut self) -> Result<Ended> {
        if let Some(ended) = self.ends_at_once()? {
            return Ok(ended);
        }
        let training = self.config.training.clone();
        allocator::keep_freed_memory();
        let left = self.state.step..self.total;
        for shards in train_steps::<B>(&self.config, &self.dataset, left, self.shards.clone(), &self.device) {
            let begun = Instant::now();
            self.learner.lr_step();
            let output = self.learn(shards)?;
            self.learner.optimizer_step(output.grads);
            self.count(output.item, begun);

            let (step, is_last, mut stop) = (self.state.step, self.is_last(), self.should_stop());
            let logs = training.logs(step, self.total, self.steps_per_epoch);
            // What is due here besides is done when the run resumes.
            let is_cut_short = stop == Some(Ended::Interrupted) && !self.is_paused();
            let validates = self.validates() && !is_cut_short;
            let is_checkpoint = match training.checkpoint_every {
                0 => validates,
                every => step.is_multiple_of(every),
            };
            let saves = is_checkpoint || is_last || stop.is_some();
            let much = self.unread.len() >= MOST_UNREAD;
            if logs || validates || saves || much || self.shows_loss {
                self.read(logs)?;
            }
            let status = self.status();
            self.progress.step(&status);

            if !is_cut_short {
                self.score_heads()?;
                self.take_snapshot()?;
            }
            let is_stale = validates && self.validate()?;
            if validates && !self.is_validated() {
                stop = self.should_stop();
            }
            if saves || is_stale || stop.is_some() {
                self.save()?;
            }
            match stop {
                _ if is_last && self.is_validated() => return Ok(Ended::Completed),
                _ if is_stale => return Ok(Ended::EarlyStopped),
                Some(ended) => return Ok(ended),
                None => {}
            }
        }
        Ok(Ended::Completed)
    }

    /// What all workers have learned from a step, of which these are the shards of this one.
    fn learn(&mut self, shards: Vec<StepBatches<B>>) -> Result<Learned<B>> {
        let first = shards.first().expect("every worker has a shard");
        let (is_measured, tokens, step) = (first.measured, first.tokens, first.step);
        let mut notes =
            Notes { signals: [0.0; 3], is_late: self.is_late(), shows_loss: self.progress.wants_a_loss() };
        let Self { learner, config, device, control, at_once, shards: Shards { count, .. }, .. } = self;
        let draws_by_thread = *count > 1 && ops::is_on_host::<B>();
        let seed = |shard: &StepBatches<B>| {
            // Dropout is a pure function of (seed, step, shard).
            let seed = noise_seed(config.run.seed, shard.step, shard.shard);
            match draws_by_thread {
                true => ops::seed_this_thread(seed),
                false => ops::seed::<B>(device, seed),
            }
        };
        let model = learner.model();
        let learn = |group: Vec<StepBatches<B>>| -> Vec<Learned<B>> {
            let group = group.into_iter().filter(|shard| !shard.batches.is_empty());
            if *at_once == 1 {
                return group.map(|shard| (seed(&shard), learner.train_step(shard)).1).collect();
            }
            // Autodiff computes one gradient at a time of models that share their parameters.
            let group = group.map(|shard| (model.clone().fork(device), shard)).collect();
            side_by_side::map(*at_once, group, |(model, shard)| (seed(&shard), model.step(shard)).1)
        };
        // As many at once as the memory holds beside the model: the sum is the same.
        let together = gradients::together(&model);
        let mut shards = shards.into_iter();
        let sums = std::iter::from_fn(|| {
            let group = shards.by_ref().take(together).collect::<Vec<_>>();
            (!group.is_empty()).then(|| gradients::sum(&model, learn(group)))
        });
        let learned =
            sum_in_order(sums, |left, right| gradients::sum(&model, [left, right]).expect("there are two"));
        let heard = control.signal.load(Ordering::Relaxed);
        if control.workers.count() == 1 {
            (self.signal, self.is_late, self.shows_loss) = (heard, notes.is_late, notes.shows_loss);
            return Ok(learned.expect("a step has a sequence"));
        }
        let is_first = control.workers.is_first();
        notes.signals = SIGNALS.map(|signal| f32::from(heard == signal));
        (notes.is_late, notes.shows_loss) = (is_first && notes.is_late, is_first && notes.shows_loss);
        let about = (is_measured, tokens, step);
        let (learned, notes) = self.exchange.sum(&control.workers, &model, learned, about, notes)?;
        let heard = SIGNALS.into_iter().zip(notes.signals).find(|(_, workers)| *workers > 0.0);
        self.signal = heard.map_or(0, |(signal, _)| signal);
        (self.is_late, self.shows_loss) = (notes.is_late, notes.shows_loss);
        Ok(learned)
    }

    /// Whether the run has taken the time that it may take.
    fn is_late(&self) -> bool {
        let limit = self.config.training.max_minutes * 60.0;
        let (start, before) = &self.begun;
        limit > 0.0 && before.elapsed + start.elapsed().as_secs_f64() >= limit
    }

    /// Scores the heads where `analysis.every` asks for it at this step.
    fn score_heads(&mut self) -> Result<()> {
        let (config, step) = (&self.config, self.state.step);
        let every = config.analysis.every;
        let is_asked_for = every > 0 && (step.is_multiple_of(every) || self.is_last());
        if !is_asked_for || self.heads.holds(step) {
            return Ok(());
        }
        // A run that has diverged has no scores.
        self.read(false)?;
        if !self.control.workers.is_first() {
            return Ok(());
        }
        let config = &self.config;
        let model = self.learner.model().valid().model;
        let rows = config.training.batch_size;
        let (scores, _) = score_heads(&model, &self.dataset.valid, &config.analysis, rows, &self.device)?;
        self.watch.check()?;
        self.heads.push(ScoredStep { step, heads: scores })
    }

    /// Looks at one sequence where `analysis.snapshots` asks for it at this step.
    fn take_snapshot(&mut self) -> Result<()> {
        let step = self.state.step;
        let (snapshots, sample) = &self.snapshots;
        let is_asked_for =
            is_taken(step, self.total, self.config.analysis.snapshots) && !snapshots.holds(step);
        let Some(sample) = sample.clone().filter(|_| is_asked_for) else { return Ok(()) };
        // A run that has diverged shows nothing.
        self.read(false)?;
        if !self.control.workers.is_first() {
            return Ok(());
        }
        let model = self.learner.model().valid().model;
        let (view, _) = look_at(&model, &sample, None::<fn(u64)>, &self.device)?;
        self.watch.check()?;
        self.snapshots.0.push(Snapshot::new(step, &sample, &view))
    }

    /// Counts a step that began at `begun`.
    fn count(&mut self, mut output: StepOutput<B::InnerBackend>, begun: Instant) {
        let Self { state, begun: (start, before), .. } = self;
        state.step = output.step + 1;
        state.tokens += output.tokens as u64;
        let mut optimizer = self.optimizer.state();
        state.updates = optimizer.step;
        output.gradient_norm = optimizer.gradient_norm.take();
        output.began = state.seconds;
        self.unread.push(output);
        state.seconds += begun.elapsed().as_secs_f64();
        state.elapsed = before.elapsed + start.elapsed().as_secs_f64();
    }

    /// Whether a validation follows the step that was just done.
    pub(super) fn validates(&self) -> bool {
        self.config.training.validates(self.state.step, self.total, self.steps_per_epoch)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.control.until.is_some_and(|step| self.state.step >= step)
    }

    fn should_stop(&mut self) -> Option<Ended> {
        if self.control.workers.count() == 1 && self.control.is_interrupted() {
            self.signal = self.control.signal.load(Ordering::Relaxed);
        }
        if self.signal != 0 {
            Some(Ended::Interrupted)
        } else if self.is_late {
            Some(Ended::TimeLimit)
        } else if self.is_paused() {
            Some(Ended::Paused)
        } else {
            None
        }
    }
}

/// The seed of the noise in a shard of a step: SplitMix64's mixing of seed, step and shard, so that neighbours have
/// nothing in common (Steele, Lea and Flood, 2014).
fn noise_seed(seed: u64, step: usize, shard: usize) -> u64 {
    let mix = |seed: u64, number: usize| {
        let mut mixed = seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let of_step = mix(seed, step);
    if shard == 0 { of_step } else { mix(of_step, shard) }
}
