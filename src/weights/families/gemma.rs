//! Gemma 2 (Gemma Team, 2024, arXiv 2408.00118) and the text models of Gemma 3 (2025, arXiv 2503.19786): norms before and
//! after each sub-layer, whose gains are stored minus one, scaled embeddings, and windows in most layers.

use serde_json::{Value, json};

use super::keys::Keys;
use super::layout::Obstacle;
use super::llama::{Biases, LlamaLike};
use super::rope::{self, Base};
use super::spans;
use crate::error::Result;
use crate::model::{ModelConfig, NormPlacement, QkNormScope};
use crate::position::RopeScaling;

/// The window of a config that lacks the key.
const WINDOW: usize = 4096;

/// Gemma 2.
pub(super) struct Gemma2;

impl LlamaLike for Gemma2 {
    fn name(&self) -> &'static str {
        "gemma2"
    }

    fn architecture(&self) -> &'static str {
        "Gemma2ForCausalLM"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(2), Some(1)]
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &[
            "sliding_window",
            "layer_types",
            "query_pre_attn_scalar",
            "attn_logit_softcapping",
            "final_logit_softcapping",
        ]
    }

    fn expresses(&self) -> &'static [&'static str] {
        &[
            "window",
            "layer_pattern",
            "attention_scale",
            "attention_softcap",
            "softcap",
            "embedding_scale",
            "norm_unit_offset",
        ]
    }

    fn biases(&self) -> Biases {
        Biases::Attention
    }

    fn norm(&self) -> NormPlacement {
        NormPlacement::Sandwich
    }

    fn activation(&self) -> [&'static str; 2] {
        ["hidden_activation", "gelu_pytorch_tanh"]
    }

    fn head_width(&self) -> Option<usize> {
        Some(256)
    }

    fn key_value_heads(&self) -> Option<usize> {
        Some(4)
    }

    fn is_tied(&self) -> bool {
        true
    }

    fn read_more(&self, keys: Keys, context: usize, model: ModelConfig) -> Result<ModelConfig> {
        let is_local = spans::read(keys, model.layers, |layer| layer % 2 == 0)?;
        let model = scaled(keys, Some(30.0), spans::put(model, window(keys)?, context, &is_local))?;
        let attention_softcap = number_or(keys, "attn_logit_softcapping", Some(50.0))?;
        rope::read(keys, self.base(), ModelConfig { attention_softcap, ..model })
    }

    fn write_more(&self, model: &ModelConfig, config: &mut Value) {
        write_scales(model, config);
        config["attn_logit_softcapping"] = json!(model.attention_softcap);
    }

    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle> {
        obstacles(model)
    }
}

/// Gemma 3, without images.
pub(super) struct Gemma3;

impl LlamaLike for Gemma3 {
    fn name(&self) -> &'static str {
        "gemma3_text"
    }

    fn architecture(&self) -> &'static str {
        "Gemma3ForCausalLM"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(2), Some(1)]
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &["sliding_window", "layer_types", "query_pre_attn_scalar", "final_logit_softcapping"]
    }

    fn expresses(&self) -> &'static [&'static str] {
        &[
            "window",
            "layer_pattern",
            "rope_theta_local",
            "attention_scale",
            "softcap",
            "embedding_scale",
            "norm_unit_offset",
        ]
    }

    fn biases(&self) -> Biases {
        Biases::Attention
    }

    fn qk_norm(&self) -> Option<QkNormScope> {
        Some(QkNormScope::Head)
    }

    fn norm(&self) -> NormPlacement {
        NormPlacement::Sandwich
    }

    fn activation(&self) -> [&'static str; 2] {
        ["hidden_activation", "gelu_pytorch_tanh"]
    }

    fn head_width(&self) -> Option<usize> {
        Some(256)
    }

    fn key_value_heads(&self) -> Option<usize> {
        Some(4)
    }

    fn is_tied(&self) -> bool {
        true
    }

    fn base(&self) -> Base {
        Base::new("rope_theta", 1_000_000.0)
    }

    fn read_more(&self, keys: Keys, context: usize, model: ModelConfig) -> Result<ModelConfig> {
        let every = keys.size("sliding_window_pattern")?.unwrap_or(6);
        let is_local = spans::read(keys, model.layers, |layer| !(layer + 1).is_multiple_of(every))?;
        let model = scaled(keys, None, spans::put(model, window(keys)?, context, &is_local))?;
        // Each kind of layer has its own rotation since transformers 5.
        let nested = keys.object("rope_parameters")?;
        let [global, local] = match nested {
            Some(nested) if nested.value("rope_type").is_none() => {
                [nested.object("full_attention")?, nested.object("sliding_attention")?]
            }
            global => [global, None],
        };
        let model = rope::read_from(keys, [global, keys.object("rope_scaling")?], self.base(), model)?;
        let mut theta = keys.number("rope_local_base_freq")?.unwrap_or(10_000.0);
        if let Some(local) = local {
            local.only("rope_type", &json!("default"))?;
            theta = local.number("rope_theta")?.unwrap_or(theta);
        }
        let is_same = theta == model.rope_theta && model.rope_scaling == RopeScaling::None;
        Ok(ModelConfig { rope_theta_local: Some(theta).filter(|_| model.has_window() && !is_same), ..model })
    }

    fn write_more(&self, model: &ModelConfig, config: &mut Value) {
        write_scales(model, config);
        let theta = model.rope_theta_local.unwrap_or(model.rope_theta);
        config["rope_local_base_freq"] = json!(theta);
        config["rope_parameters"] = json!({
            "full_attention": config["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": theta},
        });
    }

    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle> {
        let is_scaled = model.has_window() && model.rope_scaling != RopeScaling::None;
        let mut all = obstacles(model);
        all.push((
            "rope_theta_local",
            is_scaled && model.rope_theta_local.is_none(),
            "the value of rope_theta",
        ));
        all
    }
}

/// Reads a number that null turns off; a config without the key has the default.
fn number_or(keys: Keys, key: &str, default: Option<f64>) -> Result<Option<f64>> {
    if keys.is_missing(key) { Ok(default) } else { keys.number(key) }
}

/// Returns the sliding window of the local layers; `null` is none.
fn window(keys: Keys) -> Result<Option<usize>> {
    if keys.is_missing("sliding_window") { Ok(Some(WINDOW)) } else { keys.size("sliding_window") }
}

/// Puts the scales of embeddings and scores and the bound of the logits into `model`.
fn scaled(keys: Keys, softcap: Option<f64>, model: ModelConfig) -> Result<ModelConfig> {
    let scalar = keys.size("query_pre_attn_scalar")?.unwrap_or(256);
    let softcap = number_or(keys, "final_logit_softcapping", softcap)?;
    Ok(ModelConfig {
        attention_scale: (scalar != model.head_width()).then(|| (scalar as f64).powf(-0.5)),
        softcap: softcap.unwrap_or(0.0),
        embedding_scale: (model.d_model as f64).sqrt(),
        norm_unit_offset: true,
        ..model
    })
}

/// Returns the divisor under the root of the scale of the scores, if it is an integer.
fn scalar(model: &ModelConfig) -> Option<usize> {
    let Some(scale) = model.attention_scale else { return Some(model.head_width()) };
    let scalar = scale.powi(-2).round();
    (scalar >= 1.0 && (scalar.powf(-0.5) - scale).abs() <= 1e-12 * scale).then_some(scalar as usize)
}

fn write_scales(model: &ModelConfig, config: &mut Value) {
    config["query_pre_attn_scalar"] = json!(scalar(model));
    config["final_logit_softcapping"] = json!(Some(model.softcap).filter(|softcap| *softcap != 0.0));
    config["sliding_window"] = json!(model.window);
    config["layer_types"] = spans::write(model);
}

/// Lists the keys that both families restrict.
fn obstacles(model: &ModelConfig) -> Vec<Obstacle> {
    let root = (model.d_model as f64).sqrt();
    vec![
        ("heads", !model.d_model.is_multiple_of(model.heads), "a divisor of d_model"),
        ("embedding_scale", model.embedding_scale as f32 != root as f32, "the square root of d_model"),
        ("attention_scale", scalar(model).is_none(), "1 / sqrt of an integer"),
        ("norm_unit_offset", !model.norm_unit_offset, "true"),
    ]
}
