//! Detection of the end-of-text token from the declarations of a tokenizer and the files next to it.
//!
//! The name alone is not sufficient: in Gemma 3, `</s>` is an HTML tag, and `<eos>` ends a text.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::Tokenizer;

use super::END;
use super::declared::{END_OF_TEXT, token_name};
use crate::data::excerpt::excerpt;
use crate::error::Result;
use crate::files::read_given_json;
use crate::numbers::counted;

/// Names of the end-of-text token in common tokenizers, valid if they are special tokens.
const KNOWN_NAMES: [&str; 10] = [
    END_OF_TEXT,
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "</s>",
    "<eos>",
    "<EOS>",
    "[EOS]",
    "<EOT>",
    "[SEP]",
    END,
];

/// The end-of-text token, with the source of its declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextEnd {
    pub id: u32,
    /// The declaring file or part, such as "tokenizer_config.json".
    pub declared_by: String,
}

impl TextEnd {
    fn new(id: u32, declared_by: &str) -> Self {
        Self { id, declared_by: declared_by.into() }
    }

    /// Returns the end-of-text token that the tokenizer itself declares: the token that it appends to a text (`after`),
    /// or a special token with a known name.
    pub fn of(tokenizer: &Tokenizer, after: &[u32]) -> Option<Self> {
        if let Some(&id) = after.first() {
            return Some(Self::new(id, "the tokenizer's post_processor"));
        }
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let is_plain = |id: &u32| added.get(id).is_some_and(|token| !token.special);
        let ids = KNOWN_NAMES.iter().filter_map(|name| tokenizer.token_to_id(name));
        ids.filter(|id| !is_plain(id)).map(|id| Self::new(id, "the tokenizer's special tokens")).next()
    }

    /// Returns the end-of-text token, among `tokens`, that the files of transformers in the folder of a tokenizer
    /// declare. `own` is the end-of-text token that the tokenizer itself declares. Warns about ids and an `eos_token`
    /// that the tokenizer lacks.
    ///
    /// # Errors
    /// Returns an error if a file that belongs to the tokenizer cannot be read.
    pub fn next_to(folder: &Path, tokens: &HashMap<String, u32>, own: Option<&Self>) -> Result<Option<Self>> {
        let size = tokens.values().max().map_or(0, |&largest| u64::from(largest) + 1);
        let by_id = |file: &Map<String, Value>| {
            let ids = file.get("eos_token_id")?;
            let id = ids.as_u64().or_else(|| ids.get(0)?.as_u64())?;
            (id < size).then_some(id as u32)
        };
        let (mut end, mut missing) = (None, None);
        for name in
            ["tokenizer_config.json", "generation_config.json", "config.json", "special_tokens_map.json"]
        {
            let path = folder.join(name);
            if !path.is_file() {
                continue;
            }
            let read = read_given_json::<Map<String, Value>>(&path, "an object, as transformers writes it");
            let contents = match read {
                // In a folder with other data, `config.json` may be the config of another program.
                Err(_) if name == "config.json" || end.is_some() => continue,
                read => read?,
            };
            for (key, id) in ids(&contents).filter(|(_, id)| *id >= size) {
                log::warn!(
                    "{}: `{key}` names the token {id}, which is ignored because the tokenizer has {}; \
                     correct the id",
                    path.display(),
                    counted(size as usize, "token")
                );
            }
            let declared = match name {
                "generation_config.json" | "config.json" => by_id(&contents),
                _ => {
                    let token = contents.get("eos_token").and_then(token_name);
                    let id = token.and_then(|token| tokens.get(token).copied());
                    if let Some(token) = token.filter(|_| id.is_none() && missing.is_none()) {
                        missing = Some((path, token.to_string()));
                    }
                    id
                }
            };
            end = end.or(declared.map(|id| Self::new(id, name)));
        }
        if let Some((path, token)) = missing {
            warn_of_missing(&path, &token, tokens, end.as_ref().or(own));
        }
        Ok(end)
    }
}

/// Warns about an `eos_token` that the tokenizer lacks, and names the `end` that is used instead.
fn warn_of_missing(path: &Path, token: &str, tokens: &HashMap<String, u32>, end: Option<&TextEnd>) {
    let instead = match end {
        Some(end) => {
            let name = tokens.iter().find(|(_, id)| **id == end.id).map(|(name, _)| excerpt(name));
            let name = name.unwrap_or_else(|| end.id.to_string());
            format!("`{name}` ends a text, as declared by {}", end.declared_by)
        }
        None => "no token ends a text".into(),
    };
    log::warn!(
        "{}: `eos_token` is `{}`, which the tokenizer lacks, so {instead}; add that token to the tokenizer, \
         or correct its name",
        path.display(),
        excerpt(token)
    );
}

/// Iterates over the token ids in a file of transformers, each with its key.
fn ids(file: &Map<String, Value>) -> impl Iterator<Item = (&'static str, u64)> {
    let of_key = |key: &'static str| {
        let ids = file.get(key).map(|ids| ids.as_array().map_or(std::slice::from_ref(ids), Vec::as_slice));
        ids.unwrap_or_default().iter().filter_map(move |id| Some((key, id.as_u64()?)))
    };
    ["bos_token_id", "eos_token_id", "pad_token_id"].into_iter().flat_map(of_key)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use crate::data::Vocabulary;

    /// Reads a `tokenizer.json` with single letters and the given added tokens (each marked as special or not), and the
    /// files next to it.
    fn read(added: &[(&str, bool)], processor: Value, files: &[(&str, Value)]) -> Vocabulary {
        let folder = tempfile::tempdir().unwrap();
        let token = |(&(content, special), id): (&(&str, bool), usize)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": special})
        };
        let added: Vec<_> = added.iter().zip(2..).map(token).collect();
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": added,
            "pre_tokenizer": null, "post_processor": processor, "decoder": null,
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
        });
        fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
        for (name, contents) in files {
            let path = folder.path().join(name);
            // In the Hugging Face cache, the files of a model are links.
            let stored = if cfg!(unix) { folder.path().join(format!("stored-{name}")) } else { path.clone() };
            fs::write(&stored, contents.to_string()).unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink(stored, path).unwrap();
        }
        Vocabulary::read_tokenizer(&folder.path().join("tokenizer.json")).unwrap()
    }

    fn end(added: &[(&str, bool)], files: &[(&str, Value)]) -> Option<(String, String)> {
        let vocabulary = read(added, Value::Null, files);
        // The stored vocabulary must keep the end token.
        let again: Vocabulary = serde_json::from_value(json!(vocabulary)).unwrap();
        assert_eq!(again.end(), vocabulary.end());
        vocabulary.end().map(|id| (vocabulary.token(id), vocabulary.end_declared_by().unwrap().to_string()))
    }

    #[test]
    fn end_token_follows_the_declaring_files() {
        let gemma = [("<eos>", true), ("</s>", false)];
        let declared = |token: &str, by: &str| Some((token.to_string(), by.to_string()));
        let special = "the tokenizer's special tokens";
        assert_eq!(end(&gemma, &[]), declared("<eos>", special), "an HTML tag is not an end token");
        assert_eq!(end(&[("</s>", false)], &[]), None);
        for name in ["<｜end▁of▁sentence｜>", "<EOT>", "[SEP]"] {
            assert_eq!(end(&[("<pad>", true), (name, true)], &[]), declared(name, special));
        }
        let two = [("</s>", true), ("<|im_end|>", true)];
        let (config, map) = ("tokenizer_config.json", "special_tokens_map.json");
        let named = json!({"eos_token": "<|im_end|>"});
        let object = json!({"eos_token": {"content": "<|im_end|>", "special": true}});
        assert_eq!(end(&two, &[(config, named.clone())]), declared("<|im_end|>", config));
        assert_eq!(end(&two, &[(config, object)]), declared("<|im_end|>", config));
        assert_eq!(end(&two, &[(map, named)]), declared("<|im_end|>", map));
        let ids = json!({"eos_token_id": [3, 2]});
        assert_eq!(
            end(&two, &[("generation_config.json", ids)]),
            declared("<|im_end|>", "generation_config.json")
        );
        let unknown = json!({"eos_token": "<other>", "eos_token_id": 77});
        assert_eq!(
            end(&two, &[(config, unknown.clone()), ("config.json", unknown)]),
            declared("</s>", special)
        );
    }

    #[test]
    fn end_token_is_read_from_the_post_processor() {
        let bert = json!({"type": "BertProcessing", "sep": ["[X]", 3], "cls": ["[CLS]", 2]});
        let vocabulary = read(&[("[CLS]", true), ("[X]", true), ("</s>", true)], bert, &[]);
        assert_eq!(vocabulary.end(), Some(3));
        assert_eq!(vocabulary.end_declared_by(), Some("the tokenizer's post_processor"));
    }
}
