//! Foreign model configs: keys that `import` refuses by name.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::run;
use crate::refused_imports::refuses_as;
use crate::text;

/// A small Llama saved by transformers in the folder `model`, with a modifiable config.
struct Llama {
    place: TempDir,
    config: Value,
}

impl Llama {
    fn new() -> Self {
        let place = TempDir::new().unwrap();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama");
        fs::create_dir(place.path().join("model")).unwrap();
        fs::copy(model.join("model.safetensors"), place.path().join("model/model.safetensors")).unwrap();
        let config = serde_json::from_slice(&fs::read(model.join("config.json")).unwrap()).unwrap();
        Self { place, config }
    }

    fn place(&self) -> &Path {
        self.place.path()
    }

    fn write(&self, config: &Value) {
        fs::write(self.place().join("model/config.json"), config.to_string()).unwrap();
    }

    /// Writes the config with these keys changed.
    fn change(&self, change: &Value) {
        let mut changed = self.config.as_object().unwrap().clone();
        changed.extend(change.as_object().unwrap().clone());
        self.write(&json!(changed));
    }

    /// Returns the change that adds these keys to the rotary settings.
    fn rope(&self, more: Value) -> Value {
        let mut rope = self.config["rope_parameters"].as_object().unwrap().clone();
        rope.extend(more.as_object().unwrap().clone());
        json!({"rope_parameters": rope})
    }

    /// Asserts that each change of the config is refused with its message.
    fn refuses_changes<const N: usize>(&self, changes: [(Value, &str); N]) {
        for (change, part) in changes {
            self.change(&change);
            refuses(self.place(), &["model"], &["model/config.json: ", part]);
        }
    }
}

fn smollm3(key: &str, value: Value) -> Value {
    json!({"model_type": "smollm3", key: value})
}

fn refuses(place: &Path, arguments: &[&str], parts: &[&str]) {
    refuses_as(place, "run", arguments, parts);
}

#[test]
fn unsupported_config_features_are_refused_by_key() {
    Llama::new().refuses_changes([
        (
            json!({"model_type": "mistral"}),
            "`model_type` is \"mistral\": gpt2, llama, qwen2, qwen3, smollm3 can be imported",
        ),
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
        (json!({"query_pre_attn_scalar": 256}), "`query_pre_attn_scalar` is 256, which is not"),
        (json!({"dual_chunk_attention_config": {"chunk_size": 4}}), "`dual_chunk_attention_config` is {"),
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
    ]);
}

#[test]
fn unsupported_rotary_settings_are_refused_by_key() {
    let llama = Llama::new();
    llama.refuses_changes([
        (
            json!({"model_type": "gpt2", "rope_parameters": null, "rope_scaling": {"type": "linear"}}),
            "`rope_scaling` is {\"type\":\"linear\"}, which is not",
        ),
        (
            llama.rope(json!({"rope_type": "yarn"})),
            "`rope_parameters.rope_type` is \"yarn\": default, linear and llama3",
        ),
        (
            json!({"rope_parameters": null, "rope_scaling": {"type": "dynamic", "factor": 2}}),
            "`rope_scaling.type` is \"dynamic\"",
        ),
        (llama.rope(json!({"attention_factor": 1.5})), "`rope_parameters.attention_factor` is 1.5, and only 1.0"),
        (
            llama.rope(json!({"mscale": 0.7})),
            "`rope_parameters.mscale` is 0.7, which rotary positions of kind llama3 do not",
        ),
        (llama.rope(json!({"factor": null})), "kind llama3 lack the key `rope_parameters.factor`"),
        (llama.rope(json!({"factor": 0.5})), "`rope_parameters.factor` = 0.5 must be"),
        (llama.rope(json!({"rope_theta": -1})), "`rope_parameters.rope_theta` = -1 must be"),
        (
            json!({"rope_parameters": null, "rope_scaling": {"type": "linear", "factor": 0}, "rope_theta": 7}),
            "`rope_scaling.factor` = 0 must be",
        ),
        (json!({"rope_parameters": null, "rope_theta": 1e39}), "000 is infinite in single precision"),
        (
            json!({"rope_theta": 7.0}),
            "`rope_parameters.rope_theta` is 500000, but `rope_theta` beside it is 7",
        ),
        (
            json!({"rope_scaling": {"type": "linear", "factor": 2}}),
            "`rope_parameters` and `rope_scaling` disagree",
        ),
    ]);
}

#[test]
fn impossible_values_are_refused_by_key() {
    Llama::new().refuses_changes([
        (json!({"model_type": null}), "has no key `model_type`"),
        (json!({"bos_token_id": -2}), "`bos_token_id` is -2: expected the id of a token"),
        (json!({"pad_token_id": "x"}), "`pad_token_id` is \"x\": expected the id of a token"),
        (json!({"rms_norm_eps": 2}), "`rms_norm_eps` = 2 must be above 0 and below 1"),
        (json!({"attention_dropout": -1}), "`attention_dropout` = -1 must lie"),
        (json!({"hidden_size": 65_537}), "`hidden_size` = 65537 must be from 1 to 65536"),
        (json!({"head_dim": 15}), "`head_dim`: a rotary position rotates pairs"),
        (
            json!({"head_dim": null, "num_attention_heads": 3}),
            "`num_attention_heads` = 3 must divide `hidden_size` = 16",
        ),
        (json!({"attention_bias": 1}), "`attention_bias` is 1: expected true or false"),
        (json!({"hidden_size": "16"}), "`hidden_size` is \"16\": expected an integer from 1 to 4294967295"),
        (json!({"hidden_size": 0}), "`hidden_size` is 0: expected an integer from 1 to 4294967295"),
        (json!({"rms_norm_eps": true}), "`rms_norm_eps` is true: expected a number"),
        (json!({"intermediate_size": null}), "lacks the key `intermediate_size`"),
        (
            json!({"num_key_value_heads": 3}),
            "`num_key_value_heads` = 3 must divide `num_attention_heads` = 2",
        ),
    ]);
}

#[test]
fn format_option_overrides_the_model_family() {
    let llama = Llama::new();
    // --format overrides the family that the config names, but none of the config's keys.
    let mut changed = llama.config.as_object().unwrap().clone();
    changed.insert("model_type".into(), json!("mistral"));
    changed.insert("sliding_window".into(), json!(8));
    llama.write(&json!(changed));
    refuses(
        llama.place(),
        &["model", "--format", "llama"],
        &["`sliding_window` is 8, and only models without"],
    );
    changed.remove("sliding_window");
    llama.write(&json!(changed));
    refuses(llama.place(), &["model", "--format", "qwen2"], &["`layers.0.self_attn.q_proj.bias` is missing"]);
    let output = run(llama.place(), &["import", "model", "--format", "llama", "--run", "said"]);
    let said = text(&output.stderr);
    let notice = "notice: model/config.json says `model_type` \"mistral\", and is read as llama by --format";
    assert!(output.status.success() && said.trim_end() == notice, "{said}");
    // The format of transformers 4 and of SmolLM2, with keys that change nothing.
    let mut scaling = changed.remove("rope_parameters").unwrap();
    let theta = scaling.as_object_mut().unwrap().remove("rope_theta").unwrap();
    let old = json!({
        "model_type": "llama", "clip_qkv": null, "logits_scaling": 1.0, "rope_theta": theta, "rope_scaling": scaling, "is_llama_config": true,
        "rope_interleaved": false, "torch_dtype": "bfloat16", "transformers.js_config": {"kv_cache_dtype": "float16"},
        "sliding_window": 8, "use_sliding_window": false, "layer_types": ["full_attention", "full_attention"],
    });
    changed.extend(old.as_object().unwrap().clone());
    llama.write(&json!(changed));
    let output = run(llama.place(), &["import", "model", "--run", "old"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [said, old] =
        ["said", "old"].map(|run| fs::read(llama.place().join(run).join("model.safetensors")).unwrap());
    assert!(said == old, "the same weights of the same model");
}

#[test]
fn config_tensor_mismatches_are_named() {
    let llama = Llama::new();
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
        llama.change(&change);
        refuses(llama.place(), &["model"], &["holds no such llama: "]);
        refuses(llama.place(), &["model"], &parts);
    }
}
