//! Scaled dot-product attention without a `time x time` matrix in memory.
//!
//! For each head, with query rows `q_i`, key rows `k_j`, value rows `v_j` (Vaswani et al., *Attention is
//! all you need*, 2017):
//!
//! - scores `s_ij = scale q_i . k_j + bias_ij`, negative infinity where a key is hidden;
//! - weights `p_ij = e^(s_ij - l_i)` with `l_i = ln(sum over j of e^s_ij)`;
//! - context `c_i = sum over j of d_ij p_ij v_j`, with dropout factors `d_ij` of zero or `1 / (1 -
//!   probability)`.
//!
//! The forward pass keeps only `l_i`. The backward pass computes the scores of 64 queries at a time again and
//! has the weights from `l_i` (Dao et al., *FlashAttention*, 2022); with the gradient `g_i` of the context:
//!
//! - `dv_j = sum over i of d_ij p_ij g_i`;
//! - `ds_ij = p_ij (d_ij g_i . v_j - g_i . c_i)`, which is also the gradient of `bias_ij`;
//! - `dq_i = scale * sum over j of ds_ij k_j` and `dk_j = scale * sum over i of ds_ij q_i`.
//!
//! Rotary positions turn queries and keys on their way in, and their gradients back on the way out. A query
//! whose keys are all hidden has zeros for its context and for all gradients.
//!
//! One piece of work is a sequence's key-value head with the query heads that share it, or all heads of a
//! short sequence. Memory grows with time, not with its square: a piece uses two blocks of 64 rows of
//! scores.

mod blocked;
mod heads;
pub mod rotary;
mod rows;
mod small;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use super::dropout::Dropout;
use super::matrix::MatrixMut;
use super::parallel::for_each_piece;
use super::pool;
use super::tiles::Tiles;
pub use heads::{Gradients, Inputs};
use rotary::Rotary;

/// What is attended to, and how. [`Attention::new`] sets everything but the shape to the plain case.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Number of sequences.
    pub batch: usize,
    /// Number of queries in a sequence.
    pub query_time: usize,
    /// Number of keys in a sequence.
    pub key_time: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key-value heads, which divides `heads`: query head `h` uses key-value head
    /// `h / (heads / key_value_heads)`.
    pub key_value_heads: usize,
    /// Width of a head.
    pub d_head: usize,
    /// What the products of queries and keys are multiplied by.
    pub scale: f32,
    /// The position of the first query among the keys; more than zero where earlier keys are cached.
    pub first_query: usize,
    /// Hides keys behind the query's own position.
    pub causal: bool,
    /// Keys to hide, `[batch, key_time]`: anything but zero hides.
    pub key_padding: Option<&'a [u8]>,
    /// Keys to hide from each query, `[batch, query_time, key_time]` or one for all sequences,
    /// `[query_time, key_time]`: anything but zero hides.
    pub mask: Option<&'a [u8]>,
    /// Added to the scores by distance, as ALiBi and relative positions are, `[heads, query_time + key_time - 1]`:
    /// entry `e` where `key - query = e - (first_query + query_time - 1)`, so that the first belongs to the last
    /// query and the first key.
    pub bias: Option<&'a [f32]>,
    /// Turns queries and keys by their positions.
    pub rotary: Option<Rotary<'a>>,
    /// Dropout of the weights; the mask's rows are `(batch, head, query)`, its columns keys.
    pub dropout: Option<Dropout>,
}

impl<'a> Attention<'a> {
    /// Every query attends to every key, with as many key-value heads as query heads and a scale of
    /// `1 / sqrt(d_head)`.
    pub fn new(batch: usize, query_time: usize, key_time: usize, heads: usize, d_head: usize) -> Self {
        Self {
            batch,
            query_time,
            key_time,
            heads,
            key_value_heads: heads,
            d_head,
            scale: 1.0 / (d_head as f32).sqrt(),
            first_query: 0,
            causal: false,
            key_padding: None,
            mask: None,
            bias: None,
            rotary: None,
            dropout: None,
        }
    }

    /// Every query attends to itself and the keys before it.
    pub fn causal(batch: usize, time: usize, heads: usize, d_head: usize) -> Self {
        Self { causal: true, ..Self::new(batch, time, time, heads, d_head) }
    }

    /// Query heads that share a key-value head.
    fn group(&self) -> usize {
        self.heads / self.key_value_heads
    }

    /// Distances that a bias covers.
    fn distances(&self) -> usize {
        (self.query_time + self.key_time).saturating_sub(1)
    }

    /// How many keys the query may see, hidden ones included.
    fn visible(&self, query: usize) -> usize {
        if self.causal { self.key_time.min(self.first_query + query + 1) } else { self.key_time }
    }

    /// Key-value heads that are one piece of work.
    fn heads_of_piece(&self) -> usize {
        if small::serves(self) { self.key_value_heads } else { 1 }
    }

    fn pieces(&self) -> usize {
        self.batch * self.key_value_heads / self.heads_of_piece()
    }

    /// Multiply-adds of a piece's products, or what takes as long.
    fn piece_work(&self, products: usize) -> usize {
        if small::serves(self) {
            return self.heads * small::head_work(self.d_head, products);
        }
        let all =
            self.heads_of_piece() * self.group() * self.query_time * self.key_time * self.d_head * products;
        if self.causal { all / 2 } else { all }
    }

    fn check(&self) {
        let Self { batch, query_time, key_time, heads, key_value_heads, d_head, .. } = *self;
        assert!(
            key_value_heads > 0 && heads.is_multiple_of(key_value_heads) && d_head > 0,
            "{heads} heads over {key_value_heads} key-value heads of width {d_head}"
        );
        assert!(
            self.key_padding.is_none_or(|padding| padding.len() == batch * key_time),
            "key padding of [{batch}, {key_time}]"
        );
        assert!(
            self.mask.is_none_or(
                |mask| [query_time * key_time, batch * query_time * key_time].contains(&mask.len())
            ),
            "mask of [{batch}, {query_time}, {key_time}] or [{query_time}, {key_time}]"
        );
        assert!(
            self.bias.is_none_or(|bias| bias.len() == heads * self.distances()),
            "bias of [{heads}, {}]",
            self.distances()
        );
        if let Some(rotary) = &self.rotary {
            rotary.check(d_head, key_time.max(self.first_query + query_time));
        }
    }
}

/// The context of all heads, and `log_sum_exp` (`l` above) for the backward pass.
///
/// # Shapes
/// `context` `[batch, query_time, heads, d_head]`, `log_sum_exp` `[batch, heads, query_time]`.
///
/// # Panics
/// If the lengths do not fit the shape.
pub fn forward(attention: &Attention, inputs: Inputs, context: &mut [f32], log_sum_exp: &mut [f32]) {
    attention.check();
    inputs.check(attention);
    let Attention { batch, query_time, key_time, heads, d_head, .. } = *attention;
    assert_eq!(
        context.len(),
        batch * query_time * heads * d_head,
        "context of [{batch}, {query_time}, {heads}, {d_head}]"
    );
    assert_eq!(
        log_sum_exp.len(),
        batch * heads * query_time,
        "log-sum-exp of [{batch}, {heads}, {query_time}]"
    );
    if context.is_empty() || key_time == 0 {
        context.fill(0.0);
        log_sum_exp.fill(f32::INFINITY);
        return;
    }
    let heads_of_piece = attention.heads_of_piece() * attention.group();
    let context = Tiles::new(MatrixMut::new(context, heads * d_head), query_time, heads_of_piece * d_head);
    let log_sum_exp = Tiles::rows(log_sum_exp, heads_of_piece * query_time, 1);
    for_each_piece(attention.pieces(), attention.piece_work(2), |piece| {
        let (mut context, mut log_sum_exp) = (context.take(piece), log_sum_exp.take(piece));
        let inputs = inputs.piece(attention, piece);
        if small::serves(attention) {
            small::forward(attention, piece, &inputs, &mut context, log_sum_exp.contiguous());
        } else {
            blocked::forward(attention, piece, &inputs, &mut context, log_sum_exp.contiguous());
        }
    });
}

/// What the forward pass left, and the gradient that comes back.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// `[batch, query_time, heads, d_head]`.
    pub context: &'a [f32],
    /// `[batch, heads, query_time]`.
    pub log_sum_exp: &'a [f32],
    /// The gradient of the context.
    pub context_gradient: &'a [f32],
}

/// The gradients of queries, keys, values and bias, which are overwritten.
///
/// # Panics
/// If the lengths do not fit the shape.
pub fn backward(attention: &Attention, inputs: Inputs, saved: Saved, gradients: Gradients) {
    attention.check();
    inputs.check(attention);
    let Attention { batch, query_time, key_time, heads, d_head, .. } = *attention;
    let context_length = batch * query_time * heads * d_head;
    assert!(
        saved.context.len() == context_length
            && saved.context_gradient.len() == context_length
            && saved.log_sum_exp.len() == batch * heads * query_time,
        "context, gradient and log-sum-exp of {batch} x {query_time} queries with {heads} heads of {d_head}"
    );
    gradients.check(attention);
    let Gradients { query, key, value, bias: bias_gradient } = gradients;
    let distances = attention.distances();
    if batch * query_time * key_time == 0 {
        gradients_of_nothing([query, key, value], bias_gradient);
        return;
    }
    let key_heads = attention.heads_of_piece();
    let query_heads = key_heads * attention.group();
    let query = Tiles::new(query, query_time, query_heads * d_head);
    let key = Tiles::new(key, key_time, key_heads * d_head);
    let value = Tiles::new(value, key_time, key_heads * d_head);
    // Each piece sums the bias gradient of its own heads.
    let wanted = attention.bias.and(bias_gradient.as_ref()).is_some();
    let mut partial = pool::take(if wanted { batch * heads * distances } else { 0 });
    let partials = Tiles::rows(&mut partial, query_heads * distances, 1);
    for_each_piece(attention.pieces(), attention.piece_work(5), |piece| {
        let (mut query, mut key, mut value) = (query.take(piece), key.take(piece), value.take(piece));
        let mut bias = wanted.then(|| partials.take(piece));
        let mut gradients = heads::PieceGradients {
            query: &mut query,
            key: &mut key,
            value: &mut value,
            bias: bias.as_mut().map(MatrixMut::contiguous),
        };
        let (inputs, saved) = (inputs.piece(attention, piece), saved.piece(attention, piece));
        if small::serves(attention) {
            small::backward(attention, piece, &inputs, &saved, &mut gradients);
        } else {
            blocked::backward(attention, piece, &inputs, &saved, &mut gradients);
        }
    });
    drop(partials);
    if let Some(bias_gradient) = bias_gradient {
        bias_gradient.fill(0.0);
        for sequence in partial.chunks_exact(heads * distances) {
            bias_gradient.iter_mut().zip(sequence).for_each(|(sum, part)| *sum += part);
        }
    }
}

/// Without queries or keys nothing reaches what there is of the others.
fn gradients_of_nothing(matrices: [MatrixMut; 3], bias: Option<&mut [f32]>) {
    for mut matrix in matrices {
        (0..matrix.rows()).for_each(|row| matrix.row(row).fill(0.0));
    }
    if let Some(bias) = bias {
        bias.fill(0.0);
    }
}
