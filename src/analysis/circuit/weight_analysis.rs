//! The weight analysis of all heads of a decoder, and the identity of its components.

use burn::tensor::backend::Backend;

use super::bench::Bench;
use super::kind_scores::ScoredKinds;
use super::pass::Site;
use super::watch::ExplanationStage;
use super::weights::{HeadMatrices, HeadWeights, to_embedding};
use crate::analysis::{HeadScores, Sample};

/// The minimum copying score of a copying head; random weights score about 0.
const MIN_COPYING_SCORE: f64 = 0.5;

/// The weight analysis of a decoder, which needs no input.
pub(super) struct WeightAnalysis<B: Backend> {
    /// The matrices of the self-attention heads, `[layer][head]`.
    pub matrices: Vec<Vec<HeadMatrices<B>>>,
    /// The matrices of the cross-attention heads, `[layer][head]`.
    pub cross: Vec<Vec<HeadMatrices<B>>>,
    pub heads: Vec<Vec<HeadWeights>>,
    pub random: HeadWeights,
}

impl<B: Backend> WeightAnalysis<B> {
    /// Analyses the weights. Returns true if the stage ended early; the analysis is then empty.
    pub fn new(Bench { model, watch, .. }: &Bench<B>) -> (Self, bool) {
        let logits = to_embedding(model);
        let [vocab, _] = model.embedding.token.weight.dims();
        let matrices = HeadMatrices::all(model);
        let layer_weights = |heads: &Vec<HeadMatrices<B>>| {
            let of_head = |head: &HeadMatrices<B>| head.weights(&logits, vocab);
            (!watch.ends(ExplanationStage::Weights)).then(|| heads.iter().map(of_head).collect())
        };
        let heads: Option<Vec<Vec<HeadWeights>>> = matrices.iter().map(layer_weights).collect();
        let (is_cut, random) = match &heads {
            Some(_) => (false, matrices[0][0].random_weights(&logits, vocab)),
            None => (true, HeadWeights::default()),
        };
        let unknown = || matrices.iter().map(|heads| vec![HeadWeights::default(); heads.len()]).collect();
        let heads = heads.unwrap_or_else(unknown);
        (Self { cross: HeadMatrices::cross(model), matrices, heads, random }, is_cut)
    }
}

/// Returns the layer of a component, true for cross-attention, its head unless it is a feed-forward layer, and its kinds with
/// their scores.
pub(super) fn identified<B: Backend>(
    bench: &Bench<B>,
    samples: &[Sample],
    (weights, scores): (&WeightAnalysis<B>, &[Vec<HeadScores>]),
    site: Site,
) -> (usize, bool, Option<usize>, ScoredKinds) {
    match site {
        Site::Head(layer, head) => {
            let copies = weights.heads[layer][head].copying >= MIN_COPYING_SCORE;
            let kinds = bench.scored_kinds([layer, head], samples, (&scores[layer][head], copies));
            (layer, false, Some(head), kinds)
        }
        Site::Cross(layer, head) => {
            (layer, true, Some(head), bench.scored_cross_kinds([layer, head], samples))
        }
        Site::FeedForward(layer) => (layer, false, None, ScoredKinds::default()),
        _ => unreachable!("components are heads and feed-forward layers"),
    }
}
