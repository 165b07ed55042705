//! A config as written: a file, with overrides by `--set`. Each value keeps its text and its origin, so that an error
//! names the location and the remedy.

use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::keys::{Entries, Entry, SEARCH, check_keys, range_of};
use super::meant::{intended_key, keys_named, synonym};
use super::overrides::warn_of_repeated;
use super::types;
use super::{Config, DEFAULT_FILE, DEFAULT_TEXT, DURATIONS, sets};
use crate::data::Source;
use crate::error::{Error, INTEGER, Location, Origin, Result, ensure, excerpt, expected};
use crate::files::Text;
use crate::numbers::Bytes;

/// The maximum size of a config file. Larger files are data.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The text keys for which an empty value is meaningful.
const MAY_BE_EMPTY: [&str; 2] = ["run.name", "data.column"];

/// A config before it is typed and checked.
#[derive(Debug)]
pub(super) struct Written {
    entries: Entries,
    /// The data source of the file.
    source: String,
}

impl Written {
    /// Reads the file at `path`, by default the current folder's config or the shipped one, and applies the overrides.
    pub fn open(path: Option<&Path>, overrides: &[String]) -> Result<Self> {
        let default = Some(Path::new(DEFAULT_FILE)).filter(|path| path.exists());
        let written = match path.or(default) {
            Some(path) => Self::read_file(path),
            // A line number would mislead, since the user has no such file.
            None => Self::parse(DEFAULT_TEXT, None),
        };
        written?.with(overrides)
    }

    /// Reads the file at `path`. A file that is not a config is likely data, so the error points to `--data`.
    fn read_file(path: &Path) -> Result<Self> {
        let shown = path.display();
        let read = read(path).and_then(|text| Self::parse(&text, Some(path)));
        let is_named_as_config =
            path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let remedy = format!("to train on it, pass --data {shown}");
        match read {
            Ok(written) if written.entries.is_empty() && !is_named_as_config => {
                Err(Error::Input(format!("`{shown}` is not a config: it sets no key; {remedy}")))
            }
            Err(Error::File { location, problem }) if !is_named_as_config => {
                let problem = format!("`{shown}` is not a config ({location}: {problem}); {remedy}");
                Err(Error::Input(problem))
            }
            read => read,
        }
    }

    /// Parses the text of the file `path`. Pass no path if line numbers would mislead.
    pub fn parse(text: &str, path: Option<&Path>) -> Result<Self> {
        let table = DeTable::parse(text).map_err(|error| syntax(text, path, &error))?;
        let mut written = Self { entries: Entries::new(), source: String::new() };
        written.add("", table.get_ref(), text, path)?;
        written.source = written.data_source();
        Ok(written)
    }

    /// Adds the keys of a table of the file. `parent` is the name of the table.
    fn add(&mut self, parent: &str, table: &DeTable<'_>, text: &str, path: Option<&Path>) -> Result<()> {
        for (name, written) in table {
            let (name, span) = (name.get_ref(), name.span());
            let key = if parent.is_empty() { name.to_string() } else { format!("{parent}.{name}") };
            let line = Some(line_and_column(text, span.start).0);
            let location = path.map(|path| Location { path: path.to_path_buf(), line, column: None });
            let origin = location.map(Origin::File);
            let shown_text = text.get(written.span()).unwrap_or_default();
            let refused = |key: &str, problem: &str| Error::key(key, shown_text, problem).at(origin.clone());
            // In a search space, `"training.batch_size" = [..]` and `training.batch_size = [..]` are equivalent.
            let is_section = parent.is_empty() || key == SEARCH || parent == SEARCH && !name.contains('.');
            if let DeValue::Table(inner) = written.get_ref()
                && is_section
                && !inner.is_empty()
            {
                self.add(&key, inner, text, path)?;
                continue;
            }
            if self.entries.contains_key(&key) {
                let problem = "appears twice, with and without quotes; keep one of them";
                return Err(refused(&key, problem));
            }
            let value = value(written).map_err(|problem| refused(&key, problem))?;
            self.entries.insert(key, Entry::new(value, shown_text, origin));
        }
        Ok(())
    }

    /// Returns the keys that are set.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Applies overrides of the command line, `section.key=value`, with the value in TOML notation or as a bare word.
    pub fn with(mut self, assignments: &[String]) -> Result<Self> {
        if DURATIONS.iter().all(|key| sets(assignments, key)) {
            let problem = "--set: `training.steps` and `training.epochs` both set the length of a run; keep \
                one of them";
            return Err(Error::Input(problem.to_string()));
        }
        warn_of_repeated(assignments);
        for assignment in assignments {
            let refuse = |problem: &str| {
                let beginning: String = assignment.chars().take(60).collect();
                Err(Error::Input(format!("--set {}: {problem}", beginning.trim_end())))
            };
            let Some((key, text)) = assignment.split_once('=') else {
                return refuse("must be section.key=value, such as data.task=random");
            };
            // The value keeps its spaces, except those around the equals sign.
            let (text, key) = (if key.ends_with(' ') { text.trim() } else { text }, key.trim());
            if !key.contains('.') {
                let key = keys_named(key).into_iter().next().or_else(|| intended_key("", key));
                let key = key.filter(|key| key.contains('.')).unwrap_or_else(|| "section.key".to_string());
                return refuse(&format!("the key is missing its section; use {key}={}", excerpt(text, 60)));
            }
            if text.is_empty() || text.trim().is_empty() && key != "data.delimiter" {
                return refuse("the value is empty, perhaps because of an unset variable; pass a value");
            }
            let document = format!("value = {text}");
            let table = DeTable::parse(&document).map(Spanned::into_inner).unwrap_or_default();
            if table.len() > 1 || table.is_empty() && text.contains('\n') {
                return refuse("has more than one line; pass --set once for each key");
            }
            let origin = Some(Origin::CommandLine);
            let value = types::read(key, text, table.get("value").map(value));
            let refused = |problem: &str| Error::key(key, text, problem).at(origin.clone());
            let value = value.map_err(refused)?;
            if value.as_str() == Some("") && !MAY_BE_EMPTY.contains(&key) {
                return Err(refused("is empty; pass a value, or omit the option"));
            }
            self.set(key, value, text, origin);
        }
        Ok(self)
    }

    /// Sets a key, given with its section, to a value that was written as `text`.
    pub fn set(&mut self, key: &str, value: Value, text: &str, origin: Option<Origin>) {
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        let key = match name.strip_prefix("search.").filter(|_| section == "tune") {
            // The key may be in quotes.
            Some(searched) => format!("{SEARCH}.{}", searched.trim_matches('"')),
            None => format!("{section}.{name}"),
        };
        if let (SEARCH, Value::Table(space)) = (key.as_str(), &value) {
            self.entries.retain(|key, _| !key.starts_with(SEARCH));
            for (searched, values) in space {
                let (key, shown) = (format!("{SEARCH}.{searched}"), values.to_string());
                self.set(&key, values.clone(), &shown, origin.clone());
            }
            return;
        }
        let is_other = self.entries.get(&key).is_some_and(|before| before.value != value);
        // The later of two equivalent keys wins, and a device of another backend is dropped.
        match key.as_str() {
            "training.steps" => drop(self.entries.remove("training.epochs")),
            "training.epochs" => drop(self.entries.remove("training.steps")),
            "training.backend" if is_other && !self.is_set("training.device") => {
                self.entries.remove("training.device");
            }
            _ => {}
        }
        self.entries.insert(key, Entry { is_set: true, ..Entry::new(value, text, origin) });
    }

    fn is_set(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.is_set)
    }

    /// Returns the typed config after all checks, including `check`.
    pub fn read(mut self, check: impl Fn(&Config) -> Result<()>) -> Result<Config> {
        let config = self.reconcile_data().and_then(|()| self.typed()).and_then(|config| {
            config.check()?;
            check(&config)?;
            Ok(config)
        });
        config.map_err(|error| {
            let origin = if let Error::Key { key, .. } = &error { self.origin(key) } else { None };
            error.at(origin)
        })
    }

    /// Returns the location where a key is written, if any.
    fn origin(&self, key: &str) -> Option<Origin> {
        self.entries.get(key)?.origin.clone()
    }

    /// Returns the location where a key is written with this value, if any.
    pub fn origin_of_value(&self, key: &str, value: &str) -> Option<Origin> {
        let [written, value] =
            [self.entries.get(key)?.text.as_str(), value].map(|text| text.trim_matches('"'));
        let numbers = written.parse::<f64>().ok().zip(value.parse::<f64>().ok());
        let is_same = written == value || numbers.is_some_and(|(written, value)| written == value);
        self.origin(key).filter(|_| is_same)
    }

    /// Reconciles the data keys with the overrides. An overriding file or task decides `data.source`. If the source
    /// changes, `data.vocab` and the numbers of samples return to their defaults.
    fn reconcile_data(&mut self) -> Result<()> {
        let generated = Source::Sequences.to_string();
        let [sets_source, sets_path, sets_task] =
            ["data.source", "data.path", "data.task"].map(|key| self.is_set(key));
        if let (true, true, Some(task)) = (sets_path, sets_task, self.entries.get("data.task")) {
            let problem = "generates sequences, but `data.path` names a file; remove one of them";
            return Err(Error::key("data.task", &task.text, problem));
        }
        let source = match (sets_source, sets_path, sets_task) {
            (false, true, _) if self.source == generated => self.source_of_path(),
            (false, false, true) => generated.clone(),
            _ => self.data_source(),
        };
        if source != self.source {
            self.log_replacement(source == generated);
            for key in ["data.vocab", "data.train_samples", "data.valid_samples", "data.task"] {
                self.remove_unless_set(key);
            }
            let entry = self.entries.entry("data.source".to_string());
            let entry = entry.or_insert_with(|| Entry::new(Value::from(""), "", None));
            // A value that is not text is reported later, with its origin.
            if entry.value.is_str() {
                entry.value = source.as_str().into();
            }
            if source == generated {
                self.remove_unless_set("data.path");
            }
        }
        Ok(())
    }

    /// Logs that an override replaces the file of a config by a task, or its task by a file.
    fn log_replacement(&self, is_generated: bool) {
        let [by, replaced] =
            if is_generated { ["data.task", "data.path"] } else { ["data.path", "data.task"] };
        if let (Some(by_entry), Some(Entry { text, origin, is_set: false, .. })) =
            (self.entries.get(by).filter(|entry| entry.is_set), self.entries.get(replaced))
            // The shipped config has a task, but no path to name.
            && (is_generated || origin.is_some() && self.source == Source::Sequences.to_string())
        {
            let problem = format!("is replaced by `{by}` = {}", by_entry.text);
            log::info!("{}", Error::key(replaced, text, problem).at(origin.clone()));
        }
    }

    fn remove_unless_set(&mut self, key: &str) {
        if !self.is_set(key) {
            self.entries.remove(key);
        }
    }

    /// Returns the data source from `data.source`, or else from `data.path`.
    fn data_source(&self) -> String {
        self.text_of("data.source").map_or_else(|| self.source_of_path(), str::to_string)
    }

    fn source_of_path(&self) -> String {
        let path = self.entries.get("data.path").map(|entry| &entry.value);
        // The first path of a list decides.
        let first = path.and_then(|path| path.as_str().or_else(|| path.as_array()?.first()?.as_str()));
        Source::of(Path::new(first.unwrap_or_default())).to_string()
    }

    fn text_of(&self, key: &str) -> Option<&str> {
        self.entries.get(key)?.value.as_str()
    }

    /// Returns the typed config.
    fn typed(&mut self) -> Result<Config> {
        check_keys(&self.entries)?;
        types::check(&self.entries)?;
        loop {
            let error = match serde_path_to_error::deserialize(self.values()) {
                Ok(config) => return Ok(config),
                Err(error) => error,
            };
            let path = error.path().to_string();
            // For example training.validate_at[1].
            let mut parts = path.split(['.', '[']);
            let key = format!("{}.{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let expected = expected(error.inner().message());
            match self.entries.get_mut(&key) {
                // For a word, serde's error lists the choices.
                Some(Entry { value, text, .. }) if !value.is_str() && expected.contains("string only") => {
                    *value = text.clone().into();
                }
                entry => {
                    let text = entry.map(|entry| entry.text.clone()).unwrap_or_default();
                    let range = range_of(&key).filter(|_| expected.ends_with(INTEGER));
                    let problem = range.map_or_else(
                        || {
                            let other = key.split_once('.').and_then(|(_, name)| synonym(name));
                            let value = text.trim_matches('"');
                            let meant = other.map(|other| format!("; did you mean --set {other}={value}?"));
                            format!("cannot be used: {expected}{}", meant.unwrap_or_default())
                        },
                        |range| format!("must be {}", range.noun()),
                    );
                    return Err(Error::key(&key, text, problem));
                }
            }
        }
    }

    /// Returns all values, each in its section.
    fn values(&self) -> Table {
        let mut values = Table::new();
        for (key, Entry { value, .. }) in &self.entries {
            let sections = if key.starts_with(SEARCH) { 3 } else { 2 };
            let mut table = &mut values;
            let mut parts = key.splitn(sections, '.').peekable();
            while let Some(part) = parts.next() {
                let new = if parts.peek().is_some() { Value::from(Table::new()) } else { value.clone() };
                match table.entry(part).or_insert(new) {
                    Value::Table(inner) => table = inner,
                    _ => break,
                }
            }
        }
        values
    }
}

fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    ensure(!path.is_dir(), Error::Input, || {
        format!("`{shown}` is a folder; pass the config file in it, or --data {shown} to train on its texts")
    })?;
    ensure(path.try_exists().unwrap_or(true), Error::Input, || match shown.to_string().split_once('=') {
        Some((key, value)) => {
            format!("`{shown}`: no such config file; to set a key, pass --{key}={value}")
        }
        None => format!(
            "`{shown}`: no such config file; pass one that exists, or omit it for the default experiment"
        ),
    })?;
    let bytes = path.metadata().map_or(0, |file| if file.is_file() { file.len() } else { 0 });
    ensure(bytes <= MAX_CONFIG_BYTES, Error::Input, || {
        let size = Bytes(bytes as f64);
        format!("`{shown}` is too large for a config: {size}; to train on it, pass --data {shown}")
    })?;
    Text::open(path)?.read_to_string()
}

/// Returns the error for text that is not valid TOML.
fn syntax(text: &str, path: Option<&Path>, error: &toml::de::Error) -> Error {
    let problem = match (error.message(), error.span()) {
        ("duplicate key", Some(span)) => {
            let key = text.get(span).unwrap_or_default();
            format!("`{key}` appears twice; remove one of them")
        }
        (message, Some(span)) if is_path_with_backslashes(text, span.start) => format!(
            "{}: in double quotes, a backslash starts an escape; write a path in single quotes, such as \
             'C:\\data.txt', or with forward slashes",
            message.replace('\n', ", ")
        ),
        (message, _) => message.replace('\n', ", "),
    };
    let (line, column) = error.span().map(|span| line_and_column(text, span.start)).unzip();
    Error::in_file(path.unwrap_or(Path::new("")), line, column, problem)
}

/// Returns true if the error directly follows a backslash within double quotes on the same line.
fn is_path_with_backslashes(text: &str, offset: usize) -> bool {
    let before = text.get(..offset).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
    let last =
        before.trim_end_matches(|character: char| character.is_ascii_hexdigit() || "uUx".contains(character));
    last.contains('"') && (last.ends_with('\\') || text[offset..].starts_with('\\'))
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Converts a TOML value. Refuses numbers that no key accepts or that a config cannot represent.
fn value(written: &Spanned<DeValue<'_>>) -> Result<Value, &'static str> {
    match Value::deserialize(ValueDeserializer::from(written.clone())) {
        Ok(Value::Float(number)) if !number.is_finite() => Err("must be a finite number"),
        Ok(value) => Ok(value),
        Err(_) => Err("does not fit into a 64-bit integer; use at most 9223372036854775807"),
    }
}

#[cfg(test)]
mod tests;
