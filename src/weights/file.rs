//! The bytes of a weights file, mapped rather than read: a model is then in memory once, not twice.

use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use crate::data::input::{self, Input};
use crate::error::{Error, Result};

/// What a file or a stream holds.
#[derive(Debug)]
pub enum FileBytes {
    /// A regular file.
    Mapped(Mmap),
    /// What came out of a pipe.
    Read(Vec<u8>),
}

impl FileBytes {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, or is no file.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |error| Error::io("read", path, error);
        match input::open(path)? {
            // SAFETY: a weights file is replaced whole by a rename, never written in place.
            Input::File(file) => unsafe { Mmap::map(&file) }.map(Self::Mapped).map_err(io),
            Input::Stream(bytes) => Ok(Self::Read(bytes)),
        }
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Read(bytes) => bytes,
        }
    }
}
