//! Mistral (Jiang et al., 2023, arXiv 2310.06825): a Llama with a sliding window in every layer.

use serde_json::{Value, json};

use super::keys::Keys;
use super::llama::{Biases, LlamaLike};
use super::rope;
use crate::error::Result;
use crate::model::ModelConfig;

/// Mistral.
pub(super) struct Mistral;

/// The window of a Mistral whose config lacks the key.
pub(super) const WINDOW: usize = 4096;

impl LlamaLike for Mistral {
    fn name(&self) -> &'static str {
        "mistral"
    }

    fn architecture(&self) -> &'static str {
        "MistralForCausalLM"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(1), Some(2)]
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &["sliding_window"]
    }

    fn expresses(&self) -> &'static [&'static str] {
        &["window"]
    }

    fn biases(&self) -> Biases {
        Biases::None
    }

    fn read_more(&self, keys: Keys, context: usize, model: ModelConfig) -> Result<ModelConfig> {
        let default = keys.is_missing("sliding_window").then_some(WINDOW);
        let window = keys.size("sliding_window")?.or(default);
        // A window of the context hides nothing in training, and generation reads no longer text.
        let model = ModelConfig { window: window.filter(|window| *window < context), ..model };
        rope::read(keys, self.base(), model)
    }

    fn write_more(&self, model: &ModelConfig, config: &mut Value) {
        config["sliding_window"] = json!(model.window);
    }
}
