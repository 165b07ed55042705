//! Rendering of pictures to PDF. Text stays text in embedded DejaVu, which publishers accept; glyphs of other fonts are
//! drawn as outlines.

use std::collections::BTreeMap;

use ab_glyph::{Font, GlyphId, OutlineCurve, Point};
use image::{DynamicImage, ImageFormat, RgbaImage};
use miniz_oxide::deflate::compress_to_vec_zlib;
use pdf_writer::types::{CidFontType, FontFlags, LineCapStyle, LineJoinStyle, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect as Box, Ref, Str};
use plotters::style::RGBColor;
use plotters::style::text_anchor::HPos;
use subsetter::GlyphRemapper;

use super::fonts::{FontFace, embedded};
use super::layout::{PlacedGlyph, lay_out};
use super::picture::{Coordinates, Picture, Rect, Shape, sampled};
use super::text::{HALF_CAPITAL, Text};
use crate::error::{Result, failed};

/// The compression level of zlib; higher levels are hardly smaller.
const COMPRESSION: u8 = 6;
/// The names of the embedded fonts in the file, regular and bold.
const FONT_NAMES: [Name<'static>; 2] = [Name(b"ABCDEF+DejaVuSans"), Name(b"ABCDEG+DejaVuSans-Bold")];
const IDENTITY: SystemInfo<'static> =
    SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };

/// The glyphs of an embedded font that a file uses.
#[derive(Default)]
struct UsedGlyphs {
    numbers: GlyphRemapper,
    /// The text of each glyph, by its number in the file.
    texts: BTreeMap<u16, String>,
}

/// A PDF file with one page.
struct File {
    pdf: Pdf,
    content: Content,
    fonts: [UsedGlyphs; 2],
    images: Vec<Ref>,
    last: Ref,
}

/// Returns a picture as a PDF that is `width` points wide.
pub(super) fn pdf(picture: &Picture, width: f64) -> Result<Vec<u8>> {
    let mut file = File {
        pdf: Pdf::new(),
        content: Content::new(),
        fonts: <[UsedGlyphs; 2]>::default(),
        images: Vec::new(),
        last: Ref::new(1),
    };
    let (picture_width, picture_height) = picture.size();
    let scale = width / f64::from(picture_width);
    let height = f64::from(picture_height) * scale;
    // PDF counts from the lower edge upwards.
    let top = height - picture.above() * scale;
    file.content.transform([scale, 0.0, 0.0, -scale, 0.0, top].map(|number| number as f32));
    file.content.set_line_join(LineJoinStyle::RoundJoin).set_line_cap(LineCapStyle::ButtCap);
    picture.all_shapes().try_for_each(|shape| file.shape(shape))?;
    file.finish(width as f32, height as f32)
}

impl File {
    fn next(&mut self) -> Ref {
        self.last = Ref::new(self.last.get() + 1);
        self.last
    }

    fn fill(&mut self, RGBColor(red, green, blue): RGBColor) {
        let [red, green, blue] = [red, green, blue].map(|channel| f32::from(channel) / 255.0);
        self.content.set_fill_rgb(red, green, blue).set_stroke_rgb(red, green, blue);
    }

    fn shape(&mut self, shape: &Shape) -> Result<()> {
        match shape {
            Shape::Rect { rect, color } => {
                self.fill(*color);
                let [left, top, width, height] =
                    [rect.left, rect.top, rect.width, rect.height].map(|number| number as f32);
                self.content.rect(left, top, width, height).fill_nonzero();
            }
            Shape::Line { points, color, width } => self.line(points, *color, *width),
            Shape::Dot { center, radius, color } => {
                self.fill(*color);
                self.circle(*center, *radius);
            }
            Shape::Text { text, point, style } => self.text(text, *point, style)?,
            Shape::Image { rect, cells, pixels } => {
                let [columns, rows] =
                    cells.unwrap_or_else(|| [rect.width, rect.height].map(|side| side.ceil() as u32));
                let image = DynamicImage::ImageRgb8(sampled([columns, rows], pixels)).to_rgba8();
                self.image(&image, *rect);
            }
        }
        Ok(())
    }

    fn line(&mut self, points: &[Coordinates], color: RGBColor, width: f64) {
        let [(x, y), others @ ..] = points else { return };
        self.fill(color);
        self.content.set_line_width(width as f32).move_to(*x as f32, *y as f32);
        for (x, y) in others {
            self.content.line_to(*x as f32, *y as f32);
        }
        self.content.stroke();
    }

    fn circle(&mut self, (x, y): Coordinates, radius: f64) {
        // The distance of the control points at which four cubic curves approximate a circle.
        const CONTROL: f64 = 0.552_285;
        let at = |(dx, dy): Coordinates| ((x + dx * radius) as f32, (y + dy * radius) as f32);
        let start = at((1.0, 0.0));
        self.content.move_to(start.0, start.1);
        let (mut from, mut to) = ((1.0, 0.0), (0.0, 1.0));
        for _ in 0..4 {
            let first = at((from.0 + CONTROL * to.0, from.1 + CONTROL * to.1));
            let (second, end) = (at((to.0 + CONTROL * from.0, to.1 + CONTROL * from.1)), at(to));
            self.content.cubic_to(first.0, first.1, second.0, second.1, end.0, end.1);
            (from, to) = (to, (-from.0, -from.1));
        }
        self.content.fill_nonzero();
    }

    /// Draws text. A text matrix counts upwards again, and rotates text that reads from bottom to top.
    fn text(&mut self, text: &str, origin: Coordinates, style: &Text) -> Result<()> {
        let line = lay_out(text, style.size as f32, style.bold);
        let shift = match style.align {
            HPos::Left => 0.0,
            HPos::Center => line.width / 2.0,
            HPos::Right => line.width,
        };
        let (x, y) = (origin.0 as f32, origin.1 as f32);
        let baseline = (HALF_CAPITAL * style.size) as f32;
        let matrix = if style.upward { [0.0, -1.0, -1.0, 0.0, x, y] } else { [1.0, 0.0, 0.0, -1.0, x, y] };
        self.fill(style.color);
        self.content.save_state().transform(matrix);
        self.content.set_line_width(0.02 * style.size as f32);
        for [left, top, right, bottom] in line.boxes {
            self.content.rect(left - shift, -bottom - baseline, right - left, bottom - top).stroke();
        }
        for placed in &line.glyphs {
            let Point { x, y } = placed.glyph.position;
            self.glyph(placed, (x - shift, -y - baseline))?;
        }
        self.content.restore_state();
        Ok(())
    }

    fn glyph(&mut self, placed: &PlacedGlyph, (x, y): (f32, f32)) -> Result<()> {
        let PlacedGlyph { font, glyph, advance, text } = placed;
        let em =
            glyph.scale.y * font.outlines.units_per_em().unwrap_or(1.0) / font.outlines.height_unscaled();
        if let Some(index) = [false, true].iter().position(|&bold| std::ptr::eq(*font, embedded(bold))) {
            let used = &mut self.fonts[index];
            let number = used.numbers.remap(glyph.id.0);
            used.texts.entry(number).or_insert_with(|| text.clone());
            let name = [b"F0", b"F1"][index];
            self.content.begin_text().set_font(Name(name), em).set_text_matrix([1.0, 0.0, 0.0, 1.0, x, y]);
            self.content.show(Str(&number.to_be_bytes())).end_text();
        } else if let Some(png) = font.bitmap(glyph.id) {
            let image =
                image::load_from_memory_with_format(png, ImageFormat::Png).map_err(failed)?.to_rgba8();
            let height = f64::from(*advance) * f64::from(image.height()) / f64::from(image.width());
            let middle = f64::from(y) + HALF_CAPITAL * f64::from(em);
            self.content.save_state().transform([1.0, 0.0, 0.0, -1.0, 0.0, 0.0]);
            let (left, width) = (f64::from(x), f64::from(*advance));
            self.image(&image, Rect { left, top: -middle - height / 2.0, width, height });
            self.content.restore_state();
        } else {
            self.outline(font, glyph.id, (x, y), em);
        }
        Ok(())
    }

    /// Fills the outline of a glyph.
    fn outline(&mut self, font: &FontFace, glyph: GlyphId, (x, y): (f32, f32), em: f32) {
        let Some(outline) = font.outlines.outline(glyph) else { return };
        let unit = em / font.outlines.units_per_em().unwrap_or(1.0);
        let at = |point: &Point| (x + point.x * unit, y + point.y * unit);
        let third = |from: (f32, f32), to: (f32, f32)| {
            (from.0 + (to.0 - from.0) * 2.0 / 3.0, from.1 + (to.1 - from.1) * 2.0 / 3.0)
        };
        let mut end = None;
        for curve in &outline.curves {
            let (OutlineCurve::Line(first, last)
            | OutlineCurve::Quad(first, _, last)
            | OutlineCurve::Cubic(first, _, _, last)) = curve;
            let (from, to) = (at(first), at(last));
            if end != Some(from) {
                self.content.move_to(from.0, from.1);
            }
            let [a, b] = match curve {
                OutlineCurve::Line(..) => [from, to],
                OutlineCurve::Quad(_, control, _) => [third(from, at(control)), third(to, at(control))],
                OutlineCurve::Cubic(_, a, b, _) => [at(a), at(b)],
            };
            self.content.cubic_to(a.0, a.1, b.0, b.1, to.0, to.1);
            end = Some(to);
        }
        self.content.fill_nonzero();
    }

    /// Draws an image in a rectangle, with sharp edges between its pixels.
    fn image(&mut self, image: &RgbaImage, rect: Rect) {
        let (columns, rows) = (image.width() as i32, image.height() as i32);
        let channels = |range: std::ops::Range<usize>| {
            let bytes: Vec<u8> = image.pixels().flat_map(|pixel| pixel.0[range.clone()].to_vec()).collect();
            compress_to_vec_zlib(&bytes, COMPRESSION)
        };
        let (id, mask) = (self.next(), image.pixels().any(|pixel| pixel.0[3] < 255).then(|| self.next()));
        let colors = channels(0..3);
        let mut object = self.pdf.image_xobject(id, &colors);
        object.filter(Filter::FlateDecode);
        object.width(columns).height(rows).bits_per_component(8);
        object.color_space().device_rgb();
        if let Some(mask) = mask {
            object.s_mask(mask);
        }
        object.finish();
        if let Some(mask) = mask {
            let alpha = channels(3..4);
            let mut object = self.pdf.image_xobject(mask, &alpha);
            object.filter(Filter::FlateDecode);
            object.width(columns).height(rows).bits_per_component(8);
            object.color_space().device_gray();
        }
        let name = format!("I{}", self.images.len());
        self.images.push(id);
        let [width, height, left, bottom] =
            [rect.width, -rect.height, rect.left, rect.bottom()].map(|number| number as f32);
        self.content.save_state().transform([width, 0.0, 0.0, height, left, bottom]);
        self.content.x_object(Name(name.as_bytes())).restore_state();
    }

    fn finish(mut self, width: f32, height: f32) -> Result<Vec<u8>> {
        let [catalog, pages, page, content] = [(); 4].map(|()| self.next());
        let fonts = [self.font(false)?, self.font(true)?];
        self.pdf.catalog(catalog).pages(pages);
        self.pdf.pages(pages).kids([page]).count(1);
        let mut written = self.pdf.page(page);
        written.parent(pages).media_box(Box::new(0.0, 0.0, width, height)).contents(content);
        let mut resources = written.resources();
        resources.fonts().pair(Name(b"F0"), fonts[0]).pair(Name(b"F1"), fonts[1]);
        let mut images = resources.x_objects();
        for (i, &id) in self.images.iter().enumerate() {
            images.pair(Name(format!("I{i}").as_bytes()), id);
        }
        images.finish();
        resources.finish();
        written.finish();
        let operators = compress_to_vec_zlib(&self.content.finish(), COMPRESSION);
        self.pdf.stream(content, &operators).filter(Filter::FlateDecode);
        Ok(self.pdf.finish())
    }

    /// Embeds the used glyphs of a font.
    fn font(&mut self, bold: bool) -> Result<Ref> {
        let [font, cid_font, descriptor, data, texts] = [(); 5].map(|()| self.next());
        let (face, used, name) =
            (embedded(bold), &self.fonts[usize::from(bold)], FONT_NAMES[usize::from(bold)]);
        let per_mille = |units: f32| units * 1000.0 / face.outlines.units_per_em().unwrap_or(1.0);
        let advance = |id: u16| per_mille(face.outlines.h_advance_unscaled(GlyphId(id)));
        self.pdf
            .type0_font(font)
            .base_font(name)
            .encoding_predefined(Name(b"Identity-H"))
            .descendant_font(cid_font)
            .to_unicode(texts);
        let mut cid = self.pdf.cid_font(cid_font);
        cid.subtype(CidFontType::Type2).base_font(name).system_info(IDENTITY).font_descriptor(descriptor);
        cid.default_width(0.0).cid_to_gid_map_predefined(Name(b"Identity"));
        cid.widths().consecutive(0, used.numbers.remapped_gids().map(advance));
        cid.finish();
        let bounds = face.shaper.global_bounding_box();
        let [left, bottom, right, top] =
            [bounds.x_min, bounds.y_min, bounds.x_max, bounds.y_max].map(|units| per_mille(units.into()));
        let mut written = self.pdf.font_descriptor(descriptor);
        written
            .name(name)
            .flags(FontFlags::SYMBOLIC)
            .bbox(Box::new(left, bottom, right, top))
            .italic_angle(0.0);
        written
            .ascent(per_mille(face.outlines.ascent_unscaled()))
            .descent(per_mille(face.outlines.descent_unscaled()));
        written
            .cap_height(2000.0 * HALF_CAPITAL as f32)
            .stem_v(if bold { 160.0 } else { 90.0 })
            .font_file2(data);
        written.finish();
        let subset = subsetter::subset(face.data, face.index, &used.numbers).map_err(failed)?;
        let packed = compress_to_vec_zlib(&subset, COMPRESSION);
        self.pdf
            .stream(data, &packed)
            .filter(Filter::FlateDecode)
            .pair(Name(b"Length1"), subset.len() as i32);
        let mut map = UnicodeCmap::new(Name(b"Custom"), IDENTITY);
        for (&number, text) in used.texts.iter().filter(|(_, text)| !text.is_empty()) {
            map.pair_with_multiple(number, text.chars());
        }
        self.pdf.stream(texts, &map.finish());
        Ok(font)
    }
}
