//! The style of picture files: their format, their resolution and their width.

use super::picture::WIDTH;

/// The file format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureFormat {
    /// Pixels; supported everywhere.
    Png,
    /// Vectors; sharp at every size, with searchable text.
    Svg,
    /// Vectors with embedded fonts, for papers.
    Pdf,
}

impl PictureFormat {
    /// Returns the extension of file names.
    pub fn extension(self) -> &'static str {
        match self {
            PictureFormat::Png => "png",
            PictureFormat::Svg => "svg",
            PictureFormat::Pdf => "pdf",
        }
    }
}

/// The format and the resolution of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// The file format.
    pub format: PictureFormat,
    /// The number of pixels in a PNG per logical pixel, from 1 to 4. Pictures are 900 logical pixels wide, their width
    /// in a README; a scale of 2 keeps them sharp on high-density screens. Ignored for an SVG.
    pub scale: u32,
    /// The width of a PDF in points. The default is the text width of common papers in two columns, 6.75 inches.
    pub width: u32,
}

impl Style {
    /// The least width of a PDF in points; the columns of common papers are wider.
    pub const MIN_WIDTH: u32 = 216;

    /// Returns the width for which a picture is drawn, in logical pixels. A PDF is laid out for its own width, with at
    /// least 0.75 points per pixel: its smallest text has 6 points.
    pub fn logical_width(&self) -> f64 {
        const POINTS_PER_PIXEL: f64 = 0.75;
        match self.format {
            PictureFormat::Png | PictureFormat::Svg => WIDTH,
            PictureFormat::Pdf => {
                (f64::from(self.width.max(Self::MIN_WIDTH)) / POINTS_PER_PIXEL).floor().min(WIDTH)
            }
        }
    }
}

impl Default for Style {
    fn default() -> Self {
        Style { format: PictureFormat::Png, scale: 2, width: 486 }
    }
}
