//! Rendering of pictures to files: to PNG and SVG with plotters' backends.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ab_glyph::{Font, Glyph, point};
use base64::{Engine, prelude::BASE64_STANDARD as STANDARD};
use image::imageops::{self, FilterType};
use image::{ImageFormat, Rgb, RgbImage, Rgba, codecs::png::PngEncoder};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle,
};

use super::color::BACKGROUND;
use super::fonts::FontFace;
use super::layout::{Line, PlacedGlyph, lay_out};
use super::pdf::pdf;
use super::picture::{Coordinates, Picture, Pixels, Rect, Shape, magnified, sampled};
use super::style::{PictureFormat, Style};
use super::text::{HALF_CAPITAL, Text};
use crate::error::{Error, Result, failed};

/// The font family in an SVG. Viewers without DejaVu use Verdana, which has the same width.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";
/// The maximum number of pixels for drawing at twice the resolution; they take 72 MB.
const MAX_FINE_PIXELS: u64 = 24_000_000;
/// The resolution of an SVG: four units per logical pixel keep curves smooth, since plotters rounds its coordinates to
/// integers.
const VECTOR_UNIT: u32 = 4;

impl Picture {
    /// Returns the bytes of a PNG with `scale` pixels per logical pixel, 1 to 4.
    ///
    /// # Errors
    /// [`Error::Scale`] if the scale is out of range.
    pub fn to_png(&self, scale: u32) -> Result<Vec<u8>> {
        if !(1..=4).contains(&scale) {
            return Err(Error::Scale(scale));
        }
        let mut png = Vec::new();
        raster(self, scale)?.write_with_encoder(PngEncoder::new(&mut png)).map_err(failed)?;
        Ok(png)
    }

    /// Returns the contents of the file in the given style.
    ///
    /// # Errors
    /// [`Error::Scale`] if the scale of a PNG is out of range.
    pub fn encode(&self, style: &Style) -> Result<Vec<u8>> {
        match style.format {
            PictureFormat::Png => self.to_png(style.scale),
            PictureFormat::Svg => self.to_svg().map(String::into_bytes),
            PictureFormat::Pdf => pdf(self, f64::from(style.width)),
        }
    }

    /// Returns the file name in the given style, such as `loss.png`.
    pub fn file_name(&self, style: &Style) -> String {
        format!("{}.{}", self.name, style.format.extension())
    }

    /// Writes the file into the existing `folder` and returns its path.
    ///
    /// # Errors
    /// If the scale of a PNG is out of range or the file cannot be written.
    pub fn save(&self, folder: &Path, style: &Style) -> Result<PathBuf> {
        let (path, bytes) = (folder.join(self.file_name(style)), self.encode(style)?);
        std::fs::write(&path, bytes).map_err(|source| Error::Io { path: path.clone(), source })?;
        Ok(path)
    }

    /// Returns the picture as an SVG.
    ///
    /// # Errors
    /// If a shape cannot be drawn.
    pub fn to_svg(&self) -> Result<String> {
        let (width, height) = self.size();
        let (fine_width, fine_height) = (width * VECTOR_UNIT, height * VECTOR_UNIT);
        let mut svg = String::new();
        let images = {
            let backend = SVGBackend::with_string(&mut svg, (fine_width, fine_height));
            let unit = f64::from(VECTOR_UNIT);
            let mut surface = Surface::new(backend, Some(Vec::new()), unit, self.above());
            let background =
                Rect { left: 0.0, top: -self.above(), width: f64::from(width), height: f64::from(height) };
            surface.shape(&Shape::Rect { rect: background, color: BACKGROUND })?;
            surface.draw(self)?;
            surface.backend.present().map_err(failed)?;
            surface.images.unwrap_or_default()
        };
        // The view box keeps the fine units, but the picture is displayed at its logical size.
        let fine = format!("width=\"{fine_width}\" height=\"{fine_height}\"");
        let logical = format!("width=\"{width}\" height=\"{height}\"");
        let svg = svg.replacen(&fine, &logical, 1);
        let mut parts = svg.split("<image ");
        let mut complete = parts.next().unwrap_or_default().to_string();
        for (part, image) in parts.zip(images) {
            complete += &image;
            complete += part.split_once("/>").map_or("", |(_, after)| after);
        }
        Ok(complete)
    }
}

/// Draws a picture at twice the resolution and averages the pixels. plotters rounds coordinates to pixels; averaging
/// smooths edges and letter spacing.
pub(crate) fn raster(picture: &Picture, scale: u32) -> Result<RgbImage> {
    let (width, height) = picture.size();
    let (width, height) = (width * scale, height * scale);
    let fine = if u64::from(width) * u64::from(height) * 4 <= MAX_FINE_PIXELS { 2 } else { 1 };
    let size = (width * fine, height * fine);
    // `RgbImage::from_pixel` fills pixel by pixel, which takes as long as drawing.
    let mut drawn = vec![255; 3 * size.0 as usize * size.1 as usize];
    let backend = BitMapBackend::with_buffer(&mut drawn, size);
    Surface::new(backend, None, f64::from(scale * fine), picture.above()).draw(picture)?;
    let pixels = if fine == 1 { drawn } else { halved(&drawn, 3 * size.0 as usize) };
    RgbImage::from_raw(width, height, pixels).ok_or_else(|| failed("the buffer has too few pixels"))
}

/// Halves the width and height of an image with rows of `row` bytes: each pixel is the mean of four. Plain loops,
/// because calls of closures are not inlined in an incremental build.
fn halved(pixels: &[u8], row: usize) -> Vec<u8> {
    let mut means = vec![0; pixels.len() / 4];
    let mut sums = vec![0u16; row];
    for (rows, means) in pixels.chunks_exact(2 * row).zip(means.chunks_exact_mut(row / 2)) {
        let (above, below) = rows.split_at(row);
        if above == below && is_uniform(above) {
            means.copy_from_slice(&above[..row / 2]);
            continue;
        }
        for ((sum, above), below) in sums.iter_mut().zip(above).zip(below) {
            *sum = u16::from(*above) + u16::from(*below);
        }
        for (mean, pair) in means.chunks_exact_mut(3).zip(sums.chunks_exact(6)) {
            mean[0] = ((pair[0] + pair[3] + 2) / 4) as u8;
            mean[1] = ((pair[1] + pair[4] + 2) / 4) as u8;
            mean[2] = ((pair[2] + pair[5] + 2) / 4) as u8;
        }
    }
    means
}

/// Returns true if all pixels of a row have the same colour.
fn is_uniform(row: &[u8]) -> bool {
    row.get(3..).is_none_or(|next| row[..next.len()] == *next)
}

/// A plotters backend that receives the shapes of a picture.
struct Surface<B> {
    backend: B,
    /// The elements of an SVG that hold its images, for which plotters draws placeholders: it would encode each pixel
    /// on the screen instead of each cell. `None` for a bitmap.
    images: Option<Vec<String>>,
    /// The number of device pixels per logical pixel.
    unit: f64,
    /// The height of the picture above 0, see `Picture::above`.
    above: f64,
}

impl<B: DrawingBackend> Surface<B> {
    fn new(backend: B, images: Option<Vec<String>>, unit: f64, above: f64) -> Self {
        Self { backend, images, unit, above }
    }

    fn draw(&mut self, picture: &Picture) -> Result<()> {
        picture.all_shapes().try_for_each(|shape| self.shape(shape))
    }

    fn device(&self, (x, y): Coordinates) -> (i32, i32) {
        ((x * self.unit).round() as i32, ((y + self.above) * self.unit).round() as i32)
    }

    fn corners(&self, rect: Rect) -> [(i32, i32); 2] {
        [(rect.left, rect.top), (rect.right(), rect.bottom())].map(|corner| self.device(corner))
    }

    fn shape(&mut self, shape: &Shape) -> Result<()> {
        match shape {
            Shape::Rect { rect, color } => {
                let [from, to] = self.corners(*rect);
                self.backend.draw_rect(from, to, &color.filled(), true).map_err(failed)
            }
            Shape::Line { points, color, width } => self.line(points, *color, *width),
            Shape::Dot { center, radius, color } => {
                let radius = (radius * self.unit).round().max(1.0) as u32;
                let center = self.device(*center);
                self.backend.draw_circle(center, radius, &color.filled(), true).map_err(failed)
            }
            Shape::Text { text, point, style } if self.images.is_none() => self.glyphs(text, *point, style),
            Shape::Text { text, point, style } => self.text_element(text, *point, style),
            Shape::Image { rect, cells, pixels } => self.image(*rect, *cells, pixels),
        }
    }

    fn line(&mut self, points: &[Coordinates], color: RGBColor, width: f64) -> Result<()> {
        let stroke_width = (width * self.unit).round().max(1.0) as u32;
        let style = ShapeStyle { color: color.to_rgba(), filled: false, stroke_width };
        let mut path: Vec<(i32, i32)> = points.iter().map(|&point| self.device(point)).collect();
        path.dedup();
        if path.len() < 2 {
            return Ok(());
        }
        if self.images.is_some() {
            return self.backend.draw_path(path, &style).map_err(failed);
        }
        // The bitmap backend fills a long path as one polygon whose overlaps become holes. Segments are drawn one by
        // one instead, with a dot on each bend.
        for pair in path.windows(2) {
            self.backend.draw_line(pair[0], pair[1], &style).map_err(failed)?;
        }
        let radius = stroke_width / 2;
        if radius > 0 {
            for &bend in &path[1..path.len() - 1] {
                self.backend.draw_circle(bend, radius, &color.filled(), true).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Draws text as pixels. plotters' own rendering ignores the left side bearing of glyphs, which spaces small text
    /// unevenly.
    fn glyphs(&mut self, text: &str, origin: Coordinates, style: &Text) -> Result<()> {
        let em = style.size * self.unit;
        let Line { glyphs, boxes, width } = lay_out(text, em as f32, style.bold);
        let shift = match style.align {
            HPos::Left => 0.0,
            HPos::Center => width / 2.0,
            HPos::Right => width,
        };
        let baseline = (HALF_CAPITAL * em) as f32;
        let (left, top) = self.device(origin);
        let rotated = |x: i32, y: i32| if style.upward { (left + y, top - x) } else { (left + x, top + y) };
        for [from, above, to, below] in boxes {
            let [from, to] = [from - shift, to - shift].map(|x| x.round() as i32);
            let [above, below] = [above + baseline, below + baseline].map(|y| y.round() as i32);
            let corners = [(from, above), (to, above), (to, below), (from, below), (from, above)];
            let path = corners.map(|(x, y)| rotated(x, y));
            self.backend.draw_path(path, &style.color.mix(0.6)).map_err(failed)?;
        }
        for PlacedGlyph { font, mut glyph, advance, .. } in glyphs {
            glyph.position = point(glyph.position.x - shift, baseline + glyph.position.y);
            match font.bitmap(glyph.id) {
                Some(png) => self.bitmap(png, (glyph.position.x, 0.0), advance, rotated)?,
                None => self.outline(font, glyph, style.color, rotated)?,
            }
        }
        Ok(())
    }

    /// Fills the outline of a glyph.
    fn outline(
        &mut self,
        font: &FontFace,
        glyph: Glyph,
        color: RGBColor,
        device: impl Fn(i32, i32) -> (i32, i32),
    ) -> Result<()> {
        let Some(outline) = font.outlines.outline_glyph(glyph) else { return Ok(()) };
        let corner = outline.px_bounds().min;
        let mut result = Ok(());
        outline.draw(|x, y, coverage| {
            let (x, y) = (corner.x as i32 + x as i32, corner.y as i32 + y as i32);
            let color = color.mix(f64::from(coverage)).to_backend_color();
            if result.is_ok() {
                result = self.backend.draw_pixel(device(x, y), color);
            }
        });
        result.map_err(failed)
    }

    /// Draws the bitmap of a glyph, as wide as its advance and vertically centred on capitals.
    fn bitmap(
        &mut self,
        png: &[u8],
        (left, middle): (f32, f32),
        width: f32,
        device: impl Fn(i32, i32) -> (i32, i32),
    ) -> Result<()> {
        let image = image::load_from_memory_with_format(png, ImageFormat::Png).map_err(failed)?.to_rgba8();
        let (columns, rows) =
            (width.round().max(1.0), (width * image.height() as f32 / image.width() as f32).round().max(1.0));
        let image = imageops::resize(&image, columns as u32, rows as u32, FilterType::Triangle);
        let (left, top) = (left.round() as i32, (middle - rows / 2.0).round() as i32);
        for (x, y, Rgba([red, green, blue, alpha])) in image.enumerate_pixels() {
            let color = RGBColor(*red, *green, *blue).mix(f64::from(*alpha) / 255.0).to_backend_color();
            let point = device(left + x as i32, top + y as i32);
            self.backend.draw_pixel(point, color).map_err(failed)?;
        }
        Ok(())
    }

    /// Draws text as an SVG element. plotters divides the font size by 1.24 and puts the baseline 0.76 em below the
    /// anchor.
    fn text_element(&mut self, text: &str, origin: Coordinates, style: &Text) -> Result<()> {
        let em = style.size * self.unit;
        let down = (HALF_CAPITAL - 0.76) * em;
        let (x, y) = (origin.0 * self.unit, (origin.1 + self.above) * self.unit);
        let (x, y) = if style.upward { (x + down, y) } else { (x, y + down) };
        let rotation = if style.upward { FontTransform::Rotate270 } else { FontTransform::None };
        let weight = if style.bold { FontStyle::Bold } else { FontStyle::Normal };
        let style = TextStyle {
            font: FontDesc::new(FontFamily::Name(FAMILY), em * 1.24, weight).transform(rotation),
            color: style.color.to_backend_color(),
            pos: Pos::new(style.align, VPos::Top),
        };
        self.backend.draw_text(text, &style, (x.round() as i32, y.round() as i32)).map_err(failed)
    }

    fn image(&mut self, rect: Rect, cells: Option<[u32; 2]>, pixels: &Pixels) -> Result<()> {
        let [from, to] = self.corners(rect);
        let (width, height) = ((to.0 - from.0).max(1) as u32, (to.1 - from.1).max(1) as u32);
        let Some(images) = &mut self.images else {
            let image = magnified(cells, [width, height], pixels);
            return self.backend.blit_bitmap(from, (width, height), &image).map_err(failed);
        };
        let encoded = STANDARD.encode(palette_png(&sampled(cells.unwrap_or([width, height]), pixels))?);
        let (x, y) = from;
        images.push(format!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
             image-rendering=\"pixelated\" href=\"data:image/png;base64,{encoded}\"/>"
        ));
        self.backend.blit_bitmap(from, (1, 1), &[0; 3]).map_err(failed)
    }
}

/// Encodes an image as PNG with a palette, or without one if the image has more than 256 colours.
fn palette_png(image: &RgbImage) -> Result<Vec<u8>> {
    let mut palette = Vec::new();
    let mut numbers = HashMap::new();
    let number = |pixel: &Rgb<u8>| {
        let next = numbers.len();
        *numbers.entry(pixel.0).or_insert_with(|| {
            palette.extend(pixel.0);
            next
        })
    };
    let indices: Option<Vec<u8>> =
        image.pixels().map(number).map(|number| u8::try_from(number).ok()).collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, image.width(), image.height());
    encoder.set_compression(png::Compression::Best);
    encoder.set_color(if indices.is_some() { png::ColorType::Indexed } else { png::ColorType::Rgb });
    if indices.is_some() {
        encoder.set_palette(palette);
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(indices.as_deref().unwrap_or(image.as_raw())).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}
