//! A view of a model on one sequence: its attention and its predictions, on the host.

use burn::{prelude::*, tensor::activation::softmax};
use causal_attention_report::reading::AttentionMaps;

use crate::error::Result;
use crate::hooks::Patch;
use crate::model::{Inputs, Model};

/// Attention and predictions of a model on one sequence of `time` tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// The attention weights of all heads.
    pub maps: AttentionMaps,
    /// The next-token probabilities at each position, `[time][vocab]`.
    pub probabilities: Vec<Vec<f32>>,
}

impl View {
    /// Runs `model` on one sequence.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the model cannot read the sequence, for example because it is too long.
    pub fn new<B: Backend>(model: &Model<B>, inputs: Inputs<B>) -> Result<Self> {
        Self::patched(model, inputs, &Patch::default())
    }

    /// Runs `model` on one sequence, with activations replaced by a patch.
    ///
    /// # Errors
    /// Same as [`Self::new`].
    pub fn patched<B: Backend>(model: &Model<B>, inputs: Inputs<B>, patch: &Patch) -> Result<Self> {
        let (logits, maps) = model.patched_with_maps(inputs, patch)?;
        let [_, _, vocab] = logits.dims();
        let probabilities = floats(softmax(logits, 2));
        let heads = |map: Tensor<B, 4>| {
            let [_, _, query_time, key_time] = map.dims();
            floats(map).chunks(query_time * key_time).map(<[f32]>::to_vec).collect()
        };
        Ok(Self {
            maps: AttentionMaps {
                attention: maps.causal.into_iter().map(heads).collect(),
                encoder: maps.encoder.into_iter().map(heads).collect(),
                cross: maps.cross.into_iter().map(heads).collect(),
                visible: maps
                    .visible
                    .iter()
                    .map(|keys| keys.iter().map(|keys| keys.range()).collect())
                    .collect(),
            },
            probabilities: probabilities.chunks(vocab).map(<[f32]>::to_vec).collect(),
        })
    }
}

/// Copies the values of a tensor to the host.
pub(super) fn floats<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().into_vec().expect("the data is in single precision")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Sample;
    use crate::data::Role;
    use crate::evaluation::DeviceBatch;
    use crate::model::{Architecture, ModelConfig, Sizes};
    use burn_ndarray::NdArray;
    use causal_attention_report::reading::AttentionKind;

    #[test]
    fn view_holds_distributions_per_head_and_position() {
        let config = ModelConfig { d_model: 12, heads: 3, ..ModelConfig::default() };
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let model = config.init::<NdArray>(sizes, &Default::default()).unwrap();
        let view =
            View::new(&model, Inputs::tokens(Tensor::from_ints([[3, 1, 4, 1, 5]], &Default::default())));
        let view = view.unwrap();
        assert_eq!(view.maps.attention.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        let sums_to_one = |row: &[f32]| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5;
        assert!(view.maps.attention.iter().flatten().flat_map(|map| map.chunks(5)).all(sums_to_one));
        assert!(view.probabilities.iter().all(|row| row.len() == 11 && sums_to_one(row)));
        assert_eq!(view.probabilities.len(), 5);
        assert!(view.maps.of(AttentionKind::Cross).is_empty(), "a decoder lacks cross-attention");
    }

    #[test]
    fn encoder_decoder_views_cover_all_attention_kinds() {
        let config = ModelConfig {
            architecture: Architecture::EncoderDecoder,
            d_model: 12,
            heads: 3,
            ..ModelConfig::default()
        };
        let sizes = Sizes { vocab: 11, context: 7, source_context: Some(5) };
        let model = config.init::<NdArray>(sizes, &Default::default()).unwrap();
        let (inputs, source) = (vec![3, 1], vec![4, 1, 5]);
        let sample = Sample {
            targets: inputs.clone(),
            roles: vec![Role::Determined; 2],
            inputs: inputs.clone(),
            source: Some(source.clone()),
            documents: None,
        };
        let inputs_of = DeviceBatch::<NdArray>::new(&Sample::batch_of(&[sample]), &Default::default()).inputs;
        let view = View::new(&model, inputs_of).unwrap();
        for kind in AttentionKind::ALL {
            let [queries, keys] = kind.sides(&inputs, &source);
            let maps = view.maps.of(kind);
            assert_eq!(maps.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3], "{kind:?}");
            for map in maps.iter().flatten() {
                assert_eq!(map.len(), queries.len() * keys.len(), "{kind:?}");
                assert!(map.chunks(keys.len()).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5));
            }
        }
    }
}
