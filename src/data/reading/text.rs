//! A summary of the files of a text, to check before training.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::data::config::Source;

/// The maximum number of files that the summary names.
const MAX_NAMED_FILES: usize = 5;

/// The files of a text, and warnings about them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TextReading {
    /// The number of files.
    pub files: usize,
    /// The total size in bytes.
    pub bytes: usize,
    /// The number of files with the extension of a table, and the first such file.
    #[serde(skip)]
    pub(crate) tables: (usize, PathBuf),
    /// The first files in reading order. Their paths are relative to the folder, if `data.path` is one.
    pub first: Vec<String>,
    /// Warnings to read before training.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

impl TextReading {
    /// Counts a file, and keeps its name if it is one of the first.
    pub(in crate::data) fn add(&mut self, name: String, path: &Path, bytes: usize) {
        self.files += 1;
        self.bytes += bytes;
        if Source::of(path) == Source::Table {
            let (count, first) = &mut self.tables;
            *count += 1;
            if *count == 1 {
                *first = path.to_path_buf();
            }
        }
        if self.first.len() < MAX_NAMED_FILES {
            self.first.push(name);
        }
    }
}
