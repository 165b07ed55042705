//! The names of sections and keys, derived from the structs that declare them.

use std::fmt::Display;

use serde::Deserialize;
use serde::de::{self, value::MapDeserializer};

use super::{AnalysisConfig, Config, RunConfig, TrainingConfig, TuneConfig};
use crate::data::DataConfig;
use crate::model::ModelConfig;

/// Returns the keys of a section in order, or the sections if `section` is empty.
pub(crate) fn keys_of(section: &str) -> &'static [&'static str] {
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

/// Returns the names of a struct's fields, which serde lists in its error for an unknown field.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    #[derive(Debug, thiserror::Error)]
    #[error("the fields are {0:?}")]
    struct Fields(&'static [&'static str]);

    impl de::Error for Fields {
        fn custom<M: Display>(_: M) -> Self {
            Self(&[])
        }

        fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
            Self(expected)
        }
    }

    let unknown = std::iter::once(("", ""));
    T::deserialize(MapDeserializer::<_, Fields>::new(unknown)).map_or_else(|Fields(names)| names, |_| &[])
}

/// Returns the section with a key of this name.
pub(super) fn section_of(name: &str) -> Option<&'static str> {
    keys_of("").iter().copied().find(|section| keys_of(section).contains(&name))
}
