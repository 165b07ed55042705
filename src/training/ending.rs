//! How a run ends: its best weights, its summary, and the analysis of its heads.

use std::time::Instant;

use burn::tensor::backend::AutodiffBackend;

use super::checkpoint::{self, Best};
use super::control::release;
use super::observers::{Explosion, explosion};
use super::run_folder::{Lock, RunFolder};
use super::stopping::Ended;
use super::summary::Summary;
use super::trainer::Trainer;
use crate::analysis::{Analysis, examine, shown_head};
use crate::error::{Error, Result};
use crate::files::{sha256, write_atomically};
use crate::terminal::PieceProgress;
use crate::weights::{file::WeightsFile, native};

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

impl<B: AutodiffBackend> Trainer<B> {
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
        if !self.setup.control.workers.is_first() {
            let summary = self.summary(ended);
            return Ok(Outcome { folder: self.setup.folder, summary, signal: self.requests.signal, lock });
        }
        if self.state.best.is_none() {
            // Stopped before the first validation: the newest checkpoint holds finite weights. Where the losses have
            // exploded, only the start is known to be good.
            let (newest, _) = checkpoint::newest(&self.setup.folder)?;
            self.keep_parts();
            let explosion = self.state.part::<Explosion>(explosion::NAME)?;
            let exploded = explosion.validations > 0 && ended == Ended::Diverged;
            if !exploded || checkpoint::keep_weights(&self.setup.folder, 0).is_err() {
                checkpoint::keep_weights(&self.setup.folder, newest.state.step)?;
            }
        }
        let mut summary = self.summary(ended);
        if let Some(warning) = self.nothing_gained(ended) {
            log::warn!("{warning}");
            summary.warnings.push(warning);
        }
        summary.write(&self.setup.folder)?;
        // All is saved: from here on a signal ends the program at once.
        let late_signal = release(&self.setup.control.signal);
        let signal = if self.requests.signal == 0 { late_signal } else { self.requests.signal };
        // A run that pauses or is interrupted is analysed when it ends.
        let is_analysed = signal == 0 && ended != Ended::Paused;
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
                    self.setup.folder.weights_in_words(&summary, &self.setup.config).unwrap_or_default();
                Err(Error::Diverged { step, what, advice, kept, weights })
            }
        }
    }

    /// Writes the analysis of the best weights, with progress.
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

    /// Returns the warning that no validation was better than that of the weights which the run started from.
    fn nothing_gained(&self, ended: Ended) -> Option<String> {
        let has_ended = matches!(ended, Ended::Completed | Ended::EarlyStopped | Ended::TimeLimit);
        let start = self.state.best.as_ref().filter(|best| best.step == 0)?;
        (has_ended && self.state.step > 0).then(|| {
            format!(
                "no validation was better than that of the start, {:.4} nats: model.safetensors holds the weights that the \
                 run started from. {}",
                start.evaluation.loss,
                self.setup.config.training.calmer()
            )
        })
    }

    /// Trains until the run ends or pauses; its last checkpoint is then written.
    fn train(&mut self) -> Result<Ended> {
        let ended = self.steps();
        let begun = Instant::now();
        let written = self.finish_writing();
        self.state.checkpoint_seconds += begun.elapsed().as_secs_f64();
        self.observers.iter_mut().for_each(|observer| observer.end());
        ended.and_then(|ended| written.map(|()| ended))
    }
}
