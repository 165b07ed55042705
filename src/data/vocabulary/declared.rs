//! Tokens and settings that files of transformers declare next to a tokenizer's own file.
//!
//! transformers adds the tokens that `tokenizer_config.json`, `added_tokens.json` and `special_tokens_map.json`
//! declare. Its tokenizer classes also replace some settings of `tokenizer.json`. Both change ids, so this module
//! applies both.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tokenizers::{AddedToken, PostProcessorWrapper, Tokenizer};

use crate::data::excerpt::excerpt;
use crate::error::{Error, Result};
use crate::files::read_given_json;
use crate::numbers::counted;

/// The end-of-text token of GPT-2.
pub const END_OF_TEXT: &str = "<|endoftext|>";

const CONFIG: &str = "tokenizer_config.json";
const ADDED: &str = "added_tokens.json";
const SPECIAL: &str = "special_tokens_map.json";

/// The classes that set `add_prefix_space` of a byte-level pre-tokenizer; the default is false.
const WITH_PREFIX_SPACE: [&str; 5] =
    ["GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "GPTNeoXTokenizer", "CodeGenTokenizer"];

/// The classes that set the options of a BERT normalizer.
const WITH_BERT_NORMALIZER: [&str; 3] = ["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"];

/// The class of Qwen2, Qwen2.5 and Qwen3.
const QWEN: &str = "Qwen2Tokenizer";

/// The pattern with which Qwen2, Qwen2.5 and Qwen3 split a text into words.
pub const QWEN_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The declarations next to a tokenizer.
#[derive(Debug)]
pub(super) struct Declared {
    folder: PathBuf,
    /// The contents of `tokenizer_config.json`.
    config: Map<String, Value>,
    /// The contents of `special_tokens_map.json`.
    special: Map<String, Value>,
    /// The declared tokens by id.
    tokens: BTreeMap<u32, AddedToken>,
    /// The name of the file that declares `tokens`.
    file: &'static str,
    /// The tokenizer's class in transformers, without the suffix `Fast`; empty if unknown.
    class: String,
}

impl Declared {
    /// Reads the files in the folder of a tokenizer's own file.
    ///
    /// # Errors
    /// Returns an error if a file that belongs to the tokenizer cannot be read.
    pub fn next_to(tokenizer: &Path) -> Result<Self> {
        let folder = tokenizer.parent().unwrap_or(Path::new(".")).to_path_buf();
        let (config, special) = (read(&folder.join(CONFIG))?, read(&folder.join(SPECIAL))?);
        // In a folder with other data, `config.json` may be the config of another program.
        let model = read(&folder.join("config.json")).unwrap_or_default();
        let declared = [&config, &model].into_iter().find_map(|file| file.get("tokenizer_class")?.as_str());
        let class = declared.or_else(|| usual_class(model.get("model_type")?.as_str()?));
        let class = class.unwrap_or_default().trim_end_matches("Fast").to_string();
        let (file, tokens) = declared_tokens(&folder, &config, &special)?;
        Ok(Self { folder, config, special, tokens, file, class })
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.config.get(key).and_then(Value::as_bool)
    }

    /// Changes the parts of a tokenizer's file that its class in transformers changes. Warns about a setting that is
    /// not applied.
    pub fn set_parts(&self, json: &mut Value) {
        let class = self.class.as_str();
        if WITH_PREFIX_SPACE.contains(&class) && json["pre_tokenizer"]["type"] == "ByteLevel" {
            let has_space = self.flag("add_prefix_space").unwrap_or(false);
            json["pre_tokenizer"]["add_prefix_space"] = json!(has_space);
        }
        if WITH_BERT_NORMALIZER.contains(&class) && json["normalizer"]["type"] == "BertNormalizer" {
            let normalizer = &mut json["normalizer"];
            normalizer["lowercase"] = json!(self.flag("do_lower_case").unwrap_or(true));
            normalizer["strip_accents"] = json!(self.flag("strip_accents"));
            normalizer["handle_chinese_chars"] = json!(self.flag("tokenize_chinese_chars").unwrap_or(true));
        }
        if self.flag("split_special_tokens") == Some(true) {
            log::warn!(
                "{}: `split_special_tokens` = true is not applied, so a special token in a text becomes one id; \
                 set it to false for the same ids in transformers",
                self.folder.join(CONFIG).display()
            );
        }
    }

    /// Sets the parts of a tokenizer that was converted from `vocab.json` and `merges.txt`, as its class does.
    pub fn set_parts_of_pair(&self, json: &mut Value) {
        if self.class == QWEN {
            json["normalizer"] = json!({"type": "NFC"});
            json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": QWEN_WORDS}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": self.flag("add_prefix_space").unwrap_or(false),
                    "trim_offsets": true, "use_regex": false},
            ]});
        }
        self.set_parts(json);
    }

    /// Adds the declared tokens that a tokenizer lacks, under the next free ids. If its model has a declared or a
    /// special token, the token becomes an added token, which is matched before a text is split.
    ///
    /// # Errors
    /// Returns an error if the tokenizer has a declared token under another id.
    pub fn add_tokens(&self, tokenizer: &mut Tokenizer) -> Result<()> {
        let largest = tokenizer.get_vocab(true).into_values().max();
        let mut next = largest.map_or(0, |largest| largest.saturating_add(1));
        let is_added =
            |id: u32| tokenizer.get_added_vocabulary().get_added_tokens_decoder().contains_key(&id);
        let mut missing = Vec::new();
        for (&id, token) in &self.tokens {
            match tokenizer.token_to_id(&token.content) {
                Some(known) if known != id => {
                    return Err(Error::Input(format!(
                        "gives the token `{}` the id {known}, but {} gives it {id}; correct one of them",
                        excerpt(&token.content),
                        self.file
                    )));
                }
                Some(_) if is_added(id) => {}
                Some(_) => missing.push((id, token.clone())),
                None if id == next => {
                    next = next.saturating_add(1);
                    missing.push((id, token.clone()));
                }
                None => self.warn_of_misfit(tokenizer, id, token, next),
            }
        }
        for name in special_names(&self.config).chain(special_names(&self.special)) {
            let id = tokenizer.token_to_id(name);
            if let Some(id) = id.filter(|id| !is_added(*id) && !self.tokens.contains_key(id)) {
                missing.push((id, AddedToken::from(name, true)));
            }
        }
        let tokens: Vec<_> = missing.iter().map(|(_, token)| token.clone()).collect();
        tokenizer.add_tokens(&tokens);
        match missing.iter().find(|(id, token)| tokenizer.token_to_id(&token.content) != Some(*id)) {
            None => Ok(()),
            Some((id, token)) => Err(Error::Input(format!(
                "cannot add `{}` with the id {id} from {}; add it to the tokenizer itself, or correct the id",
                excerpt(&token.content),
                self.file
            ))),
        }
    }

    /// Warns about a declared token that the tokenizer lacks and whose id is not the `next` free one.
    fn warn_of_misfit(&self, tokenizer: &Tokenizer, id: u32, token: &AddedToken, next: u32) {
        let key = if self.file == CONFIG { "`added_tokens_decoder` names" } else { "names" };
        let problem = match tokenizer.id_to_token(id) {
            Some(other) => format!("the tokenizer uses this id for `{}`", excerpt(&other)),
            None => format!("the tokenizer has {}", counted(next as usize, "token")),
        };
        log::warn!(
            "{}: {key} the token {id}, which is ignored because {problem}; correct the id of `{}`",
            self.folder.join(self.file).display(),
            excerpt(&token.content)
        );
    }

    /// Adds the tokens before and after a text that `add_bos_token` and `add_eos_token` request. With a
    /// `tokenizer.json`, transformers ignores both keys.
    ///
    /// # Errors
    /// Returns only errors of the tokenizer's library.
    pub fn add_around(&self, tokenizer: &mut Tokenizer) -> Result<()> {
        let mut ids = Map::new();
        let around = [("add_bos_token", "bos_token"), ("add_eos_token", "eos_token")].map(|(flag, key)| {
            let name = self.flag(flag).filter(|&is_added| is_added).and_then(|_| self.special_token(key))?;
            let Some(id) = tokenizer.token_to_id(name) else {
                log::warn!(
                    "{}: `{flag}` is not applied, because the tokenizer lacks `{}`; add it to {ADDED}",
                    self.folder.join(CONFIG).display(),
                    excerpt(name)
                );
                return None;
            };
            ids.insert(name.to_string(), json!({"id": name, "ids": [id], "tokens": [name]}));
            Some(json!({"SpecialToken": {"id": name, "type_id": 0}}))
        });
        if ids.is_empty() {
            return Ok(());
        }
        let [before, after] = around;
        let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
        let single: Vec<Value> = before.into_iter().chain([text("A")]).chain(after).collect();
        let processor = json!({"type": "TemplateProcessing", "single": single, "pair": [text("A"), text("B")],
            "special_tokens": ids});
        let processor = serde_json::from_value::<PostProcessorWrapper>(processor)
            .map_err(|error| Error::Input(error.to_string()))?;
        tokenizer.with_post_processor(Some(processor));
        Ok(())
    }

    /// Returns the name of the special token that a key such as `bos_token` declares.
    fn special_token(&self, key: &str) -> Option<&str> {
        match self.config.get(key).or_else(|| self.special.get(key)) {
            Some(token) => token_name(token),
            // By default, Qwen lacks a begin-of-text token.
            None => (self.class != QWEN || key != "bos_token").then_some(END_OF_TEXT),
        }
    }
}

/// Reads an object from a file; empty if the file does not exist.
fn read(path: &Path) -> Result<Map<String, Value>> {
    match path.is_file() {
        true => read_given_json(path, "an object, as transformers writes it"),
        false => Ok(Map::new()),
    }
}

/// Returns the tokenizer class that transformers uses for a model type if no file names a class.
fn usual_class(model_type: &str) -> Option<&'static str> {
    match model_type {
        "gpt2" => Some("GPT2Tokenizer"),
        "qwen2" | "qwen3" => Some(QWEN),
        _ => None,
    }
}

/// Returns the name of a token that a file declares as a string or as an object.
pub(super) fn token_name(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

/// Iterates over the names of the special tokens in a file.
fn special_names(file: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let lists = ["additional_special_tokens", "extra_special_tokens"].into_iter();
    let listed = lists.filter_map(move |key| file.get(key)?.as_array()).flatten();
    let named = file.iter().filter(|(key, _)| key.ends_with("_token")).map(|(_, token)| token);
    named.chain(listed).filter_map(token_name)
}

/// Returns the declared tokens by id, and the name of the file that declares them: `tokenizer_config.json`, or
/// `added_tokens.json` if the former lists no tokens (as in transformers).
fn declared_tokens(
    folder: &Path,
    config: &Map<String, Value>,
    special: &Map<String, Value>,
) -> Result<(&'static str, BTreeMap<u32, AddedToken>)> {
    let names: HashSet<&str> = special_names(config).chain(special_names(special)).collect();
    let (file, tokens): (_, Option<BTreeMap<u32, AddedToken>>) =
        match config.get("added_tokens_decoder").and_then(Value::as_object) {
            Some(listed) => {
                let token = |(id, token): (&String, &Value)| {
                    let mut token = added_token(token)?;
                    token.special |= names.contains(token.content.as_str());
                    Some((id.parse::<u32>().ok()?, token))
                };
                (CONFIG, listed.iter().map(token).collect())
            }
            None => {
                let added = read(&folder.join(ADDED))?;
                let token = |(content, id): (&String, &Value)| {
                    let token = AddedToken::from(content.clone(), names.contains(content.as_str()));
                    Some((u32::try_from(id.as_u64()?).ok()?, token))
                };
                (ADDED, added.iter().map(token).collect())
            }
        };
    let tokens = tokens.ok_or_else(|| {
        let problem =
            "declares a token without an id or without `content`; save the tokenizer again with transformers";
        Error::file(folder.join(file), problem)
    })?;
    Ok((file, tokens))
}

/// Converts an entry of `added_tokens_decoder`.
fn added_token(token: &Value) -> Option<AddedToken> {
    let flag = |key: &str| token.get(key).and_then(Value::as_bool);
    let is_set = |key: &str| flag(key).unwrap_or(false);
    let added = AddedToken::from(token.get("content")?.as_str()?, is_set("special"));
    let added = added.single_word(is_set("single_word")).lstrip(is_set("lstrip")).rstrip(is_set("rstrip"));
    Some(added.normalized(flag("normalized").unwrap_or(!is_set("special"))))
}

#[cfg(test)]
mod tests;
