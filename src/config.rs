//! An experiment as a file: every room's own config, put together, loaded, overridden, checked.
//!
//! A config is read from TOML, then changed by `--set key=value`, then checked as a whole.
//! Whatever is wrong is said with the place where it was written and with what to write instead.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use crate::analysis::AnalysisConfig;
use crate::data::DataConfig;
use crate::error::{Error, Origin, Place, Result};
use crate::model::ModelConfig;
use crate::training::{Experiment, RunFolder, TrainingConfig};

/// The file that `train` reads when none is named.
pub const DEFAULT_FILE: &str = "config.toml";

/// The shipped default experiment, used where the current folder has no `config.toml`.
pub const DEFAULT_TEXT: &str = include_str!("../config.toml");

/// One experiment: what it is called, what it learns from, what learns, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name and seed.
    pub run: RunConfig,
    /// What is learned from.
    pub data: DataConfig,
    /// What learns.
    pub model: ModelConfig,
    /// How it is trained.
    pub training: TrainingConfig,
    /// What is looked at afterwards.
    pub analysis: AnalysisConfig,
    /// The search space of `tune`; `train` lets it stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tune: Option<toml::Table>,
}

/// Name and seed of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The run's name: its folder below `runs/` and the title of its pictures. Empty: made of
    /// what is learned and what learns, as `repeat-decoder`.
    pub name: String,
    /// The one seed of everything drawn at random: data, weights, order, dropout.
    pub seed: u64,
}

impl Config {
    /// Reads `path`, applies the overrides `key=value` in their order, and checks the whole.
    /// Without a path: the current folder's `config.toml`, or else the shipped default.
    pub fn load(path: Option<&Path>, overrides: &[String]) -> Result<Self> {
        match path {
            Some(path) => Self::parse(&read(path)?, path, overrides),
            None if Path::new(DEFAULT_FILE).exists() => Self::load(Some(Path::new(DEFAULT_FILE)), overrides),
            None => Self::parse(DEFAULT_TEXT, Path::new(DEFAULT_FILE), overrides),
        }
    }

    /// Parses the text of the file `path`, applies `overrides`, and checks the whole.
    pub fn parse(text: &str, path: &Path, overrides: &[String]) -> Result<Self> {
        let mut source = Source::parse(text, path)?;
        for assignment in overrides {
            source.set(assignment)?;
        }
        let config = source.deserialize()?;
        config.check().map_err(|error| source.locate(error))?;
        Ok(config)
    }

    /// Checks everything that can be known before data is read.
    pub fn check(&self) -> Result<()> {
        if self.run.name.contains(['/', '\\']) || self.run.name.starts_with('.') {
            return Err(Error::key(
                "run.name",
                quoted(&self.run.name),
                "must be a plain folder name: use --run DIR for another place",
            ));
        }
        self.data.check()?;
        self.model.check()?;
        self.training.check()?;
        self.analysis.check(self.model.heads)
    }

    /// All of it that decides what a run does.
    pub fn experiment(&self) -> Experiment {
        Experiment {
            seed: self.run.seed,
            data: self.data.clone(),
            model: self.model.clone(),
            training: self.training.clone(),
            samples: self.analysis.samples,
            toml: self.to_toml(),
        }
    }

    /// Refuses to go on with a run by another config than it was `made_with`, but for the keys of
    /// training and analysis, which may change on the way.
    pub fn check_resumes(&self, made_with: &Self, folder: &RunFolder) -> Result<()> {
        let sections =
            |config: &Self| toml::Table::try_from(config).expect("a config holds only what TOML can say");
        let (new, old) = (sections(self), sections(made_with));
        let none = toml::Value::Table(toml::Table::new());
        for section in ["run", "data", "model"] {
            let (new, old) = (new.get(section).unwrap_or(&none), old.get(section).unwrap_or(&none));
            let keys = new.as_table().into_iter().chain(old.as_table()).flat_map(toml::Table::keys);
            for key in keys {
                if new.get(key) != old.get(key) {
                    let shown = |value: Option<&toml::Value>| {
                        value.map_or("nothing".to_string(), ToString::to_string)
                    };
                    let problem = format!(
                        "differs from the {} that the run `{}` was made with: only the keys of [training] and \
                         [analysis] may change",
                        shown(old.get(key)),
                        folder.path().display()
                    );
                    return Err(Error::key(format!("{section}.{key}"), shown(new.get(key)), problem));
                }
            }
        }
        Ok(())
    }

    /// The run's name, or what it is when none was given.
    pub fn name(&self) -> String {
        match self.run.name.as_str() {
            "" => format!("{}-{}", word(self.data.task), word(self.model.architecture)),
            name => name.to_string(),
        }
    }

    /// The config as TOML, every key as used.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a config holds only what TOML can say")
    }
}

fn read(path: &Path) -> Result<String> {
    if path.is_dir() {
        return Err(Error::Input(format!("`{}` is a folder: name the config file in it", path.display())));
    }
    let bytes = fs::read(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::Input(format!(
            "there is no config file `{}`: name one that exists, or leave it out for the default experiment",
            path.display()
        )),
        _ => Error::io("read", path, source),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        Error::file(
            path,
            None,
            None,
            format!("is not UTF-8 text (byte {})", error.utf8_error().valid_up_to()),
        )
    })
}

fn quoted(value: &str) -> String {
    format!("\"{value}\"")
}

/// A variant as it is written in a config, made fit for a file name.
fn word(variant: impl Serialize) -> String {
    let value = toml::Value::try_from(variant).ok();
    value.as_ref().and_then(toml::Value::as_str).unwrap_or("run").replace('_', "-")
}

/// The values of a config before they are typed, each with the place where it was written.
struct Source<'a> {
    path: &'a Path,
    values: toml::Table,
    origins: HashMap<String, Origin>,
    typed: HashMap<String, String>,
}

impl<'a> Source<'a> {
    fn parse(text: &str, path: &'a Path) -> Result<Self> {
        let at = |offset: usize| {
            let before = &text[..offset.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
            (line, column)
        };
        let syntax = |error: toml::de::Error| {
            let (line, column) = error.span().map(|span| at(span.start)).unzip();
            Error::file(path, line, column, error.message().replace('\n', ", "))
        };
        let spans = DeTable::parse(text).map_err(syntax)?;
        let values = toml::from_str::<toml::Table>(text).map_err(syntax)?;

        let mut origins = HashMap::new();
        let mut note = |key: String, offset: usize| {
            let place = Place { path: path.to_path_buf(), line: Some(at(offset).0), column: None };
            origins.insert(key, Origin::File(place));
        };
        for (section, inner) in spans.get_ref() {
            note(section.get_ref().to_string(), section.span().start);
            if let DeValue::Table(table) = inner.get_ref() {
                for key in table.keys() {
                    note(format!("{}.{}", section.get_ref(), key.get_ref()), key.span().start);
                }
            }
        }
        let source = Self { path, values, origins, typed: HashMap::new() };
        source.check_keys()?;
        Ok(source)
    }

    /// One override: `section.key=value`, the value in TOML's notation or a bare word.
    fn set(&mut self, assignment: &str) -> Result<()> {
        let Some((key, value)) = assignment.split_once('=') else {
            return Err(Error::Input(format!(
                "--set {assignment}: write section.key=value, as --set data.task=random"
            )));
        };
        let (key, value) = (key.trim(), value.trim());
        let Some((section, name)) = key.split_once('.') else {
            return Err(Error::Input(format!(
                "--set {assignment}: `{key}` names no section: write it as section.key"
            )));
        };
        let parsed = format!("value = {value}")
            .parse::<toml::Table>()
            .ok()
            .and_then(|mut table| table.remove("value"));
        let parsed = parsed.unwrap_or_else(|| toml::Value::String(value.to_string()));

        self.origins.insert(key.to_string(), Origin::CommandLine);
        self.typed.insert(key.to_string(), value.to_string());
        let table = self.values.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if let toml::Value::Table(table) = table {
            table.insert(name.to_string(), parsed);
            // The two say the same thing, so the later word holds.
            match (section, name) {
                ("training", "steps") => table.remove("epochs"),
                ("training", "epochs") => table.remove("steps"),
                _ => None,
            };
        }
        self.check_keys()
    }

    /// Every section and key must be known; one that is not is answered with the nearest.
    fn check_keys(&self) -> Result<()> {
        let sections = fields_of::<Config>();
        for (section, value) in &self.values {
            if !sections.contains(&section.as_str()) {
                return Err(self.unknown(section, section, sections, ""));
            }
            let known = match section.as_str() {
                "run" => fields_of::<RunConfig>(),
                "data" => fields_of::<DataConfig>(),
                "model" => fields_of::<ModelConfig>(),
                "training" => fields_of::<TrainingConfig>(),
                "analysis" => fields_of::<AnalysisConfig>(),
                _ => continue,
            };
            let toml::Value::Table(table) = value else {
                let problem = format!("must be a section: write [{section}] above its keys");
                return Err(self.locate(Error::key(section, value, problem)));
            };
            if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
                return Err(self.unknown(&format!("{section}.{key}"), key, known, &format!("{section}.")));
            }
        }
        Ok(())
    }

    fn unknown(&self, full: &str, name: &str, known: &[&str], prefix: &str) -> Error {
        let nearest = known
            .iter()
            .map(|&candidate| (strsim::jaro_winkler(name, candidate), candidate))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let remedy = match nearest {
            Some((_, nearest)) => format!("is no known key: did you mean `{prefix}{nearest}`?"),
            None => "is no known key".to_string(),
        };
        let (section, key) = full.split_once('.').unwrap_or((full, ""));
        let value = self.values.get(section).and_then(|value| match key {
            "" => None,
            key => value.get(key),
        });
        let value = value.map_or_else(|| "[…]".to_string(), |value| value.to_string());
        self.locate(Error::key(full, value, remedy))
    }

    fn deserialize(&mut self) -> Result<Config> {
        loop {
            let error = match serde_path_to_error::deserialize::<_, Config>(self.values.clone()) {
                Ok(config) => return Ok(config),
                Err(error) => error,
            };
            let key = error.path().to_string();
            let message = error.into_inner().message().trim().replace('\n', ", ");
            let (section, name) = key.split_once('.').unwrap_or((&key, ""));
            let value = self.values.get_mut(section).and_then(|table| table.get_mut(name));
            // `--set run.name=7` means the text "7": what looks like a number is a word where one is due.
            if let (Some(value), Some(typed)) = (value, self.typed.get(&key))
                && !value.is_str()
                && message.ends_with("expected a string")
            {
                *value = toml::Value::String(typed.clone());
                continue;
            }
            let value = self.values.get(section).and_then(|table| table.get(name));
            let value = value.map_or_else(|| "[…]".to_string(), |value| value.to_string());
            return Err(self.locate(Error::key(&key, value, format!("cannot be used: {message}"))));
        }
    }

    /// Adds to an error about a key the place where its value was written.
    fn locate(&self, error: Error) -> Error {
        match error {
            Error::Key { origin: None, key, value, problem } => {
                let origin = self.origins.get(&key).cloned();
                Error::Key { origin, key, value, problem }
            }
            other => other,
        }
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.path.display())
    }
}

/// The names of a struct's fields as serde knows them: the keys of a section, from the one place
/// where they are declared.
pub fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
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
