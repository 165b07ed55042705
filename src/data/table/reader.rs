//! Which file it is, and whether its first line is a header.

use std::ffi::OsStr;
use std::path::Path;

use super::delimited::Delimited;
use super::json_lines::JsonLines;
use super::row::{Layout, Row};
use crate::data::config::{Column, DataConfig, Values};
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result};

/// Reads a table line by line.
pub(super) enum Reader<'a> {
    Delimited(Box<Delimited<'a>>),
    JsonLines(JsonLines<'a>),
}

impl<'a> Reader<'a> {
    /// Opens the table in the format that its extension names: JSON Lines, or else CSV.
    pub fn open(config: &'a DataConfig) -> Result<Self> {
        let path: &Path = &config.path;
        if path.is_dir() {
            let problem = "is a folder; give the path of one CSV or JSON Lines file";
            return Err(Error::key("data.path", path.display(), problem));
        }
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or("").to_ascii_lowercase();
        Ok(match extension.as_str() {
            "jsonl" | "ndjson" | "json" => {
                let member = match &config.column {
                    Column::Name(name) => Some(name.as_str()),
                    Column::None | Column::Number(_) => None,
                };
                Reader::JsonLines(JsonLines::open(path, member)?)
            }
            _ => Reader::Delimited(Box::new(Delimited::open(path)?)),
        })
    }

    pub fn read(&mut self, row: &mut Row) -> Result<bool> {
        match self {
            Reader::Delimited(reader) => reader.read(row),
            Reader::JsonLines(reader) => reader.read(row),
        }
    }

    pub fn layout(&self) -> Layout<'a> {
        match self {
            Reader::Delimited(reader) => reader.layout(),
            Reader::JsonLines(reader) => reader.layout(),
        }
    }
}

/// The column as the config numbers it, counted from 0.
pub(super) fn first_column(config: &DataConfig) -> Option<usize> {
    match &config.column {
        Column::None => None,
        Column::Number(number) => Some(number - 1),
        // The only one that JSON Lines reads.
        Column::Name(_) => Some(0),
    }
}

/// Where the first line is a header, the column that the config means by it, counted from 0.
pub(super) fn header(
    config: &DataConfig,
    reader: &Reader<'_>,
    first: &Row,
    second: Option<&Row>,
) -> Option<Result<Option<usize>>> {
    if let Reader::JsonLines(_) = reader {
        return None;
    }
    if let Column::Name(name) = &config.column {
        let found = first.values().position(|value| value == name).map(Some);
        return Some(found.ok_or_else(|| {
            /// Columns that are named.
            const MOST: usize = 20;
            let mut columns: Vec<String> = first.values().take(MOST).map(excerpt).collect();
            columns.extend((first.len() > MOST).then(|| format!("{} more", first.len() - MOST)));
            let problem =
                format!("is no column of {}, which has {}", config.path.display(), columns.join(", "));
            Error::key("data.column", name, problem)
        }));
    }
    // Of one column, its values decide; else all do.
    let read = |row: &Row| match first_column(config) {
        None => 0..row.len(),
        Some(column) => column.min(row.len())..(column + 1).min(row.len()),
    };
    let is_integer = |row: &Row, index: usize| row.value(index).parse::<i128>().is_ok();
    let is_header = config.values != Values::Symbols
        && !read(first).any(|index| is_integer(first, index))
        && second.is_some_and(|row| !read(row).is_empty() && read(row).all(|index| is_integer(row, index)));
    is_header.then(|| Ok(first_column(config)))
}
