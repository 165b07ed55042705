//! The values of a config before they are typed, each with the place where it was written, so that
//! whatever is wrong is answered with that place and the remedy.

use std::collections::HashMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::Config;
use super::keys::{keys_of, searchable, searched_outside, sections};
use super::tune::flatten;
use crate::data::Source;
use crate::error::{Error, Origin, Place, Result};

/// The values of a config before they are typed, each with the place where it was written.
pub(super) struct Values {
    values: toml::Table,
    origins: HashMap<String, Origin>,
    typed: HashMap<String, String>,
}

impl Values {
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self> {
        let at = |offset: usize| {
            let before = &text[..offset.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
            (line, column)
        };
        let syntax = |error: toml::de::Error| {
            let (line, column) = error.span().map(|span| at(span.start)).unzip();
            let problem = match (error.message(), error.span()) {
                ("duplicate key", Some(span)) => {
                    let key = text.get(span).unwrap_or_default();
                    format!("`{key}` stands here a second time: remove one of the two")
                }
                (message, _) => message.replace('\n', ", "),
            };
            Error::file(path, line, column, problem)
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
            let mut tables = vec![(section.get_ref().to_string(), inner.get_ref())];
            while let Some((path, table)) = tables.pop() {
                let DeValue::Table(table) = table else { continue };
                for (key, value) in table {
                    let path = format!("{path}.{}", key.get_ref());
                    note(path.clone(), key.span().start);
                    tables.push((path, value.get_ref()));
                }
            }
        }
        let source = Self { values, origins, typed: HashMap::new() };
        source.check_keys()?;
        Ok(source)
    }

    /// The values of a whole config, written nowhere.
    pub(super) fn of(config: &Config) -> Self {
        Self { values: config.to_table(), origins: HashMap::new(), typed: HashMap::new() }
    }

    /// Gives a key, named with its section, another value.
    pub(super) fn put(&mut self, key: &str, value: toml::Value) {
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        let table = self.values.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        // The space of a search is a table in its section.
        let (table, name) = match (section, name.strip_prefix("search.")) {
            ("tune", Some(searched)) => match table {
                toml::Value::Table(table) => {
                    let space = || toml::Value::Table(toml::Table::new());
                    let search = table.entry("search").or_insert_with(space);
                    let searched = searched.trim_matches('"');
                    // In a file the key may stand without quotes, in a table of its section.
                    if let Some((section, key)) = searched.split_once('.')
                        && let Some(toml::Value::Table(section)) = search.get_mut(section)
                    {
                        section.remove(key);
                    }
                    (search, searched)
                }
                _ => return,
            },
            _ => (table, name),
        };
        if let toml::Value::Table(table) = table {
            let before = table.insert(name.to_string(), value);
            match (section, name) {
                // The two say the same thing, so the later word holds.
                ("training", "steps") => table.remove("epochs"),
                ("training", "epochs") => table.remove("steps"),
                // A device is one of its backend.
                ("training", "backend")
                    if before.is_some_and(|before| Some(&before) != table.get(name))
                        && !self.typed.contains_key("training.device") =>
                {
                    table.remove("device")
                }
                _ => None,
            };
        }
    }

    /// One override: `section.key=value`, the value in TOML's notation or a bare word.
    pub(super) fn set(&mut self, assignment: &str) -> Result<()> {
        let Some((key, value)) = assignment.split_once('=') else {
            return Err(Error::Input(format!(
                "--set {assignment}: write section.key=value, as --set data.task=random"
            )));
        };
        let (key, value) = (key.trim(), value.trim());
        if !key.contains('.') {
            return Err(Error::Input(format!(
                "--set {assignment}: `{key}` names no section: write it as section.key"
            )));
        }
        let parsed = format!("value = {value}")
            .parse::<toml::Table>()
            .ok()
            .and_then(|mut table| table.remove("value"));
        let parsed = parsed.unwrap_or_else(|| toml::Value::String(value.to_string()));

        self.origins.insert(key.replace('"', ""), Origin::CommandLine);
        self.typed.insert(key.to_string(), value.to_string());
        self.put(key, parsed);
        self.check_keys()
    }

    /// Where the data comes from: as `data.source` says, or else what `data.path` names.
    pub(super) fn data_source(&self) -> String {
        let word = |key| self.values.get("data").and_then(|data| data.get(key)).and_then(toml::Value::as_str);
        match (word("source"), word("path")) {
            (Some(source), _) => source.to_string(),
            (None, path) => Source::of(Path::new(path.unwrap_or_default())).name().to_string(),
        }
    }

    /// Settles what follows from the overrides of a config whose data was `written` to come from
    /// elsewhere: to name a file is to read it, to name a task is to draw it, and `data.vocab` was the
    /// size of what is no longer read.
    pub(super) fn settle(&mut self, written: &str) {
        let typed = |key| self.typed.get(key);
        let source = match (typed("data.source"), typed("data.path"), typed("data.task")) {
            (None, Some(path), _) if written == Source::Sequences.name() => {
                Source::of(Path::new(path)).name().to_string()
            }
            (None, None, Some(_)) => Source::Sequences.name().to_string(),
            _ => self.data_source(),
        };
        let is_sized = typed("data.vocab").is_some();
        let data = self.values.entry("data").or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if let toml::Value::Table(data) = data {
            if source != written && !is_sized {
                data.remove("vocab");
            }
            // What is no word is answered as such.
            if data.get("source").is_none_or(toml::Value::is_str) {
                data.insert("source".to_string(), toml::Value::String(source));
            }
        }
    }

    /// Every section and key must be known; one that is not is answered with the nearest.
    fn check_keys(&self) -> Result<()> {
        let sections = sections();
        for (section, value) in &self.values {
            if !sections.contains(&section.as_str()) {
                let of_a_section = sections.iter().find(|known| keys_of(known).contains(&section.as_str()));
                if let (false, Some(known)) = (value.is_table(), of_a_section) {
                    let problem = format!(
                        "stands outside its section: write it below [{known}], as `{known}.{section}`"
                    );
                    return Err(self.locate(Error::key(section, value, problem)));
                }
                return Err(self.unknown(section, section, sections, ""));
            }
            let known = keys_of(section);
            let toml::Value::Table(table) = value else {
                let problem = format!("must be a section: write [{section}] above its keys");
                return Err(self.locate(Error::key(section, value, problem)));
            };
            if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
                if section == "tune"
                    && let Some(searched) = searched_outside(key, &table[key])
                {
                    let value = table[key].to_string().replace('\n', "");
                    let problem = format!("belongs below [tune.search]: \"{searched}\" = {value}");
                    return Err(self.locate(Error::key(format!("tune.{key}"), value, problem)));
                }
                return Err(self.unknown(&format!("{section}.{key}"), key, known, &format!("{section}.")));
            }
        }
        self.check_searched_keys()
    }

    /// The keys of a search space are those of the other sections.
    fn check_searched_keys(&self) -> Result<()> {
        let search = self.values.get("tune").and_then(|tune| tune.get("search"));
        let Some(toml::Value::Table(search)) = search else { return Ok(()) };
        for (searched, value) in flatten(search) {
            let (section, key) = searched.split_once('.').unwrap_or((&searched, ""));
            if keys_of(section).contains(&key) {
                continue;
            }
            // A name that stands alone may lack its section.
            let likeness = |known: &str| {
                let bare = known.split_once('.').filter(|_| key.is_empty()).map_or(known, |(_, bare)| bare);
                strsim::jaro_winkler(&searched, known).max(strsim::jaro_winkler(&searched, bare))
            };
            let nearest = searchable().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default();
            let remedy = format!("is no known key: did you mean `{nearest}`?");
            let value = value.to_string().replace('\n', "");
            return Err(self.locate(Error::key(format!("tune.search.{searched}"), value, remedy)));
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
        let value =
            self.values.get(section).and_then(|value| value.get(key).or((key.is_empty()).then_some(value)));
        let value = value.map_or_else(String::new, |value| value.to_string().replace('\n', ""));
        self.locate(Error::key(full, value, remedy))
    }

    pub(super) fn deserialize(&mut self) -> Result<Config> {
        // The value as it was written, where it is read as something else.
        let mut given = None;
        loop {
            let error = match serde_path_to_error::deserialize::<_, Config>(self.values.clone()) {
                Ok(config) => return Ok(config),
                Err(error) => error,
            };
            let key = error.path().to_string();
            let message = in_plain_words(error.into_inner().message());
            let (section, name) = key.split_once('.').unwrap_or((&key, ""));
            let value = self.values.get_mut(section).and_then(|table| table.get_mut(name));
            // `--set run.name=7` means the text "7": what looks like a number is a word where one is due.
            if let (Some(value), Some(typed)) = (value, self.typed.get(&key))
                && !value.is_str()
                && message.ends_with("expected text in quotes")
            {
                *value = toml::Value::String(typed.clone());
                continue;
            }
            // A choice is a word: as one, serde answers with those that there are.
            let value = self.values.get_mut(section).and_then(|table| table.get_mut(name));
            if let Some(value) = value.filter(|value| !value.is_str() && message.contains("variant")) {
                let word = value.to_string();
                given = Some(word.clone());
                *value = toml::Value::String(word);
                continue;
            }
            let value = self.values.get(section).and_then(|table| table.get(name));
            let value = value.map_or_else(|| "[…]".to_string(), |value| value.to_string());
            let value = given.unwrap_or(value);
            return Err(self.locate(Error::key(&key, value, format!("cannot be used: {message}"))));
        }
    }

    /// Adds to an error about a key the place where its value was written.
    pub(super) fn locate(&self, error: Error) -> Error {
        match error {
            Error::Key { origin: None, key, value, problem } => {
                let origin = self.origins.get(&key).cloned();
                Error::Key { origin, key, value, problem }
            }
            other => other,
        }
    }
}

/// serde's message in words that do not ask a user to know Rust.
fn in_plain_words(message: &str) -> String {
    let words = [
        ("usize", "a whole number from 0"),
        ("u64", "a whole number from 0"),
        ("u32", "a whole number from 0"),
        ("f64", "a number"),
        ("a boolean", "true or false"),
        ("a string", "text in quotes"),
        ("invalid type: ", "it is "),
        ("invalid value: ", "it is "),
        ("unknown variant ", "there is no "),
    ];
    let message = message.trim().replace('\n', ", ");
    // What stands in quotes is the user's.
    let mut in_quotes = false;
    let pieces = message.split_inclusive(['`', '"']).map(|piece| {
        let said = match in_quotes {
            true => piece.to_string(),
            false => words.iter().fold(piece.to_string(), |said, (rust, plain)| said.replace(rust, plain)),
        };
        in_quotes ^= piece.ends_with(['`', '"']);
        said
    });
    pieces.collect()
}
