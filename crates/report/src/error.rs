//! The errors of drawing pictures.

use std::{io, path::PathBuf};

/// The result of drawing a picture.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of drawing or saving a picture.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The number of pixels per logical pixel is out of range.
    #[error("`scale` = {0} must be in [1, 4]")]
    Scale(u32),
    /// The picture cannot be drawn or encoded.
    #[error("cannot draw the picture: {0}")]
    Drawing(String),
    /// The file cannot be written.
    #[error("cannot write `{}`: {source}", .path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Wraps an error of drawing or encoding a picture.
pub(crate) fn failed(error: impl std::fmt::Display) -> Error {
    Error::Drawing(error.to_string())
}
