//! Double quotes in CSV: they enclose a value, or are part of it.
//!
//! CSV (RFC 4180) encloses a value in quotes if it contains the delimiter, a quote or a line break. Many programs write
//! tabs between texts without such rules, so that a quotation is only text.

use super::Table;
use crate::data::config::{Delimiter, Quotes};
use crate::error::Result;

/// The quotes of a text that are not as in CSV, by the numbers of their lines.
#[derive(Debug, Default, PartialEq)]
struct Irregular {
    /// The first quote that closes before the end of its value, or never.
    misplaced: Option<usize>,
    /// The first quoted value that contains a line break.
    spanning: Option<usize>,
    /// True if a quoted value contains doubled quotes, which stand for one.
    has_doubled: bool,
}

impl Irregular {
    fn of(text: &str, delimiter: u8) -> Self {
        let (bytes, mut found) = (text.as_bytes(), Self::default());
        let (mut at, mut line, mut begins_value) = (0, 1, true);
        while at < bytes.len() {
            let byte = bytes[at];
            if byte != b'"' || !begins_value {
                begins_value = byte == delimiter || byte == b'\n';
                line += usize::from(byte == b'\n');
                at += 1;
                continue;
            }
            let first_line = line;
            let Some(end) = closing(bytes, at + 1) else {
                found.misplaced = found.misplaced.or(Some(line));
                return found;
            };
            line += bytes[at..end].iter().filter(|&&byte| byte == b'\n').count();
            found.has_doubled |= bytes[at + 1..end].windows(2).any(|pair| pair == b"\"\"");
            if line > first_line {
                found.spanning = found.spanning.or(Some(first_line));
            }
            let rest = &bytes[end + 1..];
            let next = rest.iter().find(|&&byte| byte == delimiter || !b" \r".contains(&byte));
            if next.is_some_and(|&next| next != delimiter && next != b'\n') {
                found.misplaced = found.misplaced.or(Some(first_line));
            }
            (at, begins_value) = (end + 1, false);
        }
        found
    }
}

/// Returns the index of the quote that closes a value; doubled quotes belong to it.
fn closing(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += bytes[at..].iter().position(|&byte| byte == b'"')?;
        if bytes.get(at + 1) != Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// Returns true if all lines have the same number of delimiters, and at least one.
fn is_regular(text: &str, delimiter: u8) -> bool {
    let mut counts = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.bytes().filter(|&byte| byte == delimiter).count());
    let first = counts.next().unwrap_or(0);
    first > 0 && counts.all(|count| count == first)
}

impl Table<'_> {
    /// Returns true if quotes enclose values, according to `data.quotes` or else to the lines.
    ///
    /// # Errors
    /// Returns an error for quotes that can be read neither way.
    pub(super) fn reads_quotes(&mut self, text: &str, delimiter: u8) -> Result<bool> {
        let irregular = match self.config.quotes {
            Quotes::Given(quotes) => return Ok(quotes),
            // Quotes after a backslash are refused with their own message.
            Quotes::Auto if text.contains('"') && !text.contains("\\\"") && delimiter != b' ' => {
                Irregular::of(text, delimiter)
            }
            Quotes::Auto => return Ok(true),
        };
        let regular = is_regular(text, delimiter);
        let evidence = match irregular {
            Irregular { misplaced: Some(line), .. } if delimiter == b'\t' => {
                format!("line {line} has text after a closing quote, or a quote that is never closed")
            }
            Irregular { misplaced: Some(line), .. } => {
                let problem = format!(
                    "has text after a closing quote, or a quote that is never closed; set `data.delimiter` if another \
                     character than {} separates the values, write two quotes for each quote within a value, or set \
                     `data.quotes` = false if quotes are part of the values",
                    Delimiter::Of(delimiter)
                );
                return Err(self.problem(Some(self.line(line)), problem));
            }
            Irregular { spanning: Some(line), has_doubled: false, .. } if regular => {
                format!(
                    "the quote in line {line} would enclose a line break, but every line has the same number of values"
                )
            }
            Irregular { .. } => return Ok(true),
        };
        self.reading.guesses.push(format!(
            "{evidence}, so quotes are read as part of the values (delimiter {}); set `data.quotes` = true if they enclose \
             values, or false",
            Delimiter::Of(delimiter)
        ));
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_that_enclose_no_values_are_found() {
        let of = |text: &str| {
            let Irregular { misplaced, spanning, .. } = Irregular::of(text, b'\t');
            (misplaced, spanning)
        };
        assert_eq!(of("a\t\"b\tc\"\nd\t\"say \"\"hi\"\"\" \r\n5\" x\ty"), (None, None));
        assert_eq!(of("a\tb\n\"Hi,\" he said\tc"), (Some(2), None));
        assert_eq!(of("a\t\"b\nc"), (Some(1), None));
        assert_eq!(of("x\ty\n\"b\nc\"\td"), (None, Some(2)));
        assert!(Irregular::of("1\t\"say \"\"hi\"\"\"", b'\t').has_doubled);
        assert!(!Irregular::of("1\t\"\"\n2\t\"b\"", b'\t').has_doubled);
    }
}
