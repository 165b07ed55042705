//! The standard probe for induction heads: random tokens, repeated once (Olsson et al., 2022, arXiv 2209.11895). A model
//! can predict the second copy only from the first.

use burn::tensor::backend::Backend;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::bench::{Bench, mean};
use super::gain::interval;
use super::kind::HeadKind;
use super::pass::Site;
use crate::analysis::view::floats;
use crate::analysis::{HeadScores, Sample, Score};
use crate::data::seed::{Purpose, generator};
use crate::data::{Role, Vocabulary};
use crate::ops;

/// The number of sequences, which is enough for a standard error between them.
const SEQUENCES: usize = 8;
/// The minimum weight of the heads that are listed, also as a multiple of the weight under uniform attention.
const MIN_WEIGHT: f64 = 0.2;
const MIN_UNIFORM_WEIGHTS: f64 = 2.0;

/// Returns sequences of `length` distinct random tokens that are repeated once. Only the targets in the second copy count.
/// `None` if the vocabulary has fewer tokens.
pub fn repeated_sequences(vocabulary: &Vocabulary, length: usize, seed: u64) -> Option<Vec<Sample>> {
    let [begin, _] = vocabulary.added_tokens();
    let end = vocabulary.end();
    let is_plain = |id: &u32| !vocabulary.is_special(*id) && Some(*id) != end && !begin.contains(id);
    let plain: Vec<u32> = (0..vocabulary.size() as u32).filter(is_plain).collect();
    let sequence = |index: usize| {
        let mut tokens = plain.clone();
        let mut random = generator(seed, Purpose::Probe, [index as u64, 0]);
        let (copy, _) = tokens.partial_shuffle(&mut random, length);
        let tokens = [begin, &*copy, &*copy].concat();
        let time = tokens.len() - 1;
        let role = |at: usize| if at < begin.len() + length { Role::Padding } else { Role::Determined };
        Sample {
            inputs: tokens[..time].to_vec(),
            targets: tokens[1..].to_vec(),
            roles: (0..time).map(role).collect(),
            source: None,
            documents: None,
        }
    };
    (plain.len() >= length).then(|| (0..SEQUENCES).map(sequence).collect())
}

/// A head that attends as one of the kinds that a repetition reveals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadOfKind {
    /// The kind.
    pub kind: HeadKind,
    /// The layer, counted from 0.
    pub layer: usize,
    /// The head, counted from 0.
    pub head: usize,
    /// The attention weight on the targets of the kind, averaged over queries.
    pub weight: f64,
    /// The weight of a head that attends to all visible keys equally.
    #[serde(default)]
    pub chance: f64,
    /// The number of queries.
    #[serde(default)]
    pub queries: usize,
    /// The 95 % interval of the weight over the sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// A kind that a repetition reveals: each query from the first one on attends to the token at this distance before it.
struct RepeatedKind {
    kind: HeadKind,
    score: Score,
    first_query: usize,
    distance: usize,
}

impl RepeatedKind {
    /// Returns the kinds for sequences of `time` tokens, the last ones a copy of `length` tokens without its last one.
    fn all(time: usize, length: usize) -> [Self; 3] {
        use HeadKind::{Duplicate, Induction, PreviousToken};
        let second_copy = time + 1 - length;
        [
            (Induction, Score::Induction, second_copy, length - 1),
            (PreviousToken, Score::Previous, 1, 1),
            (Duplicate, Score::Duplicate, second_copy, length),
        ]
        .map(|(kind, score, first_query, distance)| Self { kind, score, first_query, distance })
    }

    /// Returns the weight of a head at each query, sequence by sequence.
    fn weights<B: Backend>(&self, bench: &Bench<B>, [layer, head]: [usize; 2]) -> Vec<f64> {
        let [_, time] = bench.batch.targets.dims();
        let pattern = floats(bench.full.at(Site::Pattern(layer, head)));
        let queries = |map| (self.first_query..time).map(move |query| (map, query));
        let weight = |(map, query): (&[f32], usize)| f64::from(map[query * time + query - self.distance]);
        pattern.chunks(time * time).flat_map(queries).map(weight).collect()
    }
}

/// Returns the largest weight of any head for each kind, on sequences from [`repeated_sequences`].
pub(super) fn largest_weights<B: Backend>(bench: &Bench<B>, length: usize) -> Vec<(HeadKind, f64)> {
    let [_, time] = bench.batch.targets.dims();
    let blocks = bench.model.blocks.iter().enumerate();
    let heads = blocks.flat_map(|(layer, block)| (0..block.attention.heads).map(move |head| [layer, head]));
    let heads: Vec<[usize; 2]> = heads.collect();
    let largest = |kind: RepeatedKind| {
        let weights = heads.iter().map(|&head| mean(&kind.weights(bench, head)));
        (kind.kind, weights.fold(0.0, f64::max))
    };
    RepeatedKind::all(time, length).map(largest).to_vec()
}

/// Returns the loss on the targets in the first copy, and on those in the second copy after its first token, sequence by
/// sequence, on sequences from [`repeated_sequences`].
pub(super) fn copy_losses<B: Backend>(bench: &Bench<B>, length: usize) -> [Vec<f64>; 2] {
    let [_, time] = bench.batch.targets.dims();
    let losses =
        floats(ops::token_scores(bench.full.logits.clone(), bench.batch.targets.clone(), None).losses);
    let of = |is: &dyn Fn(usize) -> bool| {
        let indices = (0..losses.len()).filter(|index| is(index % time));
        indices.map(|index| f64::from(losses[index])).collect()
    };
    // The targets of the second copy, after its first token, are the last ones.
    [of(&|at| at + length < time), of(&|at| at > time - length)]
}

/// The results of a model on repeated random tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// The number of tokens in each copy.
    pub length: usize,
    /// The tokens of each sequence, without the last token of the second copy, which is only a target.
    pub sequences: Vec<Vec<u32>>,
    /// The mean loss on the targets in the first copy, in nats.
    pub first_copy: f64,
    /// The mean loss on the targets in the second copy after its first token, in nats.
    pub second_copy: f64,
    /// The 95 % intervals of both losses over the sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_intervals: Option<[[f64; 2]; 2]>,
    /// The heads with the largest weights, by kind.
    pub heads: Vec<HeadOfKind>,
}

impl Repeated {
    /// Returns the losses and the heads on sequences from [`repeated_sequences`].
    pub(super) fn new<B: Backend>(bench: &Bench<B>, scores: &[Vec<HeadScores>], length: usize) -> Self {
        let [_, time] = bench.batch.targets.dims();
        let mut heads = Vec::new();
        let tokens = bench.batch.inputs.tokens.to_data();
        let tokens: Vec<u32> = tokens.iter::<i64>().map(|token| token as u32).collect();
        let sequences: Vec<Vec<u32>> = tokens.chunks(time).map(<[u32]>::to_vec).collect();
        for of_kind in RepeatedKind::all(time, length) {
            let RepeatedKind { kind, score, first_query, .. } = of_kind;
            // Each of these queries has one target.
            let uniform = |layer: usize| -> f64 {
                let window = bench.model.config.window_of(layer).unwrap_or(usize::MAX);
                mean(&(first_query..time).map(|query| 1.0 / window.min(query + 1) as f64).collect::<Vec<_>>())
            };
            let queries = (time - first_query) * sequences.len();
            let of_layer = |(layer, of_heads): (usize, &Vec<HeadScores>)| {
                let chance = uniform(layer);
                let head = |(head, scores): (usize, &HeadScores)| {
                    let weight = scores[score].unwrap_or_default();
                    HeadOfKind { kind, layer, head, weight, chance, queries, interval: None }
                };
                of_heads.iter().enumerate().map(head).collect::<Vec<_>>()
            };
            let mut found: Vec<HeadOfKind> = scores.iter().enumerate().flat_map(of_layer).collect();
            found.retain(|head| head.weight >= MIN_WEIGHT.max(MIN_UNIFORM_WEIGHTS * head.chance));
            found.sort_by(|a, b| b.weight.total_cmp(&a.weight));
            let groups: Vec<usize> = (0..queries).map(|query| query / (time - first_query)).collect();
            for it in &mut found {
                let weights = of_kind.weights(bench, [it.layer, it.head]);
                it.interval = interval(&weights, &groups).map(|bounds| bounds.map(|it| it.clamp(0.0, 1.0)));
            }
            heads.extend(found);
        }
        let [first, second] = copy_losses(bench, length);
        let interval_of = |losses: &[f64]| {
            let of_sequence = losses.len() / sequences.len();
            interval(losses, &(0..losses.len()).map(|index| index / of_sequence.max(1)).collect::<Vec<_>>())
        };
        let copy_intervals =
            interval_of(&first).zip(interval_of(&second)).map(|(first, second)| [first, second]);
        Self {
            length,
            first_copy: mean(&first),
            second_copy: mean(&second),
            copy_intervals,
            sequences,
            heads,
        }
    }

    /// Returns the induction heads.
    pub(super) fn induction_heads(&self) -> Vec<Site> {
        let heads = self.heads.iter().filter(|it| it.kind == HeadKind::Induction);
        heads.map(|it| Site::Head(it.layer, it.head)).collect()
    }
}
