//! Config options that are not supported. They are refused by key in every family, even where transformers ignores
//! them, because they indicate a model of another kind.

use serde_json::{Value, json};

use super::Family;
use super::keys::Keys;
use super::mistral;
use crate::error::Result;

/// Keys that change the computation unless they are false.
const FALSE_KEYS: [&str; 8] = [
    "use_sliding_window",
    "rope_interleaved",
    "scale_attn_by_inverse_layer_idx",
    "add_cross_attention",
    "attn_temperature_tuning",
    "qk_layernorm",
    "use_parallel_residual",
    "use_bidirectional_attention",
];

/// Keys that change the computation unless they are true.
const TRUE_KEYS: [&str; 2] = ["scale_attn_weights", "is_causal"];

/// Keys that change the computation unless they are 1.
const ONE_KEYS: [&str; 11] = [
    "pretraining_tp",
    "partial_rotary_factor",
    "attention_factor",
    "attention_scaling",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "logit_scale",
    "rotary_pct",
    "scale_depth",
    "scale_emb",
];

/// Keys that always change the computation.
const UNSUPPORTED_KEYS: [&str; 19] = [
    "quantization_config",
    "quantization",
    "compression_config",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "mlp_only_layers",
    "attention_multiplier",
    "attention_scale",
    "softmax_scale",
    "attention_chunk_size",
    "rotary_dim",
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "clip_qkv",
    "dual_chunk_attention_config",
];

/// Refuses a sliding window that is shorter than the context.
fn refuse_window(family: Family, keys: Keys) -> Result<()> {
    if keys.value("use_sliding_window").is_some() {
        return Ok(());
    }
    let context = keys.value("max_position_embeddings").and_then(Value::as_u64);
    let is_short = |window: u64| context.is_none_or(|context| window < context);
    if let Some(window) = keys.value("sliding_window").filter(|window| window.as_u64().is_none_or(is_short)) {
        let problem =
            format!(", but a {} has no sliding window here; {}", family.name(), with("sliding_window"));
        return Err(keys.refused("sliding_window", window, &problem));
    }
    let is_mistral = keys.value("model_type").is_some_and(|name| name == "mistral");
    if is_mistral && keys.is_missing("sliding_window") && is_short(mistral::WINDOW as u64) {
        return Err(keys.error(format!(
            "lacks the key `sliding_window`, which is {} by default in mistral; import it with --format mistral, or set \
             \"sliding_window\": null if the model has no window",
            mistral::WINDOW
        )));
    }
    Ok(())
}

/// Returns a clause that names the families which read a key.
fn with(key: &str) -> String {
    let families = Family::named().filter(|family| family.layout().own_keys().contains(&key));
    let names: Vec<_> = families.map(Family::name).collect();
    format!("only {} {}", names.join(", "), if names.len() == 1 { "has" } else { "have" })
}

/// Refuses unsupported options.
pub(super) fn refuse(family: Family, keys: Keys) -> Result<()> {
    let layout = family.layout();
    let is_foreign = |key: &&&str| !layout.own_keys().contains(*key);
    FALSE_KEYS.iter().filter(is_foreign).try_for_each(|key| keys.only(key, &json!(false)))?;
    ONE_KEYS.iter().filter(is_foreign).try_for_each(|key| keys.only(key, &json!(1)))?;
    TRUE_KEYS.iter().filter(is_foreign).try_for_each(|key| keys.only(key, &json!(true)))?;
    let rotary_keys = ["rope_scaling", "rope_parameters"].iter().filter(|_| !layout.is_rotary());
    for key in UNSUPPORTED_KEYS.iter().filter(is_foreign).chain(rotary_keys) {
        if let Some(value) = keys.value(key) {
            let problem = ", which is not supported; remove it or set it to null if it has no effect";
            return Err(keys.refused(key, value, problem));
        }
    }
    if is_foreign(&&"sliding_window") {
        refuse_window(family, keys)?;
    }
    let kinds = keys.list("layer_types")?.unwrap_or_default();
    if let Some(kind) = kinds.iter().find(|kind| is_foreign(&&"layer_types") && **kind != "full_attention") {
        let problem = format!(", but must be \"full_attention\"; {} other layers", with("layer_types"));
        return Err(keys.refused("layer_types", format!("[… {kind} …]"), &problem));
    }
    let layers = keys.list("no_rope_layers")?.unwrap_or_default();
    if is_foreign(&&"no_rope_layers") && layers.iter().any(|layer| *layer != json!(1)) {
        let problem = format!(", but {} layers without rotary positions here", with("no_rope_layers"));
        return Err(keys.refused("no_rope_layers", json!(layers), &problem));
    }
    Ok(())
}
