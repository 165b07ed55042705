//! One surface over plotters' backends, in logical pixels: lines, shapes, text and images.
//!
//! Text is placed by the middle of its capitals, and set in DejaVu Sans, which is part of the
//! program: pictures look the same on every machine and need no system library.

use ab_glyph::{Font, point};
use plotters::backend::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle,
};

use super::color::{self, ColorMap};
use super::picture::Format;
use super::text::{Text, font, set};
use crate::error::{Error, Result};

/// Where a picture is drawn: a plotters backend and the size of a logical pixel on it.
pub struct Canvas<'a, B: DrawingBackend> {
    backend: &'a mut B,
    format: Format,
    /// Pixels of the backend for each logical pixel.
    unit: f64,
    color_map: ColorMap,
}

/// A place in logical pixels, from the upper left.
pub(crate) type Place = (f64, f64);

/// A rectangle in logical pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

/// The family's name in an SVG; a reader without DejaVu takes Verdana, which is as wide.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// Half the height of capitals, in ems.
const HALF_CAPITAL: f64 = 0.365;

/// Turns a backend's error into the program's.
fn drawn<E: std::fmt::Display>(result: std::result::Result<(), E>) -> Result<()> {
    result.map_err(|error| Error::Failed(format!("cannot draw: {error}")))
}

impl<'a, B: DrawingBackend> Canvas<'a, B> {
    pub(crate) fn new(backend: &'a mut B, format: Format, unit: f64, color_map: ColorMap) -> Self {
        Canvas { backend, format, unit, color_map }
    }

    /// The colours of attention weights.
    pub(crate) fn color_map(&self) -> ColorMap {
        self.color_map
    }

    fn device(&self, (x, y): Place) -> (i32, i32) {
        ((x * self.unit).round() as i32, (y * self.unit).round() as i32)
    }

    fn stroke(&self, color: RGBColor, width: f64) -> ShapeStyle {
        let stroke_width = (width * self.unit).round().max(1.0) as u32;
        ShapeStyle { color: color.to_rgba(), filled: false, stroke_width }
    }

    /// Covers the whole canvas.
    pub(crate) fn fill(&mut self, color: RGBColor) -> Result<()> {
        let (width, height) = self.backend.get_size();
        drawn(self.backend.draw_rect((0, 0), (width as i32, height as i32), &color.filled(), true))
    }

    /// A filled rectangle.
    pub(crate) fn rect(&mut self, rect: Rect, color: RGBColor) -> Result<()> {
        let from = self.device((rect.left, rect.top));
        let to = self.device((rect.right(), rect.bottom()));
        drawn(self.backend.draw_rect(from, to, &color.filled(), true))
    }

    /// The outline of a rectangle.
    pub(crate) fn frame(&mut self, rect: Rect, color: RGBColor, width: f64) -> Result<()> {
        let Rect { left, top, .. } = rect;
        let (right, bottom) = (rect.right(), rect.bottom());
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        self.line(&corners, color, width)
    }

    /// A line through all `places`; nothing where there are fewer than two.
    pub(crate) fn line(&mut self, places: &[Place], color: RGBColor, width: f64) -> Result<()> {
        let style = self.stroke(color, width);
        let mut path: Vec<(i32, i32)> = places.iter().map(|&place| self.device(place)).collect();
        path.dedup();
        if path.len() < 2 {
            return Ok(());
        }
        match self.format {
            Format::Svg => drawn(self.backend.draw_path(path, &style)),
            // The bitmap backend turns a long path into one polygon, whose overlaps come out as
            // holes: draw its pieces, with a dot on each bend.
            Format::Png => {
                for pair in path.windows(2) {
                    drawn(self.backend.draw_line(pair[0], pair[1], &style))?;
                }
                let radius = style.stroke_width / 2;
                if radius > 0 {
                    for &bend in &path[1..path.len() - 1] {
                        drawn(self.backend.draw_circle(bend, radius, &color.filled(), true))?;
                    }
                }
                Ok(())
            }
        }
    }

    /// A dashed straight line.
    pub(crate) fn dashed(&mut self, from: Place, to: Place, color: RGBColor, width: f64) -> Result<()> {
        const DASH: f64 = 6.0;
        const GAP: f64 = 4.0;
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        let at = |along: f64| (from.0 + dx * along / length, from.1 + dy * along / length);
        let mut start = 0.0;
        while start < length {
            self.line(&[at(start), at((start + DASH).min(length))], color, width)?;
            start += DASH + GAP;
        }
        Ok(())
    }

    /// A filled circle.
    pub(crate) fn dot(&mut self, center: Place, radius: f64, color: RGBColor) -> Result<()> {
        let radius = (radius * self.unit).round().max(1.0) as u32;
        drawn(self.backend.draw_circle(self.device(center), radius, &color.filled(), true))
    }

    /// An empty circle.
    pub(crate) fn ring(&mut self, center: Place, radius: f64, color: RGBColor, width: f64) -> Result<()> {
        self.dot(center, radius + width / 2.0, color)?;
        self.dot(center, radius - width / 2.0, color::BACKGROUND)
    }

    /// A diagonal cross.
    pub(crate) fn cross(&mut self, (x, y): Place, radius: f64, color: RGBColor, width: f64) -> Result<()> {
        self.line(&[(x - radius, y - radius), (x + radius, y + radius)], color, width)?;
        self.line(&[(x - radius, y + radius), (x + radius, y - radius)], color, width)
    }

    /// A text whose anchor, by its alignment, is `place`, in the middle of the capitals.
    pub(crate) fn text(&mut self, text: &str, place: Place, look: &Text) -> Result<()> {
        // An SVG with control characters is not well-formed.
        let text = &text.replace(char::is_control, "\u{fffd}");
        match self.format {
            Format::Png => self.glyphs(text, place, look),
            Format::Svg => self.text_element(text, place, look),
        }
    }

    /// Text as pixels. plotters' own drops what a glyph is to keep clear on its left, which sets
    /// small text unevenly.
    fn glyphs(&mut self, text: &str, place: Place, look: &Text) -> Result<()> {
        let em = look.size * self.unit;
        let (glyphs, width) = set(text, em as f32, look.bold);
        let back = match look.align {
            HPos::Left => 0.0,
            HPos::Center => width / 2.0,
            HPos::Right => width,
        };
        let drop = (HALF_CAPITAL * em) as f32;
        let (left, top) = self.device(place);
        for mut glyph in glyphs {
            glyph.position = point(glyph.position.x - back, drop);
            let Some(outline) = font(look.bold).outline_glyph(glyph) else { continue };
            let corner = outline.px_bounds().min;
            let mut result = Ok(());
            outline.draw(|x, y, coverage| {
                let (x, y) = (corner.x as i32 + x as i32, corner.y as i32 + y as i32);
                let (x, y) = if look.upward { (y, -x) } else { (x, y) };
                let color = look.color.mix(f64::from(coverage)).to_backend_color();
                if result.is_ok() {
                    result = self.backend.draw_pixel((left + x, top + y), color);
                }
            });
            drawn(result)?;
        }
        Ok(())
    }

    /// Text as an element of an SVG, which plotters sets in a font of size / 1.24 with its baseline
    /// 0.76 em below the anchor.
    fn text_element(&mut self, text: &str, place: Place, look: &Text) -> Result<()> {
        let em = look.size * self.unit;
        let down = (HALF_CAPITAL - 0.76) * em;
        let (x, y) = (place.0 * self.unit, place.1 * self.unit);
        let (x, y) = if look.upward { (x + down, y) } else { (x, y + down) };
        let turn = if look.upward { FontTransform::Rotate270 } else { FontTransform::None };
        let weight = if look.bold { FontStyle::Bold } else { FontStyle::Normal };
        let style = TextStyle {
            font: FontDesc::new(FontFamily::Name(FAMILY), em * 1.24, weight).transform(turn),
            color: look.color.to_backend_color(),
            pos: Pos::new(look.align, VPos::Top),
        };
        drawn(self.backend.draw_text(text, &style, (x.round() as i32, y.round() as i32)))
    }

    /// Fills a rectangle pixel by pixel; `pixel` gets the place within it as fractions of its width
    /// and height.
    pub(crate) fn image(&mut self, rect: Rect, pixel: impl Fn(f64, f64) -> RGBColor) -> Result<()> {
        let from = self.device((rect.left, rect.top));
        let to = self.device((rect.right(), rect.bottom()));
        let (width, height) = ((to.0 - from.0).max(1) as usize, (to.1 - from.1).max(1) as usize);
        let mut rgb = Vec::with_capacity(width * height * 3);
        for y in 0..height {
            for x in 0..width {
                let RGBColor(red, green, blue) =
                    pixel((x as f64 + 0.5) / width as f64, (y as f64 + 0.5) / height as f64);
                rgb.extend([red, green, blue]);
            }
        }
        drawn(self.backend.blit_bitmap(from, (width as u32, height as u32), &rgb))
    }
}
