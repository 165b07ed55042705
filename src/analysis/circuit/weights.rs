//! QK and OV circuits of heads, from their weights alone (Elhage et al., 2021).
//!
//! ```text
//! QK = W_Q W_K^T     which pairs of positions match       OV = W_V W_O     what the head copies from key to query
//! ```
//!
//! Both are `[d_model, d_model]`, but of rank at most `d_head`. Their singular values, and the eigenvalues of the
//! token-to-token matrix `W_E OV W_U`, equal those of products of size `d_head`. The gain of the norm before a matrix
//! is folded into the matrix, as is that of a norm of outputs. The mean subtraction of a layer norm is folded into the heads'
//! inputs and outputs.

use burn::tensor::{Tensor, backend::Backend};
use num_complex::Complex64;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::eigenvalues::{eigenvalues, modulus};
use super::pass::Site;
use super::stream_parts::{centred, output_norm};
use crate::analysis::view::floats;
use crate::data::seed::{Purpose, generator};
use crate::model::{Decoder, block::Block};
use crate::ops::{Mask, Norm, Projections, ScorePosition, repeat_heads, split_heads};

/// The number of random draws that scores are compared with.
const RANDOM_DRAWS: u64 = 4;

/// The input through which one head reads the output of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadInput {
    /// The queries (Q-composition).
    Query,
    /// The keys (K-composition).
    Key,
    /// The values (V-composition).
    Value,
}

impl HeadInput {
    /// Returns the vectors that are computed from the input, such as "queries".
    pub fn plural(self) -> &'static str {
        match self {
            Self::Query => "queries",
            Self::Key => "keys",
            Self::Value => "values",
        }
    }

    /// Returns the letter that names the composition, such as `Q`.
    pub(super) fn letter(self) -> char {
        match self {
            Self::Query => 'Q',
            Self::Key => 'K',
            Self::Value => 'V',
        }
    }
}

/// The matrices of one head, as `[input, output]`.
#[derive(Debug, Clone)]
pub struct HeadMatrices<B: Backend> {
    /// `[d_model, d_head]`.
    pub query: Tensor<B, 2>,
    /// `[d_model, d_head]`.
    pub key: Tensor<B, 2>,
    /// `[d_model, d_head]`.
    pub value: Tensor<B, 2>,
    /// `[d_head, d_model]`.
    pub output: Tensor<B, 2>,
}

/// The weight analysis of a head.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadWeights {
    /// Singular values of the QK circuit, in descending order.
    pub qk: Vec<f64>,
    /// Singular values of the OV circuit, in descending order.
    pub ov: Vec<f64>,
    /// `sum(λ) / sum(|λ|)` over the eigenvalues of `W_E OV W_U`: 1 if each token raises its own logit, as in a
    /// copying head.
    pub copying: f64,
    /// The share of these eigenvalues whose real part is positive.
    pub positive: f64,
}

impl<B: Backend> HeadMatrices<B> {
    /// Returns the matrices of each head of a decoder, `[layer][head]`.
    pub fn all(model: &Decoder<B>) -> Vec<Vec<Self>> {
        let layer_heads = |block: &Block<B>| {
            let attention = &block.attention;
            let norm = block.placement.has_input_norm().then_some(&block.attention_norm);
            let read = folded(norm, attention.qkv.weight.val());
            let options = attention.options(Mask::none(), ScorePosition::None);
            // The `d_model` rows act as the time dimension.
            let parts = Projections::Packed(read.unsqueeze()).split(&options);
            let written = written(output_norm(block, Site::Head(0, 0)), attention.output.weight.val());
            Self::of_heads(model, parts, written, attention.heads)
        };
        model.blocks.iter().map(layer_heads).collect()
    }

    /// Returns the matrices of each cross-attention head, `[layer][head]`; empty without cross-attention.
    pub fn cross(model: &Decoder<B>) -> Vec<Vec<Self>> {
        let layer_heads = |block: &Block<B>| {
            let attention = block.cross_attention.as_ref()?;
            let norm = block.cross_attention_norm.as_ref().filter(|_| block.placement.has_input_norm());
            let query = folded(norm, attention.query.weight.val());
            let parts = [query, attention.key.weight.val(), attention.value.weight.val()];
            let parts = parts.map(Tensor::unsqueeze);
            let written = written(output_norm(block, Site::Cross(0, 0)), attention.output.weight.val());
            Some(Self::of_heads(model, parts, written, attention.heads))
        };
        model.blocks.iter().filter_map(layer_heads).collect()
    }

    /// Splits concatenated matrices into heads. Queries, keys and values are `[1, d_model, .. * d_head]`, where keys
    /// and values may be shared; the output is `[heads * d_head, d_model]`.
    fn of_heads(
        model: &Decoder<B>,
        parts: [Tensor<B, 3>; 3],
        output: Tensor<B, 2>,
        heads: usize,
    ) -> Vec<Self> {
        let width = output.dims()[0] / heads;
        let [query, key, value] = parts.map(|part| {
            let shared = part.dims()[2] / width;
            repeat_heads(split_heads(part, shared), heads).squeeze_dim::<3>(0)
        }); // [heads, d_model, d_head]
        let output = model.norm.as_ref().map_or(output.clone(), |norm| centred(norm.kind, output, 1));
        let head = |head: usize| {
            let of = |part: &Tensor<B, 3>| part.clone().narrow(0, head, 1).squeeze_dim(0);
            let output = output.clone().narrow(0, head * width, width);
            Self { query: of(&query), key: of(&key), value: of(&value), output }
        };
        (0..heads).map(head).collect()
    }

    /// Draws matrices of the same shapes, uniform from -1 to 1.
    fn random_like(&self, draw: u64) -> Self {
        let mut random = generator(0, Purpose::Expectation, [draw, 0]);
        let [query, key, value, output] = [&self.query, &self.key, &self.value, &self.output].map(|like| {
            let [rows, columns] = like.dims();
            let values: Vec<f32> = (0..rows * columns).map(|_| random.random_range(-1.0..1.0)).collect();
            Tensor::<B, 1>::from_floats(values.as_slice(), &like.device()).reshape([rows, columns])
        });
        Self { query, key, value, output }
    }

    /// Returns the composition score between this head's `input` and the output of `sender`: the Frobenius norm of the
    /// product of their circuits, divided by the product of their norms.
    pub fn composition(&self, sender: &Self, input: HeadInput) -> f64 {
        let (left, right) = match input {
            HeadInput::Query => (&self.query, self.key.clone().transpose()),
            HeadInput::Key => (&self.key, self.query.clone().transpose()),
            HeadInput::Value => (&self.value, self.output.clone()),
        };
        let inner = sender.output.clone().matmul(left.clone()); // [d_head, d_head]
        product_norm(&sender.value, inner, &right)
            / (norm(&sender.value, &sender.output) * norm(left, &right))
    }

    /// Returns the expected composition score of random heads of this shape, the same for any input.
    pub fn random_composition(&self) -> f64 {
        let draw =
            |draw| self.random_like(2 * draw).composition(&self.random_like(2 * draw + 1), HeadInput::Key);
        (0..RANDOM_DRAWS).map(draw).sum::<f64>() / RANDOM_DRAWS as f64
    }

    /// Returns the singular values of the QK and of the OV circuit, in descending order.
    pub fn singular_values(&self) -> [Vec<f64>; 2] {
        let qk = singular_values(&self.query, &self.key.clone().transpose());
        [qk, singular_values(&self.value, &self.output)]
    }

    /// Returns the eigenvalues of `W_E OV W_U` that are not zero; `logits` is [`to_embedding`] of a model with `vocab` tokens.
    fn token_eigenvalues(&self, logits: &Tensor<B, 2>, vocab: usize) -> Vec<Complex64> {
        // The non-zero eigenvalues of W_E W_V W_O W_U are those of W_O W_U W_E W_V.
        let small = self.output.clone().matmul(logits.clone()).matmul(self.value.clone());
        let mut eigenvalues = eigenvalues(complex(small));
        // Logits minus their mean have at most rank `vocab - 1`. Further eigenvalues are zero up to rounding.
        eigenvalues.sort_by(|a, b| modulus(*b).total_cmp(&modulus(*a)));
        eigenvalues.truncate(vocab.saturating_sub(1).max(1));
        eigenvalues
    }

    /// Returns the copying score, as [`weights`](Self::weights) does.
    pub fn copying(&self, logits: &Tensor<B, 2>, vocab: usize) -> f64 {
        copying(&self.token_eigenvalues(logits, vocab))
    }

    /// Analyses the head's weights; `logits` is [`to_embedding`] of a model with `vocab` tokens.
    pub fn weights(&self, logits: &Tensor<B, 2>, vocab: usize) -> HeadWeights {
        let eigenvalues = self.token_eigenvalues(logits, vocab);
        let moduli = eigenvalues.iter().map(|value| modulus(*value)).sum::<f64>();
        // Eigenvalues that are zero up to rounding are neither positive nor negative.
        let min_modulus = 1e-6 * moduli / eigenvalues.len() as f64;
        let signed = || eigenvalues.iter().filter(|value| modulus(**value) > min_modulus);
        let [qk, ov] = self.singular_values();
        HeadWeights {
            qk,
            ov,
            copying: copying(&eigenvalues),
            positive: signed().filter(|value| value.re > 0.0).count() as f64 / signed().count().max(1) as f64,
        }
    }

    /// Returns the average analysis of random weights of this head's shapes.
    pub fn random_weights(&self, logits: &Tensor<B, 2>, vocab: usize) -> HeadWeights {
        let all: Vec<_> =
            (0..RANDOM_DRAWS).map(|draw| self.random_like(draw).weights(logits, vocab)).collect();
        let mean = |of: &dyn Fn(&HeadWeights) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        let means = |of: &dyn Fn(&HeadWeights) -> &Vec<f64>| {
            (0..of(&all[0]).len()).map(|at| mean(&|weights| of(weights)[at])).collect()
        };
        HeadWeights {
            qk: means(&|weights| &weights.qk),
            ov: means(&|weights| &weights.ov),
            copying: mean(&|weights| weights.copying),
            positive: mean(&|weights| weights.positive),
        }
    }
}

/// Returns the share of the sum of these eigenvalues in the sum of their moduli.
fn copying(eigenvalues: &[Complex64]) -> f64 {
    let sum = eigenvalues.iter().map(|value| value.re).sum::<f64>();
    let moduli = eigenvalues.iter().map(|value| modulus(*value)).sum::<f64>();
    sum / moduli.max(f64::MIN_POSITIVE)
}

/// Folds a norm's gain into the matrix `[d_model, ..]` after it. For a layer norm, the mean subtraction is
/// folded in as well.
fn folded<B: Backend>(norm: Option<&Norm<B>>, weight: Tensor<B, 2>) -> Tensor<B, 2> {
    let Some(norm) = norm else { return weight };
    centred(norm.kind, weight * norm.gain().unsqueeze_dim(1), 0)
}

/// Folds the gain of a norm of outputs, and the mean subtraction of a layer norm, into the matrix `[.., d_model]` before it.
fn written<B: Backend>(norm: Option<&Norm<B>>, weight: Tensor<B, 2>) -> Tensor<B, 2> {
    let Some(norm) = norm else { return weight };
    centred(norm.kind, weight, 1) * norm.gain().unsqueeze_dim(0)
}

/// Returns the unembedding, `[vocab, d_model]`: for each token, the direction that its logit reads.
pub(super) fn unembedding<B: Backend>(model: &Decoder<B>) -> Tensor<B, 2> {
    match &model.head {
        Some(head) => head.weight.val().transpose(),
        None => model.embedding.token.weight.val(),
    }
}

/// Returns `W_U W_E`, `[d_model, d_model]`: the map from head outputs to logits, minus the mean over the logits,
/// followed by the map from tokens to head inputs.
pub fn to_embedding<B: Backend>(model: &Decoder<B>) -> Tensor<B, 2> {
    let rows = unembedding(model);
    let mut rows = rows.clone() - rows.mean_dim(0);
    if let Some(norm) = &model.norm {
        // As by `folded`, but without operations on the transpose, which are slow for a large vocabulary.
        rows = centred(norm.kind, rows * norm.gain().unsqueeze_dim(0), 1);
    }
    rows.transpose().matmul(model.embedding.token.weight.val()) * model.embedding.scale
}

/// Returns the Frobenius norm of `left inner right` without forming the large product: the root of
/// `trace(right^T inner^T left^T left inner right)`.
fn product_norm<B: Backend>(left: &Tensor<B, 2>, inner: Tensor<B, 2>, right: &Tensor<B, 2>) -> f64 {
    let [left, right] = squares(left, right);
    let trace = (left.matmul(inner.clone()).matmul(right) * inner).sum();
    f64::from(floats(trace)[0]).max(0.0).sqrt()
}

/// Returns `left^T left` and `right right^T`.
fn squares<B: Backend>(left: &Tensor<B, 2>, right: &Tensor<B, 2>) -> [Tensor<B, 2>; 2] {
    [left.clone().transpose().matmul(left.clone()), right.clone().matmul(right.clone().transpose())]
}

fn norm<B: Backend>(left: &Tensor<B, 2>, right: &Tensor<B, 2>) -> f64 {
    let [_, d_head] = left.dims();
    product_norm(left, Tensor::eye(d_head, &left.device()), right)
}

/// Returns the singular values of `left right` in descending order: the roots of the eigenvalues of
/// `(left^T left)(right right^T)`.
fn singular_values<B: Backend>(left: &Tensor<B, 2>, right: &Tensor<B, 2>) -> Vec<f64> {
    let [left, right] = squares(left, right);
    let squares = eigenvalues(complex(left.matmul(right)));
    let mut values: Vec<f64> = squares.iter().map(|square| square.re.max(0.0).sqrt()).collect();
    values.sort_by(|a, b| b.total_cmp(a));
    values
}

/// Converts a square matrix to rows of complex numbers.
fn complex<B: Backend>(matrix: Tensor<B, 2>) -> Vec<Vec<Complex64>> {
    let [_, columns] = matrix.dims();
    let row = |row: &[f32]| row.iter().map(|&value| f64::from(value).into()).collect();
    floats(matrix).chunks(columns).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    type B = NdArray;

    fn matrix<const R: usize, const C: usize>(values: [[f32; C]; R]) -> Tensor<B, 2> {
        Tensor::from_floats(values, &Default::default())
    }

    /// Returns a head with `d_head` 2 in a residual stream with `d_model` 3.
    fn head(query: [[f32; 2]; 3], output: [[f32; 3]; 2]) -> HeadMatrices<B> {
        let one = matrix([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]);
        HeadMatrices { query: matrix(query), key: one.clone(), value: one, output: matrix(output) }
    }

    #[test]
    fn composition_is_one_for_read_subspaces() {
        let first = head([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]);
        // Only its query reads the third dimension.
        let second = head([[0.0, 0.0], [0.0, 0.0], [5.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]);
        assert!((second.composition(&first, HeadInput::Query) - 1.0).abs() < 1e-6);
        assert!(second.composition(&first, HeadInput::Key).abs() < 1e-6);
        assert!(second.composition(&first, HeadInput::Value).abs() < 1e-6);
        // The OV circuit of the first has rank 1 and norm 2, the QK circuit of the second rank 1 and norm 5.
        let logits = Tensor::eye(3, &Default::default());
        let weights = second.weights(&logits, 9);
        assert!((weights.qk[0] - 5.0).abs() < 1e-6 && weights.qk[1].abs() < 1e-3, "{weights:?}");
        // The OV circuit of the second keeps two of three dimensions unchanged, as in a copying head.
        assert_eq!((weights.copying, weights.positive), (1.0, 1.0));
        let opposite = HeadMatrices { output: -second.output.clone(), ..second.clone() };
        assert_eq!(
            (opposite.weights(&logits, 9).copying, opposite.weights(&logits, 9).positive),
            (-1.0, 0.0)
        );
        // Two tokens leave one eigenvalue, whatever rounding adds.
        let mixed = head([[0.0; 2]; 3], [[-1.0, 0.0, 0.0], [0.0, 1e-3, 0.0]]);
        assert_eq!((mixed.weights(&logits, 9).positive, mixed.weights(&logits, 2).positive), (0.5, 0.0));
        let random = second.random_composition();
        assert!(random > 0.2 && random < 1.0 && random == second.random_composition(), "{random}");
    }
}
