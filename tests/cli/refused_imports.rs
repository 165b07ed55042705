//! What `import` refuses: each in one line, and without a trace.

use std::{fs, path::Path, process::Command};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use tempfile::TempDir;

use crate::generate::run;
use crate::{small_run, text};

/// A safetensors file of small tensors, each filled with zeros.
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
fn what_cannot_be_imported_is_one_line_and_leaves_nothing() {
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
    assert!(!path("rotary/export").exists());
}

/// Refuses to import: one line that has all `parts`, exit code 2 and no folder.
fn refuses(place: &Path, arguments: &[&str], parts: &[&str]) {
    refuses_as(place, "run", arguments, parts);
}

/// As [`refuses`], to import as the run `name`.
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
fn what_a_config_asks_for_and_is_not_computed_is_refused_by_its_key() {
    let place = TempDir::new().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama");
    let folder = place.path().join("model");
    fs::create_dir(&folder).unwrap();
    fs::copy(model.join("model.safetensors"), folder.join("model.safetensors")).unwrap();
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(model.join("config.json")).unwrap()).unwrap();
    let rope = |more: serde_json::Value| {
        let mut rope = config["rope_parameters"].as_object().unwrap().clone();
        rope.extend(more.as_object().unwrap().clone());
        json!({"rope_parameters": rope})
    };
    let smollm3 = |key: &str, value: serde_json::Value| json!({"model_type": "smollm3", key: value});
    for (change, part) in [
        (
            json!({"model_type": "mistral"}),
            "`model_type` is \"mistral\": gpt2, llama, qwen2, qwen3, smollm3 can be imported",
        ),
        (json!({"model_type": null}), "has no key `model_type`"),
        (json!({"use_sliding_window": true}), "`use_sliding_window` is true, and only false"),
        (json!({"sliding_window": 8}), "`sliding_window` is 8, and only models without"),
        (
            json!({"layer_types": ["full_attention", "sliding_attention"]}),
            "`layer_types` is [… \"sliding_attention\" …]",
        ),
        (json!({"num_experts": 4}), "`num_experts` is 4, which is not supported"),
        (json!({"quantization_config": {"bits": 4}}), "`quantization_config` is {\"bits\":4}, which is not"),
        (json!({"attention_factor": 1.5}), "`attention_factor` is 1.5, and only 1 is supported"),
        (json!({"logits_scaling": 4.0}), "`logits_scaling` is 4.0, and only 1 is"),
        (json!({"residual_multiplier": 0.2}), "`residual_multiplier` is 0.2, and only 1 is"),
        (json!({"embedding_multiplier": 12}), "`embedding_multiplier` is 12, and only 1 is"),
        (json!({"attention_multiplier": 0.01}), "`attention_multiplier` is 0.01, which is not supported"),
        (json!({"attn_logit_softcapping": 50.0}), "`attn_logit_softcapping` is 50.0, which is not"),
        (json!({"clip_qkv": 8}), "`clip_qkv` is 8, which is not"),
        (json!({"attn_temperature_tuning": true}), "`attn_temperature_tuning` is true, and only false"),
        (json!({"is_causal": false}), "`is_causal` is false, and only true"),
        (json!({"compression_config": {}}), "`compression_config` is {}, which is not"),
        (json!({"num_experts_per_tok": 2}), "`num_experts_per_tok` is 2, which is not"),
        (json!({"rotary_pct": 0.25}), "`rotary_pct` is 0.25, and only 1 is"),
        (json!({"bos_token_id": -2}), "`bos_token_id` is -2: expected the id of a token"),
        (json!({"pad_token_id": "x"}), "`pad_token_id` is \"x\": expected the id of a token"),
        (json!({"query_pre_attn_scalar": 256}), "`query_pre_attn_scalar` is 256, which is not"),
        (json!({"dual_chunk_attention_config": {"chunk_size": 4}}), "`dual_chunk_attention_config` is {"),
        (
            json!({"model_type": "gpt2", "rope_parameters": null, "rope_scaling": {"type": "linear"}}),
            "`rope_scaling` is {\"type\":\"linear\"}, which is not",
        ),
        (json!({"model_type": "gpt2", "attention_scaling": 2}), "`attention_scaling` is 2, and only 1 is"),
        (
            json!({"model_type": "gpt2", "scale_attn_weights": false}),
            "`scale_attn_weights` is false, and only true",
        ),
        (
            smollm3("no_rope_layers", json!([1])),
            "`no_rope_layers` is [1], and only layers that all rotate, which are 1 there, are supported, 2 of them",
        ),
        (json!({"pretraining_tp": 2}), "`pretraining_tp` is 2, and only 1 is"),
        (json!({"partial_rotary_factor": 0.5}), "`partial_rotary_factor` is 0.5, and only 1 is"),
        (
            rope(json!({"rope_type": "yarn"})),
            "`rope_parameters.rope_type` is \"yarn\": default, linear and llama3",
        ),
        (
            json!({"rope_parameters": null, "rope_scaling": {"type": "dynamic", "factor": 2}}),
            "`rope_scaling.type` is \"dynamic\"",
        ),
        (rope(json!({"attention_factor": 1.5})), "`rope_parameters.attention_factor` is 1.5, and only 1.0"),
        (
            rope(json!({"mscale": 0.7})),
            "`rope_parameters.mscale` is 0.7, which rotary positions of kind llama3 do not",
        ),
        (rope(json!({"factor": null})), "kind llama3 lack the key `rope_parameters.factor`"),
        (rope(json!({"factor": 0.5})), "`rope_parameters.factor` = 0.5 must be"),
        (rope(json!({"rope_theta": -1})), "`rope_parameters.rope_theta` = -1 must be"),
        (
            json!({"rope_parameters": null, "rope_scaling": {"type": "linear", "factor": 0}, "rope_theta": 7}),
            "`rope_scaling.factor` = 0 must be",
        ),
        (json!({"rope_parameters": null, "rope_theta": 1e39}), "000 is infinite in single precision"),
        (json!({"rms_norm_eps": 2}), "`rms_norm_eps` = 2 must be above 0 and below 1"),
        (json!({"attention_dropout": -1}), "`attention_dropout` = -1 must lie"),
        (json!({"hidden_size": 65_537}), "`hidden_size` = 65537 must be from 1 to 65536"),
        (json!({"head_dim": 15}), "`head_dim`: a rotary position turns pairs"),
        (
            json!({"head_dim": null, "num_attention_heads": 3}),
            "`num_attention_heads` = 3 must divide `hidden_size` = 16",
        ),
        (
            json!({"rope_theta": 7.0}),
            "`rope_parameters.rope_theta` is 500000, but `rope_theta` beside it is 7",
        ),
        (
            json!({"rope_scaling": {"type": "linear", "factor": 2}}),
            "`rope_parameters` and `rope_scaling` disagree",
        ),
        (json!({"attention_bias": 1}), "`attention_bias` is 1: expected true or false"),
        (json!({"hidden_act": "relu"}), "`hidden_act` is \"relu\": of gated layers silu and gelu"),
        (
            json!({"tie_word_embeddings": true}),
            "`tie_word_embeddings` is true, but `lm_head.weight` is not the table",
        ),
        (
            smollm3("no_rope_layers", json!([1, 0])),
            "`no_rope_layers` is [1,0], and only layers that all rotate",
        ),
        (smollm3("no_rope_layer_interval", json!(2)), "`no_rope_layer_interval` is 2, so that layers skip"),
        (json!({"hidden_size": "16"}), "`hidden_size` is \"16\": expected an integer from 1 to 4294967295"),
        (json!({"hidden_size": 0}), "`hidden_size` is 0: expected an integer from 1 to 4294967295"),
        (json!({"rms_norm_eps": true}), "`rms_norm_eps` is true: expected a number"),
        (json!({"intermediate_size": null}), "lacks the key `intermediate_size`"),
        (
            json!({"num_key_value_heads": 3}),
            "`num_key_value_heads` = 3 must divide `num_attention_heads` = 2",
        ),
    ] {
        let mut changed = config.as_object().unwrap().clone();
        changed.extend(change.as_object().unwrap().clone());
        fs::write(folder.join("config.json"), json!(changed).to_string()).unwrap();
        refuses(place.path(), &["model"], &["model/config.json: ", part]);
    }
    // A format that is said stands for the family, whichever the config names, and none of its keys.
    let mut changed = config.as_object().unwrap().clone();
    changed.insert("model_type".into(), json!("mistral"));
    changed.insert("sliding_window".into(), json!(8));
    fs::write(folder.join("config.json"), json!(changed).to_string()).unwrap();
    refuses(
        place.path(),
        &["model", "--format", "llama"],
        &["`sliding_window` is 8, and only models without"],
    );
    changed.remove("sliding_window");
    fs::write(folder.join("config.json"), json!(changed).to_string()).unwrap();
    refuses(place.path(), &["model", "--format", "qwen2"], &["`layers.0.self_attn.q_proj.bias` is missing"]);
    let output = run(place.path(), &["import", "model", "--format", "llama", "--run", "said"]);
    let said = text(&output.stderr);
    let notice = "notice: model/config.json says `model_type` \"mistral\", and is read as llama by --format";
    assert!(output.status.success() && said.trim_end() == notice, "{said}");
    // As transformers 4 wrote it, and as SmolLM2's is, with keys that change nothing.
    let mut scaling = changed.remove("rope_parameters").unwrap();
    let theta = scaling.as_object_mut().unwrap().remove("rope_theta").unwrap();
    let old = json!({
        "model_type": "llama", "clip_qkv": null, "logits_scaling": 1.0, "rope_theta": theta, "rope_scaling": scaling, "is_llama_config": true,
        "rope_interleaved": false, "torch_dtype": "bfloat16", "transformers.js_config": {"kv_cache_dtype": "float16"},
        "sliding_window": 8, "use_sliding_window": false, "layer_types": ["full_attention", "full_attention"],
    });
    changed.extend(old.as_object().unwrap().clone());
    fs::write(folder.join("config.json"), json!(changed).to_string()).unwrap();
    let output = run(place.path(), &["import", "model", "--run", "old"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [said, old] =
        ["said", "old"].map(|run| fs::read(place.path().join(run).join("model.safetensors")).unwrap());
    assert!(said == old, "the same weights of the same model");
    // What does not fit the tensors is named at once.
    for (change, parts) in [
        (
            json!({"vocab_size": 30, "intermediate_size": 25}),
            [
                "`embed_tokens.weight` is [29, 16], not [30, 16]",
                "`layers.0.mlp.gate_proj.weight` is [24, 16], not [25, 16]",
                "`layers.1.mlp.down_proj.weight` is [16, 24], not [16, 25]",
            ],
        ),
        (
            json!({"num_hidden_layers": 3, "head_dim": 14}),
            [
                "`layers.2.input_layernorm.weight` is missing",
                "`layers.0.self_attn.k_proj.weight` is [16, 16], not [14, 16]",
                "`layers.2.mlp.down_proj.weight` is missing",
            ],
        ),
        (
            json!({"num_hidden_layers": 1, "vocab_size": 30}),
            [
                "`lm_head.weight` is [29, 16], not [30, 16]",
                "`layers.1.input_layernorm.weight` is left over",
                "`layers.1.self_attn.v_proj.weight` is left over",
            ],
        ),
    ] {
        let mut changed = config.as_object().unwrap().clone();
        changed.extend(change.as_object().unwrap().clone());
        fs::write(folder.join("config.json"), json!(changed).to_string()).unwrap();
        refuses(place.path(), &["model"], &["holds no such llama: "]);
        refuses(place.path(), &["model"], &parts);
    }
}

#[test]
fn a_folder_that_lacks_a_part_is_refused_and_says_which() {
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
    // The last tensor lies in no file, and another elsewhere than the index says.
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

#[test]
#[cfg(unix)]
fn a_pytorch_file_that_is_a_stream_is_refused_at_once_and_one_that_unpacks_to_much_more_too() {
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
