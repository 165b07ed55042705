//! How tokens read on an axis: whitespace made visible, long ones shortened, labels thinned so that
//! none touches its neighbour.

use super::text::{Text, is_drawn};

/// The longest token on an axis, in characters.
const LONGEST: usize = 10;

/// A token as it is shown: whitespace and controls as their symbols, what the font does not have by
/// its number, cut to ten characters.
pub(crate) fn visible(token: &str) -> String {
    if token.is_empty() {
        return "∅".to_string();
    }
    let (mut text, mut length) = (String::new(), 0);
    // Enough to see that there is more.
    let shown = token.chars().take(LONGEST + 1).map(shown).collect::<Vec<_>>();
    let whole = shown.iter().map(|piece| piece.chars().count()).sum::<usize>() <= LONGEST;
    for piece in shown {
        length += piece.chars().count();
        if !whole && length >= LONGEST {
            text.push('…');
            break;
        }
        text += &piece;
    }
    text
}

/// A character as it is shown.
fn shown(character: char) -> String {
    let symbol = match character {
        ' ' => '␣',
        '\n' => '⏎',
        '\r' => '␍',
        '\t' => '⇥',
        // The control pictures stand in the order of the control characters.
        control @ '\0'..='\x1f' => char::from_u32(0x2400 + control as u32).unwrap_or('�'),
        '\x7f' => '␡',
        // Anything else that prints nothing, or turns the direction of what follows.
        '\u{80}'..='\u{a0}'
        | '\u{ad}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202f}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3000}'
        | '\u{feff}' => '·',
        unknown if !is_drawn(unknown) => return format!("U+{:04X}", unknown as u32),
        other => other,
    };
    symbol.to_string()
}

/// Which positions of an axis are labelled, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Every `stride`-th position, from the first.
    pub stride: usize,
    /// Labels are turned to read upward, for they are wider than their place.
    pub upward: bool,
}

/// The distance of lines of text, in ems.
const LINE: f64 = 1.18;

impl Labels {
    /// For a horizontal axis on which each of `texts` has `pitch` logical pixels.
    pub fn across(texts: &[String], pitch: f64, look: &Text, size: f64) -> Self {
        let widest = texts.iter().map(|text| look.width(text)).fold(0.0, f64::max);
        let flat = stride(pitch, widest + size * 0.5);
        let upward = stride(pitch, size * LINE);
        if flat <= upward {
            Labels { stride: flat, upward: false }
        } else {
            Labels { stride: upward, upward: true }
        }
    }

    /// For a vertical axis on which each label has `pitch` logical pixels.
    pub fn down(pitch: f64, size: f64) -> Self {
        Labels { stride: stride(pitch, size * LINE), upward: false }
    }
}

/// The largest of the sizes from `usual` down to the least legible one at which every label of
/// `pitch` logical pixels has its place; `usual` where none is small enough.
pub(crate) fn size_that_fits(pitch: f64, usual: f64) -> f64 {
    [usual, 9.0, 8.25].into_iter().find(|size| size * LINE <= pitch).unwrap_or(usual)
}

/// The least round stride whose labels are `needed` apart.
fn stride(pitch: f64, needed: f64) -> usize {
    round_stride((needed / pitch).ceil() as usize)
}

/// The least number of positions, of those in which people count, that is not below `least`.
pub(crate) fn round_stride(least: usize) -> usize {
    let rounds = [1, 2, 3, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000];
    rounds.into_iter().find(|&round| round >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_and_controls_are_visible() {
        assert_eq!(visible(" a\n"), "␣a⏎");
        assert_eq!(visible("\t\r\0"), "⇥␍␀");
        assert_eq!(visible("\u{202e}x"), "·x");
        assert_eq!(visible(""), "∅");
    }

    #[test]
    fn long_tokens_are_shortened_by_characters_not_bytes() {
        assert_eq!(visible("ääääääääää"), "ääääääääää");
        assert_eq!(visible("äääääääääää"), "äääääääää…");
    }

    #[test]
    fn labels_never_touch() {
        let size = 10.0;
        let look = Text::new(size);
        for pitch in [0.4, 1.5, 6.0, 13.0, 60.0] {
            for texts in [vec!["7".to_string(); 11], vec!["␣attention".to_string(); 11]] {
                let labels = Labels::across(&texts, pitch, &look, size);
                let needed = if labels.upward { size } else { look.width(&texts[0]) };
                assert!(labels.stride as f64 * pitch > needed, "{pitch} {texts:?} {labels:?}");
            }
        }
    }
}
