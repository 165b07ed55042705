//! Refusals of `import`: each in one line, and without a trace.

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

#[test]
fn invalid_imports_are_refused_and_leave_nothing() {
    let place = TempDir::new().unwrap();
    let path = |name: &str| place.path().join(name);
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
    let before = fs::read_dir(place.path()).unwrap().count();

    let cases: [(&[&str], &[&str]); 11] = [
        (
            &["wrong.safetensors"],
            &[
                "`h.0.attn.c_attn.weight` is [4, 11], not [4, 12]",
                "`extra` is left over",
                "`h.0.ln_1.weight` is missing",
                "`ln_f.bias` is missing",
            ],
        ),
        (&["wrong.safetensors", "--config", "mish.json"], &["`activation_function` is \"mish\": gelu_new, "]),
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
        (&["truncated.safetensors"], &["truncated.safetensors: is no whole safetensors"]),
        (&["code.pt"], &["code.pt: is no PyTorch file", "posix.system", "pickled code is never run"]),
        (&["elsewhere.index.json"], &["names `../other`, which is no file beside it"]),
        (&["empty"], &["empty: holds no weights"]),
        (&["nowhere.safetensors"], &["nowhere.safetensors"]),
    ];
    for (arguments, parts) in cases {
        refuses(place.path(), &[&["--format", "gpt2"], arguments].concat(), parts);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), before, "{arguments:?} leaves nothing");
    }
}

#[test]
fn models_outside_every_family_are_not_exported() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2", "model.position=rotary"], "rotary");
    let output = run(place.path(), &["export", "rotary", "--format", "gpt2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr)
            .contains("the model is not a gpt2: `model.position` = \"rotary\" must be \"learned\";")
    );
    let output = run(place.path(), &["export", "rotary", "--format", "transformers"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    for part in [
        "the model fits no family of transformers",
        "gpt2 needs position = \"learned\"",
        "llama needs norm_kind = \"rms\"",
        "--format safetensors or pytorch-names",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!place.path().join("rotary/export").exists());
}

/// Asserts that an import is refused: one line containing all `parts`, exit code 2 and no folder.
fn refuses(place: &Path, arguments: &[&str], parts: &[&str]) {
    refuses_as(place, "run", arguments, parts);
}

/// Same as [`refuses`], for an import as the run `name`.
pub fn refuses_as(place: &Path, name: &str, arguments: &[&str], parts: &[&str]) {
    let output = run(place, &[&["import", "--backend", "ndarray", "--run", name], arguments].concat());
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{arguments:?} should say {part:?}: {said}");
    }
    assert!(!place.join(name).exists(), "{arguments:?}");
}

#[test]
fn incomplete_model_folders_name_the_missing_part() {
    let place = TempDir::new().unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/qwen3");
    let path = |name: &str| place.path().join("model").join(name);
    fs::create_dir(place.path().join("model")).unwrap();
    let whole = fs::read(peers.join("model.safetensors")).unwrap();
    fs::write(path("model.safetensors"), &whole).unwrap();
    refuses(place.path(), &["model"], &["says nothing of its model, and no config.json lies beside it"]);
    fs::copy(peers.join("config.json"), path("config.json")).unwrap();

    fs::write(path("model.safetensors"), &whole[..whole.len() - 5]).unwrap();
    refuses(place.path(), &["model"], &["model.safetensors: is no whole safetensors file"]);
    let mut broken = whole.clone();
    let end = broken.len();
    broken[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(path("model.safetensors"), &broken).unwrap();
    refuses(place.path(), &["model"], &["holds weights that are not finite"]);
    fs::write(path("model.safetensors"), "").unwrap();
    refuses(place.path(), &["model"], &["model.safetensors: is empty, where weights are expected"]);
    fs::write(path("model.safetensors.index.json"), r#"{"weight_map": {}}"#).unwrap();
    refuses(place.path(), &["model"], &["model.safetensors.index.json: names no tensor in its `weight_map`"]);
    fs::remove_file(path("model.safetensors.index.json")).unwrap();
    fs::write(path("model.safetensors"), &whole).unwrap();
    let config = fs::read_to_string(path("config.json")).unwrap();
    let tied = "\"tie_word_embeddings\": true";
    assert!(config.contains(tied));
    fs::write(path("config.json"), config.replace(tied, "\"tie_word_embeddings\": false")).unwrap();
    refuses(place.path(), &["model"], &["`lm_head.weight` is missing"]);
    fs::write(path("config.json"), config).unwrap();

    let symbols = (0..30).map(|id| (char::from(b'A' + id).to_string(), json!(id)));
    fs::write(path("vocab.json"), json!(serde_json::Map::from_iter(symbols)).to_string()).unwrap();
    fs::write(path("merges.txt"), "").unwrap();
    refuses(place.path(), &["model"], &["the tokenizer has 30 tokens, but the model only 29"]);
    fs::remove_file(path("vocab.json")).unwrap();

    for (shard, part) in [
        ("model-00001-of-00002.safetensors", "model-00001-of-00002.safetensors"),
        ("../model/model.safetensors", "names `../model/model.safetensors`, which is no file beside it"),
    ] {
        let index =
            json!({"weight_map": {"model.norm.weight": "model.safetensors", "lm_head.weight": shard}});
        fs::write(path("model.safetensors.index.json"), index.to_string()).unwrap();
        refuses(place.path(), &["model"], &[part]);
    }
    // One tensor is missing from all files, and another is in a different file than the index says.
    fs::copy(peers.join("expected.safetensors"), path("other.safetensors")).unwrap();
    let index = json!({"weight_map": {"model.norm.weight": "other.safetensors", "model.embed_tokens.weight": "model.safetensors",
        "lm_head.weight": "model.safetensors"}});
    fs::write(path("model.safetensors.index.json"), index.to_string()).unwrap();
    let parts = [
        "model.safetensors.index.json: names tensors that are not where it says: `lm_head.weight` in ",
        "/model.safetensors, `model.norm.weight` in ",
        "/other.safetensors",
    ];
    refuses(place.path(), &["model"], &parts);
}

/// Creates the folder `model` with a Llama saved by transformers.
fn llama(place: &Path) -> PathBuf {
    let folder = place.join("model");
    fs::create_dir(&folder).unwrap();
    for name in ["config.json", "model.safetensors"] {
        let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama").join(name);
        fs::copy(saved, folder.join(name)).unwrap();
    }
    folder
}

#[test]
fn two_sets_of_weights_are_refused() {
    let place = TempDir::new().unwrap();
    let model = llama(place.path());
    let (whole, shard) = (model.join("model.safetensors"), model.join("model-00001-of-00001.safetensors"));
    fs::copy(&whole, &shard).unwrap();
    let index = json!({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}});
    fs::write(model.join("model.safetensors.index.json"), index.to_string()).unwrap();
    let expected =
        "model/model.safetensors: is next to model.safetensors.index.json, which names other files: remove";
    refuses(place.path(), &["model"], &[expected]);
    for (name, file) in [("whole", "model.safetensors"), ("index", "model.safetensors.index.json")] {
        let output = run(place.path(), &["import", &format!("model/{file}"), "--run", name]);
        assert!(output.status.success(), "a file that is named is read: {}", text(&output.stderr));
    }
    fs::remove_file(whole).unwrap();
    assert!(run(place.path(), &["import", "model", "--run", "shards"]).status.success());
}

#[test]
fn a_mistral_has_a_window_by_default() {
    let place = TempDir::new().unwrap();
    let path = llama(place.path()).join("config.json");
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
    let parts =
        ["lacks the key `sliding_window`, which is 4096 by default", "write \"sliding_window\": null if"];
    refuses(place.path(), &arguments, &parts);
    write(Some(json!(4096)));
    refuses(place.path(), &arguments, &["`sliding_window` is 4096, and only models without"]);
    for (name, window) in [("none", Value::Null), ("wide", json!(8192))] {
        write(Some(window));
        let output = run(place.path(), &[&["import", "--run", name], &arguments[..]].concat());
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    }
}

#[test]
fn git_lfs_pointers_are_named() {
    let place = TempDir::new().unwrap();
    let model = llama(place.path());
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n";
    for name in ["tokenizer.json", "model.safetensors"] {
        fs::write(model.join(name), pointer).unwrap();
        let expected = format!("model/{name}: is a Git LFS pointer without the content of the file");
        refuses(place.path(), &["model"], &[expected.as_str(), "`git lfs pull`"]);
    }
}

#[test]
fn an_id_of_two_tokens_is_refused() {
    let place = TempDir::new().unwrap();
    let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [], "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"U": 0, "R": 1, "UR": 2, "X": 2}, "merges": [["U", "R"]]}});
    fs::write(llama(place.path()).join("tokenizer.json"), tokenizer.to_string()).unwrap();
    refuses(place.path(), &["model"], &["model/tokenizer.json: gives the id 2 to `UR` and to `X`"]);
}

#[test]
fn pytorch_names_are_no_family() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "own");
    let exported = run(place.path(), &["export", "own", "--format", "pytorch-names", "--out", "names"]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    refuses(place.path(), &["names"], &["export the run with --format safetensors"]);
}

#[test]
fn rows_longer_than_learned_positions_are_refused() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("short.csv"), "1,2,3\n3,1,2\n".repeat(20)).unwrap();
    fs::write(place.path().join("long.csv"), "1,2,3,1,2\n".repeat(20)).unwrap();
    small_run(place.path(), &["data.path=short.csv", "model.position=learned", "training.steps=2"], "base");
    let output = run(place.path(), &["train", "--from", "base", "--data", "long.csv", "--run", "longer"]);
    let said = text(&output.stderr);
    assert!(said.contains("`data.path` = ") && said.contains("remove or cut its longer rows"), "{said}");
}

#[test]
#[cfg(unix)]
fn streamed_and_inflated_pytorch_files_are_refused() {
    let place = TempDir::new().unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let import = |named: &str| {
        let program = env!("CARGO_BIN_EXE_causal-attention");
        let line = format!("exec timeout 60 {program} import {named} --format nanogpt --run run");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).env("FILE", peers.join("nanogpt.pt")).current_dir(place.path());
        let output = shell.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{named}: {said}");
        said
    };
    assert!(Command::new("mkfifo").arg(place.path().join("pipe.pt")).status().unwrap().success());
    let (file, pipe) = (peers.join("nanogpt.pt"), place.path().join("pipe.pt"));
    let writer = std::thread::spawn(move || fs::copy(file, pipe));
    for stream in ["pipe.pt", "<(cat $FILE)"] {
        let said = import(stream);
        assert!(said.contains("is a stream") && said.contains("save it as a file"), "{said}");
    }
    writer.join().unwrap().unwrap();
    let said = import(peers.join("expanded.pt").to_str().unwrap());
    assert!(said.contains("it unpacks to 4 MB, far more than the 1 MB of the file"), "{said}");
    assert!(!place.path().join("run").exists());
}
