//! Scaled dot-product attention without a `time x time` matrix in memory.
//!
//! For each head, with query rows `q_i`, key rows `k_j`, value rows `v_j` (Vaswani et al., *Attention is all you need*,
//! 2017):
//!
//! - scores `s_ij = scale q_i . k_j + bias_ij`, negative infinity where a key is hidden; with a softcap `c`, they are
//!   replaced by `c tanh(s_ij / c)` before keys are hidden (Gemma Team, *Gemma 2*, 2024);
//! - weights `p_ij = e^(s_ij - l_i)` with `l_i = ln(sum over j of e^s_ij)`; a sink of the head is one more term of this
//!   sum;
//! - context `c_i = sum over j of d_ij p_ij v_j`, with dropout factors `d_ij` of zero or `1 / (1 -
//!   probability)`.
//!
//! The forward pass keeps only `l_i`. The backward pass recomputes the scores of 64 queries at a time and the weights
//! from `l_i` (Dao et al., *FlashAttention*, 2022). With the gradient `g_i` of the context:
//!
//! - `dv_j = sum over i of d_ij p_ij g_i`;
//! - `ds_ij = p_ij (d_ij g_i . v_j - g_i . c_i)`, times `1 - (s_ij / c)^2` with a softcap, which is also the gradient of
//!   `bias_ij`;
//! - `dq_i = scale * sum over j of ds_ij k_j` and `dk_j = scale * sum over i of ds_ij q_i`.
//!
//! Rotary position embeddings rotate queries and keys on entry, and their gradients back on exit. A query whose keys
//! are all hidden has a zero context and zero gradients.
//!
//! Work is divided into pieces. A piece is a key-value head of a sequence with the query heads that share it, or all
//! heads of a short sequence. Memory is linear in the sequence length: a piece uses two blocks of 64 rows of scores.

mod blocked;
mod keys;
mod piece;
pub mod rotary;
mod rows;
mod sinks;
mod small;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use keys::{HiddenPairs, KeyRange, span};

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::dropout::Dropout;
use super::matmul::Precision;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::for_each;
use super::pool;
use super::vector::update;
use piece::Piece;
use rotary::{RotaryTables, RotationDirection};

/// The options of scores and of their softmax.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScoreOptions<'a> {
    /// The factor of the products; `1 / sqrt(d_head)` if absent.
    pub scale: Option<f32>,
    /// Bias added to the scores by distance, as in ALiBi and relative positions, `[heads, query_time + key_time - 1]`.
    /// The index of a pair is `key - query + query_time - 1`; the first entry is for the last query and the first key.
    pub bias: Option<&'a [f32]>,
    /// The bound of the scores, with their bias.
    pub softcap: Option<f32>,
    /// A logit of each head that takes part in the softmax like the score of a key whose value is zero, `[heads]`.
    pub sinks: Option<&'a [f32]>,
}

/// The shape and options of an attention operation. [`Attention::new`] sets every option to its default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attention<'a> {
    /// The number of sequences.
    pub batch: usize,
    /// The number of queries in a sequence.
    pub query_time: usize,
    /// The number of keys in a sequence.
    pub key_time: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of key-value heads, which divides `heads`: query head `h` uses key-value head
    /// `h / (heads / key_value_heads)`.
    pub key_value_heads: usize,
    /// The width of a head.
    pub d_head: usize,
    /// The options of the scores.
    pub scores: ScoreOptions<'a>,
    /// The keys visible to each query, `[batch, query_time]`, or `[query_time]` for all sequences. If it is empty, all
    /// keys are visible to all queries.
    pub visible: &'a [KeyRange],
    /// Pairs hidden in addition to `visible`.
    pub hidden: Option<HiddenPairs<'a>>,
    /// Rotary position embeddings of queries and keys.
    pub rotary: Option<RotaryTables<'a>>,
    /// Dropout of the weights; the mask's rows are `(batch, head, query)`, its columns keys.
    pub dropout: Option<Dropout>,
    /// The precision of the products, forward and backward.
    pub precision: Precision,
}

impl Attention<'_> {
    /// Creates an attention operation in which every query attends to every key, with as many key-value heads as query
    /// heads.
    pub fn new(batch: usize, query_time: usize, key_time: usize, heads: usize, d_head: usize) -> Self {
        Self { batch, query_time, key_time, heads, key_value_heads: heads, d_head, ..Self::default() }
    }

    /// Returns the factor of the products of queries and keys.
    fn scale(&self) -> f32 {
        self.scores.scale.unwrap_or_else(|| 1.0 / (self.d_head as f32).sqrt())
    }

    /// Returns queries, keys and values as views, `[batch * time, heads * d_head]` each, either of three tensors or of
    /// one packed tensor. A packed row holds all queries, then all keys, then all values of a token.
    ///
    /// # Panics
    /// Panics if the length of a tensor is not a multiple of its width.
    pub fn parts<'b>(&self, first: &'b [f32], others: Option<[&'b [f32]; 2]>) -> [Matrix<'b>; 3] {
        let [query_width, width] = self.widths();
        if let Some([key, value]) = others {
            return [Matrix::new(first, query_width), Matrix::new(key, width), Matrix::new(value, width)];
        }
        let packed = Matrix::new(first, query_width + 2 * width);
        let part = |start, width| packed.part(0..packed.rows(), start..start + width);
        [part(0, query_width), part(query_width, width), part(query_width + width, width)]
    }

    /// Returns mutable views for the gradients, laid out as in [`Attention::parts`].
    ///
    /// # Panics
    /// Panics if the length of a tensor is not a multiple of its width.
    pub fn parts_mut<'b>(
        &self,
        first: &'b mut [f32],
        others: Option<[&'b mut [f32]; 2]>,
    ) -> [MatrixMut<'b>; 3] {
        let [query_width, width] = self.widths();
        if let Some([key, value]) = others {
            return [
                MatrixMut::new(first, query_width),
                MatrixMut::new(key, width),
                MatrixMut::new(value, width),
            ];
        }
        let (query, others) = MatrixMut::new(first, query_width + 2 * width).split_columns(query_width);
        let (key, value) = others.split_columns(width);
        [query, key, value]
    }

    /// Returns the widths of the queries and of the keys or values.
    fn widths(&self) -> [usize; 2] {
        [self.heads, self.key_value_heads].map(|heads| heads * self.d_head)
    }

    /// Returns the number of query heads that share a key-value head.
    fn group(&self) -> usize {
        self.heads / self.key_value_heads
    }

    /// Returns the number of distances that a bias covers.
    fn distances(&self) -> usize {
        (self.query_time + self.key_time).saturating_sub(1)
    }

    /// Returns the range of keys visible to a query, without regard to hidden pairs.
    #[inline(always)]
    fn keys(&self, sequence: usize, query: usize) -> Range<usize> {
        if self.visible.is_empty() {
            return 0..self.key_time;
        }
        let first = if self.visible.len() == self.query_time { 0 } else { sequence * self.query_time };
        self.visible[first + query].range()
    }

    /// Returns the number of query heads in a piece.
    fn piece_heads(&self) -> usize {
        if small::supports(self) { self.heads } else { self.group() }
    }

    /// Returns the cost of a piece in multiply-adds.
    fn piece_work(&self, products: usize) -> usize {
        if small::supports(self) {
            return self.heads * small::head_work(self.d_head, products);
        }
        let pairs = match self.visible.len() {
            0 => self.query_time * self.key_time,
            rows => {
                let visible: usize = self.visible.iter().map(|keys| keys.range().len()).sum();
                visible * self.query_time / rows
            }
        };
        self.group() * pairs * self.d_head * products
    }

    /// Returns true if a bias or a mask of pairs is added to the scores.
    fn adds_to_scores(&self) -> bool {
        self.scores.bias.is_some() || self.hidden.is_some()
    }

    /// Adds the bias to the scores of a query with the keys from `first_key` on, bounds them, and hides masked pairs.
    #[inline(always)]
    fn add_to_scores<S: Simd>(
        &self,
        simd: S,
        [sequence, head, query]: [usize; 3],
        first_key: usize,
        scores: &mut [f32],
    ) {
        if let Some(bias) = self.scores.bias {
            let first = head * self.distances() + self.query_time - 1 - query + first_key;
            let bias = &bias[first..][..scores.len()];
            update(simd, scores, [bias], |score, [bias]| score + bias);
        }
        if let Some(cap) = self.scores.softcap {
            // A closure of this size is not inlined otherwise, and each of its operations would be a call.
            update(
                simd,
                scores,
                [],
                #[inline(always)]
                |score, []| (score * (1.0 / cap)).tanh() * cap,
            );
        }
        if let Some(hidden) = &self.hidden {
            for (score, hidden) in scores.iter_mut().zip(&hidden.row(sequence, query)[first_key..]) {
                *score = if *hidden != 0 { f32::NEG_INFINITY } else { *score };
            }
        }
    }

    fn check(&self, parts: [[usize; 2]; 3]) {
        let Self { batch, query_time, key_time, heads, key_value_heads, d_head, .. } = *self;
        assert!(
            key_value_heads > 0 && heads.is_multiple_of(key_value_heads) && d_head > 0,
            "{heads} heads over {key_value_heads} key-value heads of width {d_head}"
        );
        let [query_width, width] = self.widths();
        let [query, key] = [[batch * query_time, query_width], [batch * key_time, width]];
        assert_eq!(parts, [query, key, key], "rows and columns of queries, keys and values");
        assert!(
            [0, query_time, batch * query_time].contains(&self.visible.len())
                && self.visible.iter().all(|keys| keys.first <= keys.end && keys.end as usize <= key_time),
            "visible keys of [{batch}, {query_time}] or [{query_time}] among {key_time}"
        );
        assert!(
            self.hidden.is_none_or(|HiddenPairs { hidden, shape: [sequences, queries, keys] }| {
                hidden.len() == sequences * queries * keys
                    && (sequences == 1 || sequences == batch)
                    && (queries == 1 || queries == query_time)
                    && keys == key_time
            }),
            "hidden pairs of [{batch} or 1, {query_time} or 1, {key_time}]"
        );
        let (bias, distances) = (heads * self.distances(), self.distances());
        assert_eq!(self.scores.bias.map_or(bias, <[f32]>::len), bias, "bias of [{heads}, {distances}]");
        assert_eq!(self.scores.sinks.map_or(heads, <[f32]>::len), heads, "sinks of {heads} heads");
        if let Some(rotary) = &self.rotary {
            rotary.check(d_head, key_time.max(rotary.first_query + query_time));
        }
    }
}

/// Computes the context of all heads, and `log_sum_exp` (`l` above) for the backward pass.
///
/// # Shapes
/// `inputs` are queries, keys and values as returned by [`Attention::parts`], `context` is
/// `[batch, query_time, heads, d_head]`, `log_sum_exp` `[batch, heads, query_time]`.
///
/// # Panics
/// Panics if the lengths do not match the shape.
pub fn forward(attention: &Attention, inputs: [Matrix; 3], context: &mut [f32], log_sum_exp: &mut [f32]) {
    attention.check(inputs.map(|part| [part.rows(), part.columns()]));
    let Attention { batch, query_time, key_time, heads, d_head, .. } = *attention;
    assert_eq!(
        [context.len(), log_sum_exp.len()],
        [d_head, 1].map(|width| batch * heads * query_time * width),
        "context and log-sum-exp of {batch} x {query_time} queries with {heads} heads of {d_head}"
    );
    if context.is_empty() || key_time == 0 {
        context.fill(0.0);
        log_sum_exp.fill(f32::INFINITY);
        return;
    }
    let piece_heads = attention.piece_heads();
    let context = MatrixMut::new(context, heads * d_head).tiles(query_time, piece_heads * d_head);
    let log_sum_exp = log_sum_exp.par_chunks_mut(piece_heads * query_time);
    let pieces = context.into_par_iter().zip(log_sum_exp).enumerate();
    for_each(pieces, attention.piece_work(2), |(index, (mut context, log_sum_exp))| {
        let piece = Piece::new(attention, inputs, index);
        if small::supports(attention) {
            small::forward(&piece, &mut context.numbers, log_sum_exp);
        } else {
            blocked::forward(&piece, &mut context.numbers, log_sum_exp);
        }
    });
}

/// The outputs of the forward pass, and the gradient of the context.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// The context, `[batch * query_time, heads * d_head]`.
    pub context: Matrix<'a>,
    /// The log-sum-exp, `[batch, heads, query_time]`.
    pub log_sum_exp: &'a [f32],
    /// The gradient of the context.
    pub context_gradient: Matrix<'a>,
}

/// Computes the gradients of the attention's sinks, `[heads]`; each is overwritten.
///
/// # Panics
/// Panics if the attention lacks sinks.
pub fn sink_gradients(attention: &Attention, saved: &Saved, gradients: &mut [f32]) {
    sinks::gradients(attention, attention.scores.sinks.expect("an attention with sinks"), saved, gradients);
}

/// Computes the gradients of queries, keys and values, and optionally of the bias. All are overwritten.
///
/// # Shapes
/// `gradients` are as returned by [`Attention::parts_mut`].
///
/// # Panics
/// Panics if the lengths do not match the shape.
pub fn backward(
    attention: &Attention,
    inputs: [Matrix; 3],
    saved: Saved,
    mut gradients: [MatrixMut; 3],
    bias_gradient: Option<&mut [f32]>,
) {
    attention.check(inputs.map(|part| [part.rows(), part.columns()]));
    attention.check(gradients.each_ref().map(|part| [part.rows(), part.columns()]));
    let Attention { batch, query_time, key_time, heads, d_head, rotary, .. } = *attention;
    let sizes = [saved.context, saved.context_gradient].map(|part| [part.rows(), part.columns()]);
    let [width, key_width] = attention.widths();
    assert!(
        sizes == [[batch * query_time, width]; 2] && saved.log_sum_exp.len() == batch * heads * query_time,
        "context, gradient and log-sum-exp of {batch} x {query_time} queries with {heads} heads"
    );
    let all_distances = heads * attention.distances();
    let bias_length = bias_gradient.as_ref().map_or(all_distances, |bias| bias.len());
    assert_eq!(bias_length, all_distances, "bias gradient of {heads} heads");
    if batch * query_time * key_time == 0 {
        // Without queries or keys, the gradients of the other inputs are zero.
        gradients.iter_mut().for_each(|part| part.fill(0.0));
        bias_gradient.into_iter().for_each(|bias| bias.fill(0.0));
        return;
    }
    let pieces = heads / attention.piece_heads();
    let [query, key, value] = gradients;
    let query = query.tiles(query_time, width / pieces).into_par_iter();
    let [key, value] = [key, value].map(|part| part.tiles(key_time, key_width / pieces).into_par_iter());
    // Each piece sums the bias gradient of its heads.
    let needs_bias = attention.scores.bias.and(bias_gradient.as_ref()).is_some();
    let mut partial = pool::take(if needs_bias { batch * all_distances } else { 0 });
    let mut parts = partial.chunks_mut(all_distances / pieces);
    let parts = (0..batch * pieces).map(|_| parts.next()).collect::<Vec<_>>();
    let tiles = query.zip(key).zip(value).zip(parts).enumerate();
    for_each(tiles, attention.piece_work(5), |(index, (((query, key), value), bias))| {
        let piece = Piece::new(attention, inputs, index);
        let saved = saved.piece(attention, index);
        let mut gradients = [query, key, value].map(|tile| tile.numbers);
        if small::supports(attention) {
            small::backward(&piece, &saved, &mut gradients, bias);
        } else {
            blocked::backward(&piece, &saved, &mut gradients, bias);
        }
        if let Some(rotary) = rotary {
            let [query, key, _] = &mut gradients;
            rotary.rotate_heads(RotationDirection::Inverse, rotary.first_query, d_head, query);
            rotary.rotate_heads(RotationDirection::Inverse, 0, d_head, key);
        }
    });
    if let Some(bias_gradient) = bias_gradient {
        bias_gradient.fill(0.0);
        for sequence in partial.chunks_exact(all_distances) {
            bias_gradient.iter_mut().zip(sequence).for_each(|(sum, part)| *sum += part);
        }
    }
}
