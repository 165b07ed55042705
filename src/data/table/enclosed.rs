//! Checks for CSV values that other programs enclose or escape in their own way: in brackets, in curly or single
//! quotes, in quotes after a space, or with backslashes. The delimiter would split such values.

use csv::StringRecord;

use super::{Table, TableRow, delimiter};
use crate::data::config::{Column, Values};
use crate::data::excerpt::excerpt;
use crate::error::Result;
use crate::files::remove_quotes;

/// The brackets around lists.
pub(super) const BRACKETS: [(char, char); 3] = [('[', ']'), ('(', ')'), ('{', '}')];

/// The quotes that CSV treats as part of the value, with their names.
const OTHER_QUOTES: [(char, char, &str); 4] =
    [('\'', '\'', "single"), ('‘', '’', "curly"), ('“', '”', "curly"), ('„', '“', "curly")];

/// Returns the index of the first value that begins with `open`, and of the last value that ends with `close`, if the
/// former is before the latter. `is_part` must hold for the rest of both values.
fn enclosed(
    row: &StringRecord,
    [open, close]: [char; 2],
    is_part: impl Fn(&str) -> bool,
) -> Option<[usize; 2]> {
    let opens =
        |value: &str| value.strip_prefix(open).is_some_and(|rest| is_part(rest) && !rest.contains(close));
    let closes =
        |value: &str| value.strip_suffix(close).is_some_and(|rest| is_part(rest) && !rest.contains(open));
    let begin = row.iter().position(opens)?;
    let (end, _) = row.iter().enumerate().skip(begin + 1).filter(|(_, value)| closes(value)).last()?;
    Some([begin, end])
}

/// Returns the index of the value with which a list in brackets begins, if the delimiter splits the list. Brackets that
/// are separate values do not enclose a list.
pub(super) fn list_begin(row: &StringRecord) -> Option<usize> {
    BRACKETS.into_iter().find_map(|(open, close)| {
        let [begin, end] = enclosed(row, [open, close], |_| true)?;
        (row[begin].len() + row[end].len() > 2).then_some(begin)
    })
}

/// Returns true if most of the rows with several values contain a list in brackets that the delimiter splits.
pub(super) fn are_lists<'r>(rows: impl Iterator<Item = &'r StringRecord>) -> bool {
    let (mut split, mut lists) = (0, 0);
    for row in rows.filter(|row| row.len() > 1) {
        split += 1;
        lists += usize::from(list_begin(row).is_some());
    }
    lists > 0 && 2 * lists >= split
}

/// Iterates over the occurrences of a value at the beginning of a cell, and returns the number of bytes of white space
/// before each.
fn gaps(line: &str, value: &str, delimiter: u8) -> impl Iterator<Item = usize> {
    let delimiter = char::from(delimiter);
    let is_space = move |character: char| character.is_whitespace() && character != delimiter;
    line.match_indices(value).filter_map(move |(start, _)| {
        let before = line[..start].trim_end_matches(is_space);
        (before.is_empty() || before.ends_with(delimiter)).then_some(start - before.len())
    })
}

/// Returns the index of a value in double quotes after a space, and of the value that ends with these quotes, which is
/// a later one if the delimiter splits the quoted value. If a column is selected, the quotes must affect its value.
fn spaced_quotes(row: &StringRecord, line: &str, delimiter: u8, column: Option<usize>) -> Option<[usize; 2]> {
    let values: Vec<&str> = row.iter().collect();
    (0..values.len()).filter(|&begin| values[begin].starts_with('"')).find_map(|begin| {
        let is_complete = values[begin].len() > 1 && values[begin].ends_with('"');
        let end = match is_complete {
            true => begin,
            false => begin + 1 + values[begin + 1..].iter().position(|value| value.ends_with('"'))?,
        };
        let is_read = column.is_none_or(|column| column == begin || !is_complete && column > begin);
        (is_read && gaps(line, values[begin], delimiter).any(|gap| gap > 0)).then_some([begin, end])
    })
}

/// Returns true if a backslash escapes the delimiter within a value, as written by MySQL and Spark.
fn has_escaped_delimiter(line: &str, delimiter: u8) -> bool {
    let escape = ['\\', char::from(delimiter)].into_iter().collect::<String>();
    line.match_indices(&escape).any(|(at, _)| {
        let before = line[..at].trim_end_matches('\\');
        let is_quoted = before.matches('"').count() % 2 == 1;
        let is_escaped = (at - before.len()) % 2 == 1;
        let begins_cell = before.is_empty() || before.ends_with([' ', char::from(delimiter)]);
        !is_quoted && !is_escaped && !begins_cell
    })
}

impl Table<'_> {
    /// Returns an error for lists in brackets, because the brackets would become part of the first and the last value.
    /// A selected column before the list is allowed.
    pub(super) fn refuse_brackets(&self, first: &TableRow, below: &[&TableRow]) -> Result<()> {
        let named = || first.1.iter().position(|name| self.chosen.column.name() == Some(name));
        let column = self.numbered_column().or_else(named);
        let rows = || std::iter::once(first).chain(below.iter().copied());
        let is_list = |row: &&TableRow| {
            list_begin(&row.1).is_some_and(|begin| column.is_none_or(|column| column >= begin))
        };
        let Some(list) = rows().find(is_list) else { return Ok(()) };
        if list_begin(&first.1) == Some(0) || are_lists(rows().map(|row| &row.1)) {
            let problem = "has a list in brackets, which would become part of its values; remove the \
                           brackets, or rename the file to .jsonl if each line is a JSON array or object";
            return Err(self.problem(Some(list.0), problem));
        }
        Ok(())
    }

    /// Returns an error for conversations in JSON within the values of a CSV table.
    pub(super) fn refuse_conversations(&self, first: &TableRow, below: &[&TableRow]) -> Result<()> {
        let is_turn = |value: &str| value.contains("\"role\"") && value.contains("\"content\"");
        let mut rows = std::iter::once(first).chain(below.iter().copied());
        let Some((line, _)) = rows.find(|row| row.1.iter().any(is_turn)) else { return Ok(()) };
        let problem = "has a conversation in JSON within a value; write the conversations to a .jsonl file, one object such \
                       as {\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]} in each line";
        Err(self.problem(Some(*line), problem))
    }

    /// Returns an error for lines that are entirely enclosed in quotes, because each would be a single value with any
    /// delimiter. A selected column of phrases is allowed.
    pub(super) fn refuse_quoted_rows(&self, text: &str, first: &TableRow, below: &[&TableRow]) -> Result<()> {
        // The first line may contain names, with or without quotes.
        let has_one_name = first.1.len() == 1;
        let is_plain = || text.lines().nth(first.0.number - 1).is_some_and(|line| !line.contains('"'));
        let rows = || std::iter::once(first).filter(|_| below.is_empty()).chain(below.iter().copied());
        let filled = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines = filled.skip(usize::from(!below.is_empty())).take(rows().count());
        let is_quoted = |line: &str| line.len() > 1 && line.starts_with('"') && line.ends_with('"');
        let are_quoted = rows().all(|row| row.1.len() == 1) && lines.into_iter().all(is_quoted);
        if !(are_quoted && (has_one_name || is_plain())) {
            return Ok(());
        }
        let inner = rows().filter_map(|row| row.1.get(0)).collect::<Vec<_>>().join("\n");
        let delimiter::Inferred { delimiter, regularity, .. } = delimiter::infer(&inner, "csv");
        let values: Vec<StringRecord> = delimiter::records(&inner, delimiter).flatten().collect();
        let are_phrases = !values.iter().flatten().all(|value| value.parse::<f64>().is_ok());
        let is_chosen = match &self.chosen.column {
            Column::Number(_) => are_phrases || self.config.values == Values::Symbols,
            // A name without a delimiter is the header of a single column.
            Column::Name(name) => {
                let is_single = are_phrases || !name.contains(char::from(delimiter));
                is_single && has_one_name && first.1.get(0) == Some(name.as_str())
            }
        };
        if regularity == 0.0 || is_chosen {
            return Ok(());
        }
        let are_lists = are_lists(values.iter());
        let is_enough = are_phrases && !are_lists;
        let and_symbols = if is_enough { "" } else { " and `data.values` = \"symbols\"" };
        let problem = format!(
            "is entirely in quotes, as are the lines below, so each line is one value; {}, or set \
             `data.column` = 1{and_symbols} to make each line one token",
            remove_quotes(self.path(), are_lists)
        );
        Err(self.problem(rows().next().map(|row| row.0), problem))
    }

    /// Returns an error for quotes and delimiters that are escaped by a backslash, because the delimiter would split
    /// such values: CSV doubles quotes, and encloses values with delimiters in quotes.
    pub(super) fn refuse_backslashes(&self, text: &str, delimiter: u8) -> Result<()> {
        for (line, number) in text.lines().zip(1..).filter(|(line, _)| line.contains('\\')) {
            let bytes = line.as_bytes();
            let escapes = |(at, _): (usize, &str)| {
                let next = bytes.get(at + 2).copied();
                next.is_some_and(|next| next != delimiter && next != b'"' && next != b'\\')
            };
            if line.match_indices("\\\"").any(escapes) {
                let problem = "escapes a quote with a backslash; use two quotes instead, as CSV does";
                return Err(self.problem(Some(self.line(number)), problem));
            }
            if delimiter != b' ' && has_escaped_delimiter(line, delimiter) {
                let problem = "escapes the delimiter with a backslash; remove the backslash and write the \
                               value in double quotes, as CSV does";
                return Err(self.problem(Some(self.line(number)), problem));
            }
        }
        Ok(())
    }

    /// Returns an error for a value in double quotes after a space, which keeps its quotes, and for a value in other
    /// quotes that the delimiter splits. Doubled quotes belong to the value.
    pub(super) fn refuse_quotes(
        &self,
        text: &str,
        row: &TableRow,
        delimiter: u8,
        column: Option<usize>,
    ) -> Result<()> {
        let has_quotes = row.1.iter().any(|value| value.starts_with(['"', '\'', '‘', '“', '„']));
        let Some(position) = row.1.position().filter(|_| has_quotes) else { return Ok(()) };
        let rest = text[position.byte() as usize..].trim_start_matches(['\r', '\n']);
        let line = rest.lines().next().unwrap_or_default();
        if let Some([begin, end]) =
            spaced_quotes(&row.1, line, delimiter, column).filter(|_| delimiter != b' ')
        {
            let quoted: Vec<&str> = row.1.iter().skip(begin).take(end + 1 - begin).collect();
            let excerpt = excerpt(&quoted.join(&char::from(delimiter).to_string()));
            let number = if row.1.len() == 1 { String::new() } else { format!("value {}: ", begin + 1) };
            let is_split = if end > begin { " and is split" } else { "" };
            let problem = format!(
                "{number}{excerpt} keeps its quotes{is_split}, because a space precedes them; remove the \
                 space"
            );
            return Err(self.problem(Some(row.0), problem));
        }
        let is_split = |&(open, close, _): &(char, char, &str)| {
            let ends = enclosed(&row.1, [open, close], |rest| !rest.is_empty());
            ends.is_some_and(|[begin, _]| {
                column.is_none_or(|column| column >= begin)
                    && gaps(line, &row.1[begin], delimiter).next().is_some()
            })
        };
        match OTHER_QUOTES.iter().find(|&quotes| is_split(quotes)) {
            None => Ok(()),
            Some((_, _, name)) => {
                let problem =
                    format!("has a value in {name} quotes that the delimiter splits; use double quotes");
                Err(self.problem(Some(row.0), problem))
            }
        }
    }
}
