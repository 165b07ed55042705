//! Recognition of tables that are read as texts.

use csv::StringRecord;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

use super::{delimiter, enclosed, json};
use crate::data::config::Delimiter;

/// The minimum number of delimited lines that suggests a table.
const MIN_LINES: usize = 10;

/// The format of a text that may be a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::data) enum Form {
    /// A JSON array or object.
    Json(Elements),
    /// A JSON array or object in each line.
    JsonLines(Elements),
    /// The number of values in each line, and their delimiter.
    Delimited(usize, Delimiter),
}

/// The kind of elements in JSON, as rows of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::data) enum Elements {
    /// Values, or sequences of values.
    Sequences,
    /// Objects with at least one field that a table can hold.
    Records,
    /// Elements that a table cannot hold.
    Other,
}

impl Elements {
    fn of(value: &Value) -> Self {
        match value {
            Value::Object(members) if members.values().any(json::is_readable) => Elements::Records,
            value if json::is_readable(value) => Elements::Sequences,
            _ => Elements::Other,
        }
    }
}

impl Form {
    /// Returns the table format of a text, judged by its `beginning`, which may end anywhere.
    pub(in crate::data) fn of(beginning: &str) -> Option<Self> {
        // The last line may be incomplete.
        let lines = beginning.rsplit_once('\n').map_or("", |(lines, _)| lines);
        json_lines(lines).map(Form::JsonLines).or_else(|| json(beginning)).or_else(|| delimited(lines))
    }
}

/// Returns the kind of lines that are all arrays or objects, or [`Elements::Other`] if the lines differ in kind.
fn json_lines(lines: &str) -> Option<Elements> {
    let filled = lines.lines().filter(|line| !line.trim().is_empty());
    let elements = filled.map(|line| {
        let value =
            line.trim_start().starts_with(['{', '[']).then(|| serde_json::from_str::<Value>(line).ok());
        value.flatten().map(|value| Elements::of(&value))
    });
    let elements: Vec<Elements> = elements.collect::<Option<_>>()?;
    let first = *elements.first().filter(|_| elements.len() > 1)?;
    Some(if elements.iter().all(|&other| other == first) { first } else { Elements::Other })
}

/// Returns the form of a single array or object, which may be incomplete.
fn json(beginning: &str) -> Option<Form> {
    let text = beginning.trim_start();
    let is_json = || serde_json::from_str::<IgnoredAny>(text).map_or_else(|error| error.is_eof(), |_| true);
    if !text.starts_with(['{', '[']) || !is_json() {
        return None;
    }
    let first = || Deserializer::from_str(text.strip_prefix('[')?).into_iter::<Value>().next()?.ok();
    Some(Form::Json(first().map_or(Elements::Other, |value| Elements::of(&value))))
}

/// Returns the form of lines that all have the same number of values.
fn delimited(lines: &str) -> Option<Form> {
    if lines.lines().count() < MIN_LINES {
        return None;
    }
    let delimiter = delimiter::infer(lines, "csv").delimiter;
    let rows: Vec<StringRecord> = delimiter::records(lines, delimiter).collect::<Result<_, _>>().ok()?;
    let width = rows.first()?.len();
    let is_uniform = width > 1 && rows.iter().all(|row| row.len() == width);
    (is_uniform && !enclosed::are_lists(rows.iter()))
        .then_some(Form::Delimited(width, Delimiter::Of(delimiter)))
}
