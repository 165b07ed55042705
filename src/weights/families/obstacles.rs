//! The keys that few families or none can express.

use super::layout::Obstacle;
use crate::attention::{AttentionGate, Sinks};
use crate::model::ModelConfig;
use crate::position::PositionScheme;

/// Returns the keys that only families express whose [`super::layout::Layout::expresses`] lists them.
pub(super) fn of_most(model: &ModelConfig) -> Vec<Obstacle> {
    let is_rotary = model.position == PositionScheme::Rotary;
    vec![
        ("window", model.has_window(), "unset"),
        ("layer_pattern", model.has_window() && model.has_global_layer(), "unset"),
        (
            "rotary_skip_every",
            is_rotary && (0..model.layers).any(|layer| model.skips_rotation(layer)),
            "unset",
        ),
        (
            "rotary_fraction",
            is_rotary && model.rotary_fraction.is_some_and(|fraction| fraction < 1.0),
            "unset",
        ),
        ("parallel", model.parallel, "false"),
        ("embedding_norm", model.embedding_norm, "false"),
        ("head_bias", model.head_bias && !model.tie_embeddings, "false"),
        ("embedding_scale", model.embedding_scale != 1.0, "1"),
        ("softcap", model.softcap != 0.0, "0"),
        ("attention_scale", model.attention_scale.is_some(), "unset"),
        ("attention_softcap", model.attention_softcap.is_some(), "unset"),
        ("sinks", model.sinks != Sinks::None, "\"none\""),
        ("attention_gate", model.attention_gate != AttentionGate::None, "\"none\""),
        ("differential", model.differential, "false"),
        ("rope_theta_local", model.local_rotation().is_some(), "unset"),
        ("norm_unit_offset", model.norm_unit_offset, "false"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_key_is_listed() {
        // Each new key must be listed here. If it changes what a model computes, families must refuse it, and the
        // page's model in `crates/report/page/model/` must compute the same.
        let ModelConfig {
            architecture: _,
            d_model: _,
            heads: _,
            d_head: _,
            key_value_heads: _,
            layers: _,
            dropout: _,
            qk_norm: _,
            qk_norm_scope: _,
            attention_scale: _,
            attention_softcap: _,
            sinks: _,
            attention_gate: _,
            differential: _,
            window: _,
            layer_pattern: _,
            position: _,
            rope_theta: _,
            rope_theta_local: _,
            rotary_fraction: _,
            rotary_skip_every: _,
            rope_scaling: _,
            rope_factor: _,
            rope_low_frequency_factor: _,
            rope_high_frequency_factor: _,
            rope_original_context: _,
            largest_position: _,
            norm: _,
            parallel: _,
            norm_unit_offset: _,
            norm_kind: _,
            norm_epsilon: _,
            feed_forward: _,
            d_inner: _,
            activation: _,
            bias: _,
            query_key_value_bias: _,
            attention_output_bias: _,
            head_bias: _,
            tie_embeddings: _,
            embedding_scale: _,
            softcap: _,
            embedding_norm: _,
            embedding_norm_epsilon: _,
            initialisation: _,
            zero_projections: _,
        } = ModelConfig::default();
    }
}
