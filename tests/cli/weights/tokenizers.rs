//! Import and export of tokenizers and special tokens.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::peers::{Expected, flat, peer, typed};
use super::read;
use crate::generate::{json, run};
use crate::refused_imports::refuses_as;
use crate::{small_run, stdout_of, text};

#[test]
#[ignore = "needs PyTorch and transformers: `.ci/run peers`"]
fn exported_tokenizers_match_transformers_and_reimport() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("words.txt"), "to be or not to be, that is the question.\n".repeat(60)).unwrap();
    let llama =
        ["model.position=rotary", "model.norm_kind=rms", "model.activation=swiglu", "model.bias=false"];
    let bytes = [&["data.tokens=bpe", "data.vocab=280"][..], &llama].concat();
    // Families with a tokenizer class in transformers.
    let [qwen2, qwen3] =
        ["model.query_key_value_bias=true", "model.qk_norm=true"].map(|set| [&[set][..], &llama].concat());
    let mut compared = Vec::new();
    for (run_name, sets) in
        [("characters", &[][..]), ("qwen2", &qwen2[..]), ("qwen3", &qwen3[..]), ("pairs", &bytes[..])]
    {
        let text_sets = ["data.source=text", "data.path=words.txt", "training.steps=2"];
        small_run(dir.path(), &[&text_sets[..], &["data.vocab=auto"], sets].concat(), run_name);
        let texts = ["to be", "that is the question.\nor not", "  be  or"];
        let expected = texts.map(|text| (text, ids(dir.path(), run_name, text)));
        let description = read(&path(run_name)).1;
        let json = serde_json::json!({
            "vocabulary": description.sizes.vocab,
            "texts": serde_json::Map::from_iter(expected.clone().map(|(text, ids)| (text.to_string(), ids))),
        });
        let expected_file = format!("{run_name}.json");
        fs::write(path(&expected_file), json.to_string()).unwrap();
        for format in ["transformers", "pytorch-names"] {
            let output = run(dir.path(), &["export", run_name, "--format", format]);
            assert!(output.status.success());
            let export = path(run_name).join("export").join(format);
            let is_misread = (run_name, format) == ("qwen2", "transformers");
            assert_eq!(
                text(&output.stderr).contains("load this tokenizer with PreTrainedTokenizerFast"),
                is_misread
            );
            if !is_misread {
                compared.extend([export, path(&expected_file)]);
            }
        }
        // Imports with the tokenizer alone, as another program writes it.
        let export = path(run_name).join("export/transformers");
        fs::remove_file(export.join("vocabulary.json")).unwrap();
        let again = format!("{run_name}-again");
        let arguments = ["import", export.to_str().unwrap(), "--run", &again];
        let imported = run(dir.path(), &arguments);
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        for (text, ids) in expected {
            assert_eq!(self::ids(dir.path(), &again, text), ids, "{text:?}");
        }
    }
    // Starting Python takes most of the time, so all exports are compared at once.
    peer("tokenizer.py", &Vec::from_iter(compared.iter().map(|path| path.to_str().unwrap())));
}

/// Returns the ids of a text in a run's vocabulary.
fn ids(dir: &Path, run: &str, text: &str) -> Value {
    json(dir, &["score", run, "--text", text, "--json"])["tokens"].take()
}

/// A small Llama in the folder `model`, with a tokenizer that has special tokens.
struct Llama(TempDir);

impl Llama {
    fn new() -> Self {
        let model = Self(TempDir::new().unwrap());
        fs::create_dir(model.folder()).unwrap();
        for name in ["config.json", "generation_config.json", "model.safetensors"] {
            fs::copy(saved().join(name), model.folder().join(name)).unwrap();
        }
        model.write("tokenizer.json", &tokenizer());
        model.write(
            "tokenizer_config.json",
            &json!({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "padding_side": "left"}),
        );
        model.write(
            "special_tokens_map.json",
            &json!({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}}),
        );
        model
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn folder(&self) -> PathBuf {
        self.dir().join("model")
    }

    fn write(&self, name: &str, value: &Value) {
        fs::write(self.folder().join(name), value.to_string()).unwrap();
    }

    /// Runs the program, and returns its output.
    fn succeeds(&self, arguments: &[&str]) -> String {
        stdout_of(self.dir(), arguments)
    }
}

/// Returns the folder of the Llama saved by transformers.
fn saved() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama")
}

/// Returns a tokenizer of letters with two special tokens: 12 ends a text, and 25 is prepended to it.
fn tokenizer() -> Value {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
    };
    let name = |(letter, id): (char, u32)| match id {
        12 => ("</s>".to_string(), json!(id)),
        25 => ("<s>".to_string(), json!(id)),
        _ => (letter.to_string(), json!(id)),
    };
    let vocab = serde_json::Map::from_iter(('a'..='}').zip(0..).map(name));
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "added_tokens": [special(12, "</s>"), special(25, "<s>")], "decoder": {"type": "Fuse"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [25], "tokens": ["<s>"]}}},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    })
}

#[test]
fn special_tokens_are_used_as_transformers_does() {
    let model = Llama::new();
    model.succeeds(&["import", "model", "--run", "run"]);
    assert_eq!(ids(model.dir(), "run", "ab"), json!([25, 0, 1]));
    let inspected = json(model.dir(), &["inspect", "run", "--text", "ab", "--no-ablation", "--json"]);
    assert_eq!(inspected["tokens"], json!([25, 0, 1]), "{inspected}");

    let prompt = typed(&Expected::read(&saved()).numbers("greedy").1[..5]);
    let generate = ["generate", "run", "--tokens", &prompt, "--greedy", "--max-new", "20"];
    let sample =
        |more: &[&str]| json(model.dir(), &[&generate[..], &["--json"], more].concat())["samples"][0].take();
    let (stopped, continued) = (sample(&[]), sample(&["--ignore-end"]));
    assert_eq!((&stopped["ended"], flat(&stopped["tokens"]).len()), (&json!("stop_token"), 7));
    assert_eq!(flat(&continued["tokens"]).len(), 20);
    let exact = continued["text"].as_str().unwrap();
    assert!(exact.contains("</s>"), "{exact}");
    let printed = model.succeeds(&[&generate[..], &["--ignore-end"]].concat());
    assert!(
        printed.trim_end().ends_with(&exact.replace("</s>", "").replace("<s>", "")),
        "{printed}: {exact}"
    );
    let prompted = json(model.dir(), &["generate", "run", "--prompt", "ab", "--max-new", "1", "--json"]);
    assert_eq!(prompted["samples"][0]["prompt"], json!([25, 0, 1]));
    let printed = model.succeeds(&["generate", "run", "--prompt", "ab", "--max-new", "1", "--samples", "2"]);
    assert!(printed.starts_with("--- sample 1\nab"), "{printed}");
    // Without a prompt, the text starts with the begin-of-text token.
    assert_eq!(
        sample_of(model.dir(), &["--greedy", "--max-new", "3"]),
        sample_of(model.dir(), &["--tokens", "3", "--greedy", "--max-new", "3"])
    );
}

#[test]
fn special_tokens_are_exported_unchanged() {
    let model = Llama::new();
    model.succeeds(&["import", "model", "--run", "run"]);
    fs::write(model.dir().join("text.txt"), "abcabcabd".repeat(60)).unwrap();
    let sets = ["data.path=text.txt", "data.length=12", "training.steps=1"].map(|set| ["--set", set]);
    model.succeeds(
        &[&["train", "--from", "run", "--run", "tuned", "--backend", "ndarray"], sets.as_flattened()]
            .concat(),
    );
    for name in ["run", "tuned"] {
        model.succeeds(&["export", name, "--format", "transformers", "--out", &format!("{name}-out")]);
        let contents = |folder: &Path, file: &str| -> Value {
            serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap()
        };
        let export = model.dir().join(format!("{name}-out"));
        for file in
            ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
        {
            assert_eq!(
                contents(&export, file)["model"]["vocab"],
                contents(&model.folder(), file)["model"]["vocab"]
            );
            if file != "tokenizer.json" {
                assert_eq!(contents(&export, file), contents(&model.folder(), file), "{name}: {file}");
            }
        }
        for (key, id) in [("bos_token_id", 3), ("eos_token_id", 1), ("pad_token_id", 6)] {
            assert_eq!(contents(&export, "config.json")[key], id, "{name}: {key}");
        }
    }

    model.succeeds(&["export", "run", "--format", "safetensors", "--out", "own"]);
    model.succeeds(&["import", "own", "--run", "own-again"]);
    let kept = |run: &str| fs::read(model.dir().join(run).join("transformers.json")).unwrap();
    assert_eq!(kept("run"), kept("own-again"));
}

#[test]
fn special_tokens_default_to_family_or_tokenizer() {
    let model = Llama::new();
    fs::write(model.dir().join("text.txt"), "abcabcabd".repeat(60)).unwrap();
    // Without these files, special tokens come from the config, or else from the defaults of the family. A run that was
    // not imported uses the special tokens of its tokenizer.
    for name in ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json"] {
        fs::remove_file(model.folder().join(name)).unwrap();
    }
    let contents =
        |path: &str| -> Value { serde_json::from_slice(&fs::read(model.dir().join(path)).unwrap()).unwrap() };
    let mut config = contents("model/config.json");
    for key in ["bos_token_id", "eos_token_id"] {
        config.as_object_mut().unwrap().remove(key);
    }
    model.write("config.json", &config);
    model.succeeds(&["import", "model", "--run", "plain"]);
    let llama =
        ["model.position=rotary", "model.norm_kind=rms", "model.activation=swiglu", "model.bias=false"];
    let sets =
        ["data.path=text.txt", "data.tokens=model/tokenizer.json", "data.vocab=auto", "training.steps=1"];
    small_run(model.dir(), &[&sets[..], &llama[..]].concat(), "made");
    for (name, tokens, ids) in [("plain", ["b", "c"], [1, 2]), ("made", ["<s>", "</s>"], [25, 12])] {
        model.succeeds(&["export", name, "--format", "transformers", "--out", &format!("{name}-out")]);
        for ((key, token), id) in ["bos_token", "eos_token"].into_iter().zip(tokens).zip(ids) {
            assert_eq!(contents(&format!("{name}-out/tokenizer_config.json"))[key], token, "{name}");
            assert_eq!(contents(&format!("{name}-out/config.json"))[format!("{key}_id")], id, "{name}");
        }
    }
}

#[test]
fn invalid_token_ids_are_refused_by_file() {
    let model = Llama::new();
    model.write("generation_config.json", &json!({"eos_token_id": [1, "x"]}));
    let message =
        "generation_config.json: `eos_token_id` is [1,\"x\"]: expected a token id or a list of token ids";
    refuses_as(model.dir(), "again", &["model"], &[message]);
    fs::write(model.folder().join("generation_config.json"), "{\n\"a\": }").unwrap();
    refuses_as(model.dir(), "again", &["model"], &["generation_config.json:2:"]);
}

/// Generates a single sample with the run `run`, and returns its tokens.
fn sample_of(dir: &Path, arguments: &[&str]) -> Value {
    json(dir, &[&["generate", "run", "--json"], arguments].concat())["samples"][0]["tokens"].take()
}
