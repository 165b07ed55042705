//! The errors of drawing a picture.

use std::{io, path::PathBuf};

/// The result of drawing.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pixels of a PNG for each logical pixel are too few or too many.
    #[error("`scale` = {0} must lie between 1 and 4")]
    Scale(u32),
    /// The picture cannot be drawn or encoded.
    #[error("cannot draw: {0}")]
    Drawing(String),
    /// The file cannot be written.
    #[error("cannot write `{}`: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}
