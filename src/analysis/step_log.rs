//! A file of a run that tells of some of its steps, one after the other: it is added to as they are done.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{is_there, open_own_to_write, read_own, write_atomically};

/// What such a file tells of one step.
pub trait AtStep: Sized {
    /// Steps done.
    fn step(&self) -> usize;

    /// What the lines of all steps stand below.
    fn header() -> Vec<u8> {
        Vec::new()
    }

    /// The lines of one step.
    fn lines(&self) -> Vec<u8>;

    /// Understands whole lines of the file at `path`.
    ///
    /// # Errors
    /// If they are others.
    fn read(lines: &[u8], path: &Path) -> Result<Vec<Self>>;
}

/// The file and what it tells.
#[derive(Debug, Clone)]
pub struct StepLog<T> {
    path: PathBuf,
    /// In the order of steps.
    pub all: Vec<T>,
    /// Whether the file holds something else than these.
    is_cut: bool,
}

impl<T: AtStep> StepLog<T> {
    /// The file at `path` as far as step `last`: what comes later will be done again. Empty where there is no such
    /// file.
    ///
    /// # Errors
    /// If it cannot be understood.
    pub fn open(path: &Path, last: usize) -> Result<Self> {
        let bytes = if is_there(path) { read_own(path)? } else { Vec::new() };
        // A line that was being written when the machine stopped is none.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut all = T::read(&bytes[..whole], path)?;
        all.retain(|of| of.step() <= last);
        let mut log = Self { path: path.to_path_buf(), all, is_cut: false };
        // A run of an earlier version has the columns of then, which longer rows would not fit.
        log.is_cut = !bytes.is_empty() && bytes != log.bytes();
        Ok(log)
    }

    /// Brings the file to the steps that count.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn cut(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_cut) {
            write_atomically(&self.path, &self.bytes())?;
        }
        Ok(())
    }

    /// Whether it tells of `step` already.
    pub fn holds(&self, step: usize) -> bool {
        self.all.last().is_some_and(|last| last.step() == step)
    }

    /// Adds a step, to the file too.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn push(&mut self, of: T) -> Result<()> {
        // A new file begins with its header.
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
