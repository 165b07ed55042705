//! Configs of other programs: `import` rejects unsupported keys by name.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::run;
use crate::refused_imports::refuses_as;
use crate::text;

/// A small Llama saved by transformers in the folder `model`, with a modifiable config.
struct Llama {
    dir: TempDir,
    config: Value,
}

impl Llama {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama");
        fs::create_dir(dir.path().join("model")).unwrap();
        fs::copy(model.join("model.safetensors"), dir.path().join("model/model.safetensors")).unwrap();
        let config = serde_json::from_slice(&fs::read(model.join("config.json")).unwrap()).unwrap();
        Self { dir, config }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn write(&self, config: &Value) {
        fs::write(self.dir().join("model/config.json"), config.to_string()).unwrap();
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
            refuses(self.dir(), &["model"], &["model/config.json: ", part]);
        }
    }
}

/// Changes a key of the family that reads it.
fn of(family: &str, key: &str, value: Value) -> Value {
    json!({"model_type": family, key: value})
}

fn refuses(dir: &Path, arguments: &[&str], parts: &[&str]) {
    refuses_as(dir, "run", arguments, parts);
}

#[test]
fn unsupported_config_features_are_refused_by_key() {
    Llama::new().refuses_changes([
        (
            json!({"model_type": "phi"}),
            "`model_type` is \"phi\"; the supported families are gpt2, llama, qwen2, qwen3, mistral, smollm3, gpt_neox, \
             gpt_neo, gemma2, gemma3_text, olmo2, phi3",
        ),
        (json!({"use_sliding_window": true}), "`use_sliding_window` is true, but only false"),
        (json!({"sliding_window": 8}), "`sliding_window` is 8, but a llama has no sliding window here; only mistral, gemma2, gemma3_text, phi3 have"),
        (json!({"model_type": "mistral", "sliding_window": 0}), "`sliding_window`"),
        (
            json!({"layer_types": ["full_attention", "sliding_attention"]}),
            "`layer_types` is [… \"sliding_attention\" …], but must be \"full_attention\"; only gemma2, gemma3_text have",
        ),
        (json!({"num_experts": 4}), "`num_experts` is 4, which is not supported"),
        (json!({"quantization_config": {"bits": 4}}), "`quantization_config` is {\"bits\":4}, which is not"),
        (json!({"attention_factor": 1.5}), "`attention_factor` is 1.5, but only 1 is supported"),
        (json!({"logits_scaling": 4.0}), "`logits_scaling` is 4.0, but only 1 is"),
        (json!({"residual_multiplier": 0.2}), "`residual_multiplier` is 0.2, but only 1 is"),
        (json!({"embedding_multiplier": 12}), "`embedding_multiplier` is 12, but only 1 is"),
        (json!({"attention_multiplier": 0.01}), "`attention_multiplier` is 0.01, which is not supported"),
        (json!({"attn_logit_softcapping": 50.0}), "`attn_logit_softcapping` is 50.0, which is not"),
        (json!({"clip_qkv": 8}), "`clip_qkv` is 8, which is not"),
        (json!({"attn_temperature_tuning": true}), "`attn_temperature_tuning` is true, but only false"),
        (json!({"is_causal": false}), "`is_causal` is false, but only true"),
        (json!({"compression_config": {}}), "`compression_config` is {}, which is not"),
        (json!({"num_experts_per_tok": 2}), "`num_experts_per_tok` is 2, which is not"),
        (json!({"rotary_pct": 0.25}), "`rotary_pct` is 0.25, but only 1 is"),
        (json!({"query_pre_attn_scalar": 256}), "`query_pre_attn_scalar` is 256, which is not"),
        (json!({"dual_chunk_attention_config": {"chunk_size": 4}}), "`dual_chunk_attention_config` is {"),
        (json!({"model_type": "gpt2", "attention_scaling": 2}), "`attention_scaling` is 2, but only 1 is"),
        (
            json!({"model_type": "gpt2", "scale_attn_weights": false}),
            "`scale_attn_weights` is false, but only true",
        ),
        (
            of("smollm3", "no_rope_layers", json!([1])),
            "`no_rope_layers` is [1], but must have 2 values: 1, or 0 in every nth layer",
        ),
        (json!({"pretraining_tp": 2}), "`pretraining_tp` is 2, but only 1 is"),
        (json!({"partial_rotary_factor": 0.5}), "`partial_rotary_factor` is 0.5, but only 1 is"),
        (
            json!({"hidden_act": "relu"}),
            "`hidden_act` is \"relu\"; the supported gated activations are silu, gelu",
        ),
        (
            json!({"tie_word_embeddings": true}),
            "`tie_word_embeddings` is true, but `lm_head.weight` differs from the embedding table",
        ),
        (
            of("smollm3", "no_rope_layers", json!([0, 1])),
            "`no_rope_layers` is [0,1], but must have 2 values: 1, or 0 in every nth layer",
        ),
        (json!({"no_rope_layers": [1, 0]}), "`no_rope_layers` is [1,0], but only smollm3 has layers without"),
    ]);
}

#[test]
fn keys_of_single_families_are_refused_by_value() {
    Llama::new().refuses_changes([
        (
            of("gemma2", "layer_types", json!(["sliding_attention"])),
            "`layer_types` is [\"sliding_attention\"], but must have 2 values: \"sliding_attention\" or",
        ),
        (
            of("gemma3_text", "layer_types", json!(["chunked_attention", "full_attention"])),
            "but must have 2 values: \"sliding_attention\" or",
        ),
        (
            of("gemma3_text", "attn_logit_softcapping", json!(50)),
            "`attn_logit_softcapping` is 50, which is not",
        ),
        (
            of("gemma2", "query_pre_attn_scalar", json!(0)),
            "`query_pre_attn_scalar` is 0: expected an integer",
        ),
        (of("gemma2", "use_bidirectional_attention", json!(true)), "`use_bidirectional_attention` is true"),
        (of("gemma2", "hidden_activation", json!("relu")), "`hidden_activation` is \"relu\"; the supported"),
        (json!({"model_type": "gpt_neox"}), "lacks the key `use_parallel_residual`"),
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
            "`rope_parameters.rope_type` is \"yarn\"; the supported types are default, linear and llama3",
        ),
        (
            json!({"rope_parameters": null, "rope_scaling": {"type": "dynamic", "factor": 2}}),
            "`rope_scaling.type` is \"dynamic\"",
        ),
        (llama.rope(json!({"attention_factor": 1.5})), "`rope_parameters.attention_factor` is 1.5, but only 1.0"),
        (
            llama.rope(json!({"mscale": 0.7})),
            "`rope_parameters.mscale` is 0.7, which is not supported with `rope_type` \"llama3\"",
        ),
        (llama.rope(json!({"factor": null})), "type llama3 lacks the key `rope_parameters.factor`"),
        (llama.rope(json!({"factor": 0.5})), "`rope_parameters.factor` = 0.5 must be"),
        (llama.rope(json!({"rope_theta": -1})), "`rope_parameters.rope_theta` = -1 must be"),
        (
            json!({"rope_parameters": null, "rope_scaling": {"type": "linear", "factor": 0}, "rope_theta": 7}),
            "`rope_scaling.factor` = 0 must be",
        ),
        (json!({"rope_parameters": null, "rope_theta": 1e39}), "000 is infinite in single precision"),
        (
            json!({"rope_theta": 7.0}),
            "`rope_parameters.rope_theta` is 500000, but the top-level `rope_theta` is 7",
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
        (json!({"model_type": null}), "lacks the key `model_type`"),
        (json!({"bos_token_id": -2}), "`bos_token_id` is -2: expected a token id"),
        (json!({"pad_token_id": "x"}), "`pad_token_id` is \"x\": expected a token id"),
        (json!({"rms_norm_eps": 2}), "`rms_norm_eps` = 2 must be in (0, 1)"),
        (json!({"attention_dropout": -1}), "`attention_dropout` = -1 must be in [0, 1)"),
        (json!({"hidden_size": 65_537}), "`hidden_size` = 65537 must be in [1, 65536]"),
        (json!({"head_dim": 15}), "`head_dim`: a rotary position needs heads of even width"),
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
        llama.dir(),
        &["model", "--format", "llama"],
        &["`sliding_window` is 8, but a llama has no sliding window here; only mistral, "],
    );
    changed.remove("sliding_window");
    llama.write(&json!(changed));
    refuses(llama.dir(), &["model", "--format", "qwen2"], &["`layers.0.self_attn.q_proj.bias` is missing"]);
    let output = run(llama.dir(), &["import", "model", "--format", "llama", "--run", "given"]);
    let stderr = text(&output.stderr);
    let notice = "notice: model/config.json: `model_type` is \"mistral\", but --format imports it as llama";
    assert!(output.status.success() && stderr.trim_end() == notice, "{stderr}");
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
    let output = run(llama.dir(), &["import", "model", "--run", "old"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [given, old] =
        ["given", "old"].map(|run| fs::read(llama.dir().join(run).join("model.safetensors")).unwrap());
    assert!(given == old, "both imports hold the same weights");
}

#[test]
fn config_tensor_mismatches_are_named() {
    let llama = Llama::new();
    for (change, parts) in [
        (
            json!({"vocab_size": 30, "intermediate_size": 25}),
            [
                "`embed_tokens.weight` has shape [29, 16], not [30, 16]",
                "`layers.0.mlp.gate_proj.weight` has shape [24, 16], not [25, 16]",
                "`layers.1.mlp.down_proj.weight` has shape [16, 24], not [16, 25]",
            ],
        ),
        (
            json!({"num_hidden_layers": 3, "head_dim": 14}),
            [
                "`layers.2.input_layernorm.weight` is missing",
                "`layers.0.self_attn.k_proj.weight` has shape [16, 16], not [14, 16]",
                "`layers.2.mlp.down_proj.weight` is missing",
            ],
        ),
        (
            json!({"num_hidden_layers": 1, "vocab_size": 30}),
            [
                "`lm_head.weight` has shape [29, 16], not [30, 16]",
                "`layers.1.input_layernorm.weight` is unexpected",
                "`layers.1.self_attn.v_proj.weight` is unexpected",
            ],
        ),
    ] {
        llama.change(&change);
        refuses(llama.dir(), &["model"], &["is not a valid llama model: "]);
        refuses(llama.dir(), &["model"], &parts);
    }
}
