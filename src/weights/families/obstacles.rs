//! The keys that no family can express.

use crate::attention::{AttentionGate, Sinks};
use crate::model::{ModelConfig, QkNormScope};
use crate::position::PositionScheme;

/// Returns the keys, each with true if the model needs it and the value that families require.
pub(super) fn of_all(model: &ModelConfig) -> Vec<(&'static str, bool, &'static str)> {
    let is_rotary = model.position == PositionScheme::Rotary;
    vec![
        ("embedding_norm", model.embedding_norm, "false"),
        ("head_bias", model.head_bias && !model.tie_embeddings, "false"),
        ("embedding_scale", model.embedding_scale != 1.0, "1"),
        ("softcap", model.softcap != 0.0, "0"),
        ("attention_scale", model.attention_scale.is_some(), "unset"),
        ("attention_softcap", model.attention_softcap.is_some(), "unset"),
        ("sinks", model.sinks != Sinks::None, "\"none\""),
        ("attention_gate", model.attention_gate != AttentionGate::None, "\"none\""),
        ("qk_norm_scope", model.qk_norm && model.qk_norm_scope != QkNormScope::Head, "\"head\""),
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
