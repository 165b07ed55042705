//! Files next to a model, which an import applies or reports.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::{json as printed, run};
use crate::{stdout_of, text};

/// Creates the folder `model` with a Llama saved by transformers and these files.
fn model(files: &[(&str, Value)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("model");
    fs::create_dir(&folder).unwrap();
    for name in ["config.json", "model.safetensors"] {
        let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama").join(name);
        fs::copy(saved, folder.join(name)).unwrap();
    }
    for (name, contents) in files {
        fs::write(folder.join(name), contents.to_string()).unwrap();
    }
    dir
}

/// Returns a byte-level tokenizer with two special tokens.
fn tokenizer() -> Value {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
    };
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [special(4, "<s>"), special(5, "</s>")], "pre_tokenizer": bytes, "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "merges": [],
            "vocab": {"a": 0, "b": 1, "\u{120}": 2, "\u{10a}": 3, "<s>": 4, "</s>": 5}},
    })
}

#[test]
fn declared_tokens_are_kept_by_import_and_export() {
    let dir = model(&[
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", json!({"eos_token": "<|im_end|>", "tokenizer_class": "GPT2Tokenizer"})),
        ("added_tokens.json", json!({"<|im_start|>": 6, "<|im_end|>": 7})),
    ]);
    for (folder, name) in [("model", "first"), ("first/export/transformers", "second")] {
        let imported = run(dir.path(), &["import", folder, "--run", name]);
        assert!(imported.status.success() && text(&imported.stderr).is_empty(), "{imported:?}");
        let stdout = text(&imported.stdout);
        assert!(
            stdout.contains("end of text: <|im_end|> (id 7), declared by tokenizer_config.json"),
            "{stdout}"
        );
        let scored = printed(dir.path(), &["score", name, "--text", "a <|im_end|>b", "--json"]);
        assert_eq!(scored["tokens"], json!([0, 2, 7, 1]));
        stdout_of(dir.path(), &["export", name, "--format", "transformers"]);
        // Other programs do not write this file.
        fs::remove_file(dir.path().join(name).join("export/transformers/vocabulary.json")).unwrap();
    }
}

#[test]
fn unapplied_import_files_are_reported() {
    let config = "tokenizer_config.json";
    let cases = [
        (
            (config, json!({"eos_token": "<|im_end|>"})),
            "`eos_token` is `<|im_end|>`, which the tokenizer lacks, so `b` ends a text, as declared by config.json",
        ),
        ((config, json!({"split_special_tokens": true})), "`split_special_tokens` = true is not applied"),
        (
            (config, json!({"added_tokens_decoder": {"3": {"content": "<x>"}}})),
            "the tokenizer uses this id for `\u{10a}`",
        ),
        (
            ("added_tokens.json", json!({"<x>": 9})),
            "names the token 9, which is ignored because the tokenizer has 6 tokens; correct the id of `<x>`",
        ),
        (("adapter_config.json", json!({})), "describes an adapter (LoRA), which is not applied"),
    ];
    for ((name, contents), expected) in cases {
        let dir = model(&[("tokenizer.json", tokenizer()), (name, contents)]);
        let imported = run(dir.path(), &["import", "model", "--run", "run"]);
        let warned = text(&imported.stderr);
        assert!(imported.status.success(), "{warned}");
        let line = warned.lines().find(|line| line.starts_with(&format!("warning: model/{name}: ")));
        assert!(line.is_some_and(|line| line.contains(expected)), "{expected}: {warned}");
    }
}

#[test]
fn unsupported_tokenizers_are_reported_with_a_command() {
    for (name, kind) in [("tokenizer.model", "SentencePiece"), ("vocab.txt", "WordPiece")] {
        let dir = model(&[(name, json!(""))]);
        let imported = run(dir.path(), &["import", "model", "--run", "run"]);
        let warned = text(&imported.stderr);
        assert!(imported.status.success() && warned.lines().count() == 1, "{warned}");
        let expected =
            format!("warning: model/{name}: is a {kind} tokenizer, which is not supported; convert it to");
        assert!(warned.starts_with(&expected) && warned.contains("' model`, then import again"), "{warned}");
        assert!(text(&imported.stdout).contains("no tokenizer found; prompts are token ids"));
        let refused = run(dir.path(), &["import", "model", "--tokenizer", "model", "--run", "other"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(&format!("model/{name}: is a {kind} tokenizer")));
    }
}
