//! Which sections and keys there are, with what they mean and their defaults: all of it read from the structs that
//! hold their values.

use std::{collections::BTreeMap, fmt::Write, sync::LazyLock};

use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::Value as Json;
use toml::Value;

use super::{AnalysisConfig, Config, RunConfig, TrainingConfig, TuneConfig};
use crate::data::DataConfig;
use crate::error::{Error, Origin, Result};
use crate::model::ModelConfig;

/// Names of a likeness below this have nothing to do with each other.
const NEAR: f64 = 0.8;

/// The JSON schema of a config, for editors. Its draft is one that they know.
pub static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>().to_value()
});

/// A config that says every key with its meaning and its default; a key that has none is commented out.
pub fn defaults() -> String {
    let mut text = "# Every key and its default. A key that is left out takes it.\n".to_string();
    for section in keys_of("") {
        let of_section = &SCHEMA["properties"][section];
        text += &format!("\n{}[{section}]\n", comment(of_section));
        for key in keys_of(section) {
            let schema = &of_section["properties"][key];
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

/// What a section or key means, as comments.
fn comment(schema: &Json) -> String {
    let lines = schema["description"].as_str().unwrap_or_default().lines();
    lines.map(|line| format!("# {line}\n")).collect()
}

/// The words that a key takes.
fn choices(schema: &Json) -> Vec<String> {
    let of_variants = ["oneOf", "anyOf"].into_iter().filter_map(|of| schema[of].as_array()).flatten();
    let own = schema.get("const").into_iter().chain(schema["enum"].as_array().into_iter().flatten());
    let own = own.filter(|word| !word.is_null()).map(Json::to_string);
    own.chain(of_variants.flat_map(choices)).collect()
}

/// The keys of a section in their order; those of none are the sections.
fn keys_of(section: &str) -> &'static [&'static str] {
    match section {
        "" => fields_of::<Config>(),
        "run" => fields_of::<RunConfig>(),
        "data" => fields_of::<DataConfig>(),
        "model" => fields_of::<ModelConfig>(),
        "training" => fields_of::<TrainingConfig>(),
        "analysis" => fields_of::<AnalysisConfig>(),
        "tune" => fields_of::<TuneConfig>(),
        _ => &[],
    }
}

/// The names of a struct's fields as serde asks for them.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    struct FieldNames<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for FieldNames<'_> {
        type Error = de::value::Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _name: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
            Err(de::Error::custom("only the names were asked for"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut fields: &'static [&'static str] = &[];
    // An error is all that this ever returns.
    let _ = T::deserialize(FieldNames(&mut fields));
    fields
}

/// The key of the space of a search, a table in its section.
pub(super) const SEARCH: &str = "tune.search";

/// The value of a key, how it was written, and where.
#[derive(Debug)]
pub(super) struct Entry {
    pub value: Value,
    pub text: String,
    pub origin: Option<Origin>,
    /// Whether it takes the place of the file's.
    pub is_set: bool,
}

/// What is written, by key with its section. A section without keys stands there by itself.
pub(super) type Entries = BTreeMap<String, Entry>;

impl Entry {
    /// A value that was written as `text`, which is kept in one line, words in quotes.
    pub fn new(value: Value, text: &str, origin: Option<Origin>) -> Self {
        let text = match &value {
            Value::String(word) => format!("\"{word}\""),
            _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        Self { value, text, origin, is_set: false }
    }
}

/// The present name of a key that had another in an earlier version.
pub(super) fn present_name<'n>(section: &str, name: &'n str) -> &'n str {
    match (section, name) {
        ("training", "watch") => "monitor",
        ("tune", "baseline") => "overfit_check",
        _ => name,
    }
}

/// Every section and key must be known; one that is not is answered with the one that is meant, or else with all
/// that there are.
pub(super) fn check_keys(entries: &Entries) -> Result<()> {
    for (key, Entry { value, text, .. }) in entries {
        let problem = match key.split_once('.') {
            None if value.is_table() && !keys_of(key).is_empty() => continue,
            None if value.is_table() => unknown("", key),
            None if !keys_of(key).is_empty() => format!("must be a section: write [{key}] above its keys"),
            None => match section_of(key) {
                Some(meant) => {
                    format!("stands outside its section: write it below [{meant}], as `{meant}.{key}`")
                }
                None => unknown("", key),
            },
            Some((section, _)) if keys_of(section).is_empty() => unknown("", section),
            Some((section, name)) if keys_of(section).contains(&name) => continue,
            Some((section, name)) => match (name.strip_prefix("search."), searched_outside(name, value)) {
                (Some(searched), _) if section == "tune" => match unsearchable(searched) {
                    Some(problem) => problem,
                    None => continue,
                },
                (_, Some(searched)) if section == "tune" => {
                    format!("belongs below [{SEARCH}]: \"{searched}\" = {text}")
                }
                _ => unknown(section, name),
            },
        };
        return Err(Error::key(key, text, problem));
    }
    Ok(())
}

/// What is wrong with a key that is searched; none where it is known.
fn unsearchable(searched: &str) -> Option<String> {
    let meant = match searched.split_once('.') {
        Some((section, name)) if keys_of(section).contains(&present_name(section, name)) => return None,
        Some((section, name)) => meant(section, name),
        None => section_of(searched).map(|section| format!("{section}.{searched}")),
    };
    let answer = meant.map_or_else(
        || "search keys of [model] and [training], as training.learning_rate".to_string(),
        |meant| format!("did you mean `{meant}`?"),
    );
    Some(format!("is no known key: {answer}"))
}

/// What is said of an unknown name in a section: the key that is meant, or all that there are.
fn unknown(section: &str, name: &str) -> String {
    let all = || match section {
        "" => format!("the sections are {}", keys_of("").join(", ")),
        _ => format!("[{section}] has {}", keys_of(section).join(", ")),
    };
    let answer = meant(section, name).map_or_else(all, |meant| format!("did you mean `{meant}`?"));
    format!("is no known key: {answer}")
}

/// The key that an unknown name in a section means: one of that very name in another section, or one of this section
/// that is much like it.
fn meant(section: &str, name: &str) -> Option<String> {
    let likeness = keys_of(section).iter().map(|&known| (strsim::jaro_winkler(name, known), known));
    match (section_of(name), likeness.max_by(|a, b| a.0.total_cmp(&b.0))) {
        (Some(other), _) => Some(format!("{other}.{name}")),
        (None, Some((likeness, near))) if likeness >= NEAR && section.is_empty() => Some(near.to_string()),
        (None, Some((likeness, near))) if likeness >= NEAR => Some(format!("{section}.{near}")),
        (None, _) => None,
    }
}

/// The section that has a key of this name.
fn section_of(name: &str) -> Option<&'static str> {
    keys_of("").iter().copied().find(|section| keys_of(section).contains(&name))
}

/// The key that a list or a range in [tune] is for, which stands outside [tune.search].
fn searched_outside(name: &str, value: &Value) -> Option<String> {
    let is_searched = value.is_array() || value.get("min").is_some() && value.get("max").is_some();
    let mut keys = ["data", "training", "model"]
        .into_iter()
        .flat_map(|section| keys_of(section).iter().map(move |&known| (known, format!("{section}.{known}"))));
    let found = keys.find(|(known, whole)| name == *known || name == whole)?;
    is_searched.then_some(found.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TuneConfig;

    #[test]
    fn every_key_is_printed_with_its_meaning_and_its_default() {
        let text = defaults();
        let config = Config::parse(&text, "defaults.toml".as_ref(), &[]).unwrap();
        assert_eq!(config, Config { tune: Some(TuneConfig::default()), ..Config::default() });
        for section in keys_of("") {
            let (_, keys) = text.split_once(&format!("\n[{section}]\n")).unwrap();
            for key in keys_of(section) {
                let schema = &SCHEMA["properties"][section]["properties"][key];
                let line = |line: &str| line.starts_with(&format!("{key} =")) || line == format!("# {key} =");
                assert!(keys.lines().any(line), "{section}.{key}");
                assert!(
                    schema["description"].as_str().is_some_and(|text| text.len() > 10),
                    "{section}.{key}"
                );
            }
        }
        let optimizer = "# The optimizer.\n# One of \"adamw\", \"adam\", \"sgd\".\noptimizer = \"adamw\"\n";
        assert!(text.contains(optimizer), "{text}");
        assert!(text.contains("\nepsilon = 1e-8\n"), "{text}");
    }

    #[test]
    fn the_schema_says_what_the_program_reads() {
        let schema = |section: &str, key: &str| &SCHEMA["properties"][section]["properties"][key];
        assert_eq!(SCHEMA["properties"]["model"]["additionalProperties"], false);
        assert_eq!(schema("training", "schedule")["oneOf"][1]["const"], "linear");
        assert_eq!(schema("data", "length")["type"], "integer");
        assert_eq!(schema("data", "tokens")["type"], "string");
        assert_eq!(*keys_of(""), ["run", "data", "model", "training", "analysis", "tune"]);
        assert!(!SCHEMA.to_string().contains("$ref"), "a key is explained where it stands");
    }
}
