//! What transformers keeps beside weights and tokenizer: which tokens begin a text, end it and fill up a batch, how
//! texts are generated, and how the tokenizer is called. An import brings it along, a run keeps it in
//! `transformers.json`, and an export writes it as it came.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::families::{Family, keys::Keys};
use crate::error::Result;
use crate::files::{Text, read_given_json, read_json};

/// The file in which they lie together.
pub const FILE: &str = "transformers.json";

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
/// The files that come along whole: the first lies beside the weights, the others beside the tokenizer.
const FILES: [&str; 3] = [GENERATION, "tokenizer_config.json", "special_tokens_map.json"];

/// The keys of `config.json` and `generation_config.json` that name tokens: an id each, a list of ids, or null; -1 is
/// that of no token.
const IDS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// The template by which transformers writes a conversation as a text.
pub const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// The contents of the files, each under its name; of `config.json` the ids alone.
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
    /// Those of a model whose config stands at `place`, from the folder of its weights and that of its tokenizer. Of
    /// ids that the config leaves out, those of its `family` count, as for transformers.
    ///
    /// # Errors
    /// If a file cannot be read, or says something else where an id belongs.
    pub fn beside(
        family: Family,
        (config, place): (&Value, &Path),
        weights: &Path,
        tokenizer: &Path,
    ) -> Result<Self> {
        let mut files = BTreeMap::new();
        // nanoGPT's config has no ids: there the tokenizer says which token ends a text.
        let usual = IDS.into_iter().zip(family.usual_ids()).filter(|_| family != Family::Nanogpt);
        let usual = usual.map(|(key, id)| (key.to_string(), id.into()));
        let said = IDS.iter().filter_map(|&key| Some((key.to_string(), config.get(key)?.clone())));
        let ids: Map<_, _> = usual.into_iter().chain(said).collect();
        check(&ids, place)?;
        if !ids.is_empty() {
            files.insert(CONFIG.to_string(), Contents::Json(ids));
        }
        for (name, folder) in FILES.into_iter().zip([weights, tokenizer, tokenizer]) {
            let path = folder.join(name);
            if path.is_file() {
                let contents = read_given_json(&path, "an object, as transformers writes it")?;
                check(&contents, &path)?;
                files.insert(name.to_string(), Contents::Json(contents));
            }
        }
        let template = tokenizer.join(CHAT_TEMPLATE);
        if template.is_file() {
            files.insert(CHAT_TEMPLATE.to_string(), Contents::Text(Text::open(template)?.whole()?));
        }
        Ok(Self(files))
    }

    /// Those that a run keeps at `path`; none where there is no such file.
    ///
    /// # Errors
    /// As [`Self::beside`].
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_by(read_json, path)
    }

    /// The same of native weights that came from elsewhere.
    ///
    /// # Errors
    /// As [`Self::beside`].
    pub fn read_given(path: &Path) -> Result<Self> {
        Self::read_by(read_given_json, path)
    }

    fn read_by(read: impl FnOnce(&Path, &str) -> Result<Self>, path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let read = read(path, "what transformers keeps beside weights and tokenizer")?;
        read.0.values().filter_map(Contents::json).try_for_each(|contents| check(contents, path))?;
        Ok(read)
    }

    /// As the file that a run keeps; nothing where there is nothing to keep.
    pub fn to_json(&self) -> Option<Vec<u8>> {
        let json = || serde_json::to_vec_pretty(self).expect("JSON can be written");
        (!self.0.is_empty()).then(json)
    }

    /// The tokens that begin a text; unless nothing is said.
    pub fn begin(&self) -> Option<Vec<u32>> {
        self.ids("bos_token_id")
    }

    /// The tokens that end one; unless nothing is said.
    pub fn ends(&self) -> Option<Vec<u32>> {
        self.ids("eos_token_id")
    }

    /// Where there is a `generation_config.json`, it alone counts, as for transformers.
    fn ids(&self, key: &str) -> Option<Vec<u32>> {
        let file = |name| self.0.get(name).and_then(Contents::json);
        let value = match file(GENERATION) {
            Some(generation) => generation.get(key).unwrap_or(&Value::Null),
            None => file(CONFIG)?.get(key)?,
        };
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        Some(values.iter().filter_map(Value::as_u64).filter_map(|id| id.try_into().ok()).collect())
    }

    /// Puts the ids of `config.json` in the place of those that stand there.
    pub fn put_ids(&self, config: &mut Value) {
        if let (Some(config), Some(ids)) =
            (config.as_object_mut(), self.0.get(CONFIG).and_then(Contents::json))
        {
            config.extend(ids.clone());
        }
    }

    /// The contents of a file of JSON, where it came along.
    pub fn file(&self, name: &str) -> Option<Value> {
        self.0.get(name)?.json().cloned().map(Value::Object)
    }

    /// The template of conversations, where it came along.
    pub fn chat_template(&self) -> Option<&str> {
        match self.0.get(CHAT_TEMPLATE)? {
            Contents::Text(template) => Some(template),
            Contents::Json(_) => None,
        }
    }
}

/// Refuses what is no id where one belongs.
fn check(contents: &Map<String, Value>, place: &Path) -> Result<()> {
    IDS.iter().try_for_each(|key| Keys::of(contents, place).ids(key))
}
