//! SmolLM3 (Hugging Face, 2025): a Llama whose layers skip rotary positions at a fixed interval (Yang et al., 2025, arXiv
//! 2501.18795).

use serde_json::{Value, json};

use super::keys::Keys;
use super::llama::LlamaLike;
use super::rope::{self, Base};
use crate::error::Result;
use crate::model::ModelConfig;

/// SmolLM3.
pub(super) struct Smollm3;

impl LlamaLike for Smollm3 {
    fn name(&self) -> &'static str {
        "smollm3"
    }

    fn architecture(&self) -> &'static str {
        "SmolLM3ForCausalLM"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [Some(128_000), Some(128_001)]
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &["no_rope_layers"]
    }

    fn expresses(&self) -> &'static [&'static str] {
        &["rotary_skip_every"]
    }

    fn is_tied(&self) -> bool {
        true
    }

    fn base(&self) -> Base {
        Base::new("rope_theta", 2_000_000.0)
    }

    fn read_more(&self, keys: Keys, _context: usize, model: ModelConfig) -> Result<ModelConfig> {
        let model = ModelConfig { rotary_skip_every: skip_every(keys, model.layers)?, ..model };
        rope::read(keys, self.base(), model)
    }

    fn write_more(&self, model: &ModelConfig, config: &mut Value) {
        let layers: Vec<_> = (0..model.layers).map(|layer| u8::from(!model.skips_rotation(layer))).collect();
        config["no_rope_layer_interval"] = json!(model.rotary_skip_every.unwrap_or(model.layers + 1));
        config["no_rope_layers"] = json!(layers);
        config["use_sliding_window"] = json!(false);
    }
}

/// Returns the interval of the layers without rotary positions; `None` if all layers have them.
fn skip_every(keys: Keys, layers: usize) -> Result<Option<usize>> {
    let Some(listed) = keys.list("no_rope_layers")? else {
        let interval = keys.size("no_rope_layer_interval")?.unwrap_or(4);
        return Ok(Some(interval).filter(|interval| *interval <= layers));
    };
    // A layer with the value 1 has rotary positions.
    let every = listed.iter().position(|layer| *layer == json!(0)).map(|first| first + 1);
    let is_regular = (0..layers)
        .map(|layer| json!(u8::from(every.is_none_or(|every| !(layer + 1).is_multiple_of(every)))));
    if every == Some(1) || !is_regular.eq(listed.iter().map(|layer| json!(layer))) {
        let problem = format!(
            ", but must have {layers} values: 1, or 0 in every nth layer for layers without rotary positions"
        );
        return Err(keys.refused("no_rope_layers", json!(listed), &problem));
    }
    Ok(every)
}
