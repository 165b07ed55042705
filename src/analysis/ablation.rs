//! Zero ablation of single heads. The rise of the loss measures the importance of a head.
//!
//! A head affects the rest of the model only through its rows of the output projection. If these rows are zero, the
//! output of the head is zero, whatever the head attends to. Biases are kept.

use burn::prelude::*;

use super::interventions::scaled;
use crate::hooks::ResidualWriter;
use crate::model::Model;

/// Returns the number of causal self-attention heads per layer.
pub fn heads<B: Backend>(model: &Model<B>) -> Vec<usize> {
    match model {
        Model::OneLayer(model) => vec![model.attention.heads],
        Model::Decoder(model) => model.blocks.iter().map(|block| block.attention.heads).collect(),
    }
}

/// Returns a copy of `model` with the output of one causal self-attention head zeroed. Layers and heads are numbered
/// from 0. If the layer does not exist, the copy equals `model`.
pub fn without_head<B: Backend>(model: &Model<B>, layer: usize, head: usize) -> Model<B> {
    scaled(model.clone(), ResidualWriter::Head(layer, head), 0.0, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Architecture, Inputs, ModelConfig, Sizes};
    use burn_ndarray::NdArray;

    #[test]
    fn ablation_removes_only_that_head() {
        let config = ModelConfig {
            architecture: Architecture::OneLayer,
            d_model: 15,
            heads: 3,
            ..ModelConfig::default()
        };
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let model = config.init::<NdArray>(sizes, &Default::default()).unwrap();
        assert_eq!(heads(&model), [3]);
        let inputs = || Inputs::tokens(Tensor::from_ints([[3, 1, 4, 1, 5]], &Default::default()));
        let logits = |model: &Model<NdArray>| model.forward(inputs()).unwrap();
        // Logits are linear in the head outputs, so the effects of the three single ablations sum to the effect of
        // ablating all heads.
        let full = logits(&model);
        let effects = (0..3).map(|head| full.clone() - logits(&without_head(&model, 0, head)));
        let sum = effects.reduce(|sum, effect| sum + effect).unwrap();
        let none = (0..3).fold(model.clone(), |model, head| without_head(&model, 0, head));
        let difference: f32 = (full.clone() - logits(&none) - sum).abs().max().into_scalar();
        assert!(difference < 1e-5, "{difference}");
        let effect: f32 = (full - logits(&without_head(&model, 0, 1))).abs().max().into_scalar();
        assert!(effect > 1e-3, "{effect}");
    }
}
