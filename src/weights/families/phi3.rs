//! Phi-3 and Phi-4-mini (Abdin et al., 2024, arXiv 2404.14219): a Llama whose file packs queries, keys and values in one
//! tensor, with an optional sliding window and partial rotation.

use serde_json::{Value, json};

use super::keys::Keys;
use super::llama::{Biases, LlamaLike};
use super::rope::{self, Base};
use crate::error::Result;
use crate::model::ModelConfig;

/// Phi-3.
pub(super) struct Phi3;

impl LlamaLike for Phi3 {
    fn name(&self) -> &'static str {
        "phi3"
    }

    fn architecture(&self) -> &'static str {
        "Phi3ForCausalLM"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(1), Some(32_000)]
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &["sliding_window", "partial_rotary_factor"]
    }

    fn expresses(&self) -> &'static [&'static str] {
        &["window", "rotary_fraction"]
    }

    fn biases(&self) -> Biases {
        Biases::None
    }

    fn epsilon(&self) -> f64 {
        1e-5
    }

    fn is_packed(&self) -> bool {
        true
    }

    fn base(&self) -> Base {
        Base::new("rope_theta", 10_000.0).with_fraction("partial_rotary_factor", 1.0)
    }

    fn read_more(&self, keys: Keys, context: usize, model: ModelConfig) -> Result<ModelConfig> {
        let window = keys.size("sliding_window")?.filter(|window| *window < context);
        rope::read(keys, self.base(), ModelConfig { window, ..model })
    }

    fn write_more(&self, model: &ModelConfig, config: &mut Value) {
        let fraction = model.rotary_fraction.unwrap_or(1.0);
        config["sliding_window"] = json!(model.window);
        config["partial_rotary_factor"] = json!(fraction);
        config["rope_parameters"]["partial_rotary_factor"] = json!(fraction);
        config["resid_pdrop"] = json!(model.dropout);
        config["embd_pdrop"] = json!(model.dropout);
    }
}
