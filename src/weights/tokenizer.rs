//! The tokenizer next to a model: a `tokenizer.json`, or GPT-2's older pair of `vocab.json` and `merges.txt`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use tokenizers::{AddedToken, models::bpe::BPE};

use crate::data::vocabulary::{END_OF_TEXT, Vocabulary, byte_level};
use crate::error::{Error, Result};
use crate::files::quoted;

/// The files of unsupported tokenizers, each with its kind.
const UNSUPPORTED: [(&str, &str); 2] = [("tokenizer.model", "SentencePiece"), ("vocab.txt", "WordPiece")];

/// Reads the tokenizer at `path`, a `tokenizer.json` or a folder.
///
/// # Errors
/// Returns an error if the folder lacks a tokenizer, or if the file cannot be parsed.
pub fn read(path: &Path) -> Result<Vocabulary> {
    if !path.is_dir() {
        return Vocabulary::read_tokenizer(path);
    }
    let none = "contains no tokenizer; expected tokenizer.json, or vocab.json and merges.txt";
    find(path)?.ok_or_else(|| unsupported_in(path).unwrap_or_else(|| Error::file(path, none)))
}

/// Returns the error for a tokenizer in a folder that must be converted before it can be read; `None` if there is none.
pub fn unsupported_in(folder: &Path) -> Option<Error> {
    let (name, kind) = UNSUPPORTED.into_iter().find(|(name, _)| folder.join(name).is_file())?;
    let path = folder.join(name);
    let convert = "import sys; from transformers import AutoTokenizer as T; \
                   T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])";
    let folder = quoted(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let problem = format!(
        "is a {kind} tokenizer, which is not supported; convert it to tokenizer.json with \
         `python3 -c '{convert}' {folder}`"
    );
    Some(Error::file(path, problem))
}

/// Reads the tokenizer in a folder; returns `None` if there is none.
///
/// # Errors
/// Returns an error if the file cannot be parsed.
pub fn find(folder: &Path) -> Result<Option<Vocabulary>> {
    let [json, vocabulary, merges] =
        ["tokenizer.json", "vocab.json", "merges.txt"].map(|name| folder.join(name));
    if json.is_file() {
        Vocabulary::read_tokenizer(&json).map(Some)
    } else if !vocabulary.is_file() {
        Ok(None)
    } else if merges.is_file() {
        read_pair(&vocabulary, &merges).map(Some)
    } else {
        let problem = "lacks its merges.txt; copy that file next to it";
        Err(Error::file(vocabulary, problem))
    }
}

/// Reads GPT-2's byte pair encoding in the format of its first release.
fn read_pair(vocabulary: &Path, merges: &Path) -> Result<Vocabulary> {
    let refused = |error: String| {
        Error::file(vocabulary, format!("is not a GPT-2 vocabulary that matches its merges.txt: {error}"))
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
    Vocabulary::convert_tokenizer(json, vocabulary)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;

    /// Reads GPT-2's pair of files next to a `tokenizer_config.json`.
    fn read_with(config: &Value) -> Vocabulary {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, contents: &str| fs::write(folder.path().join(name), contents).unwrap();
        write(
            "vocab.json",
            r#"{"a": 0, "b": 1, "Ġ": 2, "</s>": 3, "1": 4, "2": 5, "12": 6, "e": 7, "Ã": 8, "©": 9, "Ã©": 10,
                "Ì": 11, "ģ": 12, "<|endoftext|>": 13}"#,
        );
        write("merges.txt", "#version: 0.2\n1 2\nÃ ©\n");
        write("tokenizer_config.json", &config.to_string());
        read(folder.path()).unwrap()
    }

    /// The expected ids come from transformers 5.24.
    #[test]
    fn tokenizer_class_determines_splitting_and_normalization() {
        let accent = "e\u{301}";
        for class in ["Qwen2Tokenizer", "Qwen2TokenizerFast"] {
            let qwen = read_with(&json!({"tokenizer_class": class}));
            assert_eq!(
                (qwen.encode("12 ab").unwrap(), qwen.encode(accent).unwrap()),
                (vec![4, 5, 2, 0, 1], vec![10])
            );
        }
        let gpt2 = read_with(&json!({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true}));
        assert_eq!(gpt2.encode("12 ab").unwrap(), [2, 6, 2, 0, 1]);
        assert_eq!(read_with(&json!({})).encode(accent).unwrap(), [7, 11, 12]);
    }

    #[test]
    fn config_sets_begin_and_end_tokens() {
        let ids = |config: Value| read_with(&config).encode_whole("12").unwrap();
        assert_eq!(ids(json!({"tokenizer_class": "GPT2Tokenizer"})), [6]);
        assert_eq!(ids(json!({"add_bos_token": true})), [13, 6]);
        let both = json!({"add_bos_token": true, "bos_token": "</s>", "add_eos_token": true});
        assert_eq!(ids(both), [3, 6, 13]);
        let qwen = json!({"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": true});
        assert_eq!(ids(qwen), [4, 5], "Qwen has no begin-of-text token");
    }
}
