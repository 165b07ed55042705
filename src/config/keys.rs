//! Which sections and keys there are, read from the structs that hold their values.

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{AnalysisConfig, Config, RunConfig, TrainingConfig, TuneConfig};
use crate::data::DataConfig;
use crate::error::{Error, Result};
use crate::model::ModelConfig;

/// Names of a likeness below this have nothing to do with each other.
const NEAR: f64 = 0.8;

/// The present name of a key that had another in an earlier version.
pub(super) fn present_name<'n>(section: &str, name: &'n str) -> &'n str {
    match (section, name) {
        ("training", "watch") => "monitor",
        ("tune", "baseline") => "overfit_check",
        _ => name,
    }
}

/// Every section and key must be known; one that is not is answered with the nearest, or else with all that there
/// are. `shown` writes a value.
pub(super) fn check_keys(
    values: &DeTable<'_>,
    shown: impl Fn(&Spanned<DeValue<'_>>) -> String,
) -> Result<()> {
    let sections = fields_of::<Config>();
    for (section, value) in values {
        let section = section.get_ref().as_ref();
        let known = keys_of(section);
        let DeValue::Table(table) = value.get_ref() else {
            let problem = match sections.iter().find(|known| keys_of(known).contains(&section)) {
                _ if sections.contains(&section) => {
                    format!("must be a section: write [{section}] above its keys")
                }
                Some(known) => {
                    format!("stands outside its section: write it below [{known}], as `{known}.{section}`")
                }
                None => unknown(section, sections, "", "the sections are"),
            };
            return Err(Error::key(section, shown(value), problem));
        };
        if !sections.contains(&section) {
            let problem = unknown(section, sections, "", "the sections are");
            return Err(Error::key(section, shown(value), problem));
        }
        for (key, value) in table {
            let key = key.get_ref().as_ref();
            if known.contains(&key) {
                continue;
            }
            let problem = match searched_outside(key, value.get_ref()).filter(|_| section == "tune") {
                Some(searched) => format!("belongs below [tune.search]: \"{searched}\" = {}", shown(value)),
                None => {
                    let prefix = format!("{section}.");
                    unknown(key, known, &prefix, &format!("[{section}] has"))
                }
            };
            return Err(Error::key(format!("{section}.{key}"), shown(value), problem));
        }
        if let Some(DeValue::Table(search)) = table.get("search").map(Spanned::get_ref) {
            check_searched_keys(search, &shown)?;
        }
    }
    Ok(())
}

/// The keys of a search space are those of the other sections, written `"section.key"` or in a table of their
/// section.
fn check_searched_keys(search: &DeTable<'_>, shown: impl Fn(&Spanned<DeValue<'_>>) -> String) -> Result<()> {
    for (name, value) in search {
        let name = name.get_ref().as_ref();
        let of_section = value.get_ref().as_table().filter(|_| !name.contains('.'));
        let keys: Vec<_> = match of_section {
            Some(table) => table.iter().map(|(key, value)| (format!("{name}.{key}"), value)).collect(),
            None => vec![(name.to_string(), value)],
        };
        for (searched, value) in keys {
            let (section, key) = searched.split_once('.').unwrap_or((&searched, ""));
            if keys_of(section).contains(&present_name(section, key)) {
                continue;
            }
            // A name that stands alone may lack its section.
            let bare =
                searchable().find(|known| known.split_once('.').is_some_and(|(_, bare)| bare == searched));
            let all = searchable().collect::<Vec<_>>();
            let problem = match bare
                .or_else(|| nearest(&searched, all.iter().map(String::as_str)).map(String::from))
            {
                Some(meant) => format!("is no known key: did you mean `{meant}`?"),
                None => {
                    "is no known key: search keys of [model] and [training], as training.learning_rate".into()
                }
            };
            return Err(Error::key(format!("tune.search.{searched}"), shown(value), problem));
        }
    }
    Ok(())
}

/// What is said of an unknown name: the nearest of those that are known, or all of them.
fn unknown(name: &str, known: &[&str], prefix: &str, all: &str) -> String {
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("is no known key: did you mean `{prefix}{nearest}`?"),
        None => format!("is no known key: {all} {}", known.join(", ")),
    }
}

fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let likeness = known.map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    let (likeness, nearest) = likeness.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness >= NEAR).then_some(nearest)
}

/// The keys that a study may search, each with its section.
fn searchable() -> impl Iterator<Item = String> {
    let sections = ["data", "training", "model"].into_iter();
    sections.flat_map(|section| keys_of(section).iter().map(move |key| format!("{section}.{key}")))
}

/// The key that a list or a range in [tune] is for, which stands outside [tune.search].
fn searched_outside(key: &str, value: &DeValue<'_>) -> Option<String> {
    let is_searched = value.is_array() || value.get("min").is_some() && value.get("max").is_some();
    let is_meant =
        |known: &String| known == key || known.split_once('.').is_some_and(|(_, bare)| bare == key);
    searchable().filter(|_| is_searched).find(is_meant)
}

/// The keys of a section.
fn keys_of(section: &str) -> &'static [&'static str] {
    match section {
        "run" => fields_of::<RunConfig>(),
        "data" => fields_of::<DataConfig>(),
        "model" => fields_of::<ModelConfig>(),
        "training" => fields_of::<TrainingConfig>(),
        "analysis" => fields_of::<AnalysisConfig>(),
        "tune" => fields_of::<TuneConfig>(),
        _ => &[],
    }
}

/// The names of a struct's fields as serde knows them: the keys of a section, from the one place
/// where they are declared.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // The deserialiser only looks at what is asked of it, so an error is all it ever returns.
    let _ = T::deserialize(FieldNames(&mut fields));
    fields
}

struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = de::value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(de::Error::custom("only the names were asked for"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("not a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
