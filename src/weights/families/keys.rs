//! Typed access to the keys of a `config.json`; errors name the key and its value.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The keys of an object in a config. A null value counts as absent.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    entries: &'a Map<String, Value>,
    /// The key of the object itself; `None` for the top level of the config.
    within: Option<&'a str>,
    /// The file of the config.
    file: &'a Path,
}

impl<'a> Keys<'a> {
    /// Wraps the top level of a config, read from `file`.
    ///
    /// # Errors
    /// Returns an error if the config is not an object.
    pub fn new(config: &'a Value, file: &'a Path) -> Result<Self> {
        let entries = config.as_object();
        let entries =
            entries.ok_or_else(|| Error::file(file, "is not a JSON object, as a model config must be"))?;
        Ok(Self::of(entries, file))
    }

    /// Wraps the entries of an object, read from `file`.
    pub fn of(entries: &'a Map<String, Value>, file: &'a Path) -> Self {
        Self { entries, within: None, file }
    }

    /// Creates an error about the config.
    pub fn error(&self, problem: impl Into<String>) -> Error {
        Error::file(self.file, problem)
    }

    /// Creates an error about a key's value; `problem` is a clause that follows the value.
    pub fn refused(&self, key: &str, value: impl std::fmt::Display, problem: &str) -> Error {
        let mut value = value.to_string();
        if value.chars().count() > 60 {
            value = value.chars().take(60).collect::<String>() + "…";
        }
        self.error(format!("`{}` is {value}{problem}", self.path(key)))
    }

    /// Creates an error about a key that `what` lacks.
    pub fn lacking(&self, key: &str, what: &str) -> Error {
        self.error(format!("{what} lacks the key `{}`", self.path(key)))
    }

    /// Returns the key, qualified by the key of its object.
    fn path(&self, key: &str) -> String {
        self.within.map_or_else(|| key.to_string(), |within| format!("{within}.{key}"))
    }

    /// Iterates over all keys with a value.
    pub fn values(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.entries.iter().filter(|(_, value)| !value.is_null())
    }

    /// Returns true if a key is missing, rather than null.
    pub fn is_missing(&self, key: &str) -> bool {
        !self.entries.contains_key(key)
    }

    /// Returns the value of a key.
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

    /// Reads a size: an integer from 1 to `u32::MAX`, so that the product of two sizes does not overflow.
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        let max = u64::from(u32::MAX);
        let size = |value: &Value| value.as_u64().filter(|size| (1..=max).contains(size))?.try_into().ok();
        self.typed(key, &format!("an integer from 1 to {max}"), size)
    }

    /// Reads a required size.
    pub fn required_size(&self, key: &str) -> Result<usize> {
        self.size(key)?.ok_or_else(|| self.error(format!("lacks the key `{key}`, a size of the model")))
    }

    /// Reads a number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// Reads a boolean.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// Reads a string.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// Reads a list.
    pub fn list(&self, key: &str) -> Result<Option<&'a [Value]>> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// Refuses a value that is neither a token id, where -1 means none, nor a list of ids.
    pub fn ids(&self, key: &str) -> Result<()> {
        let is_id = |value: &Value| value.as_i64().is_some_and(|id| (-1..=i64::from(u32::MAX)).contains(&id));
        let is_valid =
            |value: &Value| is_id(value) || value.as_array().is_some_and(|ids| ids.iter().all(is_id));
        self.typed(key, "a token id or a list of token ids", |value| is_valid(value).then_some(())).map(drop)
    }

    /// Returns the keys of a nested object.
    pub fn object(&self, key: &'a str) -> Result<Option<Self>> {
        let object = self.typed(key, "an object", Value::as_object)?;
        Ok(object.map(|entries| Self { entries, within: Some(key), file: self.file }))
    }

    /// Refuses a key whose value differs from the only one supported.
    pub fn only(&self, key: &str, supported: &Value) -> Result<()> {
        // 1 and 1.0 are the same number.
        let is_same =
            |value: &Value| value == supported || value.is_number() && value.as_f64() == supported.as_f64();
        match self.value(key) {
            Some(value) if !is_same(value) => {
                Err(self.refused(key, value, &format!(", but only {supported} is supported")))
            }
            _ => Ok(()),
        }
    }
}
