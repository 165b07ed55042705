//! The sections and keys, with their meanings, defaults and ranges, derived from the structs that declare them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Value as Json, json};
use toml::Value;

use super::meant::intended_key;
use super::names::{keys_of, section_of};
use super::{AnalysisConfig, Config, RunConfig, TrainingConfig, TuneConfig};
use crate::data::DataConfig;
use crate::error::{Error, Origin, Result};
use crate::model::ModelConfig;
use crate::range::{MAX_INTEGER, Range, Ranged, Section};

/// The JSON schema of a config, in a draft that editors support.
pub static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<Config>().to_value();
    for (section, ranges) in ranges() {
        for (name, _, range) in ranges {
            let property = schema.pointer_mut(&format!("/properties/{section}/properties/{name}"));
            property.and_then(Json::as_object_mut).expect("a field with a range").extend(bounds(range));
        }
    }
    schema
});

/// Returns each section with the ranges of its numeric keys.
fn ranges() -> [(&'static str, Vec<Ranged>); 6] {
    [
        ("run", RunConfig::default().ranges()),
        ("data", DataConfig::default().ranges()),
        ("model", ModelConfig::default().ranges()),
        ("training", TrainingConfig::default().ranges()),
        ("analysis", AnalysisConfig::default().ranges()),
        ("tune", TuneConfig::default().ranges()),
    ]
}

/// Returns the range of a numeric key.
pub(super) fn range_of(key: &str) -> Option<Range> {
    let (section, name) = key.split_once('.')?;
    let (_, ranges) = ranges().into_iter().find(|(of, _)| *of == section)?;
    ranges.into_iter().find(|(of, ..)| *of == name).map(|(.., range)| range)
}

/// Returns the JSON schema keywords of a range.
fn bounds(range: Range) -> Vec<(String, Json)> {
    let bound = |bound, included: &str, excluded: &str| match bound {
        Bound::Included(number) => Some((included.to_string(), json!(number))),
        Bound::Excluded(number) => Some((excluded.to_string(), json!(number))),
        Bound::Unbounded => None,
    };
    let bounds = match range {
        Range::Integer(min, MAX_INTEGER) => [Some(("minimum".to_string(), json!(min))), None],
        Range::Integer(min, max) => {
            [("minimum", min), ("maximum", max)].map(|(word, bound)| Some((word.to_string(), json!(bound))))
        }
        Range::Real(min, max) => {
            [bound(min, "minimum", "exclusiveMinimum"), bound(max, "maximum", "exclusiveMaximum")]
        }
    };
    bounds.into_iter().flatten().collect()
}

/// Returns a config with every key, its meaning and its default. A key without a default is commented out.
pub fn defaults() -> String {
    let mut text = "# All keys with their defaults, which apply to omitted keys. They describe the smallest and \
                    simplest model that\n\
                    # learns. The shipped config.toml, which `train` reads if the current folder has none, is \
                    larger and has ALiBi\n\
                    # positions, so that its heads form within a minute.\n"
        .to_string();
    for section in keys_of("") {
        let section_schema = &SCHEMA["properties"][section];
        text += &format!("\n{}[{section}]\n", comment(section_schema));
        for key in keys_of(section) {
            let schema = &section_schema["properties"][key];
            text += &comment(schema);
            let choices = choices(schema);
            if !choices.is_empty() {
                let _ = writeln!(text, "# One of {}.", choices.join(", "));
            }
            let _ = match schema.get("default") {
                Some(value) => writeln!(text, "{key} = {value}"),
                None => writeln!(text, "# {key} ="),
            };
        }
    }
    text
}

/// Returns the meaning of a section or key, as comments.
fn comment(schema: &Json) -> String {
    let lines = schema["description"].as_str().unwrap_or_default().lines();
    lines.map(|line| format!("# {line}\n")).collect()
}

/// Returns the choices of a key.
fn choices(schema: &Json) -> Vec<String> {
    let variants = ["oneOf", "anyOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
    let own = schema.get("const").into_iter().chain(schema["enum"].as_array().into_iter().flatten());
    let own = own.filter(|word| !word.is_null()).map(Json::to_string);
    own.chain(variants.flat_map(choices)).collect()
}

/// The key of the search space, a table in its section.
pub(super) const SEARCH: &str = "tune.search";

/// The value of a key, its text, and its origin.
#[derive(Debug)]
pub(super) struct Entry {
    pub value: Value,
    pub text: String,
    pub origin: Option<Origin>,
    /// True if the value overrides the value of the file.
    pub is_set: bool,
}

/// The written values, by key with its section. A section without keys has its own entry.
pub(super) type Entries = BTreeMap<String, Entry>;

impl Entry {
    /// Creates an entry for a value that was written as `text`. The text is kept on a single line, with words in
    /// quotes.
    pub fn new(value: Value, text: &str, origin: Option<Origin>) -> Self {
        let text = match &value {
            Value::String(word) => format!("\"{word}\""),
            _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        Self { value, text, origin, is_set: false }
    }
}

/// Checks that every section and key is known. The error for an unknown one suggests the intended key or lists all
/// keys.
pub(super) fn check_keys(entries: &Entries) -> Result<()> {
    for (key, Entry { value, text, .. }) in entries {
        let problem = match key.split_once('.') {
            None => match (keys_of(key).is_empty(), value.is_table(), section_of(key)) {
                (false, true, _) => continue,
                (false, false, _) => format!("must be a section; write [{key}] above its keys"),
                (true, false, Some(section)) => {
                    format!("is outside its section; move it below [{section}], or write `{section}.{key}`")
                }
                (true, ..) => unknown("", key),
            },
            Some((section, _)) if keys_of(section).is_empty() => unknown("", section),
            Some((section, name)) if keys_of(section).contains(&name) => continue,
            Some(("tune", name)) => match (name.strip_prefix("search."), misplaced_search_key(name, value)) {
                (Some(searched), _) => match search_key_problem(searched) {
                    Some(problem) => problem,
                    None => continue,
                },
                (None, Some(searched)) => {
                    format!("belongs in [{SEARCH}]; write \"{searched}\" = {text} there")
                }
                (None, None) => unknown("tune", name),
            },
            Some((section, name)) => unknown(section, name),
        };
        return Err(Error::key(key, text, problem));
    }
    Ok(())
}

/// Returns the problem of an unknown key in the search space, or `None` for a known key.
fn search_key_problem(searched: &str) -> Option<String> {
    let (section, name) = searched.split_once('.').unwrap_or(("", searched));
    if !section.is_empty() && keys_of(section).contains(&name) {
        return None;
    }
    let hint = "search keys of [model] and [training], such as training.learning_rate";
    Some(unknown_with_hint(section, name, hint.to_string()))
}

/// Returns the problem of an unknown name in a section: a suggestion, or the list of all keys.
fn unknown(section: &str, name: &str) -> String {
    let all = keys_of(section).join(", ");
    let hint = match section {
        "" => format!("the sections are {all}"),
        _ => format!("the keys of [{section}] are {all}"),
    };
    unknown_with_hint(section, name, hint)
}

/// Returns the problem of an unknown name: a suggestion, or else the `hint`.
fn unknown_with_hint(section: &str, name: &str, hint: String) -> String {
    let advice = intended_key(section, name).map_or(hint, |key| format!("did you mean `{key}`?"));
    format!("is an unknown key; {advice}")
}

/// Returns the intended key of a list or a range in `[tune]` that belongs in `[tune.search]`.
fn misplaced_search_key(name: &str, value: &Value) -> Option<String> {
    let is_searched = value.is_array() || value.get("min").is_some() && value.get("max").is_some();
    let (section, key) = name.split_once('.').or_else(|| Some((section_of(name)?, name)))?;
    (is_searched && keys_of(section).contains(&key)).then(|| format!("{section}.{key}"))
}

#[cfg(test)]
mod tests;
