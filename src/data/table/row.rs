//! One line of a table: its values as they are written, and where they stand.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::Error;

/// The values of a line. Its memory is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The values, one after the other.
    text: String,
    /// Where each ends.
    ends: Vec<usize>,
    /// Where the line begins in the file: its number from 1, and its byte.
    pub line: usize,
    pub byte: u64,
}

impl Row {
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    pub fn push(&mut self, value: &str) {
        self.text.push_str(value);
        self.ends.push(self.text.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn value(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..self.ends[index]]
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &str> {
        (0..self.len()).map(|index| self.value(index))
    }

    /// Leaves out empty values at the end: programs write them to make lines equally long.
    pub fn trim_end(&mut self) {
        while self.ends.last().is_some_and(|_| self.value(self.len() - 1).is_empty()) {
            self.ends.pop();
        }
    }
}

/// How the values of a line are told apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layout<'a> {
    /// By a delimiter, outside of quotes.
    Delimited(char),
    /// As the elements of a JSON array.
    Array,
    /// As a member of a JSON object, by its name.
    Member(&'a str),
}

/// A problem with the value `index` of a row: looks up its column in the file, which is not kept
/// while all goes well.
pub(super) fn problem_at(path: &Path, row: &Row, index: usize, layout: Layout<'_>, problem: String) -> Error {
    // Rows start with the blank lines before them, where a reader skips these.
    let text = read_from(path, row.byte).unwrap_or_default();
    let start = text.trim_start_matches(['\r', '\n']);
    let line = row.line + text[..text.len() - start.len()].matches('\n').count();
    let (line_in_row, column) = position(start, index, layout);
    Error::file(path, Some(line + line_in_row), Some(column), problem)
}

/// The beginning of a line, as far as errors look.
fn read_from(path: &Path, byte: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(byte))?;
    let mut bytes = Vec::new();
    file.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lines below the first one, and the column from 1, at which the value `index` begins.
fn position(text: &str, index: usize, layout: Layout<'_>) -> (usize, usize) {
    let (from, delimiter) = match layout {
        Layout::Delimited(delimiter) => (0, delimiter),
        Layout::Array => (text.find('[').map_or(0, |at| at + 1), ','),
        Layout::Member(name) => {
            let name = serde_json::Value::from(name).to_string();
            let after = text.find(&name).map_or(0, |at| at + name.len());
            (text[after..].find(':').map_or(after, |colon| after + colon + 1), ',')
        }
    };
    let is_json = !matches!(layout, Layout::Delimited(_));
    let (mut line, mut column) = (0, text[..from].chars().count() + 1);
    let mut left = index;
    let mut is_quoted = false;
    let mut is_escaped = false;
    let mut is_between = true;
    for character in text[from..].chars() {
        let is_empty = character == delimiter && delimiter != ' ';
        if is_between && (is_empty || !character.is_whitespace()) {
            if left == 0 {
                break;
            }
            is_between = false;
        }
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_json && is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if character == delimiter && !is_quoted && !(is_between && delimiter == ' ') => {
                left -= 1;
                is_between = true;
            }
            _ => {}
        }
        (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_column_in_characters() {
        let comma = Layout::Delimited(',');
        assert_eq!(position("1,2,x\n", 2, comma), (0, 5));
        assert_eq!(position("\"ä,\"\"b\", x", 1, comma), (0, 10));
        assert_eq!(position("\"a\nb\",x", 1, comma), (1, 4));
        assert_eq!(position("1\t\t3\nx\ty", 1, Layout::Delimited('\t')), (0, 3));
        assert_eq!(position("1  2   x", 2, Layout::Delimited(' ')), (0, 8));
        assert_eq!(position(r#" ["a,\"]", 2,  x]"#, 2, Layout::Array), (0, 16));
        assert_eq!(position(r#"{"a": 1, "b" : x}"#, 0, Layout::Member("b")), (0, 16));
    }

    #[test]
    fn empty_values_at_the_end_are_left_out() {
        let mut row = Row::default();
        for value in ["1", "", "2", "", ""] {
            row.push(value);
        }
        row.trim_end();
        assert_eq!(row.values().collect::<Vec<_>>(), ["1", "", "2"]);
    }
}
