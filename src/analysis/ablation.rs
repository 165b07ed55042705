//! Ablation: a model without one of its heads, to see what the head is worth.
//!
//! A head speaks to the rest of the model only through its rows of the output projection. With
//! these at zero its output is zero, whatever it attends to; biases stay.

use burn::prelude::*;

use crate::{attention::MultiHeadAttention, model::Model};

/// The causal self-attention of each layer.
fn attentions<B: Backend>(model: &mut Model<B>) -> Vec<&mut MultiHeadAttention<B>> {
    match model {
        Model::OneLayer(model) => vec![&mut model.attention],
        Model::Decoder(model) => model.blocks.iter_mut().map(|block| &mut block.attention).collect(),
    }
}

/// How many heads the causal self-attention of each layer has.
pub fn heads<B: Backend>(model: &Model<B>) -> Vec<usize> {
    attentions(&mut model.clone()).iter().map(|attention| attention.heads).collect()
}

/// `model`, with the output of one head of its causal self-attention zeroed. Layers and heads
/// count from 0; a layer that does not exist leaves the model as it is.
pub fn without_head<B: Backend>(model: &Model<B>, layer: usize, head: usize) -> Model<B> {
    let mut model = model.clone();
    if let Some(MultiHeadAttention { output, d_head, .. }) = attentions(&mut model).get_mut(layer) {
        let rows = head * *d_head..(head + 1) * *d_head;
        output.weight = output.weight.clone().map(|weight| {
            let [_, d_model] = weight.dims();
            let zeros = Tensor::zeros([rows.len(), d_model], &weight.device());
            weight.slice_assign([rows, 0..d_model], zeros)
        });
    }
    model
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Architecture, Inputs, ModelConfig, Sizes};
    use burn_ndarray::NdArray;

    #[test]
    fn only_the_head_that_is_left_out_is_missing() {
        let config = ModelConfig {
            architecture: Architecture::OneLayer,
            d_model: 15,
            heads: 3,
            ..ModelConfig::default()
        };
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let model = config.init::<NdArray>(sizes, &Default::default()).unwrap();
        assert_eq!(heads(&model), [3]);
        let read = || Inputs::tokens(Tensor::from_ints([[3, 1, 4, 1, 5]], &Default::default()));
        let logits = |model: &Model<NdArray>| model.forward(read()).unwrap();
        // Logits are linear in the heads' outputs: what three ablations take away, one each, is all
        // that attention adds.
        let whole = logits(&model);
        let parts = (0..3).map(|head| whole.clone() - logits(&without_head(&model, 0, head)));
        let added = parts.reduce(|sum, part| sum + part).unwrap();
        let none = (0..3).fold(model.clone(), |model, head| without_head(&model, 0, head));
        let difference: f32 = (whole.clone() - logits(&none) - added).abs().max().into_scalar();
        assert!(difference < 1e-5, "{difference}");
        let effect: f32 = (whole - logits(&without_head(&model, 0, 1))).abs().max().into_scalar();
        assert!(effect > 1e-3, "{effect}");
    }
}
