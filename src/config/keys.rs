//! Which sections and keys there are, read from the structs that hold their values.

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::{AnalysisConfig, Config, RunConfig, TrainingConfig, TuneConfig};
use crate::data::DataConfig;
use crate::model::ModelConfig;

/// The keys that a study may search, each with its section.
pub(super) fn searchable() -> impl Iterator<Item = String> {
    let sections = ["data", "training", "model"].into_iter();
    sections.flat_map(|section| keys_of(section).iter().map(move |key| format!("{section}.{key}")))
}

/// The key that a list or a range in [tune] is for, which stands outside [tune.search].
pub(super) fn searched_outside(key: &str, value: &toml::Value) -> Option<String> {
    let is_searched = value.is_array() || value.get("min").is_some() && value.get("max").is_some();
    let is_meant =
        |known: &String| known == key || known.split_once('.').is_some_and(|(_, bare)| bare == key);
    searchable().filter(|_| is_searched).find(is_meant)
}

/// The names of all sections.
pub(super) fn sections() -> &'static [&'static str] {
    fields_of::<Config>()
}

/// The keys of a section.
pub(super) fn keys_of(section: &str) -> &'static [&'static str] {
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
