//! Where checkpoints are written: a small one takes its time waiting for the disk, which is done beside the
//! steps that follow. A large one is written at once, for its copies would add to what these steps take.

use std::thread::{Builder, JoinHandle};

use crate::error::{Error, Result};

/// Bytes of weights and moments from which a checkpoint is large.
const LARGE: usize = 16 << 20;

/// Writes one checkpoint at a time.
#[derive(Debug, Default)]
pub struct CheckpointWriter {
    writing: Option<JoinHandle<Result<()>>>,
}

impl CheckpointWriter {
    /// Does `write`, for `size` bytes, once what was begun before is written.
    ///
    /// # Errors
    /// Those of what was begun before, and, of a large checkpoint, those of `write`.
    pub fn write(&mut self, size: usize, write: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.finish()?;
        if size > LARGE {
            return write();
        }
        let thread = Builder::new().name("checkpoint".into()).spawn(write);
        let no_thread = |error| Error::Failed(format!("no thread for the checkpoint: {error}"));
        self.writing = Some(thread.map_err(no_thread)?);
        Ok(())
    }

    /// Waits for the checkpoint that is being written.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn finish(&mut self) -> Result<()> {
        match self.writing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(written)) => written,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}
