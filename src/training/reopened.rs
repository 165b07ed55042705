//! A run opened to go on: all of it is read and checked before any of it is changed.

use std::fs;

use super::checkpoint::{self, Checkpoint, State};
use super::history::{History, Row, Split};
use super::run_folder::RunFolder;
use super::stopping::Ended;
use super::summary::Summary;
use crate::analysis::HeadHistory;
use crate::config::TrainingConfig;
use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::terminal::{counted, warn};

/// A run as its newest whole checkpoint knows it.
#[derive(Debug)]
pub struct Reopened {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The rows up to there.
    pub history: History,
    /// The scores of heads up to there.
    pub heads: HeadHistory,
    /// The file of the best weights, where it must be written anew.
    best_weights: Option<Vec<u8>>,
    /// What is damaged, and what is done about it.
    warnings: Vec<String>,
}

impl Reopened {
    /// Opens the run in `folder`, which is to have `total` steps, at its newest whole checkpoint.
    ///
    /// # Errors
    /// If there is no such checkpoint, it has nothing left to do, its data is not that of `data_fingerprint`, or its history cannot
    /// be read. Nothing has been changed then.
    pub fn open(
        folder: &RunFolder,
        data_fingerprint: u64,
        config: &TrainingConfig,
        total: usize,
    ) -> Result<Self> {
        let (mut checkpoint, damaged) = checkpoint::newest(folder)?;
        let state = &mut checkpoint.state;
        if state.data_fingerprint != data_fingerprint {
            let path = folder.path().display();
            return Err(Error::Input(format!(
                "the data has changed since the run `{path}` began: restore what it was made with"
            )));
        }
        let history = History::open(&folder.metrics(), state.metrics_bytes)?;
        refuse_done(folder, state, history.rows(), config, total)?;
        let heads = HeadHistory::open(&folder.head_scores(), state.step)?;
        let from = checkpoint.path.display();
        let mut warnings =
            damaged.iter().map(|problem| format!("{problem}; going on from {from}")).collect::<Vec<_>>();
        let best_weights = best_weights(folder, state, &mut warnings);
        Ok(Self { checkpoint, history, heads, best_weights, warnings })
    }

    /// Makes the folder that of a run which stands at this checkpoint. After a kill in between, the same
    /// is found and done again.
    pub fn begin(&mut self, folder: &RunFolder, config: &str) -> Result<()> {
        for warning in &self.warnings {
            warn(&format!("warning: {warning}"));
        }
        checkpoint::remove_half_written(folder);
        checkpoint::remove_newer(folder, self.checkpoint.state.step)?;
        // How the run ended before, and how it looked then, says nothing of how it will end.
        for path in [folder.summary(), folder.report()].into_iter().filter(|path| path.exists()) {
            fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
        if fs::read(folder.config()).ok().as_deref() != Some(config.as_bytes()) {
            write_atomically(&folder.config(), config.as_bytes())?;
        }
        if let Some(weights) = self.best_weights.take() {
            write_atomically(&folder.model(), &weights)?;
        }
        self.heads.cut()?;
        self.history.cut()
    }
}

/// What the file of the best weights must hold for a run at `state`; none where it does. Best weights
/// that are lost are forgotten by the state, so that the next validation finds new ones.
fn best_weights(folder: &RunFolder, state: &mut State, warnings: &mut Vec<String>) -> Option<Vec<u8>> {
    let step = state.best.as_ref()?.step;
    let path = folder.model();
    let held = fs::read(&path).ok();
    match checkpoint::weights(folder, step) {
        Ok(weights) => (held.as_ref() != Some(&weights)).then_some(weights),
        Err(problem) if held.is_some_and(|held| checkpoint::wrote_weights(folder, step, &held)) => {
            warnings.push(format!("{problem}; {} holds the same weights and is kept", path.display()));
            None
        }
        Err(problem) => {
            warnings.push(format!("{problem}; the next validation decides anew which weights are best"));
            state.best = None;
            None
        }
    }
}

/// A run that has nothing left to do is not gone on with. One that was killed between its last
/// checkpoint and its summary has: it ends as it would have.
fn refuse_done(
    folder: &RunFolder,
    state: &State,
    rows: &[Row],
    config: &TrainingConfig,
    total: usize,
) -> Result<()> {
    let path = folder.path().display();
    let done = state.step;
    let is_validated = rows.iter().any(|row| row.split == Split::Valid && row.step == done);
    let ended =
        Summary::read(folder).ok().filter(|summary| summary.steps == done).map(|summary| summary.ended);
    // One that was killed while it was drawn ends once more, and is drawn.
    let is_drawn = folder.report().exists();
    if done == total && ended == Some(Ended::Completed) && is_drawn {
        return Err(Error::Input(format!(
            "the run `{path}` is complete with {done} of {}: add some with --set training.steps={}",
            counted(total, "step"),
            2 * total
        )));
    }
    if done > total || done == total && !is_validated {
        let done = counted(done, "step");
        let problem = format!("leaves nothing to do: the run `{path}` has done {done}; ask for more");
        return Err(match config.epochs {
            Some(epochs) => Error::key("training.epochs", epochs, problem),
            None => Error::key("training.steps", total, problem),
        });
    }
    if state.stopping.is_stale(config) && ended == Some(Ended::EarlyStopped) && is_drawn {
        return Err(Error::Input(format!(
            "the run `{path}` has stopped early after {} validations without improvement: go on with a larger \
             --set training.patience={}",
            state.stopping.stale,
            2 * config.patience
        )));
    }
    Ok(())
}
