//! Comments in CSV: lines that begin with `#`, or with `data.comment`.
//!
//! A `#` also begins hashtags, and the header that some programs write (`#id,name`), so a line that begins with `#` is
//! taken for a comment only if it cannot be a row: all other lines have the same number of values, and it has another
//! one; or the other lines begin with numbers. The last line of the first block of such lines is kept as a header if it
//! has as many values as the rows, and the line below it is not a header.

use super::{Table, delimiter};
use crate::data::config::{Comment, Delimiter, Header};
use crate::data::excerpt::excerpt;
use crate::numbers::counted;

/// The sign that begins a comment if `data.comment` is `"auto"`.
const SIGN: char = '#';

impl Table<'_> {
    /// Returns the text with its comments replaced by empty lines, which keeps the numbers of the other lines.
    pub(super) fn without_comments(&mut self, text: String) -> String {
        self.seen.has_comments = false;
        let comments = match &self.config.comment {
            Comment::None => return text,
            Comment::Of(beginning) => {
                let lines = unquoted_lines(&text).filter(|(_, line)| line.starts_with(beginning));
                lines.map(|(index, _)| index).collect()
            }
            Comment::Auto => self.inferred_comments(&text).unwrap_or_default(),
        };
        if comments.is_empty() {
            return text;
        }
        self.reading.comments += comments.len();
        self.seen.has_comments = true;
        let is_comment = |index: &usize| comments.binary_search(index).is_ok();
        let lines = text.split_inclusive('\n').enumerate();
        lines.map(|(index, line)| if is_comment(&index) { "\n" } else { line }).collect()
    }

    /// Returns the indices of the lines that are comments, and reports them. `None` if there are none, or if some of the
    /// lines that begin with `#` may be rows.
    fn inferred_comments(&mut self, text: &str) -> Option<Vec<usize>> {
        let signed = signed_lines(text);
        let &(first, _) = signed.first()?;
        let is_filled = |line: &&str| !line.trim().is_empty() && !line.starts_with(SIGN);
        let others: String =
            text.split_inclusive('\n').filter(is_filled).take(delimiter::SAMPLE_LINES).collect();
        let separator = match self.config.delimiter {
            Delimiter::Of(separator) => separator,
            Delimiter::Auto => delimiter::infer(&others, &self.extension()).delimiter,
        };
        let rows: Vec<_> = delimiter::records(&others, separator).collect::<Result<_, _>>().ok()?;
        let is_number =
            |row: &csv::StringRecord| row.get(0).is_some_and(|value| value.parse::<f64>().is_ok());
        let (top, below) = rows.split_first()?;
        // The first row may hold the names of the others.
        let width = below.first().unwrap_or(top).len();
        let are_even = width > 1 && rows.iter().all(|row| row.len() == width);
        let are_numbers = is_number(below.first().unwrap_or(top)) && below.iter().all(is_number);
        let has_width = |line: &str| {
            delimiter::records(line, separator).flatten().next().is_some_and(|row| row.len() == width)
        };
        let block = signed.iter().zip(first..).take_while(|((index, _), expected)| index == expected).count();
        let header = signed[block - 1];
        let is_above = text.lines().take(first).all(|line| line.trim().is_empty());
        let may_be_header = self.config.header != Header::Given(false) && (!are_numbers || is_number(top));
        let is_header = is_above && may_be_header && has_width(header.1);
        let comments = signed.iter().filter(|(index, _)| !(is_header && *index == header.0));
        let is_certain = are_numbers || are_even && comments.clone().all(|(_, line)| !has_width(line));
        let comments: Vec<usize> = comments.map(|(index, _)| *index).collect();
        if !is_certain || comments.is_empty() {
            return None;
        }
        let (line, last) = (comments[0] + 1, comments[comments.len() - 1] + 1);
        let shown = excerpt(text.lines().nth(comments[0]).unwrap_or_default());
        let names = match is_header {
            true => format!(", but line {} (`{}`) is read as the header", header.0 + 1, excerpt(header.1)),
            false => String::new(),
        };
        self.reading.guesses.push(match comments.len() {
            1 => format!(
                "line {line} (`{shown}`) begins with `#` and is skipped as a comment{names}; set `data.comment` = \"none\" \
                 to read it"
            ),
            count => format!(
                "{} that begin with `#` are skipped as comments, from line {line} (`{shown}`) to line {last}{names}; set \
                 `data.comment` = \"none\" to read them",
                counted(count, "line"),
            ),
        });
        Some(comments)
    }
}

/// Iterates over the lines that do not begin within quotes, with their indices. A quote opens only at the beginning of a
/// value, and not in a line that begins with `#`, which may be a comment.
pub(super) fn unquoted_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_quoted = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let begins_outside = !is_quoted;
        if begins_outside && line.starts_with(SIGN) {
            return true;
        }
        let mut before = ',';
        for character in line.chars() {
            is_quoted = match (character, is_quoted) {
                // A second quote within quotes stands for one.
                ('"', false) => ",;\t| \"".contains(before),
                ('"', true) => false,
                (_, is_quoted) => is_quoted,
            };
            before = character;
        }
        begins_outside
    })
}

/// Returns the lines that begin with `#` outside quotes, with their indices; none if all lines do.
fn signed_lines(text: &str) -> Vec<(usize, &str)> {
    let (signed, others): (Vec<_>, Vec<_>) =
        unquoted_lines(text).partition(|(_, line)| line.starts_with(SIGN));
    if others.iter().any(|(_, line)| !line.trim().is_empty()) { signed } else { Vec::new() }
}
