//! The tokenizer of a GGUF file: a vocabulary with the kinds of its tokens, and the merges or scores of its pieces.
//!
//! A file names the rules that split a text into words, but does not contain them. An unknown name is refused, because
//! other rules would give other ids than those of the training.

use serde_json::{Map, Value, json};

use super::architectures::GgufArchitecture;
use super::header::GgufHeader;
use super::merges::{Piece, merges};
use crate::data::Vocabulary;
use crate::data::vocabulary::QWEN_WORDS;
use crate::error::{Error, Result};
use crate::weights::file::WeightsFile;

/// The numbers of the kinds of tokens.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// The keys of a `tokenizer_config.json` that name special tokens, and the matching keys in a file.
const SPECIAL: [(&str, &str); 4] = [
    ("bos_token", "tokenizer.ggml.bos_token_id"),
    ("eos_token", "tokenizer.ggml.eos_token_id"),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
];

/// SentencePiece's symbol for a space.
const SPACE: &str = "▁";

/// A token of the vocabulary.
struct GgufToken<'a> {
    id: usize,
    name: &'a str,
    kind: u64,
}

/// Returns the vocabulary of a file; `None` if it has none.
///
/// # Errors
/// Returns an error if the tokenizer is of an unsupported kind, or damaged.
pub(super) fn vocabulary(
    file: &WeightsFile,
    header: &GgufHeader,
    architecture: &GgufArchitecture,
) -> Result<Option<Vocabulary>> {
    let Some(model) = header.text("tokenizer.ggml.model") else { return Ok(None) };
    let tokens = tokens(header);
    let parts = match model {
        "gpt2" => byte_level(file, header, &tokens)?,
        "llama" => sentence_piece(header, &tokens, architecture),
        _ => return Err(refused(file, "tokenizer.ggml.model", model, "gpt2 and llama")),
    };
    // Without these keys, llama.cpp adds a begin-of-text token to the texts of these tokenizers.
    let has_begin = model == "llama" || parts["model"]["ignore_merges"] == json!(true);
    let flag = |key: &str, default: bool| {
        header.metadata.get(&format!("tokenizer.ggml.{key}")).and_then(Value::as_bool).unwrap_or(default)
    };
    let around =
        [("bos_token", flag("add_bos_token", has_begin)), ("eos_token", flag("add_eos_token", false))];
    let added = |(key, is_added)| special_token(header, key).filter(|_| is_added);
    let is_special = |token: &GgufToken| {
        let is_named = || SPECIAL.iter().any(|(_, key)| header.size(key) == Some(token.id));
        [UNKNOWN, CONTROL].contains(&token.kind) || is_named()
    };
    // transformers strips the spaces after most special tokens of Phi-3, as llama.cpp does.
    let is_stripped = |name: &str| {
        architecture.name == "phi3" && model == "llama" && !["<unk>", "<s>", "<|endoftext|>"].contains(&name)
    };
    let whole = tokens.iter().filter(|token| is_special(token) || is_whole(token)).map(|token| {
        let special = is_special(token);
        json!({"id": token.id, "content": token.name, "single_word": false, "lstrip": false,
            "rstrip": special && is_stripped(token.name), "normalized": false, "special": special})
    });
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": whole.collect::<Vec<_>>(),
        "normalizer": parts["normalizer"], "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": post_processor(around.map(added)), "decoder": parts["decoder"], "model": parts["model"],
    });
    let [_, (_, end), ..] = SPECIAL;
    let end = header.size(end).and_then(|id| u32::try_from(id).ok()).map(|id| (id, end));
    let vocabulary = Vocabulary::tokenizer_with_end(json, end);
    vocabulary.map(Some).map_err(|error| file.error(error.to_string()))
}

/// The error for a value that is not supported.
fn refused(file: &WeightsFile, key: &str, value: &str, supported: &str) -> Error {
    file.error(format!(
        "`{key}` is \"{value}\", but only {supported} are supported; pass the tokenizer.json of the original model \
         with --tokenizer"
    ))
}

/// Returns the tokens, without the placeholders that llama.cpp adds for the unused rows of an embedding.
fn tokens(header: &GgufHeader) -> Vec<GgufToken<'_>> {
    let kinds = header.list("tokenizer.ggml.token_type");
    let names = header.list("tokenizer.ggml.tokens").iter().enumerate();
    let tokens = names.map(|(id, name)| {
        let kind = kinds.get(id).and_then(Value::as_u64).unwrap_or(1);
        GgufToken { id, name: name.as_str().unwrap_or_default(), kind }
    });
    tokens.filter(|token| token.kind != UNUSED || token.name != format!("[PAD{}]", token.id)).collect()
}

/// Returns true for a token that is never split, but not special.
fn is_whole(token: &GgufToken) -> bool {
    token.kind == USER_DEFINED && !is_spaces(token)
}

/// Returns true for a token of several spaces, which SentencePiece merges like any other.
fn is_spaces(token: &GgufToken) -> bool {
    token.name.len() > 1 && token.name.bytes().all(|byte| byte == b' ')
}

/// Returns the name of the special token that a key such as `bos_token` names.
fn special_token<'a>(header: &'a GgufHeader, key: &str) -> Option<(&'a str, usize)> {
    let (_, key) = SPECIAL.into_iter().find(|(known, _)| *known == key)?;
    let id = header.size(key)?;
    Some((header.list("tokenizer.ggml.tokens").get(id)?.as_str()?, id))
}

/// Returns the contents of a `tokenizer_config.json`; `None` if there is no tokenizer.
pub(super) fn config(header: &GgufHeader) -> Option<Map<String, Value>> {
    header.text("tokenizer.ggml.model")?;
    let mut config = Map::new();
    config.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
    config.insert("clean_up_tokenization_spaces".into(), json!(false));
    for (key, _) in SPECIAL {
        config.extend(special_token(header, key).map(|(name, _)| (key.to_string(), json!(name))));
    }
    Some(config)
}

/// Returns the part of a tokenizer that adds tokens before and after a text.
fn post_processor([before, after]: [Option<(&str, usize)>; 2]) -> Value {
    if before.is_none() && after.is_none() {
        return Value::Null;
    }
    let token = |(name, _): (&str, usize)| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let around = |text: Value| -> Vec<Value> {
        before.map(token).into_iter().chain([text]).chain(after.map(token)).collect()
    };
    let tokens = before
        .into_iter()
        .chain(after)
        .map(|(name, id)| (name.to_string(), json!({"id": name, "ids": [id], "tokens": [name]})));
    let pair = [around(text("A")), around(text("B"))].concat();
    json!({"type": "TemplateProcessing", "single": around(text("A")),
        "pair": pair,
        "special_tokens": tokens.collect::<Map<_, _>>()})
}

/// Returns the parts of a tokenizer whose tokens are sequences of bytes, as in GPT-2.
fn byte_level(file: &WeightsFile, header: &GgufHeader, tokens: &[GgufToken]) -> Result<Value> {
    const SUPPORTED: &str = "gpt-2, smollm, olmo, qwen2, llama-bpe, smaug-bpe and dbrx";
    let name = header.text("tokenizer.ggml.pre").unwrap_or("missing");
    let bytes = |use_regex: bool| {
        let has_space = header.metadata.get("tokenizer.ggml.add_space_prefix") == Some(&json!(true));
        json!({"type": "ByteLevel", "add_prefix_space": has_space, "trim_offsets": true, "use_regex": use_regex})
    };
    let sequence =
        |first: Value, second: Value| json!({"type": "Sequence", "pretokenizers": [first, second]});
    let words = |pattern: &str| {
        let split =
            json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        sequence(split, bytes(false))
    };
    let composed = json!({"type": "NFC"});
    let (normalizer, pre_tokenizer) = match name {
        "gpt-2" => (Value::Null, bytes(true)),
        "olmo" => (composed, bytes(true)),
        "smollm" => {
            (Value::Null, sequence(json!({"type": "Digits", "individual_digits": true}), bytes(true)))
        }
        "qwen2" => (composed, words(QWEN_WORDS)),
        // Numbers have up to three digits.
        "llama-bpe" | "smaug-bpe" | "dbrx" => {
            (Value::Null, words(&QWEN_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")))
        }
        _ => return Err(refused(file, "tokenizer.ggml.pre", name, SUPPORTED)),
    };
    let vocab: Map<_, _> = tokens.iter().map(|token| (token.name.to_string(), json!(token.id))).collect();
    let merges = header.list("tokenizer.ggml.merges").iter();
    let merges = merges.map(|pair| json!(pair.as_str().and_then(|pair| pair.split_once(' '))));
    Ok(json!({
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": bytes(true),
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": name == "llama-bpe", "vocab": vocab, "merges": merges.collect::<Vec<_>>()},
    }))
}

/// Returns the parts of a SentencePiece tokenizer.
fn sentence_piece(header: &GgufHeader, tokens: &[GgufToken], architecture: &GgufArchitecture) -> Value {
    let scores = header.list("tokenizer.ggml.scores");
    // The merges of Gemma are in the order of its vocabulary.
    let is_gemma = architecture.name.starts_with("gemma");
    let score = |id: usize| match scores.get(id).and_then(Value::as_f64).filter(|_| !is_gemma) {
        Some(score) => score,
        None => -(id as f64),
    };
    let name = |token: &GgufToken| match is_spaces(token) {
        true => SPACE.repeat(token.name.len()),
        false => token.name.to_string(),
    };
    let merged = tokens.iter().filter(|token| token.kind == 1 || is_spaces(token));
    let pieces: Vec<_> =
        merged.map(|token| Piece { id: token.id, text: name(token), score: score(token.id) }).collect();
    let vocab: Map<_, _> = tokens.iter().map(|token| (name(token), json!(token.id))).collect();
    let unknown = special_token(header, "unk_token").map(|(name, _)| name);
    let unknown = unknown.or(tokens.iter().find(|token| token.kind == UNKNOWN).map(|token| token.name));
    let replace =
        |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let has_prefix = header.metadata.get("tokenizer.ggml.add_space_prefix") != Some(&json!(false));
    // As in transformers, Phi-3 always adds a space before a text, and others unless the text starts with one.
    let (normalizer, pre_tokenizer) = match has_prefix {
        true if architecture.name == "phi3" => {
            let prefix = json!({"type": "Prepend", "prepend": SPACE});
            (json!({"type": "Sequence", "normalizers": [prefix, replace(" ", SPACE)]}), Value::Null)
        }
        true => (
            Value::Null,
            json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": false}),
        ),
        false => (replace(" ", SPACE), Value::Null),
    };
    let mut decoders = vec![replace(SPACE, " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
    if has_prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
            "merges": merges(&pieces)},
    })
}
