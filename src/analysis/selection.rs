//! A part of what a model computes on one sequence: the maps of some heads, the scores, or the probabilities. The rest is
//! not kept, so long sequences and large models fit into memory.

use burn::prelude::*;
use burn::tensor::activation::softmax;

use super::head::HeadTallies;
use super::score::HeadScores;
use super::view::floats;
use super::{Sample, examination::ablate};
use crate::error::Result;
use crate::evaluation::{DeviceBatch, patched_loss};
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, Patch, Stack};
use crate::model::Model;

/// The parts of a forward pass to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The layers whose maps and scores are kept, in ascending order.
    pub layers: Vec<usize>,
    /// The heads of these layers whose maps and scores are kept, in ascending order.
    pub heads: Vec<usize>,
    /// True to keep the attention weights.
    pub weights: bool,
    /// True to keep the scores of the heads on their attention weights.
    pub scores: bool,
    /// True to keep the next-token probabilities.
    pub probabilities: bool,
}

/// The attention maps of the selected layers and heads, `[layer][head][query * key]`.
type Maps = Vec<Vec<Vec<f32>>>;

/// The selected part of a forward pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selected {
    /// The weights of the causal self-attention.
    pub attention: Maps,
    /// The weights of the encoder.
    pub encoder: Maps,
    /// The weights of the cross-attention.
    pub cross: Maps,
    /// The scores of the heads of the causal self-attention, `[layer][head]`.
    pub scores: Vec<Vec<HeadScores>>,
    /// The next-token probabilities, `[position][token]`.
    pub probabilities: Vec<Vec<f32>>,
}

/// Runs a model on one sequence with a patch, and returns the selected part. With `on_ablated`, each selected head is
/// also ablated for its score, which takes one pass per head; the callback receives the number of finished heads.
///
/// # Errors
/// [`crate::Error::Shape`] if the model cannot read the sequence, for example because it is too long.
pub fn inspect_selected<B: Backend>(
    (model, patch): (&Model<B>, &Patch),
    sample: &Sample,
    selection: &Selection,
    on_ablated: Option<impl Fn(u64)>,
    device: &B::Device,
) -> Result<Selected> {
    let batch = Sample::batch_of(std::slice::from_ref(sample));
    let DeviceBatch { inputs, tokens, .. } = DeviceBatch::new(&batch, device);
    let mut recorder =
        SelectionRecorder { sample, selection, tallies: HeadTallies::default(), kept: Selected::default() };
    let logits = model.forward_hooked(inputs, &mut patch.hooks(0, &mut recorder))?;
    let SelectionRecorder { tallies, mut kept, .. } = recorder;
    if selection.probabilities {
        let [_, _, vocab] = logits.dims();
        kept.probabilities = floats(softmax(logits, 2)).chunks(vocab).map(<[f32]>::to_vec).collect();
    }
    if selection.scores {
        let of_layer = |scores: Vec<HeadScores>| selection.heads.iter().map(|&head| scores[head]).collect();
        kept.scores = tallies.scores().into_iter().map(of_layer).collect();
    }
    if let Some(on_ablated) = on_ablated {
        let none = vec![HeadScores::default(); selection.heads.len()];
        kept.scores.resize(selection.layers.len(), none);
        let heads = selection.layers.iter();
        let heads = heads.flat_map(|&layer| selection.heads.iter().map(move |&head| [layer, head]));
        let loss = |model: &Model<B>| patched_loss((model, patch), &batch, device);
        if tokens > 0 {
            ablate(model, heads.zip(kept.scores.iter_mut().flatten()), on_ablated, loss);
        }
    }
    Ok(kept)
}

/// Keeps the selected maps and the tallies of a pass, layer by layer.
struct SelectionRecorder<'a> {
    sample: &'a Sample,
    selection: &'a Selection,
    /// The tallies of the selected layers.
    tallies: HeadTallies,
    kept: Selected,
}

impl<B: Backend> Hooks<B> for SelectionRecorder<'_> {
    /// Wants the patterns of all layers, so that a selection does not change how they are computed, and thus no digit.
    fn wants(&self, site: HookSite) -> bool {
        let pattern = AttentionPoint::Pattern;
        [HookPoint::SelfAttention(pattern), HookPoint::CrossAttention(pattern)].contains(&site.point)
    }

    fn hook_heads(&mut self, site: HookSite, pattern: Tensor<B, 4>) -> Tensor<B, 4> {
        let Self { sample, selection, tallies, kept } = self;
        if !selection.layers.contains(&site.layer) {
            return pattern;
        }
        let is_causal = site.stack == Stack::Decoder
            && matches!(site.point, HookPoint::SelfAttention(AttentionPoint::Pattern));
        let [_, count, ..] = pattern.dims();
        if selection.weights {
            let map = |&head: &usize| floats(pattern.clone().narrow(1, head, 1));
            let maps = selection.heads.iter().filter(|&&head| head < count).map(map).collect();
            match (site.stack, is_causal) {
                (Stack::Encoder, _) => kept.encoder.push(maps),
                (Stack::Decoder, true) => kept.attention.push(maps),
                (Stack::Decoder, false) => kept.cross.push(maps),
            }
        }
        if selection.scores && is_causal {
            tallies.push_layer((count, &floats(pattern.clone())), &[sample.documents()]);
        }
        pattern
    }
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::analysis::inspect_sample;
    use crate::data::Role;
    use crate::model::{Architecture, ModelConfig, Sizes};

    fn sample(source: Option<Vec<u32>>) -> Sample {
        let (inputs, targets) = (vec![3, 1, 4, 1, 5], vec![1, 4, 1, 5, 9]);
        Sample { roles: vec![Role::Unknown; 5], inputs, targets, source, documents: None }
    }

    #[test]
    fn selected_parts_equal_those_of_the_whole() {
        let decoder = ModelConfig { d_model: 12, heads: 3, ..ModelConfig::default() };
        let pairs = ModelConfig { architecture: Architecture::EncoderDecoder, ..decoder.clone() };
        for (config, source) in [(decoder, None), (pairs, Some(vec![4, 1, 5]))] {
            let sizes = Sizes { vocab: 11, context: 7, source_context: source.as_ref().map(Vec::len) };
            let device = Default::default();
            let model = config.init::<NdArray>(sizes, &device).unwrap();
            let (sample, none) = (sample(source), Patch::default());
            let (view, scores) = inspect_sample((&model, &none), &sample, Some(|_| ()), &device).unwrap();
            let selected = |selection: &Selection| {
                inspect_selected((&model, &none), &sample, selection, Some(|_| ()), &device).unwrap()
            };
            let all = Selection {
                layers: vec![0, 1],
                heads: vec![0, 1, 2],
                weights: true,
                scores: true,
                probabilities: true,
            };
            let found = selected(&all);
            assert_eq!(found.attention, view.maps.attention);
            assert_eq!((&found.encoder, &found.cross), (&view.maps.encoder, &view.maps.cross));
            assert_eq!((&found.scores, &found.probabilities), (&scores, &view.probabilities));
            let part = Selection { layers: vec![1], heads: vec![0, 2], probabilities: false, ..all.clone() };
            let found = selected(&part);
            assert_eq!(found.attention, [[&view.maps.attention[1][0][..], &view.maps.attention[1][2]]]);
            assert_eq!(found.scores, [[scores[1][0], scores[1][2]]]);
            assert!(found.probabilities.is_empty());
            let only_scores = selected(&Selection { weights: false, ..part });
            assert!(only_scores.attention.is_empty() && only_scores.cross.is_empty());
            assert_eq!(only_scores.scores, found.scores);
        }
    }
}
