//! The end of a run: its best weights, its summary, and the analysis of its heads.

use std::time::Instant;

use burn::module::Module;
use burn::tensor::backend::AutodiffBackend;

use super::checkpoint;
use super::control::Stop;
use super::metrics::Split;
use super::observers::Moment;
use super::run_folder::{Lock, RunFolder};
use super::state::Best;
use super::stopping::Ended;
use super::summary::{Hashes, Losses, Machine, Summary, Work, speed};
use super::trainer::Trainer;
use crate::analysis::{Analysis, examine, shown_head};
use crate::error::{Error, Result};
use crate::files::{sha256, write_atomically};
use crate::numbers::{counted, thousands};
use crate::terminal::PieceProgress;
use crate::weights::{file::WeightsFile, native};

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The run folder.
    pub folder: RunFolder,
    /// The summary of the run.
    pub summary: Summary,
    /// The number of the signal that interrupted the run.
    pub signal: Option<usize>,
    /// The lock on the folder, held until the outcome is dropped. `None` on a worker that does not write.
    pub lock: Option<Lock>,
}

impl<B: AutodiffBackend> Trainer<B> {
    /// Trains the run to its end, with its folder locked by `lock`. Worker 0 writes the results.
    pub(super) fn run_to_end(mut self, lock: Option<Lock>) -> Result<Outcome> {
        let moment = Moment { setup: &self.setup, state: &self.state, is_ending: false };
        let own_advice = self.observers.iter().find_map(|observer| observer.advice(&moment));
        // A diverged run keeps and analyses its best weights.
        let (ended, diverged) = match self.train() {
            Ok(ended) => (ended, None),
            Err(Error::Diverged { step, what, advice, kept, .. }) => {
                let advice = own_advice.unwrap_or(advice);
                (Ended::Diverged, Some((step, what, advice, kept)))
            }
            Err(error) => return Err(error),
        };
        if !self.setup.control.workers.is_first() {
            let summary = self.summary(ended);
            let signal = self.signal();
            return Ok(Outcome { folder: self.setup.folder, summary, signal, lock });
        }
        if self.state.best.is_none() {
            // The run stopped before its first validation, and the newest checkpoint holds finite weights. If the
            // losses have exploded, only the initial weights can be trusted.
            let (newest, _) = checkpoint::newest(&self.setup.folder)?;
            let trusts = self.observers.iter().all(|observer| observer.trusts_weights());
            if trusts || ended != Ended::Diverged || checkpoint::keep_weights(&self.setup.folder, 0).is_err()
            {
                checkpoint::keep_weights(&self.setup.folder, newest.state.step)?;
            }
        }
        let mut summary = self.summary(ended);
        if let Some(warning) = self.no_improvement_warning(ended) {
            log::warn!("{warning}");
            summary.warnings.push(warning);
        }
        if let Some(warning) = self.unvalidated_steps_warning(ended) {
            log::warn!("{warning}");
            summary.warnings.push(warning);
        }
        summary.write(&self.setup.folder)?;
        // Everything is saved, so a signal ends the program immediately.
        let late_signal = self.setup.control.signal.stop_deferring();
        let signal = self.signal().or(late_signal);
        // Skip the analysis of a paused or interrupted run; it is done when the run completes.
        let is_analysed = signal.is_none() && ended != Ended::Paused;
        if let Some(best) = self.state.best.as_ref().filter(|_| is_analysed) {
            let analysis = self.analyse(best)?;
            summary.hashes.analysis_sha256 = sha256(&self.setup.folder.analysis()).ok();
            summary.heads_worth_most = analysis.heads.iter().map(|layer| shown_head(layer)).collect();
            summary.write(&self.setup.folder)?;
        }
        match diverged {
            None => Ok(Outcome { folder: self.setup.folder, summary, signal, lock }),
            Some((step, what, advice, kept)) => {
                let weights =
                    self.setup.folder.describe_weights(&summary, &self.setup.config).unwrap_or_default();
                Err(Error::Diverged { step, what, advice, kept, weights })
            }
        }
    }

    /// Returns the number of the signal that stopped the run.
    fn signal(&self) -> Option<usize> {
        match self.state.stop {
            Some(Stop::Signal(signal)) => Some(signal),
            Some(Stop::TimeLimit) | None => None,
        }
    }

    /// Analyses the best weights, shows the progress, and writes the analysis.
    fn analyse(&self, best: &Best) -> Result<Analysis> {
        let weights = WeightsFile::open_own(self.setup.folder.model())?;
        let (model, _) = native::load_model::<B::InnerBackend>(&weights, &self.learning.device)?;
        let (config, trained) = (&self.setup.config, self.state.tokens);
        let heads = config.model.heads * config.model.blocks();
        let progress =
            PieceProgress::of(self.setup.control.progress, heads, "heads analysed; the run is saved");
        let ablated = |heads: u64| progress.done(heads as usize);
        let best = (best.step, &best.evaluation);
        let analysis =
            examine(&model, &self.setup.dataset, config, best, trained, ablated, &self.learning.device)?;
        self.learning.watch.check()?;
        let json = serde_json::to_vec(&analysis).expect("an analysis holds plain values");
        write_atomically(&self.setup.folder.analysis(), &json)?;
        Ok(analysis)
    }

    /// Returns a warning if no validation was better than the validation of the initial weights.
    fn no_improvement_warning(&self, ended: Ended) -> Option<String> {
        /// The change of the loss, in nats, below which the weights have hardly moved.
        const MIN_CHANGE: f64 = 1e-4;
        let has_ended = matches!(ended, Ended::Completed | Ended::EarlyStopped | Ended::TimeLimit);
        let start = self.state.best.as_ref().filter(|best| best.step == 0)?;
        // Without a validation after the start, nothing was compared.
        let last = self.state.last(Split::Valid).filter(|row| row.step > 0)?.loss;
        let advice = match (last - start.evaluation.loss).abs() < MIN_CHANGE {
            true => "The loss hardly changed; raise training.learning_rate".to_string(),
            false => self.setup.config.training.divergence_advice(),
        };
        (has_ended && self.state.step > 0).then(|| {
            format!(
                "no validation was better than the first one, {:.4} nats; model.safetensors has the weights \
                at the start of the run. {}",
                start.evaluation.loss, advice
            )
        })
    }

    /// Returns a warning if the run stopped before its first validation, or at the time limit after its last one.
    fn unvalidated_steps_warning(&self, ended: Ended) -> Option<String> {
        let Some(best) = &self.state.best else {
            let has_stopped = matches!(ended, Ended::Paused | Ended::Interrupted) && self.state.step > 0;
            return has_stopped.then(|| {
                format!(
                    "the run stopped before its first validation; model.safetensors has the weights of step {}, \
                     whose validation loss is unknown",
                    thousands(self.state.step as f64)
                )
            });
        };
        let last = self.state.last(Split::Valid)?.step;
        let is_between = ended == Ended::TimeLimit && last < self.state.step;
        is_between.then(|| {
            format!(
                "the time limit was reached {} after the last validation; model.safetensors has the weights \
                of step {}, and train --resume with a larger training.max_minutes continues from step {}",
                counted(self.state.step - last, "step"),
                thousands(best.step as f64),
                thousands(self.state.step as f64)
            )
        })
    }

    /// Trains until the run ends or pauses, and waits for its last checkpoint.
    pub(super) fn train(&mut self) -> Result<Ended> {
        let ended = self.steps();
        let begun = Instant::now();
        let ends = self.observers.iter_mut().map(|observer| observer.end());
        let written = ends.fold(Ok(()), Result::and);
        self.state.time.checkpoint_seconds += begun.elapsed().as_secs_f64();
        ended.and_then(|ended| written.map(|()| ended))
    }

    /// Returns the summary of the run, once `model.safetensors` is written.
    pub(super) fn summary(&self, ended: Ended) -> Summary {
        let (state, device) = (&self.state, &self.setup.control.device);
        let best = state.best.as_ref();
        let guesses = state.provenance.guesses.iter().filter(|guess| !self.setup.warnings.contains(guess));
        Summary {
            losses: Losses {
                best_valid_loss: best.map(|best| best.evaluation.loss),
                best_step: best.map(|best| best.step),
                last_valid_loss: state.last(Split::Valid).map(|row| row.loss),
                last_train_loss: state.last(Split::Train).map(|row| row.loss),
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
                clip_rate: state.clipping.rate(),
            },
            machine: Machine {
                backend: device.backend_name(),
                device: device.name.clone(),
                workers: self.setup.control.workers.count(),
            },
            seed: self.setup.config.run.seed,
            ended,
            diverged_step: (ended == Ended::Diverged).then_some(state.step),
            heads_worth_most: Vec::new(),
            imported_from: None,
            hashes: Hashes::of(&self.setup.folder),
            warnings: self
                .setup
                .warnings
                .iter()
                .chain(guesses)
                .chain(&state.provenance.changes)
                .cloned()
                .collect(),
        }
    }
}
