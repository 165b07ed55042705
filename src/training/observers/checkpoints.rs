//! Checkpoints, and `model.safetensors` with the best weights.

use std::fs::File;
use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle};

use super::{ModelAccess, Moment, Observer};
use crate::error::{Error, Result};
use crate::files::open_own_to_write;
use crate::training::checkpoint::{self, CheckpointContents};
use crate::training::state::RunState;

/// The maximum size of a checkpoint that is written in the background, in bytes.
const MAX_BACKGROUND_BYTES: usize = 16 << 20;

/// The writer of checkpoints.
pub struct Checkpoints {
    /// The step and the number of rows of the last checkpoint.
    last: (usize, usize),
    /// The thread that writes the last checkpoint while training continues.
    writing: Option<JoinHandle<Result<()>>>,
}

impl Checkpoints {
    /// Returns the writer of a run that continues from the checkpoint of `state`.
    pub fn new(state: &RunState) -> Self {
        Self { last: (state.step, state.rows.len()), writing: None }
    }

    /// Waits for the checkpoint that is being written.
    fn finish_writing(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        writing.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Observer for Checkpoints {
    fn wants_checkpoint(&self, Moment { setup, state, .. }: &Moment<'_>) -> bool {
        match setup.config.training.checkpoint_every {
            0 => state.is_validated(),
            every => state.step.is_multiple_of(every),
        }
    }

    /// Writes a checkpoint unless there is one of this state already, and the best weights if this step is the best.
    fn checkpoint(&mut self, moment: &Moment<'_>, model: &dyn ModelAccess) -> Result<()> {
        let Moment { setup, state, .. } = moment;
        let (step, is_first) = (state.step, setup.control.workers.is_first());
        let now = (step, state.rows.len());
        if std::mem::replace(&mut self.last, now) == now {
            return Ok(());
        }
        let is_best = state.best.as_ref().is_some_and(|best| best.step == step);
        if step == 0 {
            // The run folder was created with this checkpoint.
            return if is_first && is_best { checkpoint::keep_weights(&setup.folder, 0) } else { Ok(()) };
        }
        self.finish_writing()?;
        let (weights, moments) = (model.weights()?, model.moments()?);
        if weights.iter().any(|(_, data)| data.iter::<f32>().any(|weight| !weight.is_finite())) {
            return Err(setup.diverged(step, "a weight is not finite".to_string()));
        }
        if !is_first {
            return Ok(());
        }
        let size = weights.iter().chain(&moments).map(|(_, data)| data.as_bytes().len()).sum::<usize>();
        let (folder, description) = (setup.folder.clone(), setup.description.clone());
        let contents = CheckpointContents { step, weights, description, moments, state: state.to_json() };
        let write = move || {
            // The checkpoint has the hash of these rows.
            let metrics = open_own_to_write(&folder.metrics(), &mut File::options())?;
            metrics.sync_data().map_err(|error| Error::io("write", folder.metrics(), error))?;
            checkpoint::write(&folder, &contents)?;
            if is_best {
                // The checkpoint is written first, because it holds the hash of the best weights.
                checkpoint::keep_weights(&folder, step)?;
            }
            checkpoint::prune(&folder)
        };
        // A small checkpoint mostly waits for the disk, so it is written in the background. A large one is not: its
        // copies of the weights and moments would add to the memory of the steps.
        if size > MAX_BACKGROUND_BYTES {
            return write();
        }
        let thread = Builder::new().name("checkpoint".into()).spawn(write);
        self.writing = Some(thread.map_err(|_| Error::Threads)?);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.finish_writing()
    }
}
