//! JSON Lines, and JSON files that hold one array.
//!
//! ```text
//! a line each          [3, 1, 4]                       {"day": 1, "state": "sun"}
//! one array            [[3, 1, 4], [1, 5], [9]]        [{"day": 1, "state": "sun"}, …]        [3, 1, 4]
//! ```

use std::path::Path;

use csv::StringRecord;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

use super::Row;
use crate::data::config::Column;
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result};

/// Whether a text is JSON Lines and no array: its first line is a value, and others follow.
pub(super) fn is_lines(text: &str) -> bool {
    match text.trim().split_once('\n') {
        None => text.trim().is_empty(),
        Some((first, _)) => serde_json::from_str::<IgnoredAny>(first).is_ok(),
    }
}

/// What `column` asks for of each line.
pub(super) fn lines<'t>(
    path: &'t Path,
    text: &'t str,
    column: &'t Column,
) -> impl Iterator<Item = Result<Row>> + 't {
    text.lines().zip(1..).filter(|(text, _)| !text.trim().is_empty()).map(move |(text, line)| {
        let value = serde_json::from_str(text).map_err(|error| no_json(path, line, &error))?;
        row(line, value, column).map_err(|problem| Error::file(path, Some(line), None, problem))
    })
}

/// What `column` asks for of each element of an array.
pub(super) fn elements<'t>(
    path: &'t Path,
    text: &'t str,
    column: &'t Column,
) -> impl Iterator<Item = Result<Row>> + 't {
    let mut array = Array { path, text, at: 0, line: 1, is_open: false };
    std::iter::from_fn(move || array.next().transpose()).map(move |next| {
        let (line, value) = next?;
        row(line, value, column).map_err(|problem| Error::file(path, Some(line), None, problem))
    })
}

/// What is read of a value: an array's elements, or itself.
fn row(line: usize, value: Value, column: &Column) -> Result<Row, String> {
    let value = match (value, column) {
        (Value::Object(mut members), Column::Name(name)) => {
            members.remove(name).ok_or_else(|| format!("has no value named `{}`", excerpt(name)))?
        }
        (Value::Object(members), _) => {
            let names = members.keys().take(9).map(|name| excerpt(name)).collect::<Vec<_>>().join(", ");
            return Err(format!("is an object of {names}: name the one to read as `data.column`"));
        }
        (_, Column::Name(name)) => {
            let name = excerpt(name);
            return Err(format!("is no object, and `data.column` = {name} names a value of one"));
        }
        (value, _) => value,
    };
    match value {
        Value::Array(elements) => {
            let values = elements.iter().map(text).collect::<Result<StringRecord, _>>()?;
            Ok(Row::sequence(line, values))
        }
        value => Ok(Row { line, values: [text(&value)?].into_iter().collect(), is_value: true }),
    }
}

/// What a value says, as text.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Array(_) | Value::Object(_) => {
            Err("has an array or an object in a sequence, which takes integers or symbols".into())
        }
    }
}

/// Says what is no JSON in a text whose first line has the number `line`.
fn no_json(path: &Path, line: usize, error: &serde_json::Error) -> Error {
    let what = error.to_string();
    // The place is said already.
    let what = what.split(" at line ").next().unwrap_or(&what);
    let line = line + error.line().max(1) - 1;
    Error::file(path, Some(line), Some(error.column().max(1)), format!("cannot be read: {what}"))
}

/// The elements of an array, one after the other.
struct Array<'t> {
    path: &'t Path,
    text: &'t str,
    /// What of it was read: bytes, and the line there.
    at: usize,
    line: usize,
    is_open: bool,
}

impl Array<'_> {
    /// The next element, and the line that it begins in; none at the end of the file.
    fn next(&mut self) -> Result<Option<(usize, Value)>> {
        match (self.peek(), self.is_open) {
            (Some('['), false) => {
                self.skip(1);
                self.is_open = true;
                if self.peek() == Some(']') {
                    return self.end();
                }
            }
            (Some(','), true) => self.skip(1),
            (Some(']'), true) => return self.end(),
            (_, false) => return Err(self.expected("an array, or a value a line")),
            (_, true) => return Err(self.expected("`,` or `]`")),
        }
        self.peek();
        let line = self.line;
        let mut values = Deserializer::from_str(&self.text[self.at..]).into_iter();
        match values.next() {
            Some(Ok(value)) => {
                let read = values.byte_offset();
                self.skip(read);
                Ok(Some((line, value)))
            }
            Some(Err(error)) => Err(no_json(self.path, line, &error)),
            None => Err(self.expected("a value")),
        }
    }

    fn end(&mut self) -> Result<Option<(usize, Value)>> {
        self.skip(1);
        if self.peek().is_none() { Ok(None) } else { Err(self.expected("nothing after the array")) }
    }

    /// The next character that is no white space, which is skipped.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.skip(rest.len() - rest.trim_start().len());
        self.text[self.at..].chars().next()
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.text[self.at..self.at + bytes].matches('\n').count();
        self.at += bytes;
    }

    fn expected(&self, what: &str) -> Error {
        Error::file(self.path, Some(self.line), None, format!("cannot be read: expected {what}"))
    }
}
