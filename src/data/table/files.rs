//! The files of a table, and the lines that errors and warnings name.

use std::path::{Path, PathBuf};

use super::Table;
use crate::error::Error;

/// The files of a table, of which one is read at a time.
pub(super) struct Files {
    pub paths: Vec<PathBuf>,
    /// The index of the file that is read.
    pub current: usize,
}

/// A line of a table: the index of its file, and its number, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub file: usize,
    pub number: usize,
}

impl Table<'_> {
    /// Returns an error about a line, or about the file that is read.
    pub(super) fn problem(&self, line: Option<Line>, problem: impl Into<String>) -> Error {
        let path = line.map_or(self.path(), |line| &self.files.paths[line.file]);
        Error::in_file(path, line.map(|line| line.number), None, problem)
    }

    /// Returns the path of the file that is read.
    pub(super) fn path(&self) -> &Path {
        &self.files.paths[self.files.current]
    }

    /// Returns a line of the file that is read.
    pub(super) fn line(&self, number: usize) -> Line {
        Line { file: self.files.current, number }
    }

    /// Returns a line's number, with its file if there are several, such as "line 3" or "line 3 of b.csv".
    pub(super) fn shown(&self, Line { file, number }: Line) -> String {
        match &self.files.paths[..] {
            [_] => format!("line {number}"),
            paths => format!("line {number} of {}", paths[file].display()),
        }
    }
}
