//! The user's table: CSV or JSON Lines of integers or of symbols.
//!
//! Without `data.column` each line is a sequence. Lines of different lengths are closed by an end
//! token, so that a model learns where a sequence ends; the last `data.valid_fraction` of the
//! lines are for validation. With `data.column` that column, from the first line to the last, is
//! one sequence, cut into windows as a text is.
//!
//! ```text
//! 3,1,4,1        {"day": 1, "state": "sun"}
//! 5,9            {"day": 2, "state": "rain"}
//! 2,6,5,3        {"day": 3, "state": "sun"}
//! ```
//!
//! A first line of names above lines of integers is a header, and so is the first line of a CSV file
//! whose column is chosen by name. Of a column that is chosen by number, its values alone decide.

mod delimited;
mod json_lines;
mod reader;
mod row;
mod values;

use self::reader::{Reader, first_column, header};
use self::row::{Layout, Row, problem_at};
use self::values::Encoder;
use super::Dataset;
use super::config::{Column, DataConfig, LARGEST};
use super::excerpt::excerpt;
use super::ids::Ids;
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
        line: Vec::new(),
        ends_itself: false,
        lonely: None,
    };
    table.read()?;
    if table.ids.len() == 0 {
        return Err(Error::file(&config.path, None, None, "is empty; give a table to learn from"));
    }
    match config.column {
        Column::None => table.into_rows(given),
        Column::Number(_) | Column::Name(_) => {
            let vocabulary = table.encoder.finish(&mut table.ids, false)?;
            let (train, valid) = Sequences::cut(config, table.ids)?;
            Ok(Dataset { vocabulary, train, valid, floor: None, floor_by_position: Vec::new() })
        }
    }
}

/// What was read so far.
struct Table<'a> {
    config: &'a DataConfig,
    encoder: Encoder<'a>,
    ids: Ids,
    /// Where each line ends in the ids.
    ends: Vec<usize>,
    /// The ids of one line.
    line: Vec<u32>,
    /// Whether it has end tokens of its own.
    ends_itself: bool,
    /// What is wrong with the first line of one value, where no end token follows.
    lonely: Option<Error>,
}

impl Table<'_> {
    fn read(&mut self) -> Result<()> {
        let mut reader = Reader::open(self.config)?;
        let (mut first, mut second) = (Row::default(), Row::default());
        if !reader.read(&mut first)? {
            return Ok(());
        }
        let has_second = reader.read(&mut second)?;
        let column = match header(self.config, &reader, &first, has_second.then_some(&second)) {
            Some(column) => column?,
            None => {
                self.push(&first, first_column(self.config), &reader)?;
                first_column(self.config)
            }
        };
        if has_second {
            self.push(&second, column, &reader)?;
        }
        while reader.read(&mut second)? {
            self.push(&second, column, &reader)?;
        }
        Ok(())
    }

    /// Adds a line, or the value of one column of it, counted from 0.
    fn push(&mut self, row: &Row, column: Option<usize>, reader: &Reader<'_>) -> Result<()> {
        let path = &self.config.path;
        let values = match column {
            None => 0..row.len(),
            Some(column) if column < row.len() => column..column + 1,
            Some(column) => {
                let problem = match &self.config.column {
                    Column::Name(name) => format!("has no value in the column `{name}`"),
                    _ => format!("has {} values and none in column {}", row.len(), column + 1),
                };
                let problem = format!("{problem}; windows need one in every line");
                return Err(problem_at(path, row, 0, Layout::Delimited(','), problem));
            }
        };
        self.line.clear();
        for index in values {
            if let (Layout::Delimited(_), true) = (reader.layout(), row.value(index).contains('\n')) {
                let problem = format!(
                    "`{}` goes on over several lines: close its quote, or write the value in one line",
                    excerpt(row.value(index))
                );
                return Err(problem_at(path, row, index, reader.layout(), problem));
            }
            match self.encoder.id(row.value(index), self.config) {
                Ok(id) => self.line.push(id),
                Err(problem) => return Err(problem_at(path, row, index, reader.layout(), problem)),
            }
            self.ends_itself |= row.value(index) == END;
        }
        if let ([_], None, None) = (self.line.as_slice(), column, &self.lonely) {
            let problem = "has one value, so there is nothing to predict: leave the line out".to_string();
            self.lonely = Some(problem_at(path, row, 0, reader.layout(), problem));
        }
        if !self.line.is_empty() {
            self.ids.extend(&self.line);
            self.ends.push(self.ids.len());
        }
        Ok(())
    }

    /// Each line as a sequence.
    fn into_rows(mut self, given: Option<&Vocabulary>) -> Result<Dataset> {
        let path = &self.config.path;
        let problem = |problem: &str| Error::file(path, None, None, problem);
        let starts = || std::iter::once(0).chain(self.ends.iter().copied());
        let lengths = || starts().zip(&self.ends).map(|(start, end)| end - start);
        let (shortest, longest) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        let is_ragged = shortest < longest;
        if longest > LARGEST {
            let long = format!("has a line of {longest} values; name a `data.column` to cut it into windows");
            return Err(problem(&long));
        }
        let with_end = given.map_or(is_ragged, |vocabulary| vocabulary.end().is_some());
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
        let train_lines = self.config.train_part(self.ends.len());
        if train_lines == 0 || train_lines == self.ends.len() {
            let few = format!(
                "has {} lines, of which `data.valid_fraction` = {} leaves {train_lines} for training \
                 and {} for validation; both need one",
                self.ends.len(),
                self.config.valid_fraction,
                self.ends.len() - train_lines
            );
            return Err(problem(&few));
        }
        let (mut train, mut valid) = (Rows::default(), Rows::default());
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        for (number, (start, &stop)) in starts.zip(&self.ends).enumerate() {
            self.line.resize(stop - start, 0);
            self.ids.copy(start..stop, &mut self.line);
            self.line.extend(end);
            if number < train_lines { &mut train } else { &mut valid }.push(&self.line);
        }
        let (train, valid) = (Sequences::rows(train), Sequences::rows(valid));
        Ok(Dataset { vocabulary, train, valid, floor: None, floor_by_position: Vec::new() })
    }
}

#[cfg(test)]
mod tests;
