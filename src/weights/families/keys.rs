//! The keys of a `config.json`, each read by name: an error names the key and its value.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The keys of an object in a config. A key that is null is as one that is absent.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    entries: &'a Map<String, Value>,
    /// The key of the object itself, where it is not the whole config.
    within: Option<&'a str>,
    place: &'a Path,
}

impl<'a> Keys<'a> {
    /// The keys of a whole config, which stands at `place`.
    ///
    /// # Errors
    /// If it is no object.
    pub fn new(config: &'a Value, place: &'a Path) -> Result<Self> {
        let entries = config.as_object();
        let entries =
            entries.ok_or_else(|| Error::file(place, "holds no object, which the config of a model is"))?;
        Ok(Self::of(entries, place))
    }

    /// Keys that stand at `place`.
    pub fn of(entries: &'a Map<String, Value>, place: &'a Path) -> Self {
        Self { entries, within: None, place }
    }

    /// What is wrong with the config.
    pub fn error(&self, problem: impl Into<String>) -> Error {
        Error::file(self.place, problem)
    }

    /// What is wrong with a key's value: `problem` is a clause that follows the value.
    pub fn refused(&self, key: &str, value: impl std::fmt::Display, problem: &str) -> Error {
        let mut value = value.to_string();
        if value.chars().count() > 60 {
            value = value.chars().take(60).collect::<String>() + "…";
        }
        self.error(format!("`{}` is {value}{problem}", self.path(key)))
    }

    /// What is said where `what` lacks a key.
    pub fn lacking(&self, key: &str, what: &str) -> Error {
        self.error(format!("{what} lack the key `{}`", self.path(key)))
    }

    /// A key with that of the object that it stands in.
    fn path(&self, key: &str) -> String {
        self.within.map_or_else(|| key.to_string(), |within| format!("{within}.{key}"))
    }

    /// All keys that have a value.
    pub fn values(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.entries.iter().filter(|(_, value)| !value.is_null())
    }

    /// A key's value.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let wrong = |value| self.refused(key, value, &format!(": expected {expected}"));
        self.value(key).map(|value| read(value).ok_or_else(|| wrong(value))).transpose()
    }

    /// A number of things, at least 1, and so few that the product of two can be told.
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        let most = u64::from(u32::MAX);
        let size = |value: &Value| value.as_u64().filter(|size| (1..=most).contains(size))?.try_into().ok();
        self.typed(key, &format!("an integer from 1 to {most}"), size)
    }

    /// A size that must be there.
    pub fn needed_size(&self, key: &str) -> Result<usize> {
        self.size(key)?.ok_or_else(|| self.error(format!("lacks the key `{key}`, a size of the model")))
    }

    /// A number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// True or false.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a text", Value::as_str)
    }

    /// A list.
    pub fn list(&self, key: &str) -> Result<Option<&'a [Value]>> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// Refuses what is neither the id of a token, or -1 for none, nor a list of ids.
    pub fn ids(&self, key: &str) -> Result<()> {
        let is_id = |value: &Value| value.as_i64().is_some_and(|id| (-1..=i64::from(u32::MAX)).contains(&id));
        let is_right =
            |value: &Value| is_id(value) || value.as_array().is_some_and(|ids| ids.iter().all(is_id));
        self.typed(key, "the id of a token, or a list of ids", |value| is_right(value).then_some(()))
            .map(drop)
    }

    /// The keys of an object within.
    pub fn object(&self, key: &'a str) -> Result<Option<Self>> {
        let object = self.typed(key, "an object", Value::as_object)?;
        Ok(object.map(|entries| Self { entries, within: Some(key), place: self.place }))
    }

    /// Refuses a key whose value is other than the one that computes what is supported.
    pub fn only(&self, key: &str, supported: &Value) -> Result<()> {
        // 1 and 1.0 are one number.
        let is_same =
            |value: &Value| value == supported || value.is_number() && value.as_f64() == supported.as_f64();
        match self.value(key) {
            Some(value) if !is_same(value) => {
                Err(self.refused(key, value, &format!(", and only {supported} is supported")))
            }
            _ => Ok(()),
        }
    }
}
