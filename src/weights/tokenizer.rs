//! The tokenizer next to a model: a `tokenizer.json`, or GPT-2's older pair of `vocab.json` and `merges.txt`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use tokenizers::{AddedToken, models::bpe::BPE};

use crate::data::vocabulary::{END_OF_TEXT, Vocabulary, byte_level};
use crate::error::{Error, Result};

/// Reads the tokenizer at `path`, a `tokenizer.json` or a folder.
///
/// # Errors
/// Returns an error if the folder lacks a tokenizer, or if the file cannot be parsed.
pub fn read(path: &Path) -> Result<Vocabulary> {
    if !path.is_dir() {
        return Vocabulary::read_tokenizer(path);
    }
    let none = "holds no tokenizer: neither tokenizer.json, nor vocab.json and merges.txt";
    beside(path)?.ok_or_else(|| Error::file(path, none))
}

/// Reads the tokenizer in a folder; returns `None` if there is none.
///
/// # Errors
/// Returns an error if the file cannot be parsed.
pub fn beside(folder: &Path) -> Result<Option<Vocabulary>> {
    let [json, vocabulary, merges] =
        ["tokenizer.json", "vocab.json", "merges.txt"].map(|name| folder.join(name));
    if json.is_file() {
        Vocabulary::read_tokenizer(&json).map(Some)
    } else if !vocabulary.is_file() {
        Ok(None)
    } else if merges.is_file() {
        read_pair(&vocabulary, &merges).map(Some)
    } else {
        let problem = "needs the merges.txt that it was saved with beside it";
        Err(Error::file(vocabulary, problem))
    }
}

/// Reads GPT-2's byte pair encoding in the format of its first release.
fn read_pair(vocabulary: &Path, merges: &Path) -> Result<Vocabulary> {
    let refused = |error: String| {
        Error::file(vocabulary, format!("is no GPT-2 vocabulary with its merges.txt: {error}"))
    };
    let [Some(names), Some(pairs)] = [vocabulary.to_str(), merges.to_str()] else {
        return Err(refused("the path is not UTF-8".into()));
    };
    let (names, pairs) = BPE::read_file(names, pairs).map_err(|error| refused(error.to_string()))?;
    let mut tokenizer = byte_level(BPE::default());
    if names.contains_key(END_OF_TEXT) {
        tokenizer.add_special_tokens(&[AddedToken::from(END_OF_TEXT, true)]);
    }
    let mut json = serde_json::to_value(&tokenizer).map_err(|error| refused(error.to_string()))?;
    for token in json["added_tokens"].as_array_mut().into_iter().flatten() {
        token["id"] = json!(names[END_OF_TEXT]);
    }
    json["model"]["merges"] = json!(pairs);
    json["model"]["vocab"] = json!(names.into_iter().collect::<BTreeMap<_, _>>());
    Vocabulary::made_tokenizer(json, vocabulary).map_err(|error| refused(error.to_string()))
}
