//! Why a head attends: the score of one query and one key as a sum over the parts of the residual stream.
//!
//! Before a block, the residual stream is the sum of the token embedding, the positions, what all earlier components add,
//! and biases. With the divisors of the norms frozen, query and key are linear in these parts:
//!
//! ```text
//! score = sum_a sum_b (q_a · k_b) / sqrt(d_head) + position bias
//! ```
//!
//! where `q_a` is what part `a` contributes to the query, and `k_b` what part `b` contributes to the key (QK attribution;
//! the bilinear form is that of Elhage et al., 2021). The numbers are computed in double precision.

use std::ops::Range;

use burn::tensor::{Tensor, backend::Backend};
use serde::Serialize;

use super::bench::components;
use super::pass::{Activations, Site};
use super::stream_parts::StreamParts;
use crate::Result;
use crate::analysis::view::floats;
use crate::attention::MultiHeadAttention;
use crate::model::Decoder;
use crate::ops::{Mask, Norm, NormKind, Projections, ScorePosition};

/// The name of the part that holds all biases.
const BIASES: &str = "biases";

/// The parts of the score of one query and one key of a head.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoreParts {
    /// The layer, counted from 0.
    pub layer: usize,
    /// The head, counted from 0.
    pub head: usize,
    /// The position of the query.
    pub query: usize,
    /// The position of the key.
    pub key: usize,
    /// The scaled score with the position bias and the softcap, before the mask and the softmax.
    pub score: f64,
    /// The score before the softcap, the sum of the parts; absent without a softcap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unbounded_score: Option<f64>,
    /// The attention weight.
    pub weight: f64,
    /// The bias that a position scheme such as ALiBi adds to the score.
    pub position_bias: f64,
    /// The names of the parts, in model order.
    pub parts: Vec<String>,
    /// The contribution of each pair of parts, `[query part][key part]`.
    pub pairs: Vec<Vec<f64>>,
}

impl ScoreParts {
    /// Decomposes the score of a head at the positions of a query and a key of the first sequence of a pass. `documents` are
    /// those of the inputs.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if there are more tokens than positions.
    pub fn of<B: Backend>(
        model: &Decoder<B>,
        pass: &Activations<B>,
        ([layer, head], [query, key]): ([usize; 2], [usize; 2]),
        documents: Option<&[Vec<u32>]>,
    ) -> Result<Self> {
        let [_, time, _] = pass.at(Site::Embedding).dims();
        let positions = model.positions(documents, 0, time)?;
        let (added, scores) = (positions.added, &positions.scores[layer]);
        let reader = Reader::new(&model.blocks[layer].attention, head);
        let (norm, placement) = (&model.blocks[layer].attention_norm, model.blocks[layer].placement);
        let [queries, keys] = [(query, 0), (key, 1)].map(|(position, side)| -> Parts {
            let parts = stream_parts(model, pass, (layer, position), added.as_ref());
            let input = if placement.has_input_norm() { frozen(norm, parts) } else { parts };
            let projected = reader.project(input, side);
            let rotated = |vector| rotated(vector, scores, position);
            projected.into_iter().map(|(name, vector)| (name, rotated(vector))).collect()
        });
        let scale =
            reader.attention.scores.scale.unwrap_or_else(|| (reader.attention.d_head as f64).powf(-0.5));
        let pair =
            |query: &[f64], key: &[f64]| query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * scale;
        let pairs: Vec<Vec<f64>> =
            queries.iter().map(|(_, query)| keys.iter().map(|(_, key)| pair(query, key)).collect()).collect();
        let position_bias = match scores {
            // The columns are the distances from `1 - time` to `time - 1`.
            ScorePosition::Bias(bias) => at(bias.clone().unsqueeze(), head, query + time - 1 - key),
            ScorePosition::None | ScorePosition::Rotation { .. } => 0.0,
        };
        let sum = pairs.iter().flatten().sum::<f64>() + position_bias;
        let softcap = reader.attention.scores.softcap;
        Ok(Self {
            layer,
            head,
            query,
            key,
            score: softcap.map_or(sum, |cap| cap * (sum / cap).tanh()),
            unbounded_score: softcap.map(|_| sum),
            weight: at(pass.at(Site::Pattern(layer, head)), query, key),
            position_bias,
            parts: queries.into_iter().map(|(name, _)| name).collect(),
            pairs,
        })
    }

    /// Returns the contribution of each part through the query, over all parts of the key.
    pub fn by_query(&self) -> Vec<f64> {
        self.pairs.iter().map(|row| row.iter().sum()).collect()
    }

    /// Returns the contribution of each part through the key, over all parts of the query.
    pub fn by_key(&self) -> Vec<f64> {
        (0..self.parts.len()).map(|part| self.pairs.iter().map(|row| row[part]).sum()).collect()
    }
}

/// Named parts of a vector.
type Parts = Vec<(String, Vec<f64>)>;

/// Returns the number at a position of the first matrix.
fn at<B: Backend>(matrices: Tensor<B, 3>, row: usize, column: usize) -> f64 {
    f64::from(floats(matrices.slice([0..1, row..row + 1, column..column + 1]))[0])
}

fn numbers<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    floats(tensor).into_iter().map(f64::from).collect()
}

/// Returns the parts of the residual stream before a layer at a position of the first sequence. `added` holds the vectors
/// that positions add to the embeddings, `[time, d_model]`.
fn stream_parts<B: Backend>(
    model: &Decoder<B>,
    pass: &Activations<B>,
    (layer, position): (usize, usize),
    added: Option<&Tensor<B, 2>>,
) -> Parts {
    let stream = StreamParts::new(model, pass);
    let of_position = |added: Tensor<B, 3>| {
        let [_, time, d_model] = added.dims();
        let position = if time > 1 { position } else { 0 };
        numbers(added.slice([0..1, position..position + 1, 0..d_model]))
    };
    let row = |site: Site| of_position(stream.of(site));
    let mut parts = embedding_parts(
        model,
        row(Site::Embedding),
        added.map(|added| {
            let [_, d_model] = added.dims();
            numbers(added.clone().slice([position..position + 1, 0..d_model]))
        }),
    );
    let is_earlier = |site: &Site| match site {
        Site::Head(of, _) | Site::Cross(of, _) | Site::FeedForward(of) => *of < layer,
        _ => false,
    };
    parts.extend(components(model).filter(is_earlier).map(|site| (site.to_string(), row(site))));
    for bias in stream.biases(layer) {
        add(&mut parts, BIASES, &of_position(bias));
    }
    parts
}

/// Splits an embedding into its token and its position. The shift of an embedding norm is a bias.
fn embedding_parts<B: Backend>(model: &Decoder<B>, embedding: Vec<f64>, position: Option<Vec<f64>>) -> Parts {
    let token = |whole: &[f64], rest: &[f64]| -> Vec<f64> {
        whole.iter().zip(rest).map(|(whole, rest)| whole - rest).collect()
    };
    match (&model.embedding.norm, position) {
        // The norm mixes tokens and positions.
        (Some(_), _) | (None, None) => vec![("embedding".to_string(), embedding)],
        (None, Some(position)) => {
            vec![
                ("token embedding".to_string(), token(&embedding, &position)),
                ("position embedding".to_string(), position),
            ]
        }
    }
}

/// Adds a vector to the part of this name, which is created if it is missing.
fn add(parts: &mut Parts, name: &str, vector: &[f64]) {
    match parts.iter_mut().find(|(other, _)| other == name) {
        Some((_, sum)) => sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value),
        None => parts.push((name.to_string(), vector.to_vec())),
    }
}

/// Returns the sum of the parts.
fn sum(parts: &Parts) -> Vec<f64> {
    let mut sum = vec![0.0; parts[0].1.len()];
    for (_, part) in parts {
        sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    sum
}

/// Applies a norm with the divisor of the sum of the parts. The shift is a bias.
fn frozen<B: Backend>(norm: &Norm<B>, mut parts: Parts) -> Parts {
    if norm.kind == NormKind::Layer {
        for (_, part) in &mut parts {
            let mean = part.iter().sum::<f64>() / part.len() as f64;
            part.iter_mut().for_each(|value| *value -= mean);
        }
    }
    let whole = sum(&parts);
    let square = whole.iter().map(|value| value * value).sum::<f64>() / whole.len() as f64;
    let divisor = (square + norm.epsilon).sqrt();
    let gain = numbers(norm.gain());
    for (_, part) in &mut parts {
        part.iter_mut().zip(&gain).for_each(|(value, gain)| *value *= gain / divisor);
    }
    if let Some(beta) = &norm.beta {
        add(&mut parts, BIASES, &numbers(beta.val()));
    }
    parts
}

/// The query and the key projection of a head.
struct Reader<'a, B: Backend> {
    attention: &'a MultiHeadAttention<B>,
    /// The matrices of the query and the key in row-major order, `[d_model, d_head]`, or `[d_model, heads * d_head]` if a norm
    /// covers all heads, and their biases.
    matrices: [Vec<f64>; 2],
    biases: Option<[Vec<f64>; 2]>,
    /// The columns of the head in the products with these matrices.
    columns: [Range<usize>; 2],
}

impl<'a, B: Backend> Reader<'a, B> {
    fn new(attention: &'a MultiHeadAttention<B>, head: usize) -> Self {
        let width = attention.d_head;
        let options = attention.options(Mask::none(), ScorePosition::None);
        let shared = head * attention.key_value_heads / attention.heads;
        let of_head = [head, shared].map(|head| head * width..(head + 1) * width);
        let (is_wide, own) = (attention.normalises_all_heads(), of_head.clone());
        let columns = if is_wide { of_head } else { [0..width, 0..width] };
        let of_head = |packed: Tensor<B, 3>| {
            let [query, key, _] = Projections::Packed(packed).split(&options);
            let [of_query, of_key] = own.clone();
            [(query, of_query), (key, of_key)].map(|(part, columns)| {
                numbers(if is_wide { part } else { part.narrow(2, columns.start, columns.len()) })
            })
        };
        let matrices = of_head(attention.qkv.weight.val().unsqueeze());
        let biases = attention.qkv.bias.as_ref().map(|bias| of_head(bias.val().unsqueeze()));
        Self { attention, matrices, biases, columns }
    }

    /// Projects parts to queries (side 0) or keys (side 1), before positions. The divisor of a norm of queries and keys is
    /// that of the whole vector.
    fn project(&self, parts: Parts, side: usize) -> Parts {
        let matrix = &self.matrices[side];
        let product = |part: &[f64]| {
            let width = matrix.len() / part.len();
            let mut product = vec![0.0; width];
            for (value, row) in part.iter().zip(matrix.chunks(width)) {
                product.iter_mut().zip(row).for_each(|(sum, weight)| *sum += value * weight);
            }
            product
        };
        let mut projected: Parts = parts.into_iter().map(|(name, part)| (name, product(&part))).collect();
        if let Some(biases) = &self.biases {
            add(&mut projected, BIASES, &biases[side]);
        }
        if let Some(norm) = [&self.attention.query_norm, &self.attention.key_norm][side] {
            projected = frozen(norm, projected);
        }
        let of_head = |(name, part): (String, Vec<f64>)| (name, part[self.columns[side].clone()].to_vec());
        projected.into_iter().map(of_head).collect()
    }
}

/// Rotates a query or a key by its position, if the scheme does so.
fn rotated<B: Backend>(mut vector: Vec<f64>, scores: &ScorePosition<B>, position: usize) -> Vec<f64> {
    if let ScorePosition::Rotation { cosine, sine } = scores {
        let [_, pairs] = cosine.dims();
        let row = |table: &Tensor<B, 2>| numbers(table.clone().slice([position..position + 1, 0..pairs]));
        for ((pair, cosine), sine) in vector.chunks_mut(2).zip(row(cosine)).zip(row(sine)) {
            (pair[0], pair[1]) = (pair[0] * cosine - pair[1] * sine, pair[0] * sine + pair[1] * cosine);
        }
    }
    vector
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use burn::tensor::DType;

    use super::*;
    use crate::analysis::activations::record;
    use crate::analysis::circuit::testing::noisy_model;
    use crate::analysis::circuit::{Interventions, explainable, run};
    use crate::hooks::Patch;
    use crate::hooks::{AttentionPoint, HookPoint, HookSite, Stack};
    use crate::model::{Inputs, ModelConfig, NormPlacement, QkNormScope, Sizes};
    use crate::position::PositionScheme;

    #[test]
    fn parts_sum_to_the_score() {
        let plain = ModelConfig { d_model: 24, heads: 4, layers: 3, ..ModelConfig::default() };
        let norm_kind = NormKind::Rms;
        let configs = PositionScheme::ALL.into_iter().flat_map(|position| {
            let grouped = ModelConfig { key_value_heads: 2, norm_kind, qk_norm: true, ..plain.clone() };
            let normed = ModelConfig { embedding_norm: true, bias: false, ..plain.clone() };
            let bounded = ModelConfig {
                attention_scale: Some(0.4),
                attention_softcap: Some(2.0),
                qk_norm: true,
                qk_norm_scope: QkNormScope::AllHeads,
                ..plain.clone()
            };
            let output = ModelConfig { norm: NormPlacement::Output, ..plain.clone() };
            let sandwich = ModelConfig { norm: NormPlacement::Sandwich, norm_kind, ..plain.clone() };
            let configs = [plain.clone(), grouped, normed, bounded, output, sandwich];
            configs.map(|config| ModelConfig { position, ..config })
        });
        for config in configs {
            let sizes = Sizes { vocab: 13, context: 7, source_context: None };
            let model = noisy_model(&config, sizes, 0.2);
            let inputs = || Inputs::tokens(Tensor::from_ints([[3, 1, 4, 1, 5, 9, 2]], &Default::default()));
            let decoder = explainable(&model).unwrap();
            let pass = run(decoder, inputs(), &[], &Interventions::default()).unwrap();
            for ([layer, head], [query, key]) in [([0, 1], [5, 2]), ([2, 3], [6, 6]), ([1, 0], [4, 0])] {
                let found = ScoreParts::of(decoder, &pass, ([layer, head], [query, key]), None).unwrap();
                let point = HookPoint::SelfAttention(AttentionPoint::Scores);
                let sites = BTreeSet::from([HookSite { stack: Stack::Decoder, layer, point }]);
                let scores = record((&model, &Patch::default()), inputs(), &sites, false, DType::F32)
                    .unwrap()
                    .remove(0)
                    .data;
                let score = scores.iter::<f64>().nth((head * 7 + query) * 7 + key).unwrap();
                assert!(
                    (found.score - score).abs() < 1e-5 * score.abs().max(1.0),
                    "{config:?}: {found:?} {score}"
                );
                let has_added = decoder.embedding.norm.is_none() && found.parts[0] == "token embedding";
                let has_biases = found.parts.last().is_some_and(|part| part == BIASES);
                assert_eq!(
                    found.parts.len(),
                    1 + usize::from(has_added) + layer * 5 + usize::from(has_biases)
                );
                let sum = found.unbounded_score.unwrap_or(found.score);
                let by_query: f64 = found.by_query().iter().sum();
                let by_key: f64 = found.by_key().iter().sum();
                assert!(
                    (by_query - by_key).abs() < 1e-9 && (by_query + found.position_bias - sum).abs() < 1e-9
                );
            }
        }
    }
}
