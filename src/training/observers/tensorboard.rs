//! The event file for TensorBoard, if `training.tensorboard` is on.

use std::path::PathBuf;
use std::time::SystemTime;

use super::{Moment, Observer};
use crate::error::Result;
use crate::training::metrics::Row;
use crate::training::setup::Setup;
use crate::training::tensorboard::EventFile;

/// An observer that writes an event for each row.
pub struct TensorBoard {
    /// The path of the event file.
    path: PathBuf,
    /// True if `training.tensorboard` is on.
    is_on: bool,
    file: Option<EventFile>,
}

impl TensorBoard {
    /// Returns the event file of a run, not opened yet.
    pub fn new(setup: &Setup) -> Self {
        Self { path: setup.folder.events(), is_on: setup.config.training.tensorboard, file: None }
    }
}

impl Observer for TensorBoard {
    fn file(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn start(&mut self, moment: &Moment<'_>) -> Result<()> {
        if self.is_on {
            self.file = Some(EventFile::open(self.path.clone(), &moment.state.rows, SystemTime::now())?);
        }
        Ok(())
    }

    fn row(&mut self, rows: &[Row]) -> Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.push(rows))
    }
}
