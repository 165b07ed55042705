//! The transformers metadata next to weights and tokenizer: special tokens, generation settings and the tokenizer's
//! class. An import reads it, a run stores it in `transformers.json`, and an export writes it unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::families::{Family, keys::Keys};
use crate::error::Result;
use crate::files::{Text, read_given_json, read_json};

/// The file in which a run stores the metadata.
pub const FILE: &str = "transformers.json";

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer_config.json";
/// The files that are stored completely: the first is next to the weights, the others next to the tokenizer.
const FILES: [&str; 3] = [GENERATION, TOKENIZER, "special_tokens_map.json"];

/// The keys of `config.json` and `generation_config.json` that name tokens: an id, a list of ids, or null; -1 means
/// none.
const IDS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// The template with which transformers formats a conversation as text.
pub const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// The contents of the files, by name; for `config.json` only the ids.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Companions(BTreeMap<String, Contents>);

/// The contents of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Contents {
    Json(Map<String, Value>),
    Text(String),
}

impl Contents {
    fn json(&self) -> Option<&Map<String, Value>> {
        match self {
            Contents::Json(json) => Some(json),
            Contents::Text(_) => None,
        }
    }
}

impl Companions {
    /// Collects the metadata of a model from the folders of its weights and of its tokenizer. The model's config is at
    /// `config_path`; ids that it omits default to the `family`'s, as in transformers.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if a value that must be an id is not one.
    pub fn collect(
        family: Family,
        (config, config_path): (&Value, &Path),
        weights: &Path,
        tokenizer: &Path,
    ) -> Result<Self> {
        let mut all = Self::of_config(family, (config, config_path))?;
        for (name, folder) in FILES.into_iter().zip([weights, tokenizer, tokenizer]) {
            let path = folder.join(name);
            if path.is_file() {
                let contents = read_given_json(&path, "an object, as transformers writes it")?;
                check_ids(&contents, &path)?;
                all.0.insert(name.to_string(), Contents::Json(contents));
            }
        }
        let template = tokenizer.join(CHAT_TEMPLATE);
        if template.is_file() {
            all.0.insert(CHAT_TEMPLATE.to_string(), Contents::Text(Text::open(template)?.read_to_string()?));
        }
        Ok(all)
    }

    /// Adds the metadata of the tokenizer in a weights file.
    pub fn with_tokenizer(mut self, config: Option<Map<String, Value>>, template: Option<&str>) -> Self {
        self.0.extend(config.map(|config| (TOKENIZER.to_string(), Contents::Json(config))));
        self.0.extend(template.map(|text| (CHAT_TEMPLATE.to_string(), Contents::Text(text.to_string()))));
        self
    }

    /// Collects the ids in a model's config, as [`Self::collect`] does.
    ///
    /// # Errors
    /// Returns an error if a value that must be an id is not one.
    pub fn of_config(family: Family, (config, config_path): (&Value, &Path)) -> Result<Self> {
        let mut files = BTreeMap::new();
        // nanoGPT's config lacks ids: its tokenizer defines the end-of-text token.
        let defaults = IDS.into_iter().zip(family.default_ids()).filter(|_| family != Family::Nanogpt);
        let defaults = defaults.map(|(key, id)| (key.to_string(), id.into()));
        let declared = IDS.iter().filter_map(|&key| Some((key.to_string(), config.get(key)?.clone())));
        let ids: Map<_, _> = defaults.into_iter().chain(declared).collect();
        check_ids(&ids, config_path)?;
        if !ids.is_empty() {
            files.insert(CONFIG.to_string(), Contents::Json(ids));
        }
        Ok(Self(files))
    }

    /// Reads the metadata that a run stores at `path`; empty if the file does not exist.
    ///
    /// # Errors
    /// Same as [`Self::collect`].
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_by(read_json, path)
    }

    /// Same as [`Self::read`], for native weights from elsewhere.
    ///
    /// # Errors
    /// Same as [`Self::collect`].
    pub fn read_given(path: &Path) -> Result<Self> {
        Self::read_by(read_given_json, path)
    }

    fn read_by(read: impl FnOnce(&Path, &str) -> Result<Self>, path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let read = read(path, "the metadata of transformers next to weights and tokenizer")?;
        read.0.values().filter_map(Contents::json).try_for_each(|contents| check_ids(contents, path))?;
        Ok(read)
    }

    /// Serialises the metadata for a run; `None` if it is empty.
    pub fn to_json(&self) -> Option<Vec<u8>> {
        let json = || serde_json::to_vec_pretty(self).expect("JSON can be written");
        (!self.0.is_empty()).then(json)
    }

    /// Returns the begin-of-text tokens; `None` if no file defines them.
    pub fn begin(&self) -> Option<Vec<u32>> {
        self.ids("bos_token_id")
    }

    /// Returns the end-of-text tokens; `None` if no file defines them.
    pub fn ends(&self) -> Option<Vec<u32>> {
        self.ids("eos_token_id")
    }

    /// Returns ids by key. If there is a `generation_config.json`, only this file is used, as in transformers.
    fn ids(&self, key: &str) -> Option<Vec<u32>> {
        let file = |name| self.0.get(name).and_then(Contents::json);
        let value = match file(GENERATION) {
            Some(generation) => generation.get(key).unwrap_or(&Value::Null),
            None => file(CONFIG)?.get(key)?,
        };
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        Some(values.iter().filter_map(Value::as_u64).filter_map(|id| id.try_into().ok()).collect())
    }

    /// Replaces the ids in `config` with the ids of the imported `config.json`.
    pub fn put_ids(&self, config: &mut Value) {
        if let (Some(config), Some(ids)) =
            (config.as_object_mut(), self.0.get(CONFIG).and_then(Contents::json))
        {
            config.extend(ids.clone());
        }
    }

    /// Returns the contents of a JSON file, if it was imported.
    pub fn file(&self, name: &str) -> Option<Value> {
        self.0.get(name)?.json().cloned().map(Value::Object)
    }

    /// Returns the chat template, if it was imported.
    pub fn chat_template(&self) -> Option<&str> {
        match self.0.get(CHAT_TEMPLATE)? {
            Contents::Text(template) => Some(template),
            Contents::Json(_) => None,
        }
    }
}

/// Refuses values that must be ids but are not.
fn check_ids(contents: &Map<String, Value>, path: &Path) -> Result<()> {
    IDS.iter().try_for_each(|key| Keys::of(contents, path).ids(key))
}
