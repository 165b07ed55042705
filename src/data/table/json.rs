//! Reads JSON Lines, and JSON files that hold one array.
//!
//! ```text
//! JSON Lines           [3, 1, 4]                       {"day": 1, "state": "sun"}
//! one array            [[3, 1, 4], [1, 5], [9]]        [{"day": 1, "state": "sun"}, …]        [3, 1, 4]
//! ```

use std::fmt;
use std::path::Path;

use csv::StringRecord;
use serde::Deserialize;
use serde::de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Map, Number, Value};

use super::{targets, trimmed};
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result, expected};
use crate::files::quoted;

/// Advice for learning from the texts of a column.
pub(super) const INTO_TOKENS: &str =
    "set `data.tokens` = \"characters\", \"words\" or \"bpe\" to split them into tokens";

/// The error for a number that would be rounded, so that different numbers could become the same symbol.
pub(super) const TOO_LONG: &str = "has a number with too many digits; write it in quotes, as a symbol";

/// The integers below this number are exact. Larger ones are read as floats, which keep 16 digits.
const MAX_EXACT: f64 = u64::MAX as f64;

/// A parsed value with its source text.
pub(super) struct Parsed<'t> {
    /// The line in which the value begins, from 1.
    pub line: usize,
    pub value: Value,
    /// The value as written in the file.
    pub text: &'t str,
}

/// A value in which no object has duplicate keys; serde_json would silently keep the last of them.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = elements.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if values.contains_key(&name) {
                let name = excerpt(&name);
                return Err(de::Error::custom(format!(
                    "the key `{name}` occurs twice in one object; keep one of the two"
                )));
            }
            let Unique(value) = members.next_value()?;
            values.insert(name, value);
        }
        Ok(values.into())
    }
}

/// The layout of a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonLayout {
    /// One array.
    Array,
    /// A value in each line.
    Lines,
}

impl JsonLayout {
    /// Returns the layout of a table with this extension, or `None` if it is CSV. A table with the extension of a text
    /// is JSON if it parses as an array, or if each line parses and the first one is an array or an object.
    pub(super) fn of(text: &str, extension: &str) -> Option<Self> {
        let is_array = || serde_json::from_str::<Vec<IgnoredAny>>(text).is_ok();
        let is_json = |line: &str| line.trim().is_empty() || serde_json::from_str::<IgnoredAny>(line).is_ok();
        match extension {
            "csv" | "tsv" => None,
            "jsonl" | "ndjson" => Some(JsonLayout::Lines),
            "json" if is_lines(text) => Some(JsonLayout::Lines),
            "json" => Some(JsonLayout::Array),
            _ if !text.trim_start().starts_with(['[', '{']) => None,
            _ if is_array() => Some(JsonLayout::Array),
            _ => text.lines().all(is_json).then_some(JsonLayout::Lines),
        }
    }
}

/// Returns true for an empty text, and for JSON Lines: the first line is a complete value, and others follow.
fn is_lines(text: &str) -> bool {
    match text.trim().split_once('\n') {
        None => text.trim().is_empty(),
        Some((first, _)) => serde_json::from_str::<IgnoredAny>(first).is_ok(),
    }
}

/// Iterates over the values of the lines.
pub(super) fn lines<'t>(path: &'t Path, text: &'t str) -> impl Iterator<Item = Result<Parsed<'t>>> {
    text.lines().zip(1..).filter(|(text, _)| !text.trim().is_empty()).map(move |(text, line)| {
        let Unique(value) = serde_json::from_str(text).map_err(|error| invalid_json(path, line, &error))?;
        Ok(Parsed { line, value, text })
    })
}

/// Iterates over the elements of an array.
pub(super) fn elements<'t>(
    path: &'t Path,
    text: &'t str,
) -> Result<impl Iterator<Item = Result<Parsed<'t>>>> {
    if text.trim_start().starts_with('{')
        && let Ok(Value::Object(members)) = serde_json::from_str(text)
        && let Some(remedy) = extraction(&members, path)
    {
        return Err(Error::file(path, format!("is one object, not an array; {remedy}")));
    }
    // This pass finds syntax errors between the elements, without storing the values.
    serde_json::from_str::<Vec<IgnoredAny>>(text).map_err(|error| invalid_json(path, 1, &error))?;
    // `line` counts the line breaks before the position `counted`.
    let mut position = text.find('[').map_or(0, |opening| opening + 1);
    let (mut counted, mut line) = (0, 1);
    Ok(std::iter::from_fn(move || {
        position += text[position..].find(|next: char| next != ',' && !next.is_ascii_whitespace())?;
        line += text[counted..position].matches('\n').count();
        counted = position;
        if text[position..].starts_with(']') {
            return None;
        }
        let mut values = Deserializer::from_str(&text[position..]).into_iter();
        let value = values.next()?.map_err(|error| invalid_json(path, line, &error));
        let start = position;
        position += values.byte_offset();
        Some(value.map(|Unique(value)| Parsed { line, value, text: &text[start..position] }))
    }))
}

/// Returns the advice to extract the records of an object: the longest list, of objects if there is one.
fn extraction(members: &Map<String, Value>, path: &Path) -> Option<String> {
    let is_list = |name: &&str| members.get(*name).is_some_and(Value::is_array);
    if ["columns", "index", "data"].iter().all(is_list) {
        let remedy = "write it with pandas to a .jsonl file with orient=\"records\", lines=True instead of orient=\"split\"";
        return Some(remedy.to_string());
    }
    let lists = members.iter().filter_map(|(name, value)| Some((name, value.as_array()?)));
    let is_column =
        |(_, list): (&String, &Vec<Value>)| !list.iter().any(|it| it.is_object() || it.is_array());
    let mut lengths: Vec<usize> = lists.clone().map(|(_, list)| list.len()).collect();
    lengths.dedup();
    if !is_list(&"input_ids")
        && lengths.len() == 1
        && lists.clone().count() > 1
        && lists.clone().all(is_column)
    {
        let remedy = "write its columns with pandas to a .jsonl file with orient=\"records\", lines=True";
        return Some(remedy.to_string());
    }
    // The ids of a tokenizer's output are next to masks of the same length.
    let rank = |(name, list): &(&String, &Vec<Value>)| {
        (*name == "input_ids", list.first().is_some_and(Value::is_object), list.len())
    };
    let (name, _) = lists.rev().max_by_key(rank)?;
    Some(format!("extract its records with jq -c '.[{name:?}][]' {} > NEW.jsonl", quoted(path)))
}

/// The values of a row as text.
pub(super) struct JsonValues {
    pub row: StringRecord,
    /// True for a single value, false for a sequence.
    pub is_one: bool,
    /// The numbers and booleans of the row, and the strings with the same text as a number or a boolean.
    pub literals: Vec<Literal>,
}

/// A value that may be a string or not: a number, a boolean, or a string with such a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Literal {
    pub text: String,
    pub is_quoted: bool,
}

impl Literal {
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => {
                let is_literal = ["true", "false"].contains(&text.as_str()) || text.parse::<Number>().is_ok();
                is_literal.then(|| Self { text: text.clone(), is_quoted: true })
            }
            Value::Number(_) | Value::Bool(_) => Some(Self { text: value.to_string(), is_quoted: false }),
            _ => None,
        }
    }
}

/// Returns the names of the first fields that a table can hold.
fn field_names<'v>(fields: impl Iterator<Item = (&'v String, &'v Value)>) -> String {
    let readable = fields.filter(|(_, value)| is_readable(value));
    readable.take(9).map(|(name, _)| excerpt(name)).collect::<Vec<_>>().join(", ")
}

/// Returns the values of a sequence, or a single value. An object is read at its member `name`.
pub(super) fn values(value: Value, name: Option<&str>) -> Result<JsonValues, String> {
    let value = match (value, name) {
        (Value::Object(mut members), Some(name)) => {
            let read = members.remove(name);
            let read = read.ok_or_else(|| format!("lacks the value `{}`; add it", excerpt(name)))?;
            targets::check(&members, &read)?;
            read
        }
        (Value::Object(members), None) => return Err(advice_for_object(&members)),
        (_, Some(name)) => {
            let name = excerpt(name);
            return Err(format!(
                "is not an object, so `data.column` = {name} selects nothing; write an object with this \
                 field, or set `data.column` to a number"
            ));
        }
        (value, None) => value,
    };
    match value {
        Value::Array(elements) => {
            let has_filled = elements.iter().any(|element| !element.is_null());
            if has_filled && elements.last().is_some_and(Value::is_null) {
                return Err("ends in null, which is not a value; remove it".into());
            }
            let row = trimmed(elements.iter().map(text).collect::<Result<_, _>>()?);
            Ok(JsonValues { row, is_one: false, literals: elements.iter().filter_map(Literal::of).collect() })
        }
        value => {
            let row = [text(&value)?].into_iter().collect();
            Ok(JsonValues { row, is_one: true, literals: Literal::of(&value).into_iter().collect() })
        }
    }
}

/// Returns the problem of an object of which no field is selected, with the keys that select one.
fn advice_for_object(members: &Map<String, Value>) -> String {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| text.contains(char::is_whitespace));
    if members.values().any(is_text) && !members.values().any(Value::is_array) {
        let texts = members.iter().find(|(_, value)| is_text(value)).map(|(name, _)| excerpt(name));
        let name = texts.unwrap_or_default();
        let others = field_names(members.iter().filter(|(field, _)| excerpt(field) != name));
        let or_column = match &*others {
            "" => String::new(),
            others => format!(
                "; its other fields can be read too ({others}); for pairs of texts, set `data.source_column` and \
                         `data.target_column`"
            ),
        };
        let remedy =
            format!("to learn from such texts, set `data.column` = \"{name}\" and {INTO_TOKENS}{or_column}");
        return format!("is an object whose `{name}` is a text; {remedy}");
    }
    let names = field_names(members.iter());
    if names.is_empty() {
        let problem = "is an object that holds only objects and nested arrays; write each sequence \
                               as one array";
        return problem.to_string();
    }
    // The fields of prepared data sets of Hugging Face.
    let prepared = if members.get("input_ids").is_some_and(Value::is_array) {
        ", such as `data.column` = \"input_ids\" with `data.values` = \"integers\""
    } else {
        ""
    };
    format!("is an object with the fields {names}; set `data.column` to the field to read{prepared}")
}

/// Returns the named fields of an object as a row. `remedy` is for a field with an array.
pub(super) fn fields(value: &Value, names: &[&str], remedy: &str) -> Result<StringRecord, String> {
    let Value::Object(members) = value else {
        return Err("is not an object with fields to select; write an object with these fields".into());
    };
    let field = |name: &&str| {
        let value = members.get(*name).ok_or_else(|| {
            let names = members.keys().take(9).map(|name| excerpt(name)).collect::<Vec<_>>().join(", ");
            format!("lacks the field `{}`, and has {names}; add it", excerpt(name))
        })?;
        match value {
            Value::Array(_) => Err(format!(
                "has an array in `{}`, but each field is one value here; {remedy}",
                excerpt(name)
            )),
            value => text(value),
        }
    };
    names.iter().map(field).collect()
}

/// Returns the text of a value without fields.
pub(super) fn only_text(value: &Value) -> Result<&str, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(members) => {
            let names = members.keys().take(9).map(|name| excerpt(name)).collect::<Vec<_>>().join(", ");
            Err(format!(
                "is an object with the fields {names}; set `data.column` to the field with the texts"
            ))
        }
        _ => Err("is not a text; write texts in quotes, or objects with a text".into()),
    }
}

/// Returns the token ids in the field `name` of an object; `None` if it is not an array.
pub(super) fn ids(value: &Value, name: &str) -> Result<Option<Vec<u32>>, String> {
    let array = value.as_object().and_then(|members| members.get(name)?.as_array());
    let Some(ids) = array else { return Ok(None) };
    let id = |id: &Value| {
        let whole = id.as_u64().and_then(|id| u32::try_from(id).ok());
        whole.ok_or_else(|| {
            format!("has {id} in `{}`, which is not a token id; write ids as integers from 0", excerpt(name))
        })
    };
    let ids = ids.iter().map(id).collect::<Result<Vec<u32>, _>>()?;
    if ids.is_empty() {
        Err(format!("has no token ids in `{}`; remove the record", excerpt(name)))
    } else {
        Ok(Some(ids))
    }
}

/// Returns true for a value, or a sequence of values.
pub(super) fn is_readable(value: &Value) -> bool {
    match value {
        Value::Array(elements) => !elements.iter().any(|element| element.is_array() || element.is_object()),
        value => !value.is_object(),
    }
}

/// Converts a value to text.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        Value::Number(number) if number.as_f64().is_some_and(|number| number.abs() >= MAX_EXACT) => {
            Err(TOO_LONG.into())
        }
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Array(_) | Value::Object(_) => {
            Err("has an array or an object in a sequence; use integers or symbols only".into())
        }
    }
}

/// Returns the error for invalid JSON in a text whose first line has the number `line`.
fn invalid_json(path: &Path, line: usize, error: &serde_json::Error) -> Error {
    let line = line + error.line().max(1) - 1;
    let problem = format!("cannot be read: {}", expected(&error.to_string()));
    Error::in_file(path, Some(line), Some(error.column().max(1)), problem)
}
