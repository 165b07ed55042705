//! A finished picture: its name, its title and what is drawn below it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::canvas::Canvas;
use super::color::{INK, MUTED};
use super::render::{raster, vector};
use super::text::Text;
use crate::error::{Error, Result};
use crate::files::write_atomically;

/// The width of every picture in logical pixels: the width in which a README shows it.
pub(crate) const WIDTH: f64 = 900.0;
/// The empty border of every picture.
pub(crate) const MARGIN: f64 = 18.0;
/// Below this line a picture's content begins; its title is above.
pub(crate) const HEADING: f64 = 64.0;

/// The file format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Pixels; shows everywhere.
    #[default]
    Png,
    /// Vectors; sharp at every size, and its text can be searched.
    Svg,
}

impl Format {
    /// The file extension, without a dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Png => "png",
            Format::Svg => "svg",
        }
    }
}

/// How pictures are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// The file format.
    pub format: Format,
    /// Pixels of a PNG for each logical pixel, from 1 to [`Style::MAX_SCALE`]. Pictures are laid
    /// out 900 logical pixels wide, the width in which a README shows them; 2 keeps them sharp on
    /// high-density screens. An SVG has no pixels and ignores it.
    pub scale: u32,
}

impl Default for Style {
    fn default() -> Self {
        Style { format: Format::Png, scale: 2 }
    }
}

impl Style {
    /// The largest `scale`: 4, at which a picture is 3,600 pixels wide.
    pub const MAX_SCALE: u32 = 4;
}

/// A picture that is ready to be saved.
pub struct Picture {
    /// The file name without its extension, as `loss`.
    pub name: &'static str,
    pub(crate) canvas: Canvas,
    height: f64,
}

impl Picture {
    /// An empty picture of this height, with its title and, below it, what is to be known about it.
    pub(crate) fn new(name: &'static str, height: f64, title: &str, note: &str) -> Self {
        let mut canvas = Canvas::default();
        let width = WIDTH - 2.0 * MARGIN;
        let look = Text::new(17.0).bold().color(INK);
        canvas.text(&look.fit(title, width), (MARGIN, 24.0), &look);
        let look = Text::new(12.0).color(MUTED);
        canvas.text(&look.fit(note, width), (MARGIN, 46.0), &look);
        Self { name, canvas, height }
    }

    /// Width and height in logical pixels.
    pub(crate) fn size(&self) -> (u32, u32) {
        (WIDTH as u32, self.height.ceil() as u32)
    }

    /// Draws into `folder`, which exists, and returns the path of the file.
    ///
    /// # Errors
    /// If the scale is out of its range, or the file cannot be written.
    pub fn save(&self, folder: &Path, style: &Style) -> Result<PathBuf> {
        if !(1..=Style::MAX_SCALE).contains(&style.scale) {
            let problem = format!("must lie between 1 and {}", Style::MAX_SCALE);
            return Err(Error::key("scale", style.scale, problem));
        }
        let bytes = match style.format {
            Format::Png => raster(&self.canvas, self.size(), style.scale)?.png()?,
            Format::Svg => vector(&self.canvas, self.size())?.into_bytes(),
        };
        let path = folder.join(self.name).with_extension(style.format.extension());
        write_atomically(&path, &bytes)?;
        Ok(path)
    }
}
