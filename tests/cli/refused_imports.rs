//! Refused imports: each is refused in one line and leaves no files behind.

use std::path::{Path, PathBuf};
use std::{fs, process::Command};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::run;
use crate::{small_run, text};

/// Writes a safetensors file of small tensors filled with zeros.
fn write_zeros(path: &Path, tensors: &[(&str, &[usize])]) {
    let tensors: Vec<(&str, &[usize], Vec<u8>)> = tensors
        .iter()
        .map(|&(name, shape)| (name, shape, vec![0; 4 * shape.iter().product::<usize>()]))
        .collect();
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Writes weights and configs, each with another error.
fn write_invalid_files(dir: &Path) {
    let path = |name: &str| dir.join(name);
    write_zeros(
        &path("wrong.safetensors"),
        &[
            ("wte.weight", &[7, 4]),
            ("wpe.weight", &[5, 4]),
            ("h.0.attn.c_attn.weight", &[4, 11]),
            ("ln_f.weight", &[4]),
            ("extra", &[2]),
        ],
    );
    let config = r#"{"n_head": 2, "n_layer": 1, "n_embd": 4"#;
    fs::write(path("config.json"), format!("{config}}}")).unwrap();
    fs::write(path("mish.json"), format!("{config}, \"activation_function\": \"mish\"}}")).unwrap();
    fs::write(path("packed.json"), format!("{config}, \"quantization_config\": {{\"bits\": 4}}}}")).unwrap();
    fs::write(path("heads.json"), r#"{"n_head": 3}"#).unwrap();
    fs::write(path("broken.json"), "{\n\"n_head\": }").unwrap();
    fs::write(path("elsewhere.index.json"), r#"{"weight_map": {"a": "../other"}}"#).unwrap();
    fs::write(path("truncated.safetensors"), &fs::read(path("wrong.safetensors")).unwrap()[..300]).unwrap();
    // A pickle that would run a program: posix.system("true").
    fs::write(path("code.pt"), b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.").unwrap();
    fs::create_dir(path("empty")).unwrap();
}

#[test]
fn invalid_imports_are_refused_and_leave_nothing() {
    let dir = TempDir::new().unwrap();
    write_invalid_files(dir.path());
    let before = fs::read_dir(dir.path()).unwrap().count();

    let cases: [(&[&str], &[&str]); 11] = [
        (
            &["wrong.safetensors"],
            &[
                "`h.0.attn.c_attn.weight` has shape [4, 11], not [4, 12]",
                "`extra` is unexpected",
                "`h.0.ln_1.weight` is missing",
                "`ln_f.bias` is missing",
            ],
        ),
        (
            &["wrong.safetensors", "--config", "mish.json"],
            &["`activation_function` is \"mish\"; the supported activations are gelu_new, "],
        ),
        (
            &["wrong.safetensors", "--config", "packed.json"],
            &["`quantization_config` is {\"bits\":4}, which is not supported"],
        ),
        (
            &["wrong.safetensors", "--config", "heads.json"],
            &["heads.json: `n_head` = 3 must divide `n_embd` = 4"],
        ),
        (&["wrong.safetensors", "--config", "broken.json"], &["broken.json:2:"]),
        (&["wrong.safetensors", "--config", "nowhere.json"], &["nowhere.json"]),
        (&["truncated.safetensors"], &["truncated.safetensors: is not a valid safetensors"]),
        (
            &["code.pt"],
            &["code.pt: is not a PyTorch weights file", "posix.system", "pickled code is never run"],
        ),
        (
            &["elsewhere.index.json"],
            &["`weight_map` names `../other`, which is not a file next to the index"],
        ),
        (&["empty"], &["empty: contains no weights"]),
        (&["nowhere.safetensors"], &["nowhere.safetensors"]),
    ];
    for (arguments, parts) in cases {
        refuses(dir.path(), &[&["--format", "gpt2"], arguments].concat(), parts);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before, "{arguments:?} leaves files behind");
    }
}

#[test]
fn models_outside_every_family_are_not_exported() {
    let dir = TempDir::new().unwrap();
    small_run(
        dir.path(),
        &["training.steps=2", "model.position=rotary", "model.key_value_heads=1"],
        "rotary",
    );
    let output = run(dir.path(), &["export", "rotary", "--format", "gpt2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr)
            .contains("the model does not fit gpt2: `model.position` = \"rotary\" must be \"learned\", ")
    );
    let output = run(dir.path(), &["export", "rotary", "--format", "transformers"]);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    for part in [
        "the model fits no transformers family",
        "gpt2 needs position = \"learned\"",
        "gpt_neox needs key_value_heads = the value of heads; ",
        "--format safetensors or pytorch-names",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
    assert!(!dir.path().join("rotary/export").exists());
}

/// Asserts that an import is refused in one line that contains all `parts`, with exit code 2 and without a run folder.
fn refuses(dir: &Path, arguments: &[&str], parts: &[&str]) {
    refuses_as(dir, "run", arguments, parts);
}

/// Same as [`refuses`], for an import into the run folder `name`.
pub fn refuses_as(dir: &Path, name: &str, arguments: &[&str], parts: &[&str]) {
    let output = run(dir, &[&["import", "--backend", "ndarray", "--run", name], arguments].concat());
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{arguments:?}: expected {part:?} in {stderr}");
    }
    assert!(!dir.join(name).exists(), "{arguments:?}");
}

#[test]
fn incomplete_model_folders_name_the_missing_part() {
    let dir = TempDir::new().unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/qwen3");
    let path = |name: &str| dir.path().join("model").join(name);
    fs::create_dir(dir.path().join("model")).unwrap();
    let intact = fs::read(peers.join("model.safetensors")).unwrap();
    fs::write(path("model.safetensors"), &intact).unwrap();
    refuses(dir.path(), &["model"], &["does not describe its model, and config.json is not next to it"]);
    fs::copy(peers.join("config.json"), path("config.json")).unwrap();

    fs::write(path("model.safetensors"), &intact[..intact.len() - 5]).unwrap();
    refuses(dir.path(), &["model"], &["model.safetensors: is not a valid safetensors file"]);
    let mut broken = intact.clone();
    let end = broken.len();
    broken[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(path("model.safetensors"), &broken).unwrap();
    refuses(dir.path(), &["model"], &["contains non-finite weights"]);
    fs::write(path("model.safetensors"), "").unwrap();
    refuses(dir.path(), &["model"], &["model.safetensors: is empty; copy or download it again"]);
    fs::write(path("model.safetensors.index.json"), r#"{"weight_map": {}}"#).unwrap();
    refuses(dir.path(), &["model"], &["model.safetensors.index.json: `weight_map` lists no tensors"]);
    fs::remove_file(path("model.safetensors.index.json")).unwrap();
    fs::write(path("model.safetensors"), &intact).unwrap();
    let config = fs::read_to_string(path("config.json")).unwrap();
    let tied = "\"tie_word_embeddings\": true";
    assert!(config.contains(tied));
    fs::write(path("config.json"), config.replace(tied, "\"tie_word_embeddings\": false")).unwrap();
    refuses(dir.path(), &["model"], &["`lm_head.weight` is missing"]);
    fs::write(path("config.json"), config).unwrap();

    let symbols = (0..30).map(|id| (char::from(b'A' + id).to_string(), json!(id)));
    fs::write(path("vocab.json"), json!(serde_json::Map::from_iter(symbols)).to_string()).unwrap();
    fs::write(path("merges.txt"), "").unwrap();
    refuses(dir.path(), &["model"], &["the tokenizer has 30 tokens, but the model has only 29"]);
    fs::remove_file(path("vocab.json")).unwrap();

    for (shard, part) in [
        ("model-00001-of-00002.safetensors", "model-00001-of-00002.safetensors"),
        (
            "../model/model.safetensors",
            "`weight_map` names `../model/model.safetensors`, which is not a file next to the index",
        ),
    ] {
        let index =
            json!({"weight_map": {"model.norm.weight": "model.safetensors", "lm_head.weight": shard}});
        fs::write(path("model.safetensors.index.json"), index.to_string()).unwrap();
        refuses(dir.path(), &["model"], &[part]);
    }
    // One tensor is missing from all files, and another is not in the file that the index names.
    fs::copy(peers.join("expected.safetensors"), path("other.safetensors")).unwrap();
    let index = json!({"weight_map": {"model.norm.weight": "other.safetensors", "model.embed_tokens.weight": "model.safetensors",
        "lm_head.weight": "model.safetensors"}});
    fs::write(path("model.safetensors.index.json"), index.to_string()).unwrap();
    let parts = [
        "model.safetensors.index.json: lists tensors that their files do not contain: `lm_head.weight` in ",
        "/model.safetensors, `model.norm.weight` in ",
        "/other.safetensors",
    ];
    refuses(dir.path(), &["model"], &parts);
}

/// Creates the folder `model` with a Llama saved by transformers.
fn llama(dir: &Path) -> PathBuf {
    let folder = dir.join("model");
    fs::create_dir(&folder).unwrap();
    for name in ["config.json", "model.safetensors"] {
        let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama").join(name);
        fs::copy(saved, folder.join(name)).unwrap();
    }
    folder
}

#[test]
fn two_sets_of_weights_are_refused() {
    let dir = TempDir::new().unwrap();
    let model = llama(dir.path());
    let (single, shard) = (model.join("model.safetensors"), model.join("model-00001-of-00001.safetensors"));
    fs::copy(&single, &shard).unwrap();
    let index = json!({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}});
    fs::write(model.join("model.safetensors.index.json"), index.to_string()).unwrap();
    let expected =
        "model/model.safetensors: is next to model.safetensors.index.json, which names other files; remove";
    refuses(dir.path(), &["model"], &[expected]);
    for (name, file) in [("single", "model.safetensors"), ("index", "model.safetensors.index.json")] {
        let output = run(dir.path(), &["import", &format!("model/{file}"), "--run", name]);
        assert!(output.status.success(), "a named file can be imported: {}", text(&output.stderr));
    }
    fs::remove_file(single).unwrap();
    assert!(run(dir.path(), &["import", "model", "--run", "shards"]).status.success());
}

#[test]
fn mistral_configs_have_a_window_by_default() {
    let dir = TempDir::new().unwrap();
    let path = llama(dir.path()).join("config.json");
    let config = serde_json::from_slice::<Value>(&fs::read(&path).unwrap()).unwrap();
    let write = |window: Option<Value>| {
        let mut config = config.clone();
        (config["model_type"], config["max_position_embeddings"]) = (json!("mistral"), json!(8192));
        if let Some(window) = window {
            config["sliding_window"] = window;
        }
        fs::write(&path, config.to_string()).unwrap();
    };
    let arguments = ["model", "--format", "llama"];
    write(None);
    let parts = ["lacks the key `sliding_window`, which is 4096 by default", "--format mistral", "null if"];
    refuses(dir.path(), &arguments, &parts);
    write(Some(json!(4096)));
    refuses(dir.path(), &arguments, &["`sliding_window` is 4096, but a llama has no"]);
    for (name, window) in [("none", Value::Null), ("wide", json!(8192))] {
        write(Some(window));
        let output = run(dir.path(), &[&["import", "--run", name], &arguments[..]].concat());
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    }
    // As a Mistral, the model has the window.
    for (name, window, expected) in [
        ("default", None, Some("window = 4096")),
        ("short", Some(json!(7)), Some("window = 7")),
        ("full", Some(Value::Null), None),
        ("context", Some(json!(8192)), None),
    ] {
        write(window);
        let output = run(dir.path(), &["import", "model", "--run", name]);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let config = fs::read_to_string(dir.path().join(name).join("config.toml")).unwrap();
        let found = config.lines().find(|line| line.starts_with("window = "));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn git_lfs_pointers_are_named() {
    let dir = TempDir::new().unwrap();
    let model = llama(dir.path());
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n";
    for name in ["tokenizer.json", "model.safetensors"] {
        fs::write(model.join(name), pointer).unwrap();
        let expected = format!("model/{name}: is a Git LFS pointer without the content of the file");
        refuses(dir.path(), &["model"], &[expected.as_str(), "`git lfs pull`"]);
    }
}

#[test]
fn duplicate_token_ids_are_refused() {
    let dir = TempDir::new().unwrap();
    let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [], "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"U": 0, "R": 1, "UR": 2, "X": 2}, "merges": [["U", "R"]]}});
    fs::write(llama(dir.path()).join("tokenizer.json"), tokenizer.to_string()).unwrap();
    refuses(
        dir.path(),
        &["model"],
        &["model/tokenizer.json: the tokenizer assigns the id 2 to both `UR` and `X`"],
    );
}

#[test]
fn pytorch_names_cannot_be_imported() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "own");
    let exported = run(dir.path(), &["export", "own", "--format", "pytorch-names", "--out", "names"]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    refuses(dir.path(), &["names"], &["export the run with --format safetensors"]);
}

#[test]
fn rows_longer_than_learned_positions_are_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("short.csv"), "1,2,3\n3,1,2\n".repeat(20)).unwrap();
    fs::write(dir.path().join("long.csv"), "1,2,3,1,2\n".repeat(20)).unwrap();
    small_run(dir.path(), &["data.path=short.csv", "model.position=learned", "training.steps=2"], "base");
    let output = run(dir.path(), &["train", "--from", "base", "--data", "long.csv", "--run", "longer"]);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("`data.path` = ") && stderr.contains("remove or shorten the longer rows"),
        "{stderr}"
    );
}

#[test]
#[cfg(unix)]
fn streamed_and_inflated_pytorch_files_are_refused() {
    let dir = TempDir::new().unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let import = |named: &str| {
        let program = env!("CARGO_BIN_EXE_causal-attention");
        let line = format!("exec timeout 60 {program} import {named} --format nanogpt --run run");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).env("FILE", peers.join("nanogpt.pt")).current_dir(dir.path());
        let output = shell.output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{named}: {stderr}");
        stderr
    };
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe.pt")).status().unwrap().success());
    let (file, pipe) = (peers.join("nanogpt.pt"), dir.path().join("pipe.pt"));
    let writer = std::thread::spawn(move || fs::copy(file, pipe));
    for stream in ["pipe.pt", "<(cat $FILE)"] {
        let stderr = import(stream);
        assert!(stderr.contains("is a stream") && stderr.contains("save it as a file"), "{stderr}");
    }
    writer.join().unwrap().unwrap();
    let stderr = import(peers.join("expanded.pt").to_str().unwrap());
    assert!(stderr.contains("it unpacks to 4 MB, far more than the 1 MB of the file"), "{stderr}");
    assert!(!dir.path().join("run").exists());
}
