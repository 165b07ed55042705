//! An append-only log of records per step, written during training.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{has_entry, open_own_to_write, read_own, write_atomically};

/// A record of one step in a [`StepLog`].
pub trait AtStep: Sized {
    /// Returns the number of completed steps.
    fn step(&self) -> usize;

    /// Returns the header of the file; empty by default.
    fn header() -> Vec<u8> {
        Vec::new()
    }

    /// Formats the record as lines.
    fn lines(&self) -> Vec<u8>;

    /// Parses complete lines of the file at `path`.
    ///
    /// # Errors
    /// Returns an error if the lines are malformed.
    fn read(lines: &[u8], path: &Path) -> Result<Vec<Self>>;
}

/// A log file and its records.
#[derive(Debug, Clone)]
pub struct StepLog<T> {
    path: PathBuf,
    /// The records, in the order of steps.
    pub all: Vec<T>,
    /// True if the content of the file differs from `all`.
    is_stale: bool,
}

impl<T: AtStep> StepLog<T> {
    /// Opens the log at `path` and keeps the records up to step `last`, because the run repeats later steps. The log is
    /// empty if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be parsed.
    pub fn open(path: &Path, last: usize) -> Result<Self> {
        let bytes = if has_entry(path) { read_own(path)? } else { Vec::new() };
        // A crash can leave an incomplete last line, which is dropped.
        let complete = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut all = T::read(&bytes[..complete], path)?;
        all.retain(|record| record.step() <= last);
        let mut log = Self { path: path.to_path_buf(), all, is_stale: false };
        // The file may hold later records, an incomplete line, or other columns than these.
        log.is_stale = !bytes.is_empty() && bytes != log.bytes();
        Ok(log)
    }

    /// Rewrites the file if its content differs from the records.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn rewrite(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_stale) {
            write_atomically(&self.path, &self.bytes())?;
        }
        Ok(())
    }

    /// Returns true if the last record is of `step`.
    pub fn ends_at(&self, step: usize) -> bool {
        self.all.last().is_some_and(|last| last.step() == step)
    }

    /// Appends a record to the list and to the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn push(&mut self, record: T) -> Result<()> {
        // A new file starts with its header.
        self.is_stale |= self.all.is_empty() || !has_entry(&self.path);
        let lines = record.lines();
        self.all.push(record);
        if self.is_stale {
            return self.rewrite();
        }
        let mut file = open_own_to_write(&self.path, File::options().append(true))?;
        file.write_all(&lines)
            .and_then(|()| file.sync_data())
            .map_err(|error| Error::io("write", &self.path, error))
    }

    fn bytes(&self) -> Vec<u8> {
        [T::header()].into_iter().chain(self.all.iter().map(T::lines)).flatten().collect()
    }
}
