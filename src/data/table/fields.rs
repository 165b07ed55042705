//! The fields of a row that are read: chosen columns, groups of rows, texts, and pairs of texts.

use std::sync::Arc;

use csv::StringRecord;

use super::texts::TextSample;
use super::{Line, Table, TableRow, targets};
use crate::data::config::{Column, DataConfig, Tokens};
use crate::data::excerpt::{excerpt, listed};
use crate::error::{Error, Result};
use crate::numbers::counted;

/// The form of the sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldForm {
    /// Each row, or each group of rows.
    Values,
    /// The column from the first row to the last.
    Stream,
    /// Each text.
    Texts,
    /// Each pair of texts.
    Pairs,
}

/// The columns that are read, as written in the config or found in the data.
#[derive(Debug, Clone)]
pub(super) struct FieldSelection {
    pub form: FieldForm,
    /// The columns with values, texts or sources; all columns if empty.
    pub values: Vec<Column>,
    /// The key that selects the values.
    values_key: &'static str,
    /// The columns that are not read.
    pub ignored: Vec<Column>,
    pub group: Option<Column>,
    pub order: Option<Column>,
    /// The column with the targets of pairs.
    pub target: Option<Column>,
}

/// The indices of the selected columns.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    pub form: FieldForm,
    pub values: Vec<usize>,
    pub group: Option<usize>,
    pub order: Option<usize>,
    pub target: Option<usize>,
}

impl FieldSelection {
    /// Returns the selection of a config; `None` if each row, or one column, is read as it is.
    pub fn of(config: &DataConfig) -> Option<Self> {
        let set = |column: &Column| Some(column.clone()).filter(Column::is_set);
        let (group, order, target) =
            (set(&config.group_by), set(&config.order_by), set(&config.target_column));
        let has_texts = config.tokens != Tokens::Auto;
        let form = match (target.is_some(), has_texts, &group, &order) {
            (true, ..) => FieldForm::Pairs,
            (false, true, ..) => FieldForm::Texts,
            (false, false, None, Some(_)) if config.column.is_set() => FieldForm::Stream,
            _ => FieldForm::Values,
        };
        let source = set(&config.source_column).or_else(|| set(&config.column));
        let values = source.map_or_else(|| config.columns.clone(), |column| vec![column]);
        let ignored = config.ignore_columns.clone();
        let is_needed = form != FieldForm::Values
            || group.is_some()
            || order.is_some()
            || !config.columns.is_empty()
            || !ignored.is_empty();
        let values_key = if config.columns.is_empty() { "data.column" } else { "data.columns" };
        is_needed.then_some(Self { form, values, values_key, ignored, group, order, target })
    }

    /// Iterates over all columns, to change them.
    pub fn columns_mut(&mut self) -> impl Iterator<Item = &mut Column> {
        let others = [&mut self.group, &mut self.order, &mut self.target];
        self.values.iter_mut().chain(&mut self.ignored).chain(others.into_iter().flatten())
    }

    /// Iterates over all columns with the keys that select them.
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, &Column)> {
        let values_key = match self.form {
            FieldForm::Pairs => "data.source_column",
            _ => self.values_key,
        };
        let values = self.values.iter().map(move |column| (values_key, column));
        let ignored = self.ignored.iter().map(|column| ("data.ignore_columns", column));
        let group = self.group.iter().map(|column| ("data.group_by", column));
        let order = self.order.iter().map(|column| ("data.order_by", column));
        let target = self.target.iter().map(|column| ("data.target_column", column));
        values.chain(ignored).chain(group).chain(order).chain(target)
    }

    /// Returns true if no column is selected or ignored.
    pub fn is_unselective(&self) -> bool {
        self.columns().next().is_none()
    }

    /// Returns the first column that is selected by its name, with its key.
    pub fn named(&self) -> Option<(&'static str, &str)> {
        self.columns().find_map(|(key, column)| Some((key, column.name()?)))
    }

    /// Returns the names of the fields to read from JSON objects, in the order of [`Fields::of_objects`].
    ///
    /// # Errors
    /// Returns an error if a field is selected by its number, or if fields are only excluded.
    pub fn names(&self) -> Result<Vec<&str>> {
        if self.values.is_empty() {
            let problem = "needs the fields to read from JSON objects; set `data.columns` instead";
            return Err(Error::key("data.ignore_columns", Column::list(&self.ignored), problem));
        }
        let fields = self.columns().filter(|(key, _)| *key != "data.ignore_columns");
        fields
            .map(|(key, column)| {
                let problem =
                    "is a number, but the fields of JSON objects have names; use the name of the field";
                column.name().ok_or_else(|| Error::key(key, column, problem))
            })
            .collect()
    }

    /// Returns the indices of the columns in the row of names, or their numbers if there is none. Rows usually have
    /// `width` values, of which the first `skipped` are an index.
    ///
    /// # Errors
    /// Returns an error if a column does not exist or is selected twice.
    pub fn resolve(
        &self,
        table: &Table<'_>,
        names: Option<&TableRow>,
        width: usize,
        skipped: usize,
    ) -> Result<Fields> {
        // The columns of another file are matched by their names, in any order.
        let known = table.known_columns();
        let reordered = names.filter(|(_, names)| !known.is_empty() && !names.iter().eq(&known));
        let index = |key: &str, column: &Column| table.index_of((key, column), names, width);
        let one =
            |key: &str, column: &Option<Column>| column.as_ref().map(|column| index(key, column)).transpose();
        let (group, order) = (one("data.group_by", &self.group)?, one("data.order_by", &self.order)?);
        let target = one("data.target_column", &self.target)?;
        let ignored: Vec<usize> =
            self.ignored.iter().map(|column| index("data.ignore_columns", column)).collect::<Result<_>>()?;
        let is_rest =
            |index: &usize| !ignored.contains(index) && group != Some(*index) && order != Some(*index);
        let values: Vec<usize> = match &self.values[..] {
            [] => match reordered {
                None => (skipped..width).filter(is_rest).collect(),
                Some(names) => {
                    // An index without a name is not read.
                    let named =
                        known.iter().filter(|name| !name.is_empty() && !name.starts_with("Unnamed: "));
                    let named: Vec<String> = named.cloned().collect();
                    table.indices(names, &named)?.into_iter().filter(is_rest).collect()
                }
            },
            columns => {
                let key = self.columns().next().map_or("data.columns", |(key, _)| key);
                columns.iter().map(|column| index(key, column)).collect::<Result<_>>()?
            }
        };
        let fields = Fields { form: self.form, values, group, order, target };
        self.check(&fields, names)?;
        Ok(fields)
    }

    /// Checks that there is something to read, and that texts are in one column.
    fn check(&self, fields: &Fields, names: Option<&TableRow>) -> Result<()> {
        let names = |indices: &[usize]| match names {
            Some((_, names)) => listed(indices.iter().filter_map(|&index| names.get(index))),
            None => Column::list(&indices.iter().map(|index| Column::Number(index + 1)).collect::<Vec<_>>()),
        };
        match (fields.form, &fields.values[..]) {
            (_, []) => Err(Error::key(
                "data.ignore_columns",
                Column::list(&self.ignored),
                "leaves no column to read; remove a column from it",
            )),
            (FieldForm::Texts, [_, _, ..]) => Err(Error::key(
                "data.column",
                "\"\"",
                format!(
                    "must name the column with the texts, because `data.tokens` splits texts into tokens; the columns are {}",
                    names(&fields.values)
                ),
            )),
            (FieldForm::Values, [_, _, ..]) if fields.group.is_some() && self.values.is_empty() => {
                Err(Error::key(
                    "data.column",
                    "\"\"",
                    format!(
                        "must name the column whose values form the sequence of a group, or `data.columns` several; the columns are {}",
                        names(&fields.values)
                    ),
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Fields {
    /// Returns the largest index of a column that is read.
    pub fn last(&self) -> usize {
        let others = [self.group, self.order, self.target];
        self.values.iter().copied().chain(others.into_iter().flatten()).max().unwrap_or(0)
    }

    /// Returns true if the column at `index` is read.
    pub fn reads(&self, index: usize) -> bool {
        self.values.contains(&index) || [self.group, self.order, self.target].contains(&Some(index))
    }

    /// Returns the indices of the fields in a row of the [names](FieldSelection::names) of a selection.
    pub fn of_objects(selection: &FieldSelection) -> Self {
        let mut next = selection.values.len()..;
        let mut index = |column: &Option<Column>| column.as_ref().and_then(|_| next.next());
        let (group, order) = (index(&selection.group), index(&selection.order));
        let target = index(&selection.target);
        Self { form: selection.form, values: (0..selection.values.len()).collect(), group, order, target }
    }
}

impl Table<'_> {
    /// Returns the fields to read from JSON objects, if some are selected.
    ///
    /// # Errors
    /// Returns the errors of [`FieldSelection::names`].
    pub(super) fn fields_of_objects(&mut self) -> Result<Option<Arc<Fields>>> {
        // A column of one value per object is read as it is, with its checks.
        if let (None, Some(selection)) = (&self.chosen.fields, &self.chosen.selection) {
            let names = selection.names()?.into_iter().map(str::to_string).collect();
            self.reading.header = Some(names);
            self.chosen.fields = Some(Arc::new(Fields::of_objects(selection)));
        }
        Ok(self.chosen.fields.clone())
    }

    /// Returns an error if a column of the row excludes targets.
    pub(super) fn check_masks(&self, line: Line, row: &StringRecord) -> Result<()> {
        let keeps_target = |(index, name): &(usize, String)| {
            row.get(*index)
                .is_some_and(|value| targets::keeps_all(name, &serde_json::Value::from(value.trim())))
        };
        match self.columns.masks.iter().find(|mask| !keeps_target(mask)) {
            Some((_, name)) => Err(self.problem(Some(line), targets::refusal(name))),
            None => Ok(()),
        }
    }

    /// Adds the selected fields of a row.
    pub(super) fn push_fields(&mut self, (line, row): &TableRow, fields: &Fields) -> Result<()> {
        self.check_masks(*line, row)?;
        let value = |index: usize| match row.get(index).filter(|value| !value.trim().is_empty()) {
            Some(value) => Ok(value),
            None => Err(self.problem(
                Some(*line),
                format!("lacks a value in {}; add it, or remove the row", self.column_shown(index)),
            )),
        };
        match fields.form {
            FieldForm::Texts => {
                if row.len() > 1 && self.chosen.selection.as_ref().is_some_and(FieldSelection::is_unselective)
                {
                    let problem = format!(
                        "has {}, but each line must be one text; write the text in double quotes, or set \
                         `data.delimiter` to a character that no text contains",
                        counted(row.len(), "value")
                    );
                    return Err(self.problem(Some(*line), problem));
                }
                let text = row.get(fields.values[0]).unwrap_or_default();
                let order = fields.order.map(value).transpose()?;
                match order {
                    _ if text.trim().is_empty() => self.reading.gaps.empty += 1,
                    None => self.chosen.texts.push(TextSample::of_text(*line, text)),
                    Some(order) => {
                        let row = StringRecord::from(vec![text]);
                        self.chosen.groups.add(String::new(), Some(order.to_string()), (*line, row));
                    }
                }
                Ok(())
            }
            FieldForm::Pairs => {
                let (source, target) = (value(fields.values[0])?, value(fields.target.unwrap_or_default())?);
                self.chosen.texts.push(TextSample::of_pair(*line, source, target));
                Ok(())
            }
            FieldForm::Values | FieldForm::Stream if fields.group.or(fields.order).is_none() => {
                let values = fields.values.iter().map(|&index| row.get(index).unwrap_or_default());
                // The values of a row without groups may end early.
                let values = super::trimmed(values.collect());
                self.reading.gaps.short += usize::from((1..fields.values.len()).contains(&values.len()));
                self.reading.gaps.empty += usize::from(values.is_empty() && !row.is_empty());
                self.push(&(*line, values), None)
            }
            FieldForm::Values | FieldForm::Stream => {
                let values = fields.values.iter().map(|&index| value(index)).collect::<Result<_>>()?;
                let key = fields.group.map(value).transpose()?.unwrap_or_default().to_string();
                let order = fields.order.map(value).transpose()?.map(str::to_string);
                self.chosen.groups.add(key, order, (*line, values));
                Ok(())
            }
        }
    }

    /// Returns the value of a row, counted from 0, for a message: by its column if columns are selected, or else by its
    /// number and its name.
    pub(super) fn value_shown(&self, index: usize) -> String {
        match self.columns.names.get(index) {
            _ if self.chosen.fields.is_some() => self.selected_shown(index),
            Some(name) if self.columns.order.is_none() => {
                format!("value {} (`{}`)", index + 1, excerpt(name))
            }
            _ => format!("value {}", index + 1),
        }
    }

    /// Returns the name of the column of a selected value for a message, or its number.
    pub(super) fn selected_shown(&self, index: usize) -> String {
        let fields = self.chosen.fields.as_ref();
        self.column_shown(fields.and_then(|fields| fields.values.get(index).copied()).unwrap_or(index))
    }

    /// Returns the name of a column for a message, or its number.
    pub(super) fn column_shown(&self, index: usize) -> String {
        let names = if self.is_json() { self.reading.header.as_ref() } else { Some(&self.columns.names) };
        match names.and_then(|names| names.get(index)) {
            Some(name) => format!("the column `{}`", excerpt(name)),
            None => format!("column {}", index + 1),
        }
    }
}
