//! Columns that are selected by their numbers, which are those of the run's table, or else of the first file.

use super::header::{self, FirstLine};
use super::{Table, TableRow};
use crate::data::config::{Column, Header};
use crate::error::{Error, Result};
use crate::numbers::counted;

/// The keys that hold several columns.
const LISTS: [&str; 2] = ["data.columns", "data.ignore_columns"];

impl Table<'_> {
    /// Returns the index of a column in the current file, which has `width` columns and perhaps a row of names.
    pub(super) fn index_of(
        &self,
        (key, column): (&str, &Column),
        names: Option<&TableRow>,
        width: usize,
    ) -> Result<usize> {
        // The columns of another file are matched by their names, in any order.
        let known = self.known_columns();
        let reordered = names.filter(|(_, names)| !names.iter().eq(&known));
        match (column, names) {
            (Column::Name(name), Some(names)) => self.named_column(names, key, name),
            (Column::Name(name), None) => {
                Err(Error::key(key, name, "is a name, but the table lacks a header; use the column's number"))
            }
            (Column::Number(number), _) => match reordered.zip(known.get(number - 1..*number)) {
                Some((names, name)) => Ok(self.indices(names, name)?[0]),
                None if *number > width => {
                    let columns = counted(width, "column");
                    let problem =
                        format!("is not a column of {}, which has {columns}", self.path().display());
                    Err(Error::key(key, number, problem))
                }
                None => Ok(number - 1),
            },
        }
    }

    /// Returns the index of a numbered column, if the first line may hold the names of the run's table.
    pub(super) fn numbered_in(&self, number: usize, first: &TableRow) -> usize {
        let known = self.known_columns();
        let index = |name: &String| first.1.iter().position(|value| value == name);
        let is_known = known.iter().all(|name| index(name).is_some());
        let named = known.get(number - 1).filter(|name| is_known && first.1.get(number - 1) != Some(name));
        named.and_then(index).unwrap_or(number - 1)
    }

    /// Replaces the numbers above `width` that `is_name` accepts by names, such as those of years.
    pub(super) fn name_numbers(&mut self, width: usize, is_name: impl Fn(&str) -> bool) {
        let selection = self.chosen.selection.iter_mut().flat_map(super::fields::FieldSelection::columns_mut);
        for column in selection.chain([&mut self.chosen.column]) {
            if let Column::Number(number) = *column
                && number > width
                && is_name(&number.to_string())
            {
                *column = Column::Name(number.to_string());
            }
        }
    }

    /// Replaces numbers by names like [`name_numbers`](Self::name_numbers), unless the first line is data.
    pub(super) fn name_numbers_of(&mut self, first: &TableRow, below: &[&TableRow], width: usize) {
        let known = self.known_columns();
        let given = self.config.header;
        let is_name = |name: &str| {
            let Some(index) = first.1.iter().position(|value| value == name) else { return false };
            let is_data = || header::judge(&first.1, below, Some(index)) == FirstLine::Data;
            let recurs = || below.iter().any(|row| row.1.get(index) == Some(name));
            let has_word = || first.1.iter().any(|value| header::kind(value) == header::ValueKind::Word);
            match given {
                Header::Given(is_header) => is_header,
                Header::Auto => !is_data() || !recurs() && has_word(),
            }
        };
        match known.is_empty() {
            true => self.name_numbers(width.max(first.1.len()), is_name),
            false => self.name_numbers(known.len(), |name| known.iter().any(|known| known == name)),
        }
    }

    /// Warns about numbers of columns that are also the names of others.
    pub(super) fn warn_of_numbers(&mut self, (_, names): &TableRow) {
        if !self.known_columns().is_empty() {
            return;
        }
        let columns: Vec<(&'static str, Column)> = match &self.chosen.selection {
            Some(selection) => selection.columns().map(|(key, column)| (key, column.clone())).collect(),
            None => vec![("data.column", self.chosen.column.clone())],
        };
        for (key, column) in columns {
            let Column::Number(number) = column else { continue };
            let name = number.to_string();
            if names.get(number - 1) == Some(&name) || names.iter().all(|it| it != name) {
                continue;
            }
            let quoted = if LISTS.contains(&key) { format!("[\"{name}\"]") } else { format!("\"{name}\"") };
            self.reading.guesses.push(format!(
                "`{key}` = {number} is the number of a column, but another column has the name `{name}`; to select the \
                 latter, add --set '{key}={quoted}'"
            ));
        }
    }

    /// Warns if a file without a header follows a table with one.
    pub(super) fn warn_of_no_names(&mut self) {
        let known = self.known_columns();
        if !known.is_empty() {
            let names = crate::data::excerpt::listed(known.iter().map(String::as_str));
            self.reading.guesses.push(format!(
                "{} does not have a header, so its columns are read in the order of the run: {names}",
                self.path().display()
            ));
        }
    }
}
