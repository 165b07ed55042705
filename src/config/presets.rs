//! The shipped configs of `assets/configs`, which are compiled into the program.

use super::{Config, source::Written};
use crate::error::{Error, Origin, Result};

macro_rules! presets {
    ($($name:literal)*) => {
        /// The names and texts of the shipped configs.
        pub const PRESETS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../assets/configs/", $name, ".toml")))),*];
    };
}

presets! {
    "characters" "characters_long" "characters_quick" "gpt_12_blocks" "grokking" "llama" "sort_encoder_decoder" "tutorial"
}

impl Config {
    /// Returns the text of the preset `name`.
    ///
    /// # Errors
    /// If there is no such preset. The message lists the presets.
    pub fn preset_text(name: &str) -> Result<&'static str> {
        let preset = PRESETS.iter().find(|(known, _)| *known == name);
        preset.map(|(_, text)| *text).ok_or_else(|| {
            let names = PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            Error::Input(format!("unknown preset `{name}`; use one of {names}"))
        })
    }

    /// Like [`Config::load_checked`], for the preset `name`.
    ///
    /// # Errors
    /// If there is no such preset, and as [`Config::load_checked`].
    pub fn load_preset(
        name: &str,
        overrides: &[String],
        check: impl Fn(&Self) -> Result<()>,
    ) -> Result<Self> {
        // A line number would mislead, since the user has no such file.
        Written::parse(Self::preset_text(name)?, None)?.with(overrides)?.read(check)
    }

    /// Like [`Config::origin`], for the preset `name`.
    pub fn origin_in_preset(name: &str, overrides: &[String], key: &str, value: &str) -> Option<Origin> {
        let written = Written::parse(Self::preset_text(name).ok()?, None).ok()?;
        written.with(overrides).ok()?.origin_of_value(key, value)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_shipped_config_is_a_preset() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/configs");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> =
            files.map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        assert_eq!(names, PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for (name, text) in PRESETS {
            let config = Config::load_preset(name, &[], |_| Ok(())).unwrap();
            assert_eq!(config, Config::parse(text, Path::new("a.toml"), &[]).unwrap());
        }
        assert!(Config::preset_text("tiny").unwrap_err().to_string().contains("use one of characters, "));
    }
}
