//! Tests of tokenizers with declarations in files next to them. The expected ids were computed with transformers 5.24.

use std::fs;

use serde_json::{Value, json};

use crate::data::Vocabulary;
use crate::error::Result;

/// The files next to a tokenizer: their names and contents.
type Files<'a> = &'a [(&'a str, Value)];

/// Writes a tokenizer and the files next to it, and returns its vocabulary after a round trip through the stored form.
fn read(tokenizer: &Value, files: Files) -> Result<Vocabulary> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("tokenizer.json"), tokenizer.to_string()).unwrap();
    for (name, contents) in files {
        fs::write(path(name), contents.to_string()).unwrap();
    }
    let vocabulary = Vocabulary::read_tokenizer(&path("tokenizer.json"))?;
    let again: Vocabulary = serde_json::from_value(json!(vocabulary)).unwrap();
    assert_eq!(again, vocabulary);
    Ok(again)
}

/// Returns the ids of a text.
fn ids(tokenizer: &Value, files: Files, text: &str) -> Vec<u32> {
    read(tokenizer, files).unwrap().encode(text).unwrap()
}

fn special(id: u32, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true})
}

/// Returns a byte-level tokenizer of `a`, `b` and `ab` with two special tokens.
fn letters() -> Value {
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [special(4, "</s>"), special(5, "<eos>")], "pre_tokenizer": bytes, "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "merges": [["a", "b"]],
            "vocab": {"a": 0, "b": 1, "\u{120}": 2, "\u{10a}": 3, "</s>": 4, "<eos>": 5, "ab": 6}},
    })
}

/// Returns a WordPiece tokenizer whose normalizer keeps upper case.
fn words() -> Value {
    let mut words = letters();
    words["added_tokens"] = json!([special(0, "[UNK]")]);
    words["normalizer"] = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
        "strip_accents": null, "lowercase": false});
    words["pre_tokenizer"] = json!({"type": "BertPreTokenizer"});
    words["decoder"] = Value::Null;
    words["model"] = json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1, "A": 2, "e": 3, "\u{e9}": 4}});
    words
}

#[test]
fn declared_tokens_are_added_under_the_next_ids() {
    let config = json!({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"});
    let files = [
        ("tokenizer_config.json", config.clone()),
        ("added_tokens.json", json!({"<|im_start|>": 7, "<|im_end|>": 8})),
    ];
    let vocabulary = read(&letters(), &files).unwrap();
    assert_eq!((vocabulary.size(), vocabulary.end()), (9, Some(8)));
    assert_eq!(vocabulary.encode("ab <|im_end|> b").unwrap(), [6, 2, 8, 2, 1]);
    assert_eq!((vocabulary.is_special(7), vocabulary.is_special(8)), (false, true));

    // Tokens that `tokenizer_config.json` lists replace those of `added_tokens.json`.
    let [start, mut end] = [special(7, "<start>"), special(8, "<|im_end|>")];
    end["lstrip"] = json!(true);
    let mut config = config;
    config["added_tokens_decoder"] = json!({"8": end, "7": start});
    let files = [("tokenizer_config.json", config), files[1].clone()];
    assert_eq!(ids(&letters(), &files, "ab <|im_end|> b<start>"), [6, 8, 2, 1, 7]);
}

#[test]
fn named_tokens_are_matched_before_merges() {
    assert_eq!(ids(&letters(), &[], "abab"), [6, 6]);
    for (name, contents) in [
        ("tokenizer_config.json", json!({"pad_token": "b"})),
        ("tokenizer_config.json", json!({"additional_special_tokens": ["b"]})),
        ("tokenizer_config.json", json!({"added_tokens_decoder": {"1": {"content": "b"}}})),
        ("special_tokens_map.json", json!({"pad_token": {"content": "b", "lstrip": false}})),
    ] {
        assert_eq!(ids(&letters(), &[(name, contents)], "abab"), [0, 1, 0, 1]);
    }
}

#[test]
fn contradictory_and_misplaced_tokens_are_not_added() {
    let refused = |name: &str, contents: Value| {
        let error = read(&letters(), &[(name, contents)]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    let misnumbered = json!({"added_tokens_decoder": {"7": special(7, "</s>")}});
    let message = refused("tokenizer_config.json", misnumbered);
    let expected = "tokenizer.json: gives the token `</s>` the id 4, but tokenizer_config.json gives it 7; correct one \
         of them";
    assert!(message.ends_with(expected), "{message}");
    for contents in [json!({"<x>": "7"}), json!({"<x>": -1})] {
        let message = refused("added_tokens.json", contents);
        assert!(message.contains("added_tokens.json: declares a token without an id"), "{message}");
    }
    let misplaced = [("added_tokens.json", json!({"<x>": 1, "<y>": 9}))];
    assert_eq!(read(&letters(), &misplaced).unwrap().size(), 7);

    // The library would give the token the id of `c`.
    let mut gap = letters();
    gap["model"]["vocab"]["c"] = json!(8);
    gap["added_tokens"] = json!([]);
    let message = read(&gap, &[("added_tokens.json", json!({"<x>": 9}))]).unwrap_err().to_string();
    assert!(message.contains("cannot add `<x>` with the id 9 from added_tokens.json"), "{message}");
}

#[test]
fn the_class_sets_the_space_before_a_text() {
    fn has_space(tokenizer: &Value, files: Files) -> bool {
        ids(tokenizer, files, "a") == [2, 0]
    }
    let mut spaced = letters();
    spaced["pre_tokenizer"]["add_prefix_space"] = json!(true);
    let config = |class: &str, value: Value| {
        [("tokenizer_config.json", json!({"tokenizer_class": class, "add_prefix_space": value}))]
    };
    for class in ["GPT2Tokenizer", "GPT2TokenizerFast", "GPTNeoXTokenizerFast"] {
        assert!(has_space(&letters(), &config(class, json!(true))), "{class}");
        for value in [json!(false), Value::Null] {
            assert!(!has_space(&spaced, &config(class, value)), "{class}");
        }
    }
    // The other classes keep the settings of `tokenizer.json`.
    for class in ["PreTrainedTokenizerFast", "LlamaTokenizer"] {
        assert!(!has_space(&letters(), &config(class, json!(true))), "{class}");
        assert!(has_space(&spaced, &config(class, json!(false))), "{class}");
    }
    assert!(has_space(&spaced, &[]));
    assert!(!has_space(&spaced, &[("config.json", json!({"model_type": "gpt2"}))]));
}

#[test]
fn the_class_sets_the_case_of_bert() {
    let ids_with = |config: Value| ids(&words(), &[("tokenizer_config.json", config)], "A a \u{e9}");
    assert_eq!(ids_with(json!({"tokenizer_class": "BertTokenizer"})), [1, 1, 3]);
    assert_eq!(ids_with(json!({"tokenizer_class": "BertTokenizer", "do_lower_case": false})), [2, 1, 4]);
    let accents =
        json!({"tokenizer_class": "ElectraTokenizerFast", "do_lower_case": false, "strip_accents": true});
    assert_eq!(ids_with(accents), [2, 1, 3]);
    assert_eq!(
        ids_with(json!({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true})),
        [2, 1, 4]
    );
}
