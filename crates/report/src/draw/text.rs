//! The style and the measurement of text.

use plotters::style::{RGBColor, text_anchor::HPos};
use unicode_segmentation::UnicodeSegmentation;

use super::color;
use super::layout::lay_out;

/// Half the height of capitals, in ems.
pub(super) const HALF_CAPITAL: f64 = 0.365;

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
        let cuts = text.grapheme_indices(true).rev().map(|(end, _)| format!("{}…", text[..end].trim_end()));
        std::iter::once(text.to_string()).chain(cuts).find(|cut| self.width(cut) <= width).unwrap_or_default()
    }

    /// Returns the texts so that they fit into `width`. If one is wider, all lose as much of their common beginning as
    /// needed, and texts that are still wider lose their middle: names often differ at the end.
    pub fn fit_distinct(&self, texts: &[String], width: f64) -> Vec<String> {
        let fits = |texts: &[String]| texts.iter().all(|text| self.width(text) <= width);
        if fits(texts) {
            return texts.to_vec();
        }
        let without =
            |start: usize| texts.iter().map(|text| format!("…{}", &text[start..])).collect::<Vec<_>>();
        let is_common = |start: &usize| texts.iter().all(|text| text.starts_with(&texts[0][..*start]));
        let starts = texts[0].grapheme_indices(true).map(|(start, _)| start).take_while(is_common);
        let cut = starts.map(without).filter(|_| texts.len() > 1).find(|texts| fits(texts));
        cut.unwrap_or_else(|| texts.iter().map(|text| self.fit_middle(text, width)).collect())
    }

    /// Returns the text with an ellipsis in its middle if it is wider than `width`.
    fn fit_middle(&self, text: &str, width: f64) -> String {
        let parts: Vec<&str> = text.graphemes(true).collect();
        let cut = |kept: usize| {
            let (first, last) = (kept.div_ceil(2), kept / 2);
            format!("{}…{}", parts[..first].concat(), parts[parts.len() - last..].concat())
        };
        let cuts = (1..parts.len()).rev().map(cut);
        std::iter::once(text.to_string()).chain(cuts).find(|cut| self.width(cut) <= width).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::picture::{Coordinates, Rect};

    impl Text {
        /// Returns the area of the capitals of a text with its anchor at a point.
        pub fn area(&self, text: &str, (x, y): Coordinates) -> Rect {
            let (width, half) = (self.width(text), HALF_CAPITAL * self.size);
            let before = match self.align {
                HPos::Left => 0.0,
                HPos::Center => width / 2.0,
                HPos::Right => width,
            };
            match self.upward {
                true => Rect { left: x - half, top: y + before - width, width: 2.0 * half, height: width },
                false => Rect { left: x - before, top: y - half, width, height: 2.0 * half },
            }
        }
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

    #[test]
    fn names_that_are_cut_stay_distinct() {
        let style = Text::new(10.0);
        let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let cut = |names: &[&str]| style.fit_distinct(&texts(names), 100.0);
        assert_eq!(cut(&["a", "b"]), ["a", "b"]);
        let ends = cut(&["shared/by/all/of/the/runs_1", "shared/by/all/of/the/runs_2"]);
        assert!(
            ends[0].starts_with('…') && ends[0].ends_with("the/runs_1") && ends[1].ends_with("_2"),
            "{ends:?}"
        );
        let middles = cut(&["one long name of a run, first", "another long name of a run, second"]);
        assert!(middles[0].ends_with("first") && middles[1].starts_with("another"), "{middles:?}");
        assert!(ends.iter().all(|name| style.width(name) <= 100.0), "{ends:?}");
        assert!(middles.iter().all(|name| name.contains('…') && style.width(name) <= 100.0), "{middles:?}");
        assert!(cut(&["a single name that is too long_7"])[0].ends_with("_7"));
    }
}
