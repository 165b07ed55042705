//! OLMo 2 (OLMo et al., 2024, arXiv 2501.00656): norms of the outputs of attention and feed-forward layers, and one norm of
//! the queries of all heads, as well as of the keys.

use super::llama::{Biases, LlamaLike};
use crate::model::{ModelConfig, NormPlacement, QkNormScope};
use crate::weights::families::layout::Obstacle;

/// OLMo 2.
pub(super) struct Olmo2;

impl LlamaLike for Olmo2 {
    fn name(&self) -> &'static str {
        "olmo2"
    }

    fn architecture(&self) -> &'static str {
        "Olmo2ForCausalLM"
    }

    fn default_ids(&self) -> [Option<u32>; 2] {
        [None, Some(50_279)]
    }

    fn biases(&self) -> Biases {
        Biases::Attention
    }

    fn qk_norm(&self) -> Option<QkNormScope> {
        Some(QkNormScope::AllHeads)
    }

    fn norm(&self) -> NormPlacement {
        NormPlacement::Output
    }

    fn epsilon(&self) -> f64 {
        1e-5
    }

    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle> {
        vec![("heads", !model.d_model.is_multiple_of(model.heads), "a divisor of d_model")]
    }
}
