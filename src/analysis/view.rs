//! What a model does with one sequence: its attention and its predictions, on the host.

use burn::prelude::*;
use burn::tensor::activation::softmax;

use crate::error::Result;
use crate::model::{Inputs, Model};
use crate::ops;

/// What a model does with one sequence of `time` tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The weights of the causal self-attention, `[layer][head]`, each `[query, key]` row by row.
    pub attention: Vec<Vec<Vec<f32>>>,
    /// Those of an encoder's self-attention over the source, laid out so; empty without an encoder.
    pub encoder: Vec<Vec<Vec<f32>>>,
    /// Those of the decoder's attention over the source; empty without an encoder.
    pub cross: Vec<Vec<Vec<f32>>>,
    /// The probability of each next token at each position, `[time][vocab]`.
    pub probabilities: Vec<Vec<f32>>,
}

impl View {
    /// Looks at `model` reading one sequence.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where the model cannot read it, as where it is too long.
    pub fn new<B: ops::Backend>(model: &Model<B>, inputs: Inputs<B>) -> Result<Self> {
        let (logits, maps) = model.forward_with_maps(inputs)?;
        let [_, _, vocab] = logits.dims();
        let probabilities = floats(softmax(logits, 2));
        let heads = |map: Tensor<B, 4>| {
            let [_, _, query_time, key_time] = map.dims();
            floats(map).chunks(query_time * key_time).map(<[f32]>::to_vec).collect()
        };
        Ok(Self {
            attention: maps.causal.into_iter().map(heads).collect(),
            encoder: maps.encoder.into_iter().map(heads).collect(),
            cross: maps.cross.into_iter().map(heads).collect(),
            probabilities: probabilities.chunks(vocab).map(<[f32]>::to_vec).collect(),
        })
    }
}

/// The numbers of a tensor, on the host.
pub(crate) fn floats<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().into_vec().expect("they were made single")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ModelConfig, Sizes};
    use burn_ndarray::NdArray;

    #[test]
    fn a_view_holds_distributions_of_every_head_and_position() {
        let config = ModelConfig { d_model: 12, heads: 3, ..ModelConfig::default() };
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let model = config.init::<NdArray>(sizes, &Default::default()).unwrap();
        let view =
            View::new(&model, Inputs::tokens(Tensor::from_ints([[3, 1, 4, 1, 5]], &Default::default())));
        let view = view.unwrap();
        assert_eq!(view.attention.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        let sums_to_one = |row: &[f32]| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5;
        assert!(view.attention.iter().flatten().flat_map(|map| map.chunks(5)).all(sums_to_one));
        assert!(view.probabilities.iter().all(|row| row.len() == 11 && sums_to_one(row)));
        assert_eq!(view.probabilities.len(), 5);
    }
}
