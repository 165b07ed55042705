//! The layout of a line of text: its characters in visual order, shaped by the rules of their script. A character
//! without a font is drawn as its code point in a box, in two rows of hexadecimal digits, so that such characters stay
//! distinguishable.

use ab_glyph::{Font, FontRef, Glyph, GlyphId, PxScale, PxScaleFont, ScaleFont, point};
use rustybuzz::{Direction, UnicodeBuffer};
use unicode_bidi::BidiInfo;
use unicode_segmentation::UnicodeSegmentation;

use super::fonts::{FontFace, covering, embedded};

/// A glyph of a font, positioned from (0, 0) on the baseline.
pub(super) struct PlacedGlyph {
    pub font: &'static FontFace,
    pub glyph: Glyph,
    /// The distance to the next glyph.
    pub advance: f32,
    /// The text that the glyph represents; empty for all but the first glyph of a group.
    pub text: String,
}

/// A line of laid-out text.
#[derive(Default)]
pub(super) struct Line {
    pub glyphs: Vec<PlacedGlyph>,
    /// The boxes around code points: left, top, right and bottom, from the same origin.
    pub boxes: Vec<[f32; 4]>,
    pub width: f32,
}

/// Lays out a line of text with `em` pixels per em.
pub(super) fn lay_out(text: &str, em: f32, bold: bool) -> Line {
    let mut line = Line::default();
    let font = embedded(bold);
    // Shaping takes most of the time, and nearly all texts do without it.
    if text.chars().all(|character| is_simple(character) && font.has(character)) {
        append_simple(text, em, bold, &mut line);
        return line;
    }
    let order = BidiInfo::new(text, None);
    for paragraph in &order.paragraphs {
        let (levels, runs) = order.visual_runs(paragraph, paragraph.range.clone());
        for run in runs {
            let is_leftward = levels[run.start].is_rtl();
            let mut pieces = pieces(&text[run], bold);
            if is_leftward {
                pieces.reverse();
            }
            for (font, piece) in pieces {
                match font {
                    Some(font) => append_shaped(font, piece, em, is_leftward, &mut line),
                    None => append_code_points(piece, em, bold, &mut line),
                }
            }
        }
    }
    line
}

/// Returns true for characters whose glyphs follow each other: Latin letters, punctuation, arrows and symbols.
fn is_simple(character: char) -> bool {
    matches!(character, '\0'..='\u{2ff}' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{2070}'..='\u{20cf}'
        | '\u{2100}'..='\u{2bff}' | '\u{fffd}')
}

fn append_simple(text: &str, em: f32, bold: bool, line: &mut Line) {
    let (font, scaled) = (embedded(bold), scaled(embedded(bold), em));
    let mut previous = None;
    for character in text.chars() {
        let mut glyph = scaled.scaled_glyph(character);
        if let Some(previous) = previous.replace(glyph.id) {
            line.width += scaled.kern(previous, glyph.id);
        }
        glyph.position = point(line.width, 0.0);
        let advance = scaled.h_advance(glyph.id);
        line.width += advance;
        line.glyphs.push(PlacedGlyph { font, glyph, advance, text: character.to_string() });
    }
}

/// Divides text of one direction into pieces of one font each. A group of characters that form one glyph is divided
/// only if no font has all of them.
fn pieces(text: &str, bold: bool) -> Vec<(Option<&'static FontFace>, &str)> {
    let mut pieces: Vec<(Option<&'static FontFace>, &str)> = Vec::new();
    let mut start = 0;
    let mut append = |font: Option<&'static FontFace>, end: usize| {
        let address = |font: Option<&'static FontFace>| font.map(std::ptr::from_ref);
        match pieces.last_mut() {
            Some(last) if address(last.0) == address(font) => {
                last.1 = &text[start - last.1.len()..end];
            }
            _ => pieces.push((font, &text[start..end])),
        }
        start = end;
    };
    for (begin, group) in text.grapheme_indices(true) {
        match covering(group, bold) {
            Some(font) => append(Some(font), begin + group.len()),
            None => {
                for (i, character) in group.char_indices() {
                    let end = begin + i + character.len_utf8();
                    append(covering(&text[begin + i..end], bold), end);
                }
            }
        }
    }
    pieces
}

/// Appends text of one font and direction. Its glyphs are in visual order.
fn append_shaped(font: &'static FontFace, text: &str, em: f32, is_leftward: bool, line: &mut Line) {
    let mut buffer = UnicodeBuffer::new();
    buffer.push_str(text);
    buffer.guess_segment_properties();
    buffer.set_direction(if is_leftward { Direction::RightToLeft } else { Direction::LeftToRight });
    let shaped = rustybuzz::shape(&font.shaper, &[], buffer);
    let (scale, unit) = (px_scale(font, em), em / font.shaper.units_per_em() as f32);
    let infos = shaped.glyph_infos();
    // The end of each group: the start of the next one in the text.
    let mut starts: Vec<usize> = infos.iter().map(|info| info.cluster as usize).chain([text.len()]).collect();
    starts.sort_unstable();
    let mut previous = None;
    for (info, place) in infos.iter().zip(shaped.glyph_positions()) {
        let (dx, dy) = (place.x_offset as f32 * unit, place.y_offset as f32 * unit);
        let id = GlyphId(info.glyph_id as u16);
        let glyph = Glyph { id, scale, position: point(line.width + dx, -dy) };
        let cluster = info.cluster as usize;
        let end = starts.iter().copied().find(|&start| start > cluster).unwrap_or(text.len());
        let is_first = previous.replace(cluster) != Some(cluster);
        let group = if is_first { text[cluster..end].to_string() } else { String::new() };
        let advance = place.x_advance as f32 * unit;
        line.glyphs.push(PlacedGlyph { font, glyph, advance, text: group });
        line.width += advance;
    }
}

fn px_scale(font: &FontFace, em: f32) -> PxScale {
    // ab_glyph scales fonts by their line height.
    let outlines = &font.outlines;
    let units = outlines.units_per_em().unwrap_or(outlines.height_unscaled());
    PxScale::from(em * outlines.height_unscaled() / units)
}

/// Returns a font scaled to `em` pixels per em.
fn scaled(font: &'static FontFace, em: f32) -> PxScaleFont<&'static FontRef<'static>> {
    (&font.outlines).into_scaled(px_scale(font, em))
}

/// Appends the code points of characters to a line, each in a box of the height of an accented capital.
fn append_code_points(text: &str, em: f32, bold: bool, line: &mut Line) {
    const DIGIT_SIZE: f32 = 0.46;
    const BASELINES: [f32; 2] = [-0.38, 0.06];
    const TOP: f32 = -0.8;
    const BOTTOM: f32 = 0.14;
    let (font, scaled) = (embedded(bold), scaled(embedded(bold), DIGIT_SIZE * em));
    for character in text.chars() {
        let code = character as u32;
        let digits = if code > 0xffff { format!("{code:06X}") } else { format!("{code:04X}") };
        let (left, inner_left) = (line.width + 0.05 * em, line.width + 0.12 * em);
        let mut right = inner_left;
        let mut represented = character.to_string();
        let (above, below) = digits.split_at(digits.len() / 2);
        for (row, baseline) in [above, below].into_iter().zip(BASELINES) {
            let mut x = inner_left;
            for digit in row.chars() {
                let mut glyph = scaled.scaled_glyph(digit);
                glyph.position = point(x, baseline * em);
                let advance = scaled.h_advance(glyph.id);
                x += advance;
                let text = std::mem::take(&mut represented);
                line.glyphs.push(PlacedGlyph { font, glyph, advance, text });
            }
            right = right.max(x);
        }
        line.boxes.push([left, TOP * em, right + 0.07 * em, BOTTOM * em]);
        line.width = right + 0.12 * em;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glyphs(text: &str) -> Vec<GlyphId> {
        lay_out(text, 20.0, false).glyphs.iter().map(|placed| placed.glyph.id).collect()
    }

    #[test]
    fn right_to_left_text_uses_visual_order() {
        // Shalom: its first letter, shin, is rightmost.
        let letters = "\u{5e9}\u{5dc}\u{5d5}\u{5dd}".chars();
        let reversed: Vec<_> = letters.clone().rev().flat_map(|letter| glyphs(&letter.to_string())).collect();
        let word: String = letters.collect();
        assert_eq!(glyphs(&word), reversed);
        let mixed = glyphs(&format!("ab {word} 12"));
        assert_eq!((&mixed[..3], &mixed[3..5]), (&glyphs("ab ")[..], &glyphs("12")[..]), "a number after it");
        assert_eq!(&mixed[6..], &reversed[..]);
    }

    #[test]
    fn arabic_letters_join_and_keep_their_marks() {
        // Kitab: initial kaf, medial teh, final alef, isolated beh; from right to left.
        let joined = ["\u{628}", "\u{fe8e}", "\u{fe98}", "\u{fedb}"].map(|form| glyphs(form)[0]);
        assert_eq!(glyphs("\u{643}\u{62a}\u{627}\u{628}"), joined);
        assert_eq!(glyphs("\u{628}\u{64e}\u{628}").len(), 3, "the mark is drawn");
    }

    #[test]
    fn combining_marks_are_above_their_letters() {
        // x has no precomposed form with a tilde.
        let line = lay_out("x\u{303}i", 20.0, false);
        let [letter, mark, next] = &line.glyphs[..] else { panic!("{} glyphs", line.glyphs.len()) };
        let bounds = |placed: &PlacedGlyph| {
            placed.font.outlines.outline_glyph(placed.glyph.clone()).unwrap().px_bounds()
        };
        let (letter, mark, next) = (bounds(letter), bounds(mark), bounds(next));
        assert!(mark.max.y <= letter.min.y + 1.0 && mark.max.x < next.min.x, "{letter:?} {mark:?} {next:?}");
        assert!((mark.min.x + mark.max.x - letter.min.x - letter.max.x).abs() < 4.0, "{letter:?} {mark:?}");
        assert_eq!(lay_out("x\u{303}i", 20.0, false).width, lay_out("xi", 20.0, false).width);
    }

    #[test]
    fn characters_without_a_font_stay_distinguishable() {
        // Unassigned code points.
        assert_eq!(glyphs("\u{378}"), glyphs("0378"), "in two rows");
        assert_eq!(glyphs("\u{10ffef}"), glyphs("10FFEF"));
        let line = lay_out("a\u{378}\u{379}", 20.0, false);
        let [first, second] = line.boxes[..] else { panic!("one box per character: {:?}", line.boxes) };
        assert!(first[2] < second[0] && second[2] < line.width, "{first:?} {second:?} {}", line.width);
        let y = |i: usize| line.glyphs[i].glyph.position.y;
        assert!(y(1) < y(4), "the first half above the second");
        assert!(lay_out("\u{378}", 20.0, false).width < 26.0, "no wider than a character");
    }

    #[test]
    fn different_tokens_of_any_script_look_different() {
        // With or without installed fonts: Chinese, Japanese, Hindi, Thai, and emoji.
        for [a, b] in
            [["天", "太"], ["か", "が"], ["कि", "की"], ["ก", "ข"], ["🚀", "🚁"], ["👩", "👩\u{200d}🚀"]]
        {
            let drawn = |text: &str| {
                let line = lay_out(text, 20.0, false);
                let glyph = |placed: &PlacedGlyph| (std::ptr::from_ref(placed.font), placed.glyph.id);
                assert!(
                    line.width > 0.0 && line.glyphs.iter().all(|placed| placed.glyph.id.0 != 0),
                    "{text}"
                );
                line.glyphs.iter().map(glyph).collect::<Vec<_>>()
            };
            assert_ne!(drawn(a), drawn(b), "{a} {b}");
        }
    }
}
