//! Cells that hold a sequence of integers, such as `[1, 7, 5]` or `1 7 5`.

use csv::StringRecord;
use serde_json::{Map, Value};

use super::{Table, TableRow, targets};
use crate::data::config::Values;
use crate::data::excerpt::excerpt;
use crate::error::Result;

/// Returns the integers of a cell, in brackets with commas or separated by spaces; `None` for other cells.
fn integers(cell: &str) -> Option<StringRecord> {
    let cell = cell.trim();
    let inner = cell.strip_prefix('[').and_then(|cell| cell.strip_suffix(']'));
    let words: Vec<&str> = match inner {
        Some(inner) => inner.split([',', ' ']).filter(|word| !word.is_empty()).collect(),
        None => cell.split(' ').filter(|word| !word.is_empty()).collect(),
    };
    let is_integer = |word: &&str| word.parse::<i64>().is_ok();
    (!words.is_empty() && words.iter().all(is_integer)).then(|| words.into_iter().collect())
}

/// Returns true if each cell holds a sequence of integers, and some are not single integers.
pub(super) fn are_lists<'a, I: Iterator<Item = &'a str>>(cells: impl Fn() -> I) -> bool {
    let lengths: Option<Vec<usize>> = cells().map(|cell| Some(integers(cell)?.len())).collect();
    let has_brackets = || cells().any(|cell| cell.starts_with('['));
    lengths.is_some_and(|lengths| lengths.iter().any(|&length| length > 1) || has_brackets())
}

impl Table<'_> {
    /// Returns the selected column if each of its cells holds a sequence of integers.
    pub(super) fn column_of_lists(&self, below: &[&TableRow], column: Option<usize>) -> Option<usize> {
        let is_possible =
            self.chosen.selection.is_none() && self.config.values != Values::Symbols && self.config.bins == 0;
        let column = column.filter(|_| is_possible)?;
        let cells = || below.iter().filter_map(|row| row.1.get(column)).filter(|cell| !cell.is_empty());
        are_lists(cells).then_some(column)
    }

    /// Reads the first row as column names, or as a row with a list in this column, and returns the column.
    pub(super) fn read_first_of_lists(
        &mut self,
        first: &TableRow,
        below: &[&TableRow],
        mut column: usize,
    ) -> Result<usize> {
        if self.has_header(first, below, Some(column)) {
            self.warn_of_numbers(first);
            if self.numbered_column().is_some() {
                column = self.index_of(("data.column", &self.chosen.column), Some(first), usize::MAX)?;
            }
            self.read_header(&first.1, below, Some(column));
        } else {
            self.warn_of_no_names();
            self.reading.add(&first.1);
            self.push_list(first, column)?;
        }
        let example = below.iter().filter_map(|row| row.1.get(column)).find(|cell| integers(cell).is_some());
        self.reading.guesses.push(format!(
            "each cell of {}, such as `{}`, is read as a sequence of integers; set `data.values` = \"symbols\" to make \
             each cell a token",
            self.column_shown(column),
            excerpt(example.unwrap_or_default())
        ));
        Ok(column)
    }

    /// Returns the lists of a row by the names of their columns. A single value is not a list, except in `column`.
    fn lists(&self, row: &StringRecord, column: usize) -> Map<String, Value> {
        let lists = row.iter().enumerate().filter_map(|(index, cell)| {
            let list = integers(cell).filter(|list| list.len() > 1 || index == column)?;
            let values = list.iter().map(|value| value.parse::<i64>().ok()).collect();
            Some((self.name_of_list(index), values))
        });
        lists.collect()
    }

    fn name_of_list(&self, column: usize) -> String {
        self.columns.names.get(column).cloned().unwrap_or_else(|| format!("column {}", column + 1))
    }

    /// Adds the integers of a cell as a sequence.
    pub(super) fn push_list(&mut self, (line, row): &TableRow, column: usize) -> Result<()> {
        let cell = row.get(column).unwrap_or_default();
        self.check_masks(*line, row)?;
        match integers(cell) {
            Some(values) => {
                let (name, lists) = (self.name_of_list(column), self.lists(row, column));
                targets::check_others(&lists, &[&name])
                    .map_err(|problem| self.problem(Some(*line), problem))?;
                let lists = Value::Object(lists);
                self.seen.unread_lists.extend(targets::unread_lists(&lists, Some(&name)));
                let mask = targets::mask(&lists, Some(&name));
                let before = self.ids.len();
                self.push(&(*line, values), None)?;
                self.count_targets(before, mask);
                Ok(())
            }
            None if cell.is_empty() => {
                self.reading.gaps.empty += 1;
                Ok(())
            }
            None => {
                let problem = format!(
                    "`{}` is not a sequence of integers as in the rows above; write it as one, or set `data.values` = \
                     \"symbols\"",
                    excerpt(cell)
                );
                Err(self.problem(Some(*line), problem))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_integers_are_split() {
        let split = |cell| integers(cell).map(|row| row.iter().collect::<Vec<_>>().join("|"));
        assert_eq!(split("[1, 7, 5]").as_deref(), Some("1|7|5"));
        assert_eq!(split("1 7  5").as_deref(), Some("1|7|5"));
        assert_eq!(split("[-3]").as_deref(), Some("-3"));
        for other in ["", "[]", "a b", "[1, b]", "1.5 2", "2024-01-01"] {
            assert_eq!(split(other), None, "{other}");
        }
    }
}
