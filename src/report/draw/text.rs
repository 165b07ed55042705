//! How text is set and measured. DejaVu Sans is part of the program, so that pictures look the same
//! on every machine and need no system library.

use std::{borrow::Cow, sync::LazyLock};

use ab_glyph::{Font, FontRef, Glyph, ScaleFont, point};
use plotters::style::{RGBColor, text_anchor::HPos};
use unicode_bidi::BidiInfo;

use super::color;

/// How a text is set.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    pub(super) size: f64,
    pub(super) color: RGBColor,
    pub(super) bold: bool,
    pub(super) align: HPos,
    pub(super) upward: bool,
}

impl Text {
    /// Ink, left-aligned, `size` logical pixels to the em.
    pub fn new(size: f64) -> Self {
        Text { size, color: color::INK, bold: false, align: HPos::Left, upward: false }
    }

    pub fn color(self, color: RGBColor) -> Self {
        Text { color, ..self }
    }

    pub fn bold(self) -> Self {
        Text { bold: true, ..self }
    }

    pub fn centered(self) -> Self {
        Text { align: HPos::Center, ..self }
    }

    pub fn right(self) -> Self {
        Text { align: HPos::Right, ..self }
    }

    /// Turned to read from bottom to top; alignment turns with it.
    pub fn upward(self) -> Self {
        Text { upward: true, ..self }
    }

    /// The width of a text in logical pixels.
    pub fn width(&self, text: &str) -> f64 {
        f64::from(set(text, self.size as f32, self.bold).1)
    }

    /// The text in lines of at most `width`, broken between words; a wider word is cut.
    pub fn lines(&self, text: &str, width: f64) -> Vec<String> {
        let mut lines = Vec::<String>::new();
        for word in text.split_whitespace() {
            let longer = lines.last().map(|line| format!("{line} {word}"));
            match (longer.filter(|longer| self.width(longer) <= width), lines.last_mut()) {
                (Some(longer), Some(last)) => *last = longer,
                _ => lines.push(self.fit(word, width)),
            }
        }
        lines
    }

    /// The text, cut at its end with an ellipsis where it would be wider than `width`.
    pub fn fit(&self, text: &str, width: f64) -> String {
        let cuts = text.char_indices().rev().map(|(end, _)| format!("{}…", text[..end].trim_end()));
        std::iter::once(text.to_string()).chain(cuts).find(|cut| self.width(cut) <= width).unwrap_or_default()
    }
}

/// The regular font and the bold one. Where they were no fonts, it would be an error in the crate that has them.
static FONTS: LazyLock<[FontRef<'static>; 2]> = LazyLock::new(|| {
    let font = |bytes| FontRef::try_from_slice(bytes).expect("the embedded DejaVu fonts are valid");
    [font(dejavu::sans::regular()), font(dejavu::sans::bold())]
});

pub(super) fn font(bold: bool) -> &'static FontRef<'static> {
    &FONTS[usize::from(bold)]
}

/// Whether the font has the character.
pub(super) fn is_drawn(character: char) -> bool {
    font(false).glyph_id(character).0 != 0
}

/// Sets a line of text with `em` pixels to the em: its glyphs from (0, 0) on the baseline, and its
/// width.
pub(super) fn set(text: &str, em: f32, bold: bool) -> (Vec<Glyph>, f32) {
    let font = font(bold);
    // ab_glyph scales fonts by their line height.
    let line = em * font.height_unscaled() / font.units_per_em().unwrap_or(font.height_unscaled());
    let scaled = font.as_scaled(line);
    let mut glyphs: Vec<Glyph> = Vec::new();
    let mut x = 0.0;
    for character in in_visual_order(text).chars() {
        let mut glyph = scaled.scaled_glyph(character);
        if let Some(previous) = glyphs.last() {
            x += scaled.kern(previous.id, glyph.id);
        }
        glyph.position = point(x, 0.0);
        x += scaled.h_advance(glyph.id);
        glyphs.push(glyph);
    }
    (glyphs, x)
}

/// A line with its characters in the order in which they stand from left to right: words of a script that is
/// written from the right stand the other way round in memory.
fn in_visual_order(line: &str) -> Cow<'_, str> {
    if line.is_ascii() {
        return Cow::Borrowed(line);
    }
    let order = BidiInfo::new(line, None);
    let paragraphs = order.paragraphs.iter();
    Cow::Owned(paragraphs.map(|paragraph| order.reorder_line(paragraph, paragraph.range.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_written_from_the_right_are_set_from_the_right() {
        // Shalom, whose first letter, shin, stands rightmost.
        let glyphs = |text: &str| set(text, 10.0, false).0.iter().map(|glyph| glyph.id).collect::<Vec<_>>();
        let letters = "\u{5e9}\u{5dc}\u{5d5}\u{5dd}".chars();
        let reversed: Vec<_> = letters.clone().rev().flat_map(|letter| glyphs(&letter.to_string())).collect();
        let word: String = letters.collect();
        assert_eq!(glyphs(&word), reversed);
        let mixed = glyphs(&format!("ab {word} 12"));
        assert_eq!((&mixed[..3], &mixed[3..5]), (&glyphs("ab ")[..], &glyphs("12")[..]), "a number after it");
        assert_eq!(&mixed[6..], &reversed[..]);
        assert_eq!(in_visual_order("läuft\u{a0}so"), "läuft\u{a0}so");
    }

    #[test]
    fn widths_grow_with_the_text_and_the_size() {
        let look = Text::new(10.0);
        assert_eq!(look.width(""), 0.0);
        // An em of digits: DejaVu's are 0.636 em wide.
        assert!((look.width("0000000000") - 63.6).abs() < 0.1);
        assert!((Text::new(30.0).width("attention") / look.width("attention") - 3.0).abs() < 1e-3);
        assert!(look.bold().width("attention") > look.width("attention"));
    }

    #[test]
    fn what_is_too_wide_is_cut_to_fit() {
        let look = Text::new(10.0);
        assert_eq!(look.fit("attention", 100.0), "attention");
        let cut = look.fit("attention is all you need", 60.0);
        assert!(cut.ends_with('…') && cut.starts_with("attent") && look.width(&cut) <= 60.0, "{cut}");
        assert_eq!(look.fit("attention", 1.0), "");
    }
}
