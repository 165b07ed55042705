//! Selection of CSV columns by their names or numbers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use csv::StringRecord;

use super::fields::FieldSelection;
use super::header::{self, FirstLine};
use super::{Table, TableRow, targets};
use crate::data::config::{Column, Comment, Header};
use crate::data::excerpt::{excerpt, listed};
use crate::data::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::numbers::counted;

impl Table<'_> {
    /// Reads the first row as column names or as data, and returns the index of the selected column.
    pub(super) fn read_first(
        &mut self,
        (first, written): (&TableRow, &TableRow),
        below: &[&TableRow],
        width: usize,
        mut column: Option<usize>,
    ) -> Result<Option<usize>> {
        if let Some(selection) = self.chosen.selection.clone() {
            return self.read_first_of_fields((first, written), below, (width, column), &selection);
        }
        let known = self.known_columns();
        let known = &known[..];
        if self.has_header(first, below, column) {
            self.warn_of_header_width(first, width);
            self.warn_of_numbers(first);
            match self.chosen.column {
                _ if first.1.iter().eq(known) => {}
                Column::Name(ref name) if !name.is_empty() => {}
                ref number @ Column::Number(_) => {
                    column = Some(self.index_of(("data.column", number), Some(first), usize::MAX)?);
                }
                Column::Name(_) if known.is_empty() => {}
                Column::Name(_) => self.columns.order = Some(self.indices(first, known)?),
            }
            self.read_header(&first.1, below, column);
        } else {
            self.warn_of_no_names();
            if column.is_none() {
                let all: Vec<&TableRow> = [first].into_iter().chain(below.iter().copied()).collect();
                self.warn_of_ids(None, &all);
            }
            self.reading.add(&first.1);
            self.push(first, column)?;
        }
        Ok(column)
    }

    /// Warns if a header has fewer names than most lines below have values. Lines with fewer values are reported as gaps.
    fn warn_of_header_width(&mut self, (line, names): &TableRow, width: usize) {
        if names.len() < width {
            self.reading.guesses.push(format!(
                "the header in {} has {}, but most lines below have {}; set `data.delimiter` to another character if \
                 values are split in two, such as numbers with a decimal comma",
                self.shown(*line),
                counted(names.len(), "name"),
                counted(width, "value")
            ));
        }
    }

    /// Warns if the first column is read although it seems to number or identify the rows.
    fn warn_of_ids(&mut self, names: Option<&StringRecord>, rows: &[&TableRow]) {
        let is_known = self.given.is_some_and(|vocabulary| !vocabulary.columns().is_empty());
        let Some(ids) = header::ids(names, rows).filter(|_| !is_known && self.columns.skipped == 0) else {
            return;
        };
        let name = names.and_then(|names| names.get(0));
        let column = name.map_or("column 1".to_string(), |name| format!("column 1 (`{}`)", excerpt(name)));
        let key = name.map_or("1".to_string(), |name| format!("{name:?}"));
        self.reading.guesses.push(match (ids, name) {
            (header::IdColumn::OfGroups, _) => format!(
                "{column} recurs in several rows, but is read as the first token of each; to read the rows of each group as \
                 one sequence, set `data.group_by` = {key} and `data.column` to the column of its values"
            ),
            (header::IdColumn::OfRows, _) => format!(
                "{column} {}, but is read as the first token of each sequence; to leave it out, set `data.ignore_columns` = \
                 [{key}]",
                "has a different value in each row"
            ),
        });
    }

    /// Returns the names of the columns of the run's table, or else of the first file.
    pub(super) fn known_columns(&self) -> Vec<String> {
        let of_run = self.given.map_or(&[][..], Vocabulary::columns);
        match of_run {
            [] => self.columns(),
            names => names.to_vec(),
        }
    }

    /// Reads the first row as column names or as data, and finds the selected columns.
    fn read_first_of_fields(
        &mut self,
        (first, written): (&TableRow, &TableRow),
        below: &[&TableRow],
        (width, column): (usize, Option<usize>),
        selection: &FieldSelection,
    ) -> Result<Option<usize>> {
        let has_header = self.has_header(first, below, column);
        let width = if has_header { width.max(first.1.len()) } else { width };
        let names = has_header.then_some(first);
        let skipped = match has_header && column.is_none() {
            true => header::index_columns(&first.1, below),
            false => 0,
        };
        // The columns of the first file, before the header of this one is read.
        let fields = selection.resolve(self, names, width, skipped)?;
        if has_header {
            self.warn_of_numbers(first);
            self.read_header(&first.1, below, column);
        } else {
            self.warn_of_no_names();
            self.columns.names.clear();
        }
        if let Some((_, names)) = names {
            self.columns.masks = masks(names, |index| fields.reads(index));
        }
        // The selected fields do not contain the index.
        self.columns.skipped = 0;
        if !has_header {
            self.reading.add(&written.1);
            self.push_fields(written, &fields)?;
        }
        let column = fields.values.first().copied().filter(|_| fields.values.len() == 1);
        self.chosen.fields = Some(Arc::new(fields));
        Ok(column)
    }

    /// Returns the column by which the first line is judged: the only column of values, if it is known.
    pub(super) fn column_to_judge(&self, selection: &FieldSelection, first: &TableRow) -> Option<usize> {
        match &selection.values[..] {
            [Column::Number(number)] => Some(self.numbered_in(*number, first)),
            [Column::Name(name)] => first.1.iter().position(|value| value == name),
            _ => None,
        }
    }

    /// Returns true if the first line holds names, according to the config or else to the lines below.
    pub(super) fn has_header(
        &mut self,
        first: &TableRow,
        below: &[&TableRow],
        column: Option<usize>,
    ) -> bool {
        let names_column = match &self.chosen.selection {
            Some(selection) => selection.named().is_some(),
            None => self.chosen.column.name().is_some(),
        };
        if names_column {
            return true;
        }
        let known = self.known_columns();
        let header: HashSet<&str> = first.1.iter().collect();
        let is_known = !known.is_empty() && known.iter().all(|name| header.contains(name.as_str()));
        let judged = match self.config.header {
            Header::Given(is_header) => return is_header,
            Header::Auto if is_known => FirstLine::Names,
            Header::Auto => header::judge(&first.1, below, column),
        };
        let line = format!("{} (`{}`)", self.shown(first.0), first_values(&first.1));
        match judged {
            FirstLine::Names => true,
            FirstLine::Data => false,
            FirstLine::Numbers => {
                self.reading.guesses.push(format!(
                    "{line} is read as data, but its numbers may be column names, since they differ from \
                     those below; add --set data.header=true if it is a header, or --set data.header=false \
                     if it is data"
                ));
                false
            }
            FirstLine::NewWords => {
                self.reading.guesses.push(format!(
                    "{line} is read as data, but its words may be column names, since they do not recur in \
                     their columns; add --set data.header=true if it is a header, or --set data.header=false \
                     if it is data"
                ));
                false
            }
            FirstLine::ProbablyNames => {
                self.reading.guesses.push(format!(
                    "{line} is read as a header, because its values do not recur below; set `data.header` = \
                     false if it is data, or true if it is a header"
                ));
                true
            }
            FirstLine::Unknown => {
                self.reading.guesses.push(format!(
                    "{line} is read as data, but the lines below do not show whether it is a header; set \
                     `data.header` = true if it is a header, or false if it is data"
                ));
                false
            }
        }
    }

    /// Stores the names of a header, and finds the index and mask columns.
    pub(super) fn read_header(&mut self, names: &StringRecord, below: &[&TableRow], column: Option<usize>) {
        self.columns.names = names.iter().map(str::to_string).collect();
        if names.get(0).is_some_and(|name| name.starts_with('#')) && self.config.comment == Comment::Auto {
            self.reading.guesses.push(format!(
                "the header (`{}`) begins with `#`; set `data.comment` = \"#\" if it is a comment",
                first_values(names)
            ));
        }
        if let Some(((line, second), rows)) = below.split_first()
            && column.is_none_or(|column| second.get(column).is_some_and(|value| !value.is_empty()))
            && header::may_be_names(second, rows, column)
        {
            let values = first_values(second);
            let unlike = match column {
                Some(_) => "its value in the selected column does not recur",
                None => "its values do not recur",
            };
            self.reading.guesses.push(format!(
                "{} (`{values}`), below the header, is read as data, but {unlike} below; remove it if it holds \
                 units or further names",
                self.shown(*line)
            ));
        }
        if let Some(order) = &self.columns.order {
            let names = order.iter().filter_map(|&index| names.get(index));
            self.reading.header = Some(names.map(str::to_string).collect());
        } else if column.is_none() {
            self.columns.skipped = header::index_columns(names, below);
            let skipped = match self.columns.skipped {
                0 => None,
                1 => Some(
                    "column 1 is an unnamed index of the rows and is not read; name the column to read it"
                        .into(),
                ),
                count => Some(format!(
                    "columns 1 to {count} are unnamed indices of the rows and are not read; name the columns to read them"
                )),
            };
            self.reading.guesses.extend(skipped);
        }
        // The order of the columns is that of the first file. The selected fields do not contain the index.
        let index = if self.chosen.selection.is_some() { 0 } else { self.columns.skipped };
        if self.reading.header.is_none() {
            self.reading.header = Some(self.columns.names[index..].to_vec());
        }
        if column.is_none() && self.chosen.selection.is_none() && self.columns.order.is_none() {
            self.warn_of_ids(Some(names), below);
        }
        let unselected =
            names.iter().enumerate().filter(|&(index, _)| column != Some(index)).map(|(_, name)| name);
        self.reading.guesses.extend(targets::warn_of_split(unselected, column.is_none()));
        self.columns.masks = column.map_or_else(Vec::new, |column| masks(names, |index| index == column));
    }

    /// Returns the indices of the named columns in a header. Duplicate names are matched in order.
    pub(super) fn indices(&self, (line, header): &TableRow, names: &[String]) -> Result<Vec<usize>> {
        let mut unmatched: HashMap<&str, Vec<usize>> = HashMap::new();
        (0..header.len()).rev().for_each(|index| unmatched.entry(&header[index]).or_default().push(index));
        let indices: Vec<_> = names.iter().map(|name| unmatched.get_mut(name.as_str())?.pop()).collect();
        let missing = names.iter().zip(&indices).filter(|(_, index)| index.is_none());
        let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
        if missing.is_empty() {
            if let Some((name, surplus)) =
                names.iter().find_map(|name| Some((name, unmatched.get(name.as_str())?.last()?)))
            {
                let problem = format!(
                    "has more columns named `{}` than the weights were trained on, so they cannot be \
                     distinguished; rename or remove column {}",
                    excerpt(name),
                    surplus + 1
                );
                return Err(self.problem(Some(*line), problem));
            }
            return Ok(indices.into_iter().flatten().collect());
        }
        let problem = format!(
            "lacks {} ({}) of the training data, and has {}; rename its columns, or add the \
             missing ones",
            counted(missing.len(), "column"),
            listed(missing),
            listed(header)
        );
        Err(self.problem(Some(*line), problem))
    }

    /// Returns the index of the column with this name in the first line.
    pub(super) fn named_column(&self, first: &TableRow, key: &str, name: &str) -> Result<usize> {
        let mut indices =
            first.1.iter().enumerate().filter(|(_, value)| *value == name).map(|(index, _)| index);
        let index = indices.next();
        if let Some(second) = indices.next() {
            let [first, second] = [index.unwrap_or_default() + 1, second + 1];
            let problem =
                format!("is the name of columns {first} and {second}; use the number of one of them");
            return Err(Error::key(key, name, problem));
        }
        index.ok_or_else(|| {
            let path = self.path().display();
            let problem = format!(
                "is not a column of {path}; the columns are {}, or, if the file lacks a header, set `{key}` to a \
                 number",
                listed(&first.1)
            );
            Error::key(key, name, problem)
        })
    }
}

/// Returns the indices and names of the mask columns that are not read themselves.
fn masks(names: &StringRecord, is_read: impl Fn(usize) -> bool) -> Vec<(usize, String)> {
    let masks = names.iter().enumerate().filter(|&(index, name)| !is_read(index) && targets::is_mask(name));
    masks.map(|(index, name)| (index, name.to_string())).collect()
}

/// Returns the first values of a row for a message, with an ellipsis if there are more.
pub(super) fn first_values(row: &StringRecord) -> String {
    const MAX_VALUES: usize = 4;
    let mut values: Vec<String> = row.iter().take(MAX_VALUES).map(excerpt).collect();
    if row.len() > MAX_VALUES {
        values.push("…".to_string());
    }
    values.join(", ")
}
