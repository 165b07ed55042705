//! Tests of encoding and decoding in each kind of vocabulary.

use super::*;

fn symbols(symbols: &[&str], end: Option<u32>) -> Result<Vocabulary> {
    Vocabulary::symbols(symbols.iter().map(|symbol| symbol.to_string()).collect(), end)
}

/// Returns a byte-level tokenizer with a few tokens and gaps in their ids.
fn tokenizer() -> Vocabulary {
    let json = r#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "added_tokens": [{"id": 6, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true}],
            "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "ByteLevel",
                "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "vocab": {"a": 0, "b": 1, "ab": 3, "\u0120": 4, "<|endoftext|>": 6}, "merges": [["a", "b"]]}}"#;
    let stored = format!(r#"{{"kind": "tokenizer", "tokenizer": {json}}}"#);
    serde_json::from_str(&stored).unwrap()
}

#[test]
fn every_vocabulary_round_trips_text_and_file() {
    let vocabularies = [
        (Vocabulary::integers(5, &["|", END]), "3 0 | 4 <end>", vec![3, 0, 5, 4, 6]),
        (Vocabulary::characters("hello wörld\n".chars()).unwrap(), "röd\n", vec![7, 9, 2, 0]),
        (symbols(&["up", "down", "."], Some(2)).unwrap(), "down up .", vec![1, 0, 2]),
        (tokenizer(), "abba", vec![3, 1, 0]),
    ];
    for (vocabulary, text, ids) in vocabularies {
        assert_eq!(vocabulary.encode(text).unwrap(), ids);
        assert_eq!(vocabulary.decode(&ids), text);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), serde_json::to_vec(&vocabulary).unwrap()).unwrap();
        let again = Vocabulary::read(file.path()).unwrap();
        assert_eq!(again, vocabulary);
        assert_eq!(again.size(), vocabulary.size());
        assert_eq!(again.end(), vocabulary.end());
        assert_eq!(again.encode(text).unwrap(), ids);
    }
}

#[test]
fn size_covers_the_largest_id_despite_gaps() {
    let vocabulary = tokenizer();
    assert_eq!(vocabulary.size(), 7);
    assert_eq!(vocabulary.end(), Some(6));
    assert_eq!(vocabulary.token(5), "\u{fffd}");
    assert_eq!(vocabulary.token(4), "␣");
}

/// Returns the vocabulary of a BPE tokenizer with the tokens `vocab`; `more` adds keys to its model.
fn pairs(vocab: &str, more: &str) -> Result<Vocabulary> {
    Vocabulary::tokenizer(tokenizer_of_pairs(vocab, more))
}

#[test]
fn non_object_errors_name_no_rust_type() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[]").unwrap();
    let message = Vocabulary::read_tokenizer(file.path()).unwrap_err().to_string();
    assert!(message.contains("expected an object") && !message.contains("struct"), "{message}");
}

fn tokenizer_of_pairs(vocab: &str, more: &str) -> Tokenizer {
    let json = format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": [],
                "pre_tokenizer": {{"type": "Whitespace"}}, "post_processor": null, "decoder": null,
                "model": {{"type": "BPE", "vocab": {{{vocab}}}, "merges": [["a", "b"]]{more}}}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

const AB: &str = r#""a": 0, "b": 1, "ab": 2"#;

#[test]
fn encoding_ignores_bpe_dropout() {
    let vocabulary = pairs(AB, r#", "dropout": 0.5"#).unwrap();
    assert!((0..50).all(|_| vocabulary.encode("abab").unwrap() == [2, 2]));
}

#[test]
fn words_without_a_token_are_named() {
    let model = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"the": 0, "cat": 1}, "unk_token": "<unk>"}}"#;
    let vocabulary = Vocabulary::tokenizer(model.parse().unwrap()).unwrap();
    assert_eq!(vocabulary.encode("the cat").unwrap(), [0, 1]);
    let problem = vocabulary.encode("the zebra").unwrap_err().to_string();
    assert!(problem.contains("no token for `zebra`") && problem.contains("unknown token"), "{problem}");
}

#[test]
fn characters_a_tokenizer_would_drop_are_refused() {
    let vocabulary = pairs(AB, "").unwrap();
    assert_eq!(vocabulary.encode("a ab").unwrap(), [0, 2], "word separators are not tokens");
    assert_eq!(
        vocabulary.encode("ab aéb").unwrap_err().to_string(),
        "`é` (character 5) is not in the vocabulary of 3 tokens"
    );
    let with_unknown = pairs(&format!(r#"{AB}, "?": 3"#), r#", "unk_token": "?""#).unwrap();
    assert_eq!(with_unknown.encode("aéb").unwrap(), [0, 3, 1]);
    let warning = |ids: &[u32]| with_unknown.warn_of_unknown(ids.iter().copied());
    assert_eq!((with_unknown.unknown_token(), warning(&[0; 99])), (Some(3), None));
    assert!(
        warning(&[0, 3, 3])
            .is_some_and(|text| text.starts_with("2 of 3 tokens are `?`, because the tokenizer lacks tokens"))
    );

    let mut with_end = tokenizer_of_pairs(AB, "");
    with_end.add_special_tokens(&[tokenizers::AddedToken::from("</s>", true)]);
    let with_end = Vocabulary::tokenizer(with_end).unwrap();
    assert_eq!(with_end.encode("ab</s>a</s>").unwrap(), [2, 3, 0, 3]);
    assert_eq!(
        with_end.encode("a</s>s").unwrap_err().to_string(),
        "`s` (character 6) is not in the vocabulary of 4 tokens",
        "`s` alone is not part of the added token"
    );
}

#[test]
fn template_tokens_surround_only_whole_texts() {
    let mut stored = serde_json::to_value(tokenizer()).unwrap();
    let special = |id: u32| serde_json::json!({"SpecialToken": {"id": format!("t{id}"), "type_id": 0}});
    let ids = |id: u32| {
        (format!("t{id}"), serde_json::json!({"id": format!("t{id}"), "ids": [id], "tokens": ["t"]}))
    };
    stored["tokenizer"]["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [special(6), {"Sequence": {"id": "A", "type_id": 0}}, special(4)],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": serde_json::Map::from_iter([ids(6), ids(4)]),
    });
    let with_template: Vocabulary = serde_json::from_value(stored).unwrap();
    assert_eq!(with_template.added_tokens(), [[6], [4]]);
    assert_eq!(with_template.encode_whole("ab").unwrap(), [6, 3, 4]);
    assert_eq!(with_template.encode_whole("").unwrap(), [6, 4]);
    assert_eq!(with_template.encode("ab").unwrap(), [3]);
    assert_eq!(tokenizer().encode_whole("ab").unwrap(), [3], "a tokenizer may add no tokens");
    assert_eq!((with_template.is_special(6), with_template.is_special(4)), (true, false));
}

#[test]
fn ids_with_large_gaps_are_refused() {
    let error = pairs(r#""a": 0, "b": 1, "ab": 4000000000"#, "").unwrap_err().to_string();
    assert!(error.contains("numbers its 3 tokens up to 4000000000"), "{error}");
}

#[test]
fn tokens_that_share_an_id_are_refused() {
    let error = pairs(r#""a": 0, "b": 1, "ab": 1"#, "").unwrap_err().to_string();
    let expected = "the tokenizer assigns the id 1 to both `ab` and `b`; give each token its own id, or save the \
         tokenizer again";
    assert_eq!(error, expected);
}

#[test]
fn contradictory_vocabularies_are_refused() {
    for wrong in [
        r#"{"kind": "integers", "integers": 0, "special": []}"#,
        r#"{"kind": "integers", "integers": 18446744073709551615, "special": ["a"]}"#,
        r#"{"kind": "characters", "characters": ""}"#,
        r#"{"kind": "symbols", "symbols": ["a", "a"], "end": null}"#,
        r#"{"kind": "symbols", "symbols": ["a", "b"], "end": 2}"#,
        r#"{"kind": "tokenizer", "tokenizer": {}}"#,
        // The library panics on this tokenizer.
        r#"{"kind": "tokenizer", "tokenizer": {"version": "1.0", "truncation": null, "padding": null,
                "added_tokens": [], "pre_tokenizer": null, "post_processor": null, "decoder": null,
                "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="},
                "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}}"#,
    ] {
        assert!(serde_json::from_str::<Vocabulary>(wrong).is_err(), "{wrong}");
    }
}
