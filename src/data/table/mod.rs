//! The user's table: CSV or JSON of integers or of symbols.
//!
//! Each line, or each array of a JSON file, is a sequence. Sequences of different lengths are closed by an
//! end token, so that a model learns where one ends; the last `data.valid_fraction` of them are for
//! validation. With `data.column` that column, from the first line to the last, is one sequence, cut into
//! windows as a text is; and so are the numbers of a JSON array. A column of JSON objects may hold
//! sequences instead, an array each.
//!
//! ```text
//! 3,1,4,1        {"day": 1, "state": "sun"}       {"steps": [3, 1, 4, 1]}
//! 5,9            {"day": 2, "state": "rain"}      {"steps": [5, 9]}
//! 2,6,5,3        {"day": 3, "state": "sun"}       {"steps": [2, 6, 5, 3]}
//! ```
//!
//! A first line of names above lines of integers is a header, and so is the first line of a CSV file
//! whose column is chosen by name. Of a column that is chosen by number, its values alone decide.

mod delimited;
mod json;
mod values;

use std::{ffi::OsStr, ops::Range};

use csv::StringRecord;

use self::values::Encoder;
use super::config::{Column, DataConfig, LARGEST, Values};
use super::dataset::Dataset;
use super::excerpt::excerpt;
use super::ids::Ids;
use super::sequences::{Rows, Sequences};
use super::vocabulary::{END, Notation, Vocabulary};
use crate::error::{Error, Result};
use crate::files::Text;
use crate::terminal::counted;

/// Columns that are named in an error.
const NAMED: usize = 20;

/// Reads the table that `config` names, in the format that its extension names, JSON or else CSV; by a given
/// vocabulary, or by that of its values.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    if let Some(vocabulary) = given.filter(|vocabulary| vocabulary.notation() != Notation::Words) {
        let problem = format!("reads integers or symbols, and the vocabulary of {vocabulary} has none");
        return Err(Error::key("data.source", "table", problem));
    }
    let path = &config.path;
    if path.is_dir() {
        let problem = "is a folder; give the path of one CSV or JSON file";
        return Err(Error::key("data.path", path.display(), problem));
    }
    let text = Text::open(path)?.whole()?;
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or("").to_ascii_lowercase();
    let is_json = ["json", "jsonl", "ndjson"].contains(&extension.as_str());
    let mut table = Table {
        config,
        given,
        encoder: None,
        ids: Ids::default(),
        rows: Vec::new(),
        is_json,
        is_stream: None,
        ends_itself: false,
    };
    match is_json {
        true if extension == "json" && !json::is_lines(&text) => {
            json::elements(path, &text)?.try_for_each(|element| table.push_json(element?))
        }
        true => json::lines(path, &text).try_for_each(|line| table.push_json(line?)),
        false => table.read_delimited(delimited::rows(path, &text)),
    }?;
    let Some(encoder) = table.encoder.take() else {
        return Err(Error::file(path, "is empty; give a table to learn from"));
    };
    if table.is_stream != Some(true) {
        if let Some(lengths) = config.lengths {
            let problem = "is for one long sequence: each sequence of this table has its own length";
            return Err(config.wrong_lengths(lengths, problem));
        }
        return table.into_rows(encoder);
    }
    let vocabulary = encoder.finish(&mut table.ids, false)?;
    Ok(Dataset::of_file(vocabulary, Sequences::cut(config, table.ids)?))
}

/// The line in which a row begins, from 1, and its values.
type Row = (usize, StringRecord);

/// A sequence without empty values at its end: programs write them to make lines equally long.
fn trimmed(mut values: StringRecord) -> StringRecord {
    let filled = values.iter().zip(1..).filter(|(value, _)| !value.is_empty()).last();
    values.truncate(filled.map_or(0, |(_, count)| count));
    values
}

/// What was read so far.
struct Table<'a> {
    config: &'a DataConfig,
    given: Option<&'a Vocabulary>,
    /// Made for the first value.
    encoder: Option<Encoder<'a>>,
    ids: Ids,
    /// The line of each sequence, and where it lies in the ids.
    rows: Vec<(usize, Range<usize>)>,
    /// Whether a value may hold line breaks.
    is_json: bool,
    /// Whether all rows are one sequence; the first one decides.
    is_stream: Option<bool>,
    /// Whether sequences have end tokens of their own.
    ends_itself: bool,
}

impl<'a> Table<'a> {
    fn problem(&self, line: Option<usize>, problem: impl Into<String>) -> Error {
        Error::in_file(&self.config.path, line, None, problem)
    }

    /// The place of the column that is chosen by its number.
    fn numbered_column(&self) -> Option<usize> {
        match self.config.column {
            Column::Number(number) => Some(number - 1),
            Column::Name(_) => None,
        }
    }

    /// Adds a value of JSON, which begins in a line.
    fn push_json(&mut self, (line, value): (usize, serde_json::Value)) -> Result<()> {
        let values = json::values(value, self.config.column.name());
        let (values, is_one) = values.map_err(|problem| self.problem(Some(line), problem))?;
        self.push(&(line, values), self.numbered_column().or(is_one.then_some(0)))
    }

    /// Reads lines of which the first may be a header.
    fn read_delimited(&mut self, rows: impl Iterator<Item = Result<Row>>) -> Result<()> {
        let mut rows = rows.peekable();
        let Some(first) = rows.next().transpose()? else { return Ok(()) };
        let mut column = self.numbered_column();
        if let Some(name) = self.config.column.name() {
            column = Some(self.named_column(&first, name)?);
        } else if !self.is_header(&first, rows.peek().and_then(|row| row.as_ref().ok()), column) {
            self.push(&first, column)?;
        }
        rows.try_for_each(|row| self.push(&row?, column))
    }

    /// The place of the column of a name in the first line.
    fn named_column(&self, first: &Row, name: &str) -> Result<usize> {
        first.1.iter().position(|value| value == name).ok_or_else(|| {
            let mut columns: Vec<String> = first.1.iter().take(NAMED).map(excerpt).collect();
            columns.extend(first.1.len().checked_sub(NAMED + 1).map(|more| format!("{} more", more + 1)));
            let path = self.config.path.display();
            let problem = format!("is no column of {path}, which has {}", columns.join(", "));
            Error::key("data.column", name, problem)
        })
    }

    /// Whether the first line holds names above integers, in the column that is read or in all.
    fn is_header(&self, first: &Row, second: Option<&Row>, column: Option<usize>) -> bool {
        let are_integers = |row: &Row| -> Vec<bool> {
            let read = row.1.iter().enumerate().filter(|(at, _)| column.is_none_or(|read| read == *at));
            read.map(|(_, value)| value.parse::<i128>().is_ok()).collect()
        };
        let second = second.map(are_integers).unwrap_or_default();
        self.config.values != Values::Symbols
            && !are_integers(first).contains(&true)
            && !second.is_empty()
            && !second.contains(&false)
    }

    /// Adds a row as a sequence, or the value of one column of it, counted from 0.
    fn push(&mut self, (line, values): &Row, column: Option<usize>) -> Result<()> {
        let is_value = column.is_some();
        if *self.is_stream.get_or_insert(is_value) != is_value {
            let what = if is_value { "is one value below sequences" } else { "is a sequence below values" };
            return Err(self.problem(Some(*line), format!("{what}; give either")));
        }
        let (start, all) = (self.ids.len(), values.len());
        for index in column.map_or(0..all, |column| column..column + 1) {
            let id = match values.get(index) {
                None => {
                    let problem = match self.config.column.name() {
                        Some(name) => format!("has no value in the column `{name}`"),
                        None => format!("has {} and none in column {}", counted(all, "value"), index + 1),
                    };
                    Err(format!("{problem}; windows need one in every row"))
                }
                Some(value) => self.id(value).map_err(|problem| match all {
                    1 => problem,
                    _ => format!("value {}: {problem}", index + 1),
                }),
            };
            let id = id.map_err(|problem| self.problem(Some(*line), problem))?;
            self.ids.extend(&[id]);
        }
        if self.ids.len() > start && !is_value {
            self.rows.push((*line, start..self.ids.len()));
        }
        Ok(())
    }

    /// The id of a value, or what is wrong with it.
    fn id(&mut self, value: &str) -> Result<u32, String> {
        if value.contains('\n') && !self.is_json {
            let shown = excerpt(value);
            return Err(format!(
                "`{shown}` goes on over several lines: close its quote, or write the value in one line"
            ));
        }
        if value.is_empty() {
            return Err("an empty value; give it a name, or leave it out".into());
        }
        self.ends_itself |= value == END;
        let (config, given) = (self.config, self.given);
        self.encoder.get_or_insert_with(|| Encoder::new(config, given, value)).id(value)
    }

    /// Each row as a sequence.
    fn into_rows(mut self, encoder: Encoder<'a>) -> Result<Dataset> {
        let lengths = || self.rows.iter().map(|(_, ids)| ids.len());
        let (shortest, longest) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        if longest > LARGEST {
            let values = counted(longest, "value");
            let long = format!("has a row of {values}; name a `data.column` to cut it into windows");
            return Err(self.problem(None, long));
        }
        let is_ended = self.given.map_or(shortest < longest, |vocabulary| vocabulary.end().is_some());
        let with_end = is_ended && !self.ends_itself;
        let (all, train_rows) = (self.rows.len(), self.config.train_part(self.rows.len()));
        let is_whole = self.config.is_one_split();
        if longest + usize::from(with_end) < 2 {
            let problem = "has one value a row, so nothing can be predicted; \
                           set `data.column` = 1 to read all of them as one sequence";
            return Err(self.problem(None, problem));
        }
        if let (false, Some((line, _))) = (with_end, self.rows.iter().find(|(_, ids)| ids.len() == 1)) {
            let problem = "has one value, so there is nothing to predict: leave it out";
            return Err(self.problem(Some(*line), problem));
        }
        if !is_whole && (train_rows == 0 || train_rows == all) {
            let few = format!(
                "has {}, of which `data.valid_fraction` = {} leaves {train_rows} for training and {} for \
                 validation; both need one",
                counted(all, "row"),
                self.config.valid_fraction,
                all - train_rows
            );
            return Err(self.problem(None, few));
        }
        let vocabulary = encoder.finish(&mut self.ids, with_end)?;
        let end = vocabulary.end().filter(|_| with_end);
        let set = |part: &[(usize, Range<usize>)]| {
            let mut split = Rows::default();
            for (_, ids) in part {
                split.push(&self.ids.iter(ids.clone()).chain(end).collect::<Vec<u32>>());
            }
            Sequences::rows(split)
        };
        let [train, valid] = match is_whole {
            true => [&self.rows[..]; 2],
            false => [&self.rows[..train_rows], &self.rows[train_rows..]],
        };
        Ok(Dataset::of_file(vocabulary, (set(train), set(valid))))
    }
}

#[cfg(test)]
mod tests;
