//! From a picture's data to its file: the surface's resolution, PNG and SVG.

use std::fs;
use std::path::{Path, PathBuf};

use image::codecs::png::PngEncoder;
use image::{ColorType, ImageEncoder};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use serde::{Deserialize, Serialize};

use super::canvas::Canvas;
use super::color::{self, ColorMap};
use crate::error::{Error, Result};

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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Style {
    /// The file format.
    pub format: Format,
    /// Pixels of a PNG for each logical pixel, from 1 to [`Style::MAX_SCALE`]. Pictures are laid
    /// out 900 logical pixels wide, the width in which a README shows them; 2 keeps them sharp on
    /// high-density screens. An SVG has no pixels and ignores it.
    pub scale: u32,
    /// The colours of attention weights.
    pub color_map: ColorMap,
}

impl Default for Style {
    fn default() -> Self {
        Style { format: Format::Png, scale: 2, color_map: ColorMap::default() }
    }
}

impl Style {
    /// The largest `scale`: 4, at which a picture is 3,600 pixels wide.
    pub const MAX_SCALE: u32 = 4;

    fn check(&self) -> Result<()> {
        if (1..=Style::MAX_SCALE).contains(&self.scale) {
            return Ok(());
        }
        let problem = format!("must lie between 1 and {}", Style::MAX_SCALE);
        Err(Error::key("scale", self.scale, problem))
    }
}

/// Plain data that can be drawn.
pub trait Picture {
    /// The file name without its extension, as `loss`.
    const NAME: &'static str;

    /// Width and height in logical pixels.
    fn size(&self) -> (u32, u32);

    /// Refuses data that contradict themselves, as weights that do not fit the tokens.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Draws on a canvas of [`Picture::size`]; one function for PNG and SVG.
    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()>;

    /// Draws into `folder`, which exists, and returns the path of the file.
    fn save(&self, folder: &Path, style: &Style) -> Result<PathBuf> {
        style.check()?;
        self.check()?;
        let path = folder.join(Self::NAME).with_extension(style.format.extension());
        match style.format {
            Format::Png => write_png(&path, &raster(self, style)?)?,
            Format::Svg => {
                fs::write(&path, vector(self, style)?).map_err(|source| Error::io("write", &path, source))?
            }
        }
        Ok(path)
    }
}

/// Pixels, three bytes each, row by row.
pub(crate) struct Raster {
    pub width: u32,
    pub height: u32,
    pub rgb: Vec<u8>,
}

/// A drawn surface above this many pixels is not drawn finer than it is kept: 24 million pixels
/// are 72 MB.
const MAX_FINE_PIXELS: u64 = 24_000_000;

/// Draws a picture twice as fine as asked and averages the pixels: plotters places everything on
/// whole pixels, and this smooths edges and letter spacing.
pub(crate) fn raster<P: Picture + ?Sized>(picture: &P, style: &Style) -> Result<Raster> {
    let (width, height) = picture.size();
    let (width, height) = (width * style.scale, height * style.scale);
    let fine = if u64::from(width) * u64::from(height) * 4 <= MAX_FINE_PIXELS { 2 } else { 1 };
    let size = (width * fine, height * fine);
    let mut drawn = vec![255; size.0 as usize * size.1 as usize * 3];
    {
        let mut backend = BitMapBackend::with_buffer(&mut drawn, size);
        let unit = f64::from(style.scale * fine);
        picture.draw(&mut Canvas::new(&mut backend, Format::Png, unit, style.color_map))?;
    }
    let rgb = if fine == 1 { drawn } else { halve(&drawn, width as usize, height as usize) };
    Ok(Raster { width, height, rgb })
}

/// The mean of each two by two pixels; `width` and `height` are those of the result.
fn halve(fine: &[u8], width: usize, height: usize) -> Vec<u8> {
    let row = width * 2 * 3;
    let mut rgb = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        let (upper, lower) = fine[2 * y * row..][..2 * row].split_at(row);
        for (upper, lower) in upper.chunks_exact(6).zip(lower.chunks_exact(6)) {
            for channel in 0..3 {
                let four = [upper[channel], upper[channel + 3], lower[channel], lower[channel + 3]];
                let sum: u16 = four.into_iter().map(u16::from).sum();
                rgb.push(((sum + 2) / 4) as u8);
            }
        }
    }
    rgb
}

fn write_png(path: &Path, raster: &Raster) -> Result<()> {
    // plotters' own encoder writes the file itself and hides why it cannot.
    let mut png = Vec::new();
    PngEncoder::new(&mut png)
        .write_image(&raster.rgb, raster.width, raster.height, ColorType::Rgb8)
        .map_err(|error| Error::Failed(format!("cannot draw `{}`: {error}", path.display())))?;
    fs::write(path, png).map_err(|source| Error::io("write", path, source))
}

/// Coordinates of an SVG are whole numbers too; four of them to a logical pixel keep curves smooth.
const VECTOR_UNIT: u32 = 4;

/// Draws a picture as the text of an SVG.
pub(crate) fn vector<P: Picture + ?Sized>(picture: &P, style: &Style) -> Result<String> {
    let (width, height) = picture.size();
    let (fine_width, fine_height) = (width * VECTOR_UNIT, height * VECTOR_UNIT);
    let mut svg = String::new();
    {
        let mut backend = SVGBackend::with_string(&mut svg, (fine_width, fine_height));
        let mut canvas = Canvas::new(&mut backend, Format::Svg, f64::from(VECTOR_UNIT), style.color_map);
        canvas.fill(color::BACKGROUND)?;
        picture.draw(&mut canvas)?;
        backend.present().map_err(|error| Error::Failed(format!("cannot draw: {error}")))?;
    }
    // The view box stays fine; the size at which the picture is shown is the logical one. plotters
    // writes images under a media type that only browsers forgive.
    let fine = format!("width=\"{fine_width}\" height=\"{fine_height}\"");
    let logical = format!("width=\"{width}\" height=\"{height}\"");
    Ok(svg.replacen(&fine, &logical, 1).replace("\"data:png;base64,", "\"data:image/png;base64,"))
}
