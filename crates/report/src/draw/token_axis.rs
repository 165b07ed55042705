//! The tokens along one side of a map or chart, with their positions. Whitespace is made visible and long tokens are
//! shortened. If there are too many tokens, only some are labelled, so that labels never touch.

use unicode_segmentation::UnicodeSegmentation;

use super::axis::LABEL_SIZE;
use super::color::MUTED;
use super::fonts::EMOJI_FORM;
use super::number::{Interval, tick_labels};
use super::picture::{Coordinates, Picture, Rect};
use super::text::Text;

/// The maximum length of a token on an axis, in characters; marks on a letter do not count.
const MAX_CHARACTERS: usize = 10;
/// The largest font size of tokens, and the font size of the positions next to them.
const TOKEN_SIZE: f64 = 10.0;
const POSITION_SIZE: f64 = 8.5;
/// The line spacing in ems.
const LINE_SPACING: f64 = 1.18;
/// The maximum length of a sequence whose positions are not numbered, because readers can count its tokens.
const MAX_UNNUMBERED_TOKENS: usize = 16;
/// The minimum width of a cell in logical pixels; longer sequences are binned.
const MIN_CELL_WIDTH: f64 = 1.0;
/// The space for the title, between the labels and the edge.
const TITLE_SPACE: f64 = 30.0;

/// The tokens below an area, or on its left.
#[derive(Debug, Clone)]
pub struct TokenAxis {
    tokens: Vec<String>,
    size: f64,
    /// The stride at which tokens are labelled.
    stride: usize,
    /// True if tokens below an area are written upwards because they are wider than their cells.
    is_upward: bool,
    /// The space for the tokens next to the area.
    label_space: f64,
    /// The stride at which positions are numbered; `None` for short sequences.
    numbered: Option<usize>,
    /// The number of positions per bin; above one, positions are labelled instead of tokens.
    pub bin: usize,
    /// True for an axis below an area, false for one on its left.
    is_horizontal: bool,
}

impl TokenAxis {
    /// Creates an axis of tokens along `length` logical pixels, below an area if `is_horizontal`, else on its left.
    /// Tokens are in their visible form and truncated to the width `max_width`.
    pub fn new(tokens: &[String], max_width: f64, length: f64, is_horizontal: bool) -> Self {
        let tokens: Vec<_> =
            tokens.iter().map(|token| Text::new(TOKEN_SIZE).fit(&visible(token), max_width)).collect();
        let pitch = length / tokens.len().max(1) as f64;
        // The largest size at which every token has a label, or the default if no size is small enough.
        let size = [TOKEN_SIZE, 9.0, 8.25]
            .into_iter()
            .find(|size| size * LINE_SPACING <= pitch)
            .unwrap_or(TOKEN_SIZE);
        let widest = tokens.iter().map(|token| Text::new(size).width(token)).fold(0.0, f64::max);
        let (stride, is_upward) = stride_and_direction(widest, pitch, size, is_horizontal);
        // Numbers are not written upwards, so they may need a wider stride than tokens.
        let digits = Text::new(POSITION_SIZE).width(&tokens.len().to_string()) + 6.0;
        let numbered_stride = stride * stride_of(pitch * stride as f64, digits);
        let label_space = if is_horizontal && !is_upward { size } else { widest };
        let numbered = (tokens.len() > MAX_UNNUMBERED_TOKENS).then_some(numbered_stride);
        let bin = stride_of(pitch, MIN_CELL_WIDTH);
        Self { tokens, size, stride, is_upward, label_space, numbered, bin, is_horizontal }
    }

    /// Returns the width or height of the labels and title next to the area.
    pub fn depth(&self) -> f64 {
        let digits = Text::new(POSITION_SIZE).width(&self.tokens.len().to_string());
        let numbers = self.numbered.map_or(0.0, |_| if self.is_horizontal { 12.0 } else { digits + 8.0 });
        match (self.is_horizontal, self.bin > 1) {
            (true, true) => 42.0,
            (true, false) => self.label_space + 28.0 + numbers,
            (false, true) => TITLE_SPACE + Text::new(LABEL_SIZE).width("1,000"),
            (false, false) => TITLE_SPACE + self.label_space + numbers,
        }
    }

    /// Returns the point at a fraction of the side of `area`, at the distance `outside` from it.
    fn point(&self, area: Rect, fraction: f64, outside: f64) -> Coordinates {
        match self.is_horizontal {
            true => (area.left + fraction * area.width, area.bottom() + outside),
            false => (area.left - outside, area.top + fraction * area.height),
        }
    }

    /// Draws the labels next to `area`, and the title; `role` is the role of the tokens, such as "query".
    pub fn draw(&self, picture: &mut Picture, area: Rect, role: &str) {
        let title = match (self.bin, self.numbered, self.is_horizontal) {
            (1, None, _) => role.to_string(),
            (1, Some(_), true) => format!("{role}: token and position"),
            (1, Some(_), false) => format!("{role}: position and token"),
            (bin, ..) => format!("{role} position, in bins of {bin}"),
        };
        let draw_labels = if self.bin > 1 { Self::draw_positions } else { Self::draw_tokens };
        draw_labels(self, picture, area);
        let style = Text::new(11.5).centered();
        let (style, edge) = if self.is_horizontal { (style, 10.0) } else { (style.upward(), 7.0) };
        picture.text(&title, self.point(area, 0.5, self.depth() - edge), &style);
    }

    fn draw_tokens(&self, picture: &mut Picture, area: Rect) {
        let (style, number) = (Text::new(self.size), Text::new(POSITION_SIZE).color(MUTED));
        let (style, outside) = match (self.is_horizontal, self.is_upward) {
            (true, true) => (style.right().upward(), 6.0),
            (true, false) => (style.centered(), 6.0 + self.size / 2.0),
            (false, _) => (style.right(), 6.0),
        };
        let (number, beyond) =
            if self.is_horizontal { (number.centered(), 13.0) } else { (number.right(), 12.0) };
        let point =
            |i: usize, outside| self.point(area, (i as f64 + 0.5) / self.tokens.len() as f64, outside);
        for (i, token) in self.tokens.iter().enumerate().step_by(self.stride) {
            picture.text(token, point(i, outside), &style);
        }
        for i in self.numbered.into_iter().flat_map(|stride| (0..self.tokens.len()).step_by(stride)) {
            picture.text(&i.to_string(), point(i, self.label_space + beyond), &number);
        }
    }

    fn draw_positions(&self, picture: &mut Picture, area: Rect) {
        let (count, style) = (self.tokens.len() as f64, Text::new(LABEL_SIZE).color(MUTED));
        let (length, style, outside) = match self.is_horizontal {
            true => (area.width, style.centered(), 12.0),
            false => (area.height, style.right(), 7.0),
        };
        let ticks = Interval { start: 0.0, end: count }.integer_ticks((length / 45.0) as usize);
        for (tick, label) in ticks.iter().zip(tick_labels(&ticks)) {
            let point = |outside: f64| self.point(area, tick / count, outside);
            picture.line(&[point(0.0), point(4.0)], MUTED, 1.0);
            picture.text(&label, point(outside), &style);
        }
    }
}

/// Returns the stride at which tokens `pitch` logical pixels apart are labelled, and true if they are written upwards.
fn stride_and_direction(widest: f64, pitch: f64, size: f64, is_horizontal: bool) -> (usize, bool) {
    let (flat, lines) = (stride_of(pitch, widest + size * 0.5), stride_of(pitch, size * LINE_SPACING));
    if is_horizontal && flat <= lines { (flat, false) } else { (lines, is_horizontal) }
}

/// Returns the smallest round stride that gives labels the space `needed`, with positions `pitch` apart.
pub(crate) fn stride_of(pitch: f64, needed: f64) -> usize {
    let min_stride = (needed / pitch).ceil() as usize;
    let rounds = [1, 2, 3, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000];
    rounds.into_iter().find(|&round| round >= min_stride).unwrap_or(min_stride)
}

/// Returns the visible form of a token, truncated to ten characters: whitespace and control characters as symbols, other
/// invisible characters as their codes, such as `\u{3000}`.
pub(crate) fn visible(token: &str) -> String {
    if token.is_empty() {
        return "∅".to_string();
    }
    let groups = token.graphemes(true);
    let is_cut = groups.clone().nth(MAX_CHARACTERS).is_some();
    let shown = groups.take(if is_cut { MAX_CHARACTERS - 1 } else { MAX_CHARACTERS });
    shown.map(visible_group).chain(is_cut.then(|| "…".to_string())).collect()
}

/// Returns the visible form of characters that form one glyph. A joiner between two of them and the marks of an emoji
/// change the glyph, and are kept.
fn visible_group(group: &str) -> String {
    const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];
    let is_symbol = |first: char| first > '\u{2000}' && !first.is_alphanumeric() && !is_invisible(first);
    let is_symbol = group.chars().next().is_some_and(is_symbol);
    let is_kept = |i: usize, character: char| {
        let is_inside = 0 < i && i + character.len_utf8() < group.len();
        let is_mark = matches!(character, EMOJI_FORM | '\u{e0020}'..='\u{e007f}');
        is_inside && JOINERS.contains(&character) || i > 0 && is_mark && is_symbol
    };
    let visible = |(i, character)| match character {
        kept if is_kept(i, kept) => kept.to_string(),
        invisible if is_invisible(invisible) => invisible.escape_unicode().to_string(),
        other => symbol(other).to_string(),
    };
    group.char_indices().map(visible).collect()
}

/// Returns the symbol of whitespace or of a control character; other characters are unchanged.
fn symbol(character: char) -> char {
    match character {
        ' ' => '␣',
        '\n' => '⏎',
        '\r' => '␍',
        '\t' => '⇥',
        // The Unicode control pictures have the same order as the control characters.
        control @ '\0'..='\x1f' => char::from_u32(0x2400 + control as u32).unwrap_or('�'),
        '\x7f' => '␡',
        other => other,
    }
}

/// Returns true for characters without a shape or symbol of their own, some of which change the text direction: those that
/// Unicode lets fonts ignore, controls and whitespace beyond ASCII, and the blank Braille pattern.
fn is_invisible(character: char) -> bool {
    match character {
        '\0'..='\x7f' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' => true,
        '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202f}'
        | '\u{2060}'..='\u{206f}' => true,
        '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control() || other.is_whitespace(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn whitespace_and_controls_are_visible() {
        assert_eq!(visible(" a\n"), "␣a⏎");
        assert_eq!(visible("\t\r\0"), "⇥␍␀");
        assert_eq!(visible("\u{202e}x"), "\\u{202e}x");
        assert_eq!(visible(&"\u{3000}".repeat(11)), format!("{}…", "\\u{3000}".repeat(9)));
        assert_eq!(visible(""), "∅");
        assert_eq!(visible("a\u{200d}"), "a\\u{200d}", "a joiner without effect");
        let emoji = "\u{1f469}\u{200d}\u{1f680}\u{2764}\u{fe0f}";
        assert_eq!(visible(emoji), emoji, "an astronaut and a red heart");
    }

    #[test]
    fn different_tokens_look_different() {
        let tokens = [
            "",
            " ",
            "\u{3000}",
            "\u{a0}",
            "\u{2003}",
            "\u{fe0e}",
            "\u{fe0f}",
            "a",
            "a\u{fe0e}",
            "a\u{fe0f}",
            "a\u{200b}",
            "a\u{34f}",
            "\u{3164}",
            "\u{2800}",
            "\u{e0001}",
            "\u{feff}",
            "\u{85}",
            "\u{7}",
            "❤",
            "❤\u{fe0f}",
            "❤\u{fe0e}",
        ];
        let shown: BTreeSet<String> = tokens.iter().map(|token| visible(token)).collect();
        assert_eq!(shown.len(), tokens.len(), "{shown:?}");
    }

    #[test]
    fn long_tokens_are_shortened_by_characters_not_bytes() {
        assert_eq!(visible("ääääääääää"), "ääääääääää");
        assert_eq!(visible("äääääääääää"), "äääääääää…");
        assert_eq!(
            visible("昨天小狗帮助一本书"),
            "昨天小狗帮助一本书",
            "also characters that the font lacks"
        );
        let marked = "e\u{301}".repeat(10);
        assert_eq!(visible(&marked), marked, "marks are part of their letter");
    }

    #[test]
    fn labels_never_touch() {
        let size = 10.0;
        for pitch in [0.4, 1.5, 6.0, 13.0, 60.0] {
            for text in ["7", "␣attention"] {
                let width = Text::new(size).width(text);
                let (stride, is_upward) = stride_and_direction(width, pitch, size, true);
                let needed = if is_upward { size } else { width };
                assert!(stride as f64 * pitch > needed, "{pitch} {text}: {stride}");
            }
        }
    }
}
