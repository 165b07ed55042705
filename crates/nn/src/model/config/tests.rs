//! Tests of parameter counts, validation and defaults.

use super::*;
use burn::module::Module;
use burn_ndarray::NdArray;

const SIZES: Sizes = Sizes { vocab: 11, context: 7, source_context: None };

fn config() -> ModelConfig {
    ModelConfig { d_model: 30, heads: 6, layers: 3, ..ModelConfig::default() }
}

#[test]
fn parameter_count_matches_the_built_model() {
    let configs = [
        config(),
        ModelConfig { architecture: Architecture::OneLayer, ..config() },
        ModelConfig { key_value_heads: 2, feed_forward: 3, ..config() },
        ModelConfig { bias: false, ..config() },
        ModelConfig { head_bias: true, ..config() },
        ModelConfig { bias: false, head_bias: true, tie_embeddings: true, ..config() },
        ModelConfig { tie_embeddings: true, embedding_norm: true, ..config() },
        ModelConfig { norm: NormPlacement::Post, position: PositionScheme::None, ..config() },
        ModelConfig { differential: true, d_head: 8, sinks: Sinks::Learned, ..config() },
    ];
    for config in configs {
        let model = config.init::<NdArray>(SIZES, &Default::default()).unwrap();
        assert_eq!(config.parameters::<burn_flex::Flex>(SIZES), model.num_params(), "{config:?}");
    }
}

#[test]
fn invalid_config_errors_name_key_value_and_remedy() {
    let cases = [
        (ModelConfig { heads: 7, ..config() }, "`heads` = 7 must divide `d_model` = 30"),
        (ModelConfig { d_model: 0, ..config() }, "`d_model` = 0 must be in [1, 65536]"),
        (ModelConfig { heads: 0, ..config() }, "`heads` = 0 must be in [1, 65536]"),
        (ModelConfig { layers: 0, ..config() }, "`layers` = 0 must be in [1, 1024]"),
        (ModelConfig { layers: 9_999, ..config() }, "`layers` = 9999 must be in [1, 1024]"),
        (ModelConfig { dropout: 1.0, ..config() }, "`dropout` = 1 must be in [0, 1)"),
        (ModelConfig { dropout: f64::NAN, ..config() }, "`dropout` = NaN must be in [0, 1)"),
        (ModelConfig { key_value_heads: 4, ..config() }, "`key_value_heads` = 4 must divide `heads` = 6"),
        (
            ModelConfig { differential: true, ..config() },
            "`differential` = true splits each head into two halves, but heads are 5 wide; set `d_head` to an even number",
        ),
        (
            ModelConfig { differential: true, d_head: 6, position: PositionScheme::Rotary, ..config() },
            "`differential` = true rotates each half of a head with `position` = \"rotary\", but halves are 3 wide; set \
             `d_head` to a multiple of 4",
        ),
    ];
    for (config, message) in cases {
        assert_eq!(config.check().unwrap_err().to_string(), message);
    }
}

#[test]
fn keys_have_defaults_and_unknown_keys_fail() {
    assert_eq!(serde_json::from_str::<ModelConfig>("{}").unwrap(), ModelConfig::default());
    let written = serde_json::to_string(&ModelConfig::default()).unwrap();
    assert_eq!(serde_json::from_str::<ModelConfig>(&written).unwrap(), ModelConfig::default());
    assert!(serde_json::from_str::<ModelConfig>(r#"{"head": 4}"#).unwrap_err().to_string().contains("head"));
}

#[test]
fn oversized_models_are_rejected_before_initialisation() {
    let config = ModelConfig { d_model: 65_536, heads: 64, layers: 1_024, ..ModelConfig::default() };
    let error = config.init::<NdArray>(SIZES, &Default::default()).unwrap_err().to_string();
    assert!(error.contains("parameters"), "{error}");
}
