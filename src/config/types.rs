//! The value types of each key, from the JSON schema of the struct that declares the key.

use serde_json::Value as Json;
use toml::Value;

use super::keys::{Entries, SCHEMA};
use crate::error::{Error, Result};

/// The type of a key that accepts one of several words.
const WORD: &str = "word";

/// Reads the value of a key that was written as `text`. `toml` is its TOML value, if the text is valid TOML. A text key
/// accepts other TOML values as text: 2024 is a valid name.
pub(super) fn read(
    key: &str,
    text: &str,
    toml: Option<Result<Value, &'static str>>,
) -> Result<Value, &'static str> {
    let types = types(key);
    let is_text = types.iter().any(|&kind| kind == "string" || kind == WORD);
    let text = if types.contains(&WORD) { text.trim() } else { text };
    match toml {
        Some(Ok(Value::Array(values))) if lists_text(key) && !values.iter().all(Value::is_str) => {
            Ok(text.into())
        }
        Some(Ok(value)) if !is_text || accepts(&types, &value) => Ok(value),
        Some(Err(problem)) if !is_text => Err(problem),
        // TOML requires a digit before the point.
        None if types.contains(&"number")
            && let Ok(number) = text.trim().parse::<f64>()
            && text.contains('.') =>
        {
            Ok(number.into())
        }
        // A Windows path in double quotes, whose backslashes are invalid TOML escapes.
        None if is_text && text.len() > 1 && text.starts_with('"') && text.ends_with('"') => {
            Ok(text[1..text.len() - 1].into())
        }
        _ => Ok(text.into()),
    }
}

/// Rejects numbers, dates and booleans for text keys.
pub(super) fn check(entries: &Entries) -> Result<()> {
    for (key, entry) in entries {
        let is_scalar = !(entry.value.is_str() || entry.value.is_array() || entry.value.is_table());
        if is_scalar && (types(key) == ["string"] || lists_text(key)) {
            let text = &entry.text;
            return Err(Error::key(key, text, format!("is not text; write it in quotes: \"{text}\"")));
        }
    }
    Ok(())
}

/// Returns true for a key with a text or a list of texts, such as paths.
fn lists_text(key: &str) -> bool {
    let variants = schema_of(key)["anyOf"].as_array();
    variants.into_iter().flatten().any(|variant| variant["items"]["type"] == "string")
}

/// Returns true for a key with a boolean value.
pub fn is_boolean(key: &str) -> bool {
    types(key).contains(&"boolean")
}

fn accepts(types: &[&str], value: &Value) -> bool {
    let is_one_of = |names: &[&str]| types.iter().any(|kind| names.contains(kind));
    match value {
        Value::String(_) => is_one_of(&["string", WORD]),
        Value::Integer(_) => is_one_of(&["integer", "number"]),
        Value::Float(_) => is_one_of(&["number"]),
        Value::Boolean(_) => is_one_of(&["boolean"]),
        Value::Array(_) => is_one_of(&["array"]),
        Value::Table(_) => is_one_of(&["object"]),
        Value::Datetime(_) => false,
    }
}

/// Returns the types of a key, given with its section. Empty for an unknown key.
fn types(key: &str) -> Vec<&'static str> {
    let mut types = Vec::new();
    collect(schema_of(key), &mut types);
    types
}

/// Returns the schema of a key, given with its section.
fn schema_of(key: &str) -> &'static Json {
    let (section, name) = key.split_once('.').unwrap_or_default();
    &SCHEMA["properties"][section]["properties"][name]
}

fn collect(schema: &'static Json, types: &mut Vec<&'static str>) {
    let is_word = schema.get("enum").is_some() || schema.get("const").is_some();
    let own = match &schema["type"] {
        Json::Array(several) => several.iter().collect(),
        one => vec![one],
    };
    let names = own.into_iter().filter_map(Json::as_str).filter(|&name| name != "null");
    types.extend(names.map(|name| if is_word && name == "string" { WORD } else { name }));
    for variant in ["anyOf", "oneOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten() {
        collect(variant, types);
    }
    types.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_match_the_config_structs() {
        for (key, expected) in [
            ("data.path", &["string", "array"][..]),
            ("data.tokens", &["string"]),
            ("run.name", &["string"]),
            ("run.from", &["string"]),
            ("model.heads", &["integer"]),
            ("model.dropout", &["number"]),
            ("model.query_key_value_bias", &["boolean"]),
            ("training.optimizer", &[WORD]),
            ("training.backend", &[WORD]),
            ("training.zzz", &[]),
        ] {
            assert_eq!(types(key), expected, "{key}");
        }
        let read = |key, text| read(key, text, None).unwrap();
        assert_eq!(read("training.learning_rate", ".001"), Value::from(0.001));
        assert_eq!(read("run.name", ".001"), Value::from(".001"));
        assert!(types("data.column").contains(&"string") && types("data.column").contains(&"integer"));
    }
}
