//! Layout and measurement of text in DejaVu Sans. The fonts are embedded, so pictures look the same on every machine
//! and need no system library. A character missing from the font is drawn as its code point in a box, in two rows of
//! hexadecimal digits, so that such characters stay distinguishable. An SVG contains the character itself.

use std::{borrow::Cow, sync::LazyLock};

use ab_glyph::{Font, FontRef, Glyph, PxScaleFont, ScaleFont, point};
use ar_reshaper::{ArabicReshaper, ReshaperConfig};
use plotters::style::{RGBColor, text_anchor::HPos};
use unicode_bidi::BidiInfo;

use super::color;

/// The style of a text: size, colour, weight, alignment and direction.
#[derive(Clone, Copy)]
pub struct Text {
    pub(super) size: f64,
    pub(super) color: RGBColor,
    pub(super) bold: bool,
    pub(super) align: HPos,
    pub(super) upward: bool,
}

impl Text {
    /// Creates dark, left-aligned text with `size` logical pixels per em.
    pub fn new(size: f64) -> Self {
        Text { size, color: color::INK, bold: false, align: HPos::Left, upward: false }
    }

    /// Sets the colour.
    pub fn color(self, color: RGBColor) -> Self {
        Text { color, ..self }
    }

    /// Makes the text bold.
    pub fn bold(self) -> Self {
        Text { bold: true, ..self }
    }

    /// Anchors the text at its centre.
    pub fn centered(self) -> Self {
        Text { align: HPos::Center, ..self }
    }

    /// Anchors the text at its end.
    pub fn right(self) -> Self {
        Text { align: HPos::Right, ..self }
    }

    /// Rotates the text and its alignment, so that it reads from bottom to top.
    pub fn upward(self) -> Self {
        Text { upward: true, ..self }
    }

    /// Returns the width of a text in logical pixels.
    pub fn width(&self, text: &str) -> f64 {
        f64::from(lay_out(text, self.size as f32, self.bold).width)
    }

    /// Shrinks the text until it fits into `width`, but not below the size `min_size`.
    pub fn shrunk(self, text: &str, width: f64, min_size: f64) -> Self {
        // Two percent smaller than needed, because widths are not exactly proportional to sizes.
        let size = self.size * (0.98 * width / self.width(text)).min(1.0);
        Text { size: size.clamp(min_size.min(self.size), self.size), ..self }
    }

    /// Breaks the text between words into lines that fit into `width`; a wider word is truncated.
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

    /// Returns the text, truncated with an ellipsis if it is wider than `width`.
    pub fn fit(&self, text: &str, width: f64) -> String {
        let cuts = text.char_indices().rev().map(|(end, _)| format!("{}…", text[..end].trim_end()));
        std::iter::once(text.to_string()).chain(cuts).find(|cut| self.width(cut) <= width).unwrap_or_default()
    }
}

/// The regular and the bold font. Invalid font data would be a bug in the `dejavu` crate.
static FONTS: LazyLock<[FontRef<'static>; 2]> = LazyLock::new(|| {
    let font = |bytes| FontRef::try_from_slice(bytes).expect("the embedded DejaVu fonts are valid");
    [font(dejavu::sans::regular()), font(dejavu::sans::bold())]
});

pub(super) fn font(bold: bool) -> &'static FontRef<'static> {
    &FONTS[usize::from(bold)]
}

/// Returns true if the font has a glyph for the character.
pub(super) fn is_drawn(character: char) -> bool {
    font(false).glyph_id(character).0 != 0
}

/// A line of laid-out text.
#[derive(Default)]
pub(super) struct Line {
    /// The glyphs, positioned from (0, 0) on the baseline.
    pub glyphs: Vec<Glyph>,
    /// The boxes around code points: left, top, right and bottom, from the same origin.
    pub boxes: Vec<[f32; 4]>,
    pub width: f32,
}

/// Lays out a line of text with `em` pixels per em.
pub(super) fn lay_out(text: &str, em: f32, bold: bool) -> Line {
    let scaled = scaled(em, bold);
    let mut line = Line::default();
    let mut previous = None;
    for character in in_visual_order(&joined(text)).chars() {
        if !is_drawn(character) {
            previous = None;
            append_code_point(character, em, bold, &mut line);
            continue;
        }
        let mut glyph = scaled.scaled_glyph(character);
        if let Some(previous) = previous.replace(glyph.id) {
            line.width += scaled.kern(previous, glyph.id);
        }
        glyph.position = point(line.width, 0.0);
        line.width += scaled.h_advance(glyph.id);
        line.glyphs.push(glyph);
    }
    line
}

/// Returns the font scaled to `em` pixels per em.
fn scaled(em: f32, bold: bool) -> PxScaleFont<&'static FontRef<'static>> {
    let font = font(bold);
    // ab_glyph scales fonts by their line height.
    font.into_scaled(em * font.height_unscaled() / font.units_per_em().unwrap_or(font.height_unscaled()))
}

/// Appends the code point of a character to a line: its digits in two rows, in a box of the height of an accented
/// capital.
fn append_code_point(character: char, em: f32, bold: bool, line: &mut Line) {
    const DIGIT_SIZE: f32 = 0.46;
    const BASELINES: [f32; 2] = [-0.38, 0.06];
    const TOP: f32 = -0.8;
    const BOTTOM: f32 = 0.14;
    let scaled = scaled(DIGIT_SIZE * em, bold);
    let code = character as u32;
    let digits = if code > 0xffff { format!("{code:06X}") } else { format!("{code:04X}") };
    let (left, inner_left) = (line.width + 0.05 * em, line.width + 0.12 * em);
    let mut right = inner_left;
    for (row, baseline) in
        [&digits[..digits.len() / 2], &digits[digits.len() / 2..]].into_iter().zip(BASELINES)
    {
        let mut x = inner_left;
        for digit in row.chars() {
            let mut glyph = scaled.scaled_glyph(digit);
            glyph.position = point(x, baseline * em);
            x += scaled.h_advance(glyph.id);
            line.glyphs.push(glyph);
        }
        right = right.max(x);
    }
    line.boxes.push([left, TOP * em, right + 0.07 * em, BOTTOM * em]);
    line.width = right + 0.12 * em;
}

/// Returns a line with Arabic letters in their joined forms, or unchanged if the font lacks one of them.
fn joined(line: &str) -> Cow<'_, str> {
    // Keep all vowel marks, and put each one after its letter in the reversed line.
    static RESHAPER: LazyLock<ArabicReshaper> = LazyLock::new(|| {
        let marks = ReshaperConfig {
            delete_harakat: false,
            shift_harakat_position: true,
            ..ReshaperConfig::default()
        };
        ArabicReshaper::new(marks)
    });
    if line.is_ascii() || !RESHAPER.need_reshape(line) {
        return Cow::Borrowed(line);
    }
    let joined = RESHAPER.reshape(line);
    if joined.chars().all(is_drawn) { Cow::Owned(joined) } else { Cow::Borrowed(line) }
}

/// Returns a line with its characters in visual order, from left to right. Scripts written from right to left are
/// stored in the opposite order.
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
    fn right_to_left_text_uses_visual_order() {
        // Shalom: its first letter, shin, is rightmost.
        let glyphs =
            |text: &str| lay_out(text, 10.0, false).glyphs.iter().map(|glyph| glyph.id).collect::<Vec<_>>();
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
    fn arabic_letters_join_and_keep_their_marks() {
        // Kitab: initial kaf, medial teh, final alef, isolated beh; from right to left.
        let word = "\u{643}\u{62a}\u{627}\u{628}";
        assert_eq!(joined(word), "\u{fedb}\u{fe98}\u{fe8e}\u{fe8f}");
        assert_eq!(in_visual_order(&joined(word)), "\u{fe8f}\u{fe8e}\u{fe98}\u{fedb}");
        assert_eq!(joined("\u{628}"), "\u{fe8f}", "an isolated letter");
        let marked = in_visual_order(&joined("\u{628}\u{64e}\u{628}")).into_owned();
        assert!(marked.contains('\u{64e}') && marked.chars().count() == 3, "{marked:?}");
        assert_eq!(joined("kitab 1"), "kitab 1");
        // The font lacks a joined form of this letter of Sindhi.
        assert!(joined("\u{6bb}\u{628}").chars().all(|letter| letter != '\0'));
    }

    #[test]
    fn characters_missing_from_the_font_stay_distinguishable() {
        let digits =
            |text: &str| lay_out(text, 20.0, false).glyphs.iter().map(|glyph| glyph.id).collect::<Vec<_>>();
        assert_eq!(digits("\u{5929}"), digits("5929"), "in two rows");
        assert_ne!(digits("\u{5929}"), digits("\u{592a}"));
        assert_eq!(digits("\u{1f680}"), digits("01F680"));
        let line = lay_out("a\u{5929}\u{592a}", 20.0, false);
        let [first, second] = line.boxes[..] else { panic!("one box per character: {:?}", line.boxes) };
        assert!(first[2] < second[0] && second[2] < line.width, "{first:?} {second:?} {}", line.width);
        assert!(line.glyphs[1].position.y < line.glyphs[4].position.y, "the first half above the second");
        assert!(lay_out("\u{5929}", 20.0, false).width < 26.0, "no wider than a character");
    }

    #[test]
    fn widths_grow_with_the_text_and_the_size() {
        let style = Text::new(10.0);
        assert_eq!(style.width(""), 0.0);
        // Ten digits: each is 0.636 em wide in DejaVu.
        assert!((style.width("0000000000") - 63.6).abs() < 0.1);
        assert!((Text::new(30.0).width("attention") / style.width("attention") - 3.0).abs() < 1e-3);
        assert!(style.bold().width("attention") > style.width("attention"));
    }

    #[test]
    fn wide_text_is_truncated_to_fit() {
        let style = Text::new(10.0);
        assert_eq!(style.fit("attention", 100.0), "attention");
        let cut = style.fit("attention is all you need", 60.0);
        assert!(cut.ends_with('…') && cut.starts_with("attent") && style.width(&cut) <= 60.0, "{cut}");
        assert_eq!(style.fit("attention", 1.0), "");
    }
}
