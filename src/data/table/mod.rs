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

use std::ffi::OsStr;

use csv::StringRecord;

use self::values::Encoder;
use super::config::{Column, DataConfig, LARGEST, Values};
use super::dataset::Dataset;
use super::excerpt::excerpt;
use super::ids::Ids;
use super::input;
use super::sequences::{Rows, Sequences};
use super::vocabulary::{END, Notation, Vocabulary};
use crate::error::{Error, Result};

/// Reads the table that `config` names, by a given vocabulary, or by that of its values.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    if let Some(vocabulary) = given.filter(|vocabulary| vocabulary.notation() != Notation::Words) {
        let problem = format!("reads integers or symbols, and the vocabulary of {vocabulary} has none");
        return Err(Error::key("data.source", "table", problem));
    }
    let mut table = Table {
        config,
        encoder: Encoder::new(config, given),
        ids: Ids::default(),
        ends: Vec::new(),
        is_json: false,
        is_stream: None,
        ends_itself: false,
        lonely: None,
    };
    table.read()?;
    if table.ids.len() == 0 {
        return Err(Error::file(&config.path, None, None, "is empty; give a table to learn from"));
    }
    if table.is_stream != Some(true) {
        return table.into_rows(given);
    }
    let vocabulary = table.encoder.finish(&mut table.ids, false)?;
    let (train, valid) = Sequences::cut(config, table.ids)?;
    Ok(Dataset { vocabulary, train, valid, floor: None, floor_by_position: Vec::new() })
}

/// One line of a table, or one element of a JSON array.
#[derive(Debug)]
struct Row {
    /// The line that it begins in, from 1.
    line: usize,
    values: StringRecord,
    /// Whether it is one value of a long sequence, and no sequence by itself.
    is_value: bool,
}

impl Row {
    /// A sequence, without empty values at its end: programs write them to make lines equally long.
    fn sequence(line: usize, mut values: StringRecord) -> Self {
        let filled = values.iter().zip(1..).filter(|(value, _)| !value.is_empty()).last();
        values.truncate(filled.map_or(0, |(_, count)| count));
        Row { line, values, is_value: false }
    }
}

/// What was read so far.
struct Table<'a> {
    config: &'a DataConfig,
    encoder: Encoder<'a>,
    ids: Ids,
    /// Where each sequence ends in the ids.
    ends: Vec<usize>,
    /// Whether a value may hold line breaks.
    is_json: bool,
    /// Whether all rows are one sequence; the first one decides.
    is_stream: Option<bool>,
    /// Whether sequences have end tokens of their own.
    ends_itself: bool,
    /// What is wrong with the first sequence of one value, where no end token follows.
    lonely: Option<Error>,
}

impl Table<'_> {
    /// Reads the table in the format that its extension names: JSON, or else CSV.
    fn read(&mut self) -> Result<()> {
        let DataConfig { path, column, .. } = self.config;
        if path.is_dir() {
            let problem = "is a folder; give the path of one CSV or JSON file";
            return Err(Error::key("data.path", path.display(), problem));
        }
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or("").to_ascii_lowercase();
        let text = input::read_text(path)?;
        self.is_json = ["json", "jsonl", "ndjson"].contains(&extension.as_str());
        // What JSON has of the name is picked already.
        let number = match column {
            Column::Number(number) => Some(number - 1),
            Column::None | Column::Name(_) => None,
        };
        match extension.as_str() {
            "json" if !json::is_lines(&text) => {
                json::elements(path, &text, column).try_for_each(|row| self.push(&row?, number))
            }
            _ if self.is_json => {
                json::lines(path, &text, column).try_for_each(|row| self.push(&row?, number))
            }
            _ => self.read_delimited(delimited::rows(path, &text), number),
        }
    }

    /// Reads lines of which the first may be a header.
    fn read_delimited(
        &mut self,
        mut rows: impl Iterator<Item = Result<Row>>,
        number: Option<usize>,
    ) -> Result<()> {
        let Some(first) = rows.next().transpose()? else { return Ok(()) };
        let second = rows.next().transpose()?;
        let named = self.named_column(&first)?;
        if named.is_none() && !self.is_header(&first, second.as_ref(), number) {
            self.push(&first, number)?;
        }
        let column = named.or(number);
        second.map_or(Ok(()), |row| self.push(&row, column))?;
        rows.try_for_each(|row| self.push(&row?, column))
    }

    /// The place of the column that is chosen by a name in the first line.
    fn named_column(&self, first: &Row) -> Result<Option<usize>> {
        /// Columns that are named in an error.
        const MOST: usize = 20;
        let Column::Name(name) = &self.config.column else { return Ok(None) };
        if let Some(place) = first.values.iter().position(|value| value == name) {
            return Ok(Some(place));
        }
        let count = first.values.len();
        let mut columns: Vec<String> = first.values.iter().take(MOST).map(excerpt).collect();
        columns.extend((count > MOST).then(|| format!("{} more", count - MOST)));
        let path = self.config.path.display();
        let problem = format!("is no column of {path}, which has {}", columns.join(", "));
        Err(Error::key("data.column", name, problem))
    }

    /// Whether the first line holds names above integers, in the column that is read or in all.
    fn is_header(&self, first: &Row, second: Option<&Row>, column: Option<usize>) -> bool {
        let read = |row: &Row| -> Vec<bool> {
            let is_read = |(index, value)| column.is_none_or(|column| column == index).then_some(value);
            let values = row.values.iter().enumerate().filter_map(is_read);
            values.map(|value: &str| value.parse::<i128>().is_ok()).collect()
        };
        let second = second.map(read).unwrap_or_default();
        self.config.values != Values::Symbols
            && !read(first).contains(&true)
            && !second.is_empty()
            && !second.contains(&false)
    }

    /// Adds a row, or the value of one column of it, counted from 0.
    fn push(&mut self, row: &Row, column: Option<usize>) -> Result<()> {
        let problem = |problem: String| Error::file(&self.config.path, Some(row.line), None, problem);
        let is_value = row.is_value || column.is_some();
        if *self.is_stream.get_or_insert(is_value) != is_value {
            let problem_of =
                if is_value { "is one value below sequences" } else { "is a sequence below values" };
            return Err(problem(format!("{problem_of}; give either")));
        }
        let values = match column {
            Some(column) if column >= row.values.len() => {
                let problem_of = match &self.config.column {
                    Column::Name(name) => format!("has no value in the column `{name}`"),
                    _ => format!("has {} values and none in column {}", row.values.len(), column + 1),
                };
                return Err(problem(format!("{problem_of}; windows need one in every line")));
            }
            Some(column) => column..column + 1,
            None => 0..row.values.len(),
        };
        let mut ids = Vec::with_capacity(values.len());
        for index in values {
            let value = &row.values[index];
            let id = if value.contains('\n') && !self.is_json {
                let shown = excerpt(value);
                Err(format!(
                    "`{shown}` goes on over several lines: close its quote, or write the value in one line"
                ))
            } else {
                self.encoder.id(value, self.config)
            };
            match id {
                Ok(id) => ids.push(id),
                Err(what) if row.is_value => return Err(problem(what)),
                Err(what) => return Err(problem(format!("value {}: {what}", index + 1))),
            }
            self.ends_itself |= value == END;
        }
        if let ([_], false, None) = (ids.as_slice(), is_value, &self.lonely) {
            self.lonely =
                Some(problem("has one value, so there is nothing to predict: leave the line out".into()));
        }
        if !ids.is_empty() {
            self.ids.extend(&ids);
            self.ends.push(self.ids.len());
        }
        Ok(())
    }

    /// Each row as a sequence.
    fn into_rows(mut self, given: Option<&Vocabulary>) -> Result<Dataset> {
        let config = self.config;
        let problem = |problem: &str| Error::file(&config.path, None, None, problem);
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let rows: Vec<_> = starts.zip(self.ends.iter().copied()).map(|(start, end)| start..end).collect();
        let lengths = || rows.iter().map(ExactSizeIterator::len);
        let (shortest, longest) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        if longest > LARGEST {
            let long = format!("has a line of {longest} values; name a `data.column` to cut it into windows");
            return Err(problem(&long));
        }
        let with_end = given.map_or(shortest < longest, |vocabulary| vocabulary.end().is_some());
        let with_end = with_end && !self.ends_itself;
        let vocabulary = self.encoder.finish(&mut self.ids, with_end)?;
        let end = vocabulary.end().filter(|_| with_end);
        if longest + usize::from(end.is_some()) < 2 {
            return Err(problem(
                "has one value a line, so nothing can be predicted; \
                 set `data.column` = 1 to read all lines as one sequence",
            ));
        }
        if let (None, Some(lonely)) = (end, self.lonely) {
            return Err(lonely);
        }
        let (all, train_rows) = (rows.len(), config.train_part(rows.len()));
        if train_rows == 0 || train_rows == all {
            let few = format!(
                "has {all} lines, of which `data.valid_fraction` = {} leaves {train_rows} for training \
                 and {} for validation; both need one",
                config.valid_fraction,
                all - train_rows
            );
            return Err(problem(&few));
        }
        let mut row = Vec::new();
        let [train, valid] = [&rows[..train_rows], &rows[train_rows..]].map(|part| {
            let mut split = Rows::default();
            for range in part {
                row.resize(range.len(), 0);
                self.ids.copy(range.clone(), &mut row);
                row.extend(end);
                split.push(&row);
            }
            Sequences::rows(split)
        });
        Ok(Dataset { vocabulary, train, valid, floor: None, floor_by_position: Vec::new() })
    }
}

#[cfg(test)]
mod tests;
