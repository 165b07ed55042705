//! An append-only log of some steps of a run, written while the run trains.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{is_there, open_own_to_write, read_own, write_atomically};

/// A record of one step in a [`StepLog`].
pub trait AtStep: Sized {
    /// Returns the number of completed steps.
    fn step(&self) -> usize;

    /// Returns the header of the file.
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
    /// True if the file's content differs from `all`.
    is_cut: bool,
}

impl<T: AtStep> StepLog<T> {
    /// Opens the log at `path` and keeps the records up to step `last`; later steps will be done again. The log is
    /// empty if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be parsed.
    pub fn open(path: &Path, last: usize) -> Result<Self> {
        let bytes = if is_there(path) { read_own(path)? } else { Vec::new() };
        // An incomplete last line was interrupted by a crash; it is dropped.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut all = T::read(&bytes[..whole], path)?;
        all.retain(|of| of.step() <= last);
        let mut log = Self { path: path.to_path_buf(), all, is_cut: false };
        // A run of an earlier version has other columns; longer rows would not match its header.
        log.is_cut = !bytes.is_empty() && bytes != log.bytes();
        Ok(log)
    }

    /// Rewrites the file so that it holds exactly the kept records.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn cut(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_cut) {
            write_atomically(&self.path, &self.bytes())?;
        }
        Ok(())
    }

    /// Returns true if the last record is of `step`.
    pub fn holds(&self, step: usize) -> bool {
        self.all.last().is_some_and(|last| last.step() == step)
    }

    /// Appends a record in memory and on disk.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn push(&mut self, of: T) -> Result<()> {
        // A new file starts with its header.
        self.is_cut |= self.all.is_empty() || !is_there(&self.path);
        let lines = of.lines();
        self.all.push(of);
        if self.is_cut {
            return self.cut();
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
