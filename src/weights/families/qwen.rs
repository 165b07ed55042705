//! Qwen2 (Yang et al., 2024, arXiv 2407.10671), with biases of queries, keys and values, and Qwen3 (Yang et al., 2025, arXiv
//! 2505.09388), with norms of queries and keys.

use serde_json::{Value, json};

use super::llama::{Biases, LlamaLike};
use crate::model::{ModelConfig, QkNormScope};

/// Qwen2 and Qwen2.5.
pub(super) struct Qwen2;

impl LlamaLike for Qwen2 {
    fn name(&self) -> &'static str {
        "qwen2"
    }

    fn architecture(&self) -> &'static str {
        "Qwen2ForCausalLM"
    }

    fn biases(&self) -> Biases {
        Biases::QueryKeyValue
    }

    fn write_more(&self, _model: &ModelConfig, config: &mut Value) {
        config["use_sliding_window"] = json!(false);
    }
}

/// Qwen3.
pub(super) struct Qwen3;

impl LlamaLike for Qwen3 {
    fn name(&self) -> &'static str {
        "qwen3"
    }

    fn architecture(&self) -> &'static str {
        "Qwen3ForCausalLM"
    }

    fn biases(&self) -> Biases {
        Biases::Attention
    }

    fn qk_norm(&self) -> Option<QkNormScope> {
        Some(QkNormScope::Head)
    }

    fn head_width(&self) -> Option<usize> {
        Some(128)
    }

    fn write_more(&self, _model: &ModelConfig, config: &mut Value) {
        config["use_sliding_window"] = json!(false);
    }
}
