//! Tests that a text encoded in pieces has the same ids as the entire text, for many kinds of tokenizers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::data::Vocabulary;

/// Returns a BPE model whose tokens are the characters, followed by the results of the merges in order.
fn model(characters: &str, merges: &[(&str, &str)]) -> Value {
    let single = characters.chars().map(String::from);
    let names = single.chain(merges.iter().map(|(a, b)| format!("{a}{b}")));
    let mut vocab = BTreeMap::new();
    for name in names {
        let id = vocab.len();
        vocab.entry(name).or_insert(id);
    }
    json!({"type": "BPE", "vocab": vocab, "merges": merges, "dropout": null, "unk_token": null,
        "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false})
}

fn tokenizer(normalizer: Value, pre_tokenizer: Value, model: Value) -> Vocabulary {
    let added = json!([{"id": 900, "content": "</s>", "single_word": false, "lstrip": true, "rstrip": true,
        "normalized": false, "special": true}]);
    let mut tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null,
        "model": model});
    let count = tokenizer["model"]["vocab"].as_object().unwrap().len();
    tokenizer["added_tokens"][0]["id"] = json!(count);
    serde_json::from_value(json!({"kind": "tokenizer", "tokenizer": tokenizer})).unwrap()
}

const MARKED: &str = "▁\nabcdeknow.,!</s>";
const MERGES: [(&str, &str); 6] = [("▁", "▁"), ("▁", "k"), ("▁k", "n"), ("o", "d"), ("a", "b"), (".", "\n")];

/// The characters of a byte-level tokenizer: Ġ is a space, Ċ a line break.
const BYTES: &str = "ĠĊabcdeknow.,!</s>";
const BYTE_MERGES: [(&str, &str); 5] = [("Ġ", "k"), ("Ġk", "n"), ("o", "d"), ("a", "b"), (".", "Ċ")];

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn bytes(use_regex: bool, add_prefix_space: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": use_regex})
}

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn metaspace(scheme: &str, split: bool) -> Value {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split})
}

fn mark_spaces(prepend: bool) -> Value {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = prepend.then(|| json!({"type": "Prepend", "prepend": "▁"}));
    json!({"type": "Sequence", "normalizers": prepend.into_iter().chain([replace]).collect::<Vec<_>>()})
}

fn sequence(parts: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": parts})
}

/// Returns tokenizers whose texts can be cut, each with the name of a model with a similar tokenizer.
fn cuttable() -> Vec<(&'static str, Vocabulary)> {
    let marked = |normalizer, pre_tokenizer| tokenizer(normalizer, pre_tokenizer, model(MARKED, &MERGES));
    let bytes_of = |pre_tokenizer| tokenizer(Value::Null, pre_tokenizer, model(BYTES, &BYTE_MERGES));
    let gemma = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    vec![
        ("Llama 2", marked(mark_spaces(true), Value::Null)),
        ("Gemma", marked(mark_spaces(false), gemma)),
        ("Mistral", marked(Value::Null, metaspace("first", false))),
        ("T5", marked(Value::Null, metaspace("always", true))),
        ("GPT-2", bytes_of(bytes(true, false))),
        ("RoBERTa", bytes_of(bytes(true, true))),
        ("Llama 3", bytes_of(sequence(&[split(LLAMA3), bytes(false, false)]))),
        ("GPT-4o", bytes_of(sequence(&[split(GPT4O), bytes(false, false)]))),
    ]
}

/// Returns a text of words, sentences, paragraphs, runs of spaces and added tokens in a pseudo-random order.
fn long_text() -> String {
    let words = [
        "known",
        " ab",
        " knob",
        "abode",
        ".\n",
        " code",
        "  oak",
        "</s>",
        " </s> bad",
        "! ",
        ",",
        "\n\n",
        " k",
    ];
    let mut state = 7_usize;
    let mut next = || {
        state = (state * 1_103_515_245 + 12_345) % (1 << 31);
        words[(state >> 16) % words.len()]
    };
    (0..4000).map(|_| next()).collect()
}

#[test]
fn pieces_have_the_ids_of_the_entire_text() {
    let text = long_text();
    for (name, vocabulary) in cuttable() {
        let whole = vocabulary.encode(&text).unwrap();
        let (mut ids, mut rest, mut cuts) = (Vec::new(), text.as_str(), 0);
        while let Some(at) = rest.get(..300).and_then(|piece| vocabulary.last_cut(piece)) {
            let text = if cuts > 0 { vocabulary.continued(&rest[..at]) } else { &rest[..at] };
            ids.extend(vocabulary.encode(text).unwrap());
            (rest, cuts) = (&rest[at..], cuts + 1);
        }
        ids.extend(vocabulary.encode(vocabulary.continued(rest)).unwrap());
        assert!(cuts > 30, "{name}: {cuts}");
        assert!(ids == whole, "{name}: the ids differ");
    }
}

#[test]
fn context_sensitive_tokenizers_allow_no_cut() {
    let joined = [("n", "▁"), ("n▁", "k")];
    let replace = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"});
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    let none = [
        tokenizer(mark_spaces(true), Value::Null, model(MARKED, &joined)),
        tokenizer(replace, Value::Null, model(MARKED, &MERGES)),
        tokenizer(strip, bytes(true, false), model(BYTES, &BYTE_MERGES)),
        tokenizer(Value::Null, bytes(false, false), model(BYTES, &BYTE_MERGES)),
        tokenizer(
            Value::Null,
            sequence(&[split(r".+\n|\s+"), bytes(false, false)]),
            model(BYTES, &BYTE_MERGES),
        ),
        tokenizer(
            Value::Null,
            sequence(&[split(r"\w+\b|\s+"), bytes(false, false)]),
            model(BYTES, &BYTE_MERGES),
        ),
        tokenizer(Value::Null, Value::Null, model("n k", &[("n", " "), ("n ", "k")])),
    ];
    for (index, vocabulary) in none.iter().enumerate() {
        assert_eq!(vocabulary.last_cut("known knob code"), None, "{index}");
    }
}

#[test]
fn cuts_respect_added_tokens_and_punctuation() {
    let tokenizers = cuttable();
    let last =
        |name: &str, text| tokenizers.iter().find(|(other, _)| *other == name).unwrap().1.last_cut(text);
    assert_eq!(last("GPT-2", "ab.\nab </s> ab"), Some(3), "the added token absorbs the space");
    assert_eq!(last("Llama 3", "ab code.\nab"), Some(2), "a line break belongs to the full stop");
    assert_eq!(last("Llama 2", "ab code.\nab"), Some(2), "only a space is prepended");
    assert_eq!(last("GPT-2", "known  "), None, "the word after the spaces is unknown");
}
