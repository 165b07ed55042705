//! Detection of text that another program decoded wrongly, and of text that is not plain.
//!
//! A file in valid UTF-8 may still be damaged: another program decoded it with the wrong encoding, or it contains the
//! markup of a document. A model can learn such a text, so the signs of damage are warnings, not errors.

use std::collections::BTreeSet;

use super::excerpt::excerpt;

/// The maximum number of control characters that a warning names.
const MAX_NAMED_CONTROLS: usize = 4;

/// The first characters of markup documents, in lower case, and the names of their formats.
const MARKUP: [(&str, &str); 4] =
    [("<!doctype html", "HTML"), ("<html", "HTML"), ("<?xml", "XML"), ("{\\rtf", "RTF")];

/// The signs of damage found so far.
#[derive(Debug, Default)]
pub(super) struct Damage {
    has_replacements: bool,
    /// The first characters that look like UTF-8 decoded as Windows-1252.
    mojibake: Option<String>,
    controls: BTreeSet<char>,
    is_iso_2022: bool,
}

impl Damage {
    /// Scans a piece of a text for signs of damage.
    pub fn scan(&mut self, piece: &str) {
        self.has_replacements |= piece.contains(char::REPLACEMENT_CHARACTER);
        if self.mojibake.is_none() {
            self.mojibake = mojibake(piece);
        }
        let is_control = |byte: u8| byte < b' ' && !b"\t\n\r\x0c".contains(&byte) || byte == 0x7f;
        if piece.bytes().any(is_control) {
            self.controls.extend(piece.chars().filter(|it| it.is_ascii() && is_control(*it as u8)));
            self.is_iso_2022 |= ["\x1b$B", "\x1b$@", "\x1b$)C"].iter().any(|escape| piece.contains(escape));
        }
    }

    /// Returns a warning for each sign.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.has_replacements {
            warnings.push(
                "the file contains replacement characters (U+FFFD), which another program wrote for \
                 characters that it could not decode; convert the original file to UTF-8 again"
                    .into(),
            );
        }
        if let Some(found) = &self.mojibake {
            warnings.push(format!(
                "the file contains `{}`, typical of UTF-8 that was decoded as Windows-1252; convert the \
                 original file to UTF-8 again",
                excerpt(found)
            ));
        }
        if self.is_iso_2022 {
            warnings.push(
                "the file contains escape sequences of ISO-2022; convert it to UTF-8, for Japanese with \
                 `iconv -f ISO-2022-JP -t UTF-8 FILE > NEW`"
                    .into(),
            );
        } else if !self.controls.is_empty() {
            let named =
                self.controls.iter().take(MAX_NAMED_CONTROLS).map(|it| format!("U+{:04X}", *it as u32));
            let more = if self.controls.len() > MAX_NAMED_CONTROLS { ", …" } else { "" };
            let colours = if self.controls.contains(&'\x1b') { ", such as terminal colours" } else { "" };
            warnings.push(format!(
                "the file contains control characters ({}{more}){colours}; remove them unless they are \
                 intended",
                named.collect::<Vec<_>>().join(", ")
            ));
        }
        warnings
    }
}

/// Returns the format of a document by its first characters, if these are markup.
pub(super) fn markup(text: &str) -> Option<&'static str> {
    let start: String = text.trim_start().chars().take(16).collect::<String>().to_ascii_lowercase();
    MARKUP.into_iter().find(|(mark, _)| start.starts_with(mark)).map(|(_, name)| name)
}

/// Returns the first two characters that are probably one character of UTF-8 in the wrong encoding.
fn mojibake(piece: &str) -> Option<String> {
    let is_pair = |lead: char, next: char| match lead {
        'Â' | 'Ã' | 'Ð' | 'Ñ' => ('\u{80}'..='\u{bf}').contains(&next) || lead != 'Ñ' && next == '€',
        'â' => next == '€',
        _ => false,
    };
    let leads = piece.char_indices().filter(|(_, it)| "ÂÃÐÑâ".contains(*it));
    leads.into_iter().find_map(|(at, lead)| {
        let next = piece[at + lead.len_utf8()..].chars().next()?;
        is_pair(lead, next).then(|| format!("{lead}{next}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> String {
        let mut damage = Damage::default();
        damage.scan(text);
        damage.warnings().join("\n")
    }

    #[test]
    fn wrong_encodings_are_recognised() {
        for (text, sign) in [
            ("caf\u{fffd}", "U+FFFD"),
            ("cafÃ©", "`Ã©`"),
            ("itâ€™s", "`â€`"),
            ("Ð¿ÑƒÑ‚ÑŒ", "`Ð¿`"),
            ("\x1b$B$3$s\x1b(B", "ISO-2022-JP"),
            ("\x1b[31mred\x1b[0m", "(U+001B), such as terminal colours"),
            ("a\x01b\x02", "(U+0001, U+0002)"),
        ] {
            assert!(warnings(text).contains(sign), "{text:?}: {}", warnings(text));
        }
    }

    #[test]
    fn intact_texts_of_many_languages_cause_no_warnings() {
        for text in ["São Paulo, ÂNGULO, â", "NIÑO, Nº 5", "Ðaðan", "пять", "日本", "a\tb\r\nc\x0c"]
        {
            assert_eq!(warnings(text), "", "{text}");
        }
    }

    #[test]
    fn markup_is_recognised_at_the_start() {
        assert_eq!(markup("\n<!DOCTYPE html>\n<html>"), Some("HTML"));
        assert_eq!(markup("{\\rtf1\\ansi"), Some("RTF"));
        assert_eq!(markup("see <html>"), None);
    }
}
