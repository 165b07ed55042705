//! Checks of the keys that select the fields of a table.

use std::fmt;

use super::{Column, Comment, DataConfig, RowSplit, Values};
use crate::error::{Error, Result};

fn refused(key: &str, value: &dyn fmt::Display, problem: &str) -> Result<()> {
    Err(Error::key(key, value, problem))
}

impl DataConfig {
    /// Checks that the keys of a table fit together.
    pub(super) fn check_table(&self) -> Result<()> {
        self.check_columns()?;
        self.check_values()
    }

    /// Checks the keys that select columns.
    fn check_columns(&self) -> Result<()> {
        let has_columns = !self.columns.is_empty() || !self.ignore_columns.is_empty();
        let selected = [
            ("data.columns", &self.columns[..]),
            ("data.ignore_columns", &self.ignore_columns),
            ("data.group_by", std::slice::from_ref(&self.group_by)),
            ("data.order_by", std::slice::from_ref(&self.order_by)),
            ("data.source_column", std::slice::from_ref(&self.source_column)),
            ("data.target_column", std::slice::from_ref(&self.target_column)),
        ];
        if let Some((key, _)) = selected.iter().find(|(_, columns)| columns.contains(&Column::Number(0))) {
            return refused(key, &0, "is not the number of a column; columns are numbered from 1");
        }
        if self.split == RowSplit::Group && !self.group_by.is_set() {
            let problem =
                "divides the groups of rows; set `data.group_by` to the column that names the group";
            return refused("data.split", &"\"group\"", problem);
        }
        if self.source_column.is_set() != self.target_column.is_set() {
            let (key, value, other) = match self.source_column.is_set() {
                true => ("data.source_column", &self.source_column, "data.target_column"),
                false => ("data.target_column", &self.target_column, "data.source_column"),
            };
            let problem = format!("needs the other column of the pairs; set `{other}` too");
            return Err(Error::key(key, value, problem));
        }
        if self.has_pairs() && (self.column.is_set() || has_columns || self.group_by.is_set()) {
            let problem = "selects pairs, which other keys of columns cannot change; remove `data.column`, \
                           `data.columns`, `data.ignore_columns` and `data.group_by`";
            return refused("data.source_column", &self.source_column, problem);
        }
        if self.column.is_set() && has_columns {
            let problem =
                "selects one column, but `data.columns` or `data.ignore_columns` selects several; remove one";
            return refused("data.column", &self.column, problem);
        }
        if !self.columns.is_empty() && !self.ignore_columns.is_empty() {
            return refused(
                "data.ignore_columns",
                &Column::list(&self.ignore_columns),
                "has no effect with `data.columns`; remove one of them",
            );
        }
        if self.order_by.is_set() && !self.group_by.is_set() && !self.column.is_set() {
            let problem = "orders the rows of a group, or the values or texts of one column; set `data.group_by` or \
                           `data.column`";
            return refused("data.order_by", &self.order_by, problem);
        }
        Ok(())
    }

    /// Checks the keys of what the selected columns hold.
    fn check_values(&self) -> Result<()> {
        if self.reads_texts() && (self.group_by.is_set() || !self.columns.is_empty() || self.bins > 0) {
            let problem =
                "splits the texts of one column; remove `data.group_by`, `data.columns` and `data.bins`";
            return refused("data.tokens", &self.tokens, problem);
        }
        if self.bins == 1 || self.bins > 0 && self.values == Values::Symbols {
            let problem = if self.bins == 1 {
                "must be 0 or at least 2"
            } else {
                "needs numbers, not symbols; remove it"
            };
            return refused("data.bins", &self.bins, problem);
        }
        if self.difference && self.bins == 0 {
            return refused("data.difference", &true, "needs bins of the differences; set `data.bins` = 32");
        }
        if let Comment::Of(beginning) = &self.comment
            && (beginning.chars().count() > 8 || beginning.contains(['\n', '\r']))
        {
            return refused(
                "data.comment",
                beginning,
                "is not the beginning of a comment; use a few characters",
            );
        }
        Ok(())
    }
}
